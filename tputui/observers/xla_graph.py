"""Reads the text of an XLA program (HLO): inputs, matrix multiplications, and differences from another. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from math import prod
from typing import NamedTuple

from tputui.telemetry.events import ChangedInput, CodeFrame, MatmulObserved, TensorSpec
from tputui.telemetry.stack_frames import owner_of

TEXT_CHARS_MAX = 8 << 20
"""Longer programs are not read."""
CHANGES_MAX = 16
LISTED_MAX = 64
_PARAMETER = re.compile(r"[\w.\-]+: (\w+\[[\d,]*\])")
_OPERATION = re.compile(r"^\s+(?:ROOT )?%\S+ = (\(.*?\)|\S+) ([\w\-]+)\((.*)$")
_NAME = re.compile(r"%[\w.\-]+")
_LAYOUT = re.compile(r"\{[\d,]*\}")
_SOURCE = re.compile(r'op_type="([^"]*)".*?source_file="([^"]*)" source_line=(\d+)')
_SPEC = re.compile(r"(\w+)\[([\d,]*)\]")
_DIMS = re.compile(r"(\w+)=\{([\d,]*)\}")
_CONSTANT = re.compile(r"^([^)]*)\)")


class Operation(NamedTuple):
    """An operation of a program."""

    opcode: str
    spec: str
    """Type and shape of its result, as `f32[8,28]`."""
    rest: str
    """Its operands by type, and its attributes; of a constant its value."""
    origin: str
    """The operation of torch that it comes from, as `aten::roll`; empty if not recorded."""
    frame: CodeFrame | None
    """The line that created it; None if not recorded."""


class Graph(NamedTuple):
    """A program."""

    parameters: tuple[str, ...]
    """Type and shape of its inputs."""
    operations: tuple[Operation, ...]


class Difference(NamedTuple):
    """What differs between two programs, and the line that created it if that is recorded."""

    inputs: list[ChangedInput]
    frame: CodeFrame | None


def parse(text: str) -> Graph | None:
    """The program in a text; None if it is too long or has no entry."""
    if len(text) > TEXT_CHARS_MAX or (start := text.find("\nENTRY ")) < 0:
        return None
    head, _, _ = text[start + 1 :].partition("\n")
    parameters = tuple(_PARAMETER.findall(head.partition(") -> ")[0]))
    operations = tuple(_operations(text))
    return Graph(parameters, operations)


def _operations(text: str) -> list[Operation]:
    found = []
    for line in text.splitlines():
        matched = _OPERATION.match(line)
        if matched is None or matched.group(2) == "parameter":
            continue
        spec, opcode, rest = matched.groups()
        rest, _, metadata = rest.partition(", metadata={")
        source = _SOURCE.search(metadata)
        if opcode == "constant":
            value = _CONSTANT.match(rest)
            rest = value.group(1) if value else rest
        found.append(
            Operation(
                opcode,
                _LAYOUT.sub("", spec),
                _LAYOUT.sub("", _NAME.sub("%", rest)) if opcode != "dot" else rest,
                source.group(1).replace("__", "::", 1) if source else "",
                _frame(source.group(2), int(source.group(3)[:9])) if source else None,
            )
        )
    return found


def _frame(file: str, line: int) -> CodeFrame | None:
    owner = owner_of(file)
    return CodeFrame(file=file, line=line, function="", owner=owner) if file else None


def difference(before: Graph, now: Graph, names: Mapping[tuple[str, str], str]) -> Difference:
    """What differs in `now`; `names` are the variables of the user by the types and shapes that they had and have."""
    if len(before.parameters) == len(now.parameters):
        pairs = [(old, new) for old, new in zip(before.parameters, now.parameters, strict=True) if old != new]
    else:
        old_specs, new_specs = Counter(before.parameters), Counter(now.parameters)
        gone, added = list((old_specs - new_specs).elements()), list((new_specs - old_specs).elements())
        pairs = [*((spec, "") for spec in gone), *(("", spec) for spec in added)]
    if pairs:
        inputs = [
            ChangedInput(name=names.get(pair, "an input"), before=pair[0], now=pair[1]) for pair in dict.fromkeys(pairs)
        ]
        return Difference(inputs[:CHANGES_MAX], None)
    return _of_operations(before, now)


def _of_operations(before: Graph, now: Graph) -> Difference:
    """The first operations that differ: constants if the programs have the same operations otherwise."""
    if len(before.operations) == len(now.operations):
        pairs = [
            (old, new)
            for old, new in zip(before.operations, now.operations, strict=True)
            if (old.opcode, old.spec, old.rest) != (new.opcode, new.spec, new.rest)
        ]
        constants = [(old, new) for old, new in pairs if old.opcode == new.opcode == "constant"]
        changed = [_changed(old, new) for old, new in constants or pairs[:1]]
        return Difference(changed[:CHANGES_MAX], _line_of([new for _, new in constants or pairs]))
    place = next(
        (
            at
            for at, (old, new) in enumerate(zip(before.operations, now.operations, strict=False))
            if (old.opcode, old.spec) != (new.opcode, new.spec)
        ),
        min(len(before.operations), len(now.operations)) - 1,
    )
    old, new = before.operations[max(0, place)], now.operations[max(0, place)]
    count = ChangedInput(name="operations", before=str(len(before.operations)), now=str(len(now.operations)))
    return Difference([count], _line_of([new, old]))


def _changed(old: Operation, new: Operation) -> ChangedInput:
    if new.opcode == "constant":
        name = f"constant of {new.origin}" if new.origin else "a constant"
        return ChangedInput(name=name, before=old.rest[:80], now=new.rest[:80])
    name = new.origin or new.opcode
    if old.spec != new.spec:
        return ChangedInput(name=name, before=old.spec, now=new.spec)
    return ChangedInput(name=name, before=_attributes(old)[:80], now=_attributes(new)[:80])


def _attributes(operation: Operation) -> str:
    """`slice={[0:8]}`, without the operands."""
    return operation.rest.partition("), ")[2] or operation.rest


def _line_of(operations: list[Operation]) -> CodeFrame | None:
    return next((one.frame for one in operations if one.frame is not None and one.frame.owner == "user"), None)


def inputs(graph: Graph, weights: set[str]) -> list[TensorSpec]:
    """The inputs that are no scalars and have no type and shape of a weight, largest first."""
    specs = [_spec(text) for text in graph.parameters if text not in weights]
    kept = [spec for spec in specs if spec is not None and spec.shape]
    return sorted(kept, key=lambda spec: -prod(spec.shape))[:LISTED_MAX]


def matmuls(graph: Graph) -> list[MatmulObserved]:
    """The matrix multiplications by shape, largest first."""
    counts: Counter[tuple[str, int, int, int, int]] = Counter()
    frames: dict[tuple[str, int, int, int, int], CodeFrame] = {}
    for operation in graph.operations:
        if operation.opcode == "dot" and (shape := _matmul(operation)) is not None:
            counts[shape] += 1
            if operation.frame is not None and operation.frame.owner == "user":
                frames.setdefault(shape, operation.frame)
    found = [
        MatmulObserved(
            dtype=dtype, batch=batch, m=m, k=k, n=n, count=count, user_frame=frames.get((dtype, batch, m, k, n))
        )
        for (dtype, batch, m, k, n), count in counts.items()
    ]
    return sorted(found, key=lambda one: -one.batch * one.m * one.k * one.n * one.count)[:LISTED_MAX]


def _matmul(dot: Operation) -> tuple[str, int, int, int, int] | None:
    operands = [spec for found in _SPEC.finditer(dot.rest.partition(")")[0]) if (spec := _spec(found.group()))]
    if len(operands) != 2:
        return None
    left, right = operands
    dims = {name: [int(at) for at in text.split(",") if at] for name, text in _DIMS.findall(dot.rest)}
    batch = prod(left.shape[at] for at in dims.get("lhs_batch_dims", []))
    k = prod(left.shape[at] for at in dims.get("lhs_contracting_dims", []))
    m = prod(left.shape) // max(1, batch * k)
    n = prod(right.shape) // max(1, batch * k)
    return left.dtype, batch, m, k, n


def _spec(text: str) -> TensorSpec | None:
    matched = _SPEC.match(text)
    if matched is None:
        return None
    return TensorSpec(dtype=matched.group(1), shape=[int(size) for size in matched.group(2).split(",") if size])
