"""The parts of console output that metrics consist of: numbers, names, positions. Pure.

Console output is untrusted input: every repetition in these expressions is bounded, and so is the length of a line, so
the time to parse a line is linear in its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tputui.logs.number_forms import is_decimal_comma, with_point
from tputui.logs.rows import STEP_NAMES, form

LINE_CHARS_MAX = 4_096
"""Longer lines are not parsed."""
NAME_CHARS_MAX = 100
_ESCAPES = re.compile(r"\x1b\[[0-9;:?]{0,32}[A-Za-z]|\x1b\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f]")
NUMBER = (
    r"[-+]?(?:(?:[1-9]\d{0,2}(?:,\d{3}){1,6}|\d{1,20})(?:\.\d{0,20})?(?:e[-+]?\d{1,4})?|\.\d{1,20}(?:e[-+]?\d{1,4})?"
    r"|nan|inf(?:inity)?)"
)
END = r"(?![\w:/]|\.\d|-\d|,\d)"
"""After a number: not a time, a version, a path, a date, a fraction or a number with a unit."""
_SPLITS = {
    "train": "train", "training": "train", "val": "val", "valid": "valid", "validation": "valid", "eval": "eval",
    "evaluation": "eval", "test": "test", "testing": "test", "dev": "dev",
}  # fmt: skip
_QUALIFIERS = (
    "train|training|val|valid|validation|eval|evaluation|test|testing|dev|avg|average|mean|running|total|learning|grad|"
    "gradient|weight|top|global|best|ema|smoothed|min|max|median|per-step|batch|epoch|class|box|mask|policy|value|"
    "generator|discriminator|g|d"
)
_NAME = r"[a-z_][\w./@-]{0,63}"
_KNOWN = (
    r"[\w.-]{0,40}loss(?:es)?[\w.-]{0,20}|lr|learning[ _]rate|acc(?:uracy)?(?:@?\d)?|top-?[15]|ppl|perplexity|bleu|"
    r"f1|auc|"
    r"mae|mse|rmse|miou|iou|dice|map|psnr|ssim|fid|wer|cer|bpb|bpc|bpd|elbo|kl|entropy|nll|"
    r"(?:grad|gradient)[ _-]?norm|gnorm|norm|score|err|error|precision|recall|rewards?|returns?|"
    r"mfu|tps|wps|rate|throughput|time|data|scale|temperature|momentum"
)
_PAIR = re.compile(
    rf"(?<![\w./@-])(?:({_QUALIFIERS}) )?({_NAME})\s{{0,4}}[=:]\s{{0,8}}({NUMBER})%?{END}", re.IGNORECASE
)
_SPACED = re.compile(rf"(?<![\w./@-])(?:({_QUALIFIERS}) )?({_KNOWN})\s{{1,8}}({NUMBER})%?{END}", re.IGNORECASE)
_KNOWN_NAME = re.compile(rf"(?:(?:{_QUALIFIERS})[_/ -]){{0,2}}(?:{_KNOWN})", re.IGNORECASE)
_LOSS_NAME = re.compile(r"loss|(?<![a-z])(?:acc|accuracy|ppl|perplexity|f1|auc)(?![a-z])", re.IGNORECASE)
_EPOCH = re.compile(
    r"(?<![\w./-])epoch\s{0,2}[:=#]?\s{0,2}[\[(]?\s{0,4}(\d{1,9}(?:\.\d{1,9})?)(?:\s?/\s?\d{1,9}|\s?of\s\d{1,9})?\]?"
    r"(?![\w.:])",
    re.IGNORECASE,
)
_GROUPED = r"[1-9]\d{0,2}(?:[,_]\d{3}){1,5}"
_COUNT = rf"{_GROUPED}|\d{{1,18}}"
_SHORT = r"\d{1,6}(?:\.\d{1,3})?(?:k|(?-i:M))(?!\w)"
"""`12k`, `1.5M`."""
_STEP = re.compile(
    r"(?<![\w./-])(?:global[ _-]?step|train[ _-]?step|step|iteration|iter|it|batch|update|num_updates)"
    rf"\s{{0,2}}[:=#]?\s{{0,8}}[\[(]?\s{{0,6}}({_SHORT}|{_COUNT})(?:\s?(?:/|of)\s?({_SHORT}|{_COUNT}))?(?![\w.]|,\d)",
    re.IGNORECASE,
)
_EPOCH_AND_STEP = re.compile(r"\s{0,4}\[\s{0,8}(\d{1,9}),\s{1,8}(\d{1,18})\]\s{1,4}(?=\w{0,20}loss)", re.IGNORECASE)
"""As in PyTorch's tutorials: `[2,  2000] loss: 1.234`."""
_POSITION = re.compile(
    rf"[\[(]\s{{0,8}}({_COUNT})\s?/\s?({_COUNT})\s{{0,2}}(?:\(\s?\d{{1,3}}(?:\.\d{{1,3}})?%\s?\))?\s?[\])]"
)
_RANK_WORD = r"(?:(?:global|local)[ _]?)?(?:rank|default|trainer|worker|replica|core|device|gpu|cuda|tpu)"
_RANK_BRACKETED = re.compile(rf"[\[(<]{_RANK_WORD}[ _:#=]{{0,2}}(\d{{1,5}})[\])>]:?\s?", re.IGNORECASE)
"""torchrun's `[default0]:`, torch's `[rank0]: `, accelerate's `[RANK 0] ` behind a log header, `[GPU0] `."""
_RANK_HEADER_CHARS_MAX = 120
_RANK_FIRST = re.compile(rf"\s{{0,4}}{_RANK_WORD}[ _:#=]?\s?(\d{{1,5}})\s?[:|>,-]\s", re.IGNORECASE)
_RANK_INLINE = re.compile(r"(?<![\w./-])(?:global_|local_)?rank\s?[=:]\s?(\d{1,5})(?![\w.]|,\d)", re.IGNORECASE)
_MPI_RANK = re.compile(r"\s{0,4}\[(?:[\w.-]{1,100}@)?\d{1,9},(\d{1,5})\]<std(?:out|err|diag)>:?\s?")
_POD = re.compile(r"\[pod/\S{1,200}?(?:-(\d{1,4}))?-(\d{1,5})(?:-[a-z0-9]{5})?/[^\]\s]{1,100}\]\s?")
"""`kubectl logs --prefix`, of a JobSet (`NAME-JOB-POD-SUFFIX`), an indexed job or a stateful set."""
_LABEL = re.compile(r"\s{0,5}(?:(\d{1,5}):\s|\[(\d{1,5})\]\s)")
"""`3: ` of `srun --label`, `[3] ` of `mpiexec -prepend-rank`: numbers that may be anything else."""
_XLA_PREFIX = re.compile(r"\s{0,4}\[xla:(\d{1,6})(?:/(\d{1,6}))?\]\s?\(\s?(\d{1,18})\s?\)\s", re.IGNORECASE)
_XLA_DEVICE = re.compile(r"(?<!\w)Device=(?:xla|tpu):(\d{1,6})(?:/(\d{1,6}))?(?!\w)", re.IGNORECASE)
_NOT_METRICS = {
    "pid", "port", "rank", "local_rank", "world_size", "seed", "gpu", "device", "v_num", "version", "line", "exit_code",
    "code", "id", "node", "host", "thread", "core", "worker", "eta", "date", "warning", "error_code", "errno", "status",
    "epoch", "epochs", "step", "steps", "global_step", "train_step", "iteration", "iter", "it", "batch", "update",
    "num_updates", "http", "https", "localhost", "job", "num_epochs", "max_steps", "total_steps", "max_epochs",
}  # fmt: skip
"""Names in the form of `rows.form` whose numbers are not metrics."""
_POSITION_NAMES = {*STEP_NAMES, "it", "batch", "steps", "epoch", "epochs"}
"""Names of whole numbers, in which a comma can only separate thousands."""
_DEVICES = {"xla", "cuda", "cpu", "tpu", "mps", "gpu", "npu", "hpu", "xpu", "hip", "meta"}
"""Names that are followed by the number of a device: `cuda:0`."""
_COMMA_NUMBER = re.compile(
    r"(?<![\w./@-])([a-z_][\w./@-]{0,63})(['\"]?\s{0,4}[=:]?\s{0,8}['\"]?)"
    r"([-+]?\d{1,20}(?:\.\d{3}){0,6},\d{1,20}(?:e[-+]?\d{1,4})?)(?![\w/]|[,.]\d)",
    re.IGNORECASE,
)
"""A name, and a number with one comma."""
_HAS_COMMA = re.compile(r"\d,\d")
_NAMED_POINT = re.compile(r"\w['\"]?[=: ]\s?['\"]?[-+]?\d{1,20}\.\d{1,20}(?![\w.])")
_FILES = re.compile(r".{0,99}\.(?:py|cc?|cpp|h|cu|rs|go|js|so|txt|json|ya?ml|toml|log|sh|pt|ckpt|html?)", re.IGNORECASE)


_HINT = re.compile(r"step|epoch|iter|batch|update|loss|acc|ppl|perplexity|f1|auc|xla:|tpu:|(?<!\w)it\W", re.IGNORECASE)
"""What every line with metrics contains, except for bars."""


class Named(NamedTuple):
    """A name and a number in a line."""

    name: str
    value: float
    start: int
    end: int


class Context(NamedTuple):
    """What a line says about the time of its values."""

    step: int | None
    total: int | None
    """Number of steps after which `step` begins again, or at which the run ends."""
    epoch: float | None
    end: int
    """Where the last of these numbers ends in the line."""


def plain(text: str) -> str:
    """The text without escape sequences and control characters; tabs and line breaks are blanks."""
    return _ESCAPES.sub("", text.replace("\t", " ").replace("\n", " ")).rstrip()


def may_have_metrics(text: str) -> bool:
    """Whether it is worth parsing a line: a cheap test that nearly all prose fails."""
    return _HINT.search(text) is not None


def number_of(text: str) -> float:
    """The value of text that `NUMBER` matches."""
    return float(text.replace(",", ""))


def with_decimal_points(text: str, *, is_usual: bool) -> tuple[str, bool]:
    """A line with points for decimal commas, and whether it shows that commas are decimal separators.

    `0,532` can only be a decimal number. `1,234` is one if other numbers of the line are, or `is_usual`: those of
    lines before; else its comma separates thousands, which a number with a point on the same line confirms.
    """
    if _HAS_COMMA.search(text) is None:
        return text, False
    numbers = [found for found in _COMMA_NUMBER.finditer(text) if form(found[1]) not in _POSITION_NAMES]
    is_shown = any(is_decimal_comma(found[3]) and is_known(found[1]) for found in numbers)
    if not (is_shown or is_usual):
        return text, False
    parts: list[str] = []
    reached = 0
    for found in numbers:
        is_decimal = is_decimal_comma(found[3]) or _NAMED_POINT.search(text) is None
        number = with_point(found[3]) if is_decimal else None
        if number is not None:
            parts += (text[reached : found.start(3)], number)
            reached = found.end(3)
    return "".join((*parts, text[reached:])), is_shown


def _count_of(text: str) -> int:
    """The number of steps that `_SHORT` or `_COUNT` matches."""
    unit = {"k": 1e3, "m": 1e6}.get(text[-1].lower())
    return round(float(text[:-1]) * unit) if unit is not None else int(text.replace(",", "").replace("_", ""))


def context_of(text: str) -> Context:
    """Step and epoch that are named on a line."""
    both = _EPOCH_AND_STEP.match(text)
    if both is not None:
        return Context(int(both.group(2)), None, float(both.group(1)), both.end())
    step = _STEP.search(text)
    epoch = _EPOCH.search(text)
    position = _POSITION.search(text, epoch.end() - 1) if epoch is not None and step is None else None
    end = max((match.end() for match in (step, epoch, position) if match is not None), default=0)
    found = step or position
    if found is None:
        return Context(None, None, float(epoch.group(1)) if epoch else None, end)
    total = _count_of(found.group(2)) if found.group(2) else None
    return Context(_count_of(found.group(1)), total, float(epoch.group(1)) if epoch else None, end)


def pairs_of(text: str) -> list[Named]:
    """The pairs of name and number on a line that may be metrics, in their order; names are in lower case."""
    found = {match.start(2): match for match in _SPACED.finditer(text)}
    found |= {match.start(2): match for match in _PAIR.finditer(text)}
    return list(_named(match for _, match in sorted(found.items())))


def _named(matches: Iterator[re.Match[str]]) -> Iterator[Named]:
    reached = 0
    for match in matches:
        name = match.group(2).lower().replace(" ", "_").rstrip("-./")
        if match.start() < reached or form(name) in _NOT_METRICS or _FILES.fullmatch(name) or name.startswith("__"):
            continue
        if name in _DEVICES and match.string[match.end(2) : match.start(3)] == ":":
            continue
        qualifier = (match.group(1) or "").lower()
        if qualifier in _SPLITS:
            name = f"{_SPLITS[qualifier]}/{name}"
        elif qualifier:
            name = f"{qualifier}_{name}"
        reached = match.end()
        yield Named(name, number_of(match.group(3)), match.start(), match.end())


def leading_split(text: str) -> str:
    """`train`, `valid`, `test`, ... if that is the first word of a line; else empty."""
    word = re.match(r"[\s*=>|\[-]{0,20}([a-z]{1,12})(?![\w/.=-])", text, re.IGNORECASE)
    return _SPLITS.get(word.group(1).lower(), "") if word is not None else ""


def with_split(name: str, split: str) -> str:
    """The name with a split, unless it has one: `loss` -> `valid/loss`."""
    has_split = re.split(r"[/_.-]", name, maxsplit=1)[0] in _SPLITS
    return name if has_split or not split else f"{split}/{name}"


def is_known(name: str) -> bool:
    """Whether a name is one that training scripts print: loss, accuracy, learning rate, ..."""
    return _KNOWN_NAME.fullmatch(name) is not None


def is_loss_or_score(name: str) -> bool:
    """Whether a name is certainly that of a metric, on a line without step or epoch."""
    return _LOSS_NAME.search(name) is not None


def without_rank(text: str, num_labels: int = 0) -> tuple[str, str]:
    """A line without the prefix of its rank, and the suffix of its tags: `[rank3]: loss` -> `loss`, `/rank3`.

    A bare number in front counts as the rank if it is less than `num_labels`.
    """
    outer = ""
    if (pod := _POD.match(text)) is not None:
        text = text[pod.end() :]
        job = f"/job{int(pod.group(1))}" if pod.group(1) and int(pod.group(1)) else ""
        outer = f"{job}/rank{int(pod.group(2))}"
    for pattern in (_MPI_RANK, _RANK_FIRST):
        if (match := pattern.match(text)) is not None:
            return text[match.end() :], _with_outer(outer, int(match.group(1)))
    if (match := _RANK_BRACKETED.search(text, 0, _RANK_HEADER_CHARS_MAX)) is not None:
        return text[: match.start()] + text[match.end() :], _with_outer(outer, int(match.group(1)))
    if num_labels and (match := _LABEL.match(text)) is not None:
        rank = int(match.group(1) or match.group(2))
        if rank < num_labels:
            return text[match.end() :], _with_outer(outer, rank)
    if not outer and (match := _RANK_INLINE.search(text)) is not None:
        return text, f"/rank{int(match.group(1))}"
    return text, outer


def _with_outer(outer: str, rank: int) -> str:
    """The suffix of a rank within a pod: the pod becomes part of the name, since its ranks are counted from 0."""
    return f"{outer.replace('/rank', '/pod')}/rank{rank}"


def without_core(text: str) -> tuple[str, str, int | None]:
    """A line without the core that torch_xla's examples name, the suffix of its tags, and its step if it follows."""
    match = _XLA_PREFIX.match(text)
    if match is not None:
        return text[match.end() :], f"/core{int(match.group(2) or match.group(1))}", int(match.group(3))
    device = _XLA_DEVICE.search(text)
    if device is not None:
        core = int(device.group(2) or device.group(1))
        return text[: device.start()] + text[device.end() :], f"/core{core}", None
    return text, "", None
