"""Code that computes the same on the device: for operations without an implementation there, and for numbers."""

from __future__ import annotations

_MASK = (
    "multiply by the mask, torch.where(mask, x, 0) with three arguments, or torch.topk of a fixed number, so that the "
    "shape stays the same"
)
_COUNTS = "one_hot(x, n).sum(0) with a fixed number of classes, or scatter_add into zeros(n)"
_SORTED = "torch.sort and an index computed from the length"
_BAG = "torch.nn.Embedding and a mean or sum over the words"
_ON_HOST = "compute it on the host outside of the step"
_BIN = "compute the bin of each value, ((x - low) / width).long().clamp(0, n - 1), then one_hot(...).sum(0)"
_REPLACEMENTS = {
    operator: substitute
    for operators, substitute in (
        ("nonzero nonzero_numpy argwhere masked_select", f"{_MASK}; its result has another shape in every step"),
        ("masked_scatter", _MASK),
        ("unique _unique _unique2 unique_dim", f"{_COUNTS} if only the counts are needed"),
        ("unique_consecutive", "compare neighbours (x[1:] != x[:-1]) and sum"),
        ("bincount mode", _COUNTS),
        ("histc histogram", _BIN),
        ("median", f"{_SORTED}: x.sort().values[..., (n - 1) // 2]"),
        ("nanmedian", _SORTED),
        ("kthvalue", "torch.topk"),
        ("searchsorted", "(sorted[:, None] < x).sum(0) for a few boundaries"),
        ("bucketize", "(boundaries[:, None] < x).sum(0)"),
        ("equal", "(a == b).all(), kept on the device and read once per report"),
        ("_embedding_bag _embedding_bag_forward_only _embedding_bag_backward _embedding_bag_dense_backward", _BAG),
        ("isin", "(x[:, None] == values).any(1)"),
        ("repeat_interleave", "expand and reshape with a fixed number of repetitions"),
        ("multinomial", "argmax(logits + gumbel noise) for one sample"),
        ("_linalg_eigh linalg_eig linalg_eigvals", _ON_HOST),
        ("_linalg_svd", f"{_ON_HOST}, or use torch.linalg.qr"),
        ("linalg_lstsq", "solve the normal equations with torch.linalg.cholesky"),
    )
    for operator in operators.split()
}
"""What to write in place of an operator."""

_AS_TENSOR = "pass the changing number as a tensor on the device"
_PLACES = "use x.index_select(dim, places) with the places as a tensor on the device"
_NUMBERS = {
    "pow": "make the exponent a tensor on the device",
    "layer_norm": "keep eps the same",
    "threshold": "use torch.where(x > level, x, value) with tensors on the device",
    "roll": f"{_PLACES}: (torch.arange(n) - shift) % n",
    "select": f"{_PLACES}: torch.arange(start, stop)",
}
"""What to do if a number changes, by the operator or the function of torch that takes it."""


def advice_on_number(change: str) -> str:
    """What to do if a number of Python changes, by the name of the change: `constant of pow`, or `xla::select`."""
    operator = change.rpartition("::")[2].removeprefix("constant of ")
    return f"{_NUMBERS.get(operator, _AS_TENSOR)}; as a constant it is part of the program"


def replacement(operator: str) -> str:
    """What to write in place of an operator, by its name without namespace."""
    substitute = _REPLACEMENTS.get(operator) or _REPLACEMENTS.get(operator.rstrip("_"))
    if substitute is not None:
        return f"replace it by operations that the device has: {substitute}"
    return "replace it by operations that the device has, or move it out of the step to the host, before the transfer"
