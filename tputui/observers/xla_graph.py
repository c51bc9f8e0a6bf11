"""Reads the text of an XLA program (HLO): inputs, matrix multiplications, and differences from another. Pure."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import NamedTuple

from tputui.observers.sinks import ResettableTotal
from tputui.observers.user_frames import user_code
from tputui.observers.xla_runtime import Call, XlaRuntime
from tputui.telemetry.events import ChangedInput, CodeFrame, MatmulObserved, TensorSpec
from tputui.telemetry.stack_frames import owner_of

TEXT_CHARS_MAX = 8 << 20
"""Longer programs are not read."""
CHANGES_MAX = 16
AN_INPUT = "an input"
"""Name of an input that is no variable of the user."""
LISTED_MAX = 64
_PARAMETER = re.compile(r"[\w.\-]+: (\w+\[[\d,]*\])")
_OPERATION = re.compile(r"^\s+(?:ROOT )?(%\S+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)$")
_NAME = re.compile(r"%[\w.\-]+")
_LAYOUT = re.compile(r"\{[\d,]*\}")
_ORIGIN = re.compile(r'op_type="([^"]*)"')
_SCOPES = re.compile(r'op_name="([^"]*)"')
_SOURCE = re.compile(r'source_file="([^"]*)" source_line=(\d+)')
_SPEC = re.compile(r"(\w+)\[([\d,]*)\]")
_DIMS = re.compile(r"(\w+)=\{([\d,]*)\}")
_CONSTANT = re.compile(r"^([^)]*)\)")
_PASSING = frozenset({"prim::Constant", "aten::expand", "aten::view", "xla::cast"})
"""Operations of torch that make the input of another one of a number."""


class Operation(NamedTuple):
    """An operation of a program."""

    opcode: str
    spec: str
    """Type and shape of its result, as `f32[8,28]`."""
    rest: str
    """Its operands by type, and its attributes; of a constant its value."""
    origin: str
    """The operation of torch that it comes from, as `aten::roll`; empty if not recorded."""
    call: Call | None = None
    """The call of torch that created it; None if not recorded."""

    @property
    def user_frame(self) -> CodeFrame | None:
        """The line of the user that created it; None if not recorded."""
        return self.call.frame if self.call is not None and self.call.frame.owner == "user" else None


class Graph(NamedTuple):
    """A program."""

    parameters: tuple[str, ...]
    """Type and shape of its inputs."""
    operations: tuple[Operation, ...]


class Difference(NamedTuple):
    """What differs between two programs, and the line that created it if that is recorded."""

    inputs: list[ChangedInput]
    frame: CodeFrame | None


def parse(text: str, call_of: Callable[[str], Call | None] = lambda _: None) -> Graph | None:
    """The program in a text; None if it is too long or has no entry. `call_of` knows the calls of torch by scope."""
    if len(text) > TEXT_CHARS_MAX or (start := text.find("\nENTRY ")) < 0:
        return None
    head, _, _ = text[start + 1 :].partition("\n")
    parameters = tuple(_PARAMETER.findall(head.partition(") -> ")[0]))
    operations = tuple(_operations(text, call_of))
    return Graph(parameters, operations)


def _operations(text: str, call_of: Callable[[str], Call | None]) -> list[Operation]:
    operations: dict[str, Operation] = {}
    constants: list[str] = []
    users: dict[str, str] = {}
    """The first user of each operation."""
    for line in text.splitlines():
        matched = _OPERATION.match(line)
        if matched is None or matched.group(3) == "parameter":
            continue
        name, spec, opcode, rest = matched.groups()
        rest, _, metadata = rest.partition(", metadata={")
        for operand in _NAME.findall(rest):
            users.setdefault(operand, name)
        if opcode == "constant":
            value = _CONSTANT.match(rest)
            rest = value.group(1) if value else rest
            constants.append(name)
        rest = _LAYOUT.sub("", _NAME.sub("%", rest)) if opcode not in ("dot", "constant") else rest
        operations[name] = _with_origin(Operation(opcode, _LAYOUT.sub("", spec), rest, ""), metadata, call_of)
    for name in constants:
        operations[name] = operations[name]._replace(origin=_origin_of(name, operations, users))
    return list(operations.values())


def _with_origin(operation: Operation, metadata: str, call_of: Callable[[str], Call | None]) -> Operation:
    """An operation with what its metadata say about where it comes from."""
    origin, scopes, source = _ORIGIN.search(metadata), _SCOPES.search(metadata), _SOURCE.search(metadata)
    name = origin.group(1).replace("__", "::", 1) if origin else ""
    frame = _frame(source.group(1), int(source.group(2)[:9])) if source else None
    call = call_of(scopes.group(1)) if scopes else None
    if call is not None:
        # Within the call, the innermost code is that of a library, or of the hook if the call has no Python code.
        is_direct = call.is_direct and frame is not None and frame.owner == "tputui"
        call = call._replace(is_direct=is_direct)
    elif frame is not None:
        call = Call("", frame, is_direct=True)
    return operation._replace(origin=name, call=call)


def _origin_of(constant: str, operations: Mapping[str, Operation], users: Mapping[str, str]) -> str:
    """The operation of torch that takes a constant: `aten::pow` of the number in `x ** 1.5`."""
    name, origin = constant, operations[constant].origin
    while origin in _PASSING and name in users:
        name = users[name]
        origin = operations[name].origin
    return origin if origin and origin not in _PASSING else operations[constant].origin


def _frame(file: str, line: int) -> CodeFrame | None:
    owner = owner_of(file)
    if owner == "user" and file:
        return user_code(file, line, "")
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
            ChangedInput(name=names.get(pair, AN_INPUT), before=pair[0], now=pair[1]) for pair in dict.fromkeys(pairs)
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
        # The backward pass has constants of its own, whose lines are not known.
        constants.sort(key=lambda pair: _line_of([pair[1]]) is None)
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
    # An operation more may follow from anything before it, so the line of a library's caller says nothing.
    direct = [operation for operation in (new, old) if operation.call is not None and operation.call.is_direct]
    return Difference([count], _line_of(direct))


def _changed(old: Operation, new: Operation) -> ChangedInput:
    if new.opcode == "constant":
        origin = (new.call.function if new.call else "") or new.origin
        name = f"constant of {origin}" if origin else "a constant"
        return ChangedInput(name=name, before=old.rest[:80], now=new.rest[:80])
    name = new.origin or new.opcode
    if old.spec != new.spec:
        return ChangedInput(name=name, before=old.spec, now=new.spec)
    return ChangedInput(name=name, before=_attributes(old)[:80], now=_attributes(new)[:80])


def _attributes(operation: Operation) -> str:
    """`slice={[0:8]}`, without the operands."""
    return operation.rest.partition("), ")[2] or operation.rest


def _line_of(operations: Iterable[Operation]) -> CodeFrame | None:
    return next((frame for operation in operations if (frame := operation.user_frame) is not None), None)


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
            if operation.user_frame is not None:
                frames.setdefault(shape, operation.user_frame)
    observed = [
        MatmulObserved(
            dtype=dtype, batch=batch, m=m, k=k, n=n, count=count, user_frame=frames.get((dtype, batch, m, k, n))
        )
        for (dtype, batch, m, k, n), count in counts.items()
    ]
    return sorted(observed, key=lambda dot: -dot.batch * dot.m * dot.k * dot.n * dot.count)[:LISTED_MAX]


def _matmul(dot: Operation) -> tuple[str, int, int, int, int] | None:
    operands = [spec for match in _SPEC.finditer(dot.rest.partition(")")[0]) if (spec := _spec(match.group()))]
    if len(operands) != 2:
        return None
    left, right = operands
    dims = {name: [int(at) for at in text.split(",") if at] for name, text in _DIMS.findall(dot.rest)}
    batch = prod(left.shape[at] for at in dims.get("lhs_batch_dims", []))
    k = prod(left.shape[at] for at in dims.get("lhs_contracting_dims", []))
    m = prod(left.shape) // max(1, batch * k)
    n = prod(right.shape) // max(1, batch * k)
    return left.dtype, batch, m, k, n


def shape_of(text: str) -> list[int] | None:
    """The shape in `f32[8,28]`; None for another text."""
    spec = _spec(text) if _SPEC.fullmatch(text) else None
    return spec.shape if spec is not None else None


def _spec(text: str) -> TensorSpec | None:
    matched = _SPEC.match(text)
    if matched is None:
        return None
    return TensorSpec(dtype=matched.group(1), shape=[int(size) for size in matched.group(2).split(",") if size])


CHECK_STEPS = 5
"""Minimum number of steps between two checks."""
EARLY_STEPS = 50
CHECK_INTERVAL_S = 1.0
"""Minimum time between two checks after the first `EARLY_STEPS` steps: a check takes up to 0.1 ms."""
READS_PER_STEP = 0.5
AGAIN_AFTER_S = 600.0
"""A kind of trouble opens at most one window in this time; a new kind opens one at once."""
RECOMPILES, READ_COMPILES, READS = "recompiles", "compiled reads", "reads"


class Reason(NamedTuple):
    """Why a window opens."""

    why: str
    """One sentence."""
    in_graph: bool
    """Whether graphs are compared in it, with the calls that their operations come from; else calls are timed. Not
    both, because comparing graphs waits for the device."""


EVERY_STEP = Reason("every step is observed", in_graph=False)
"""Why a window opens without trouble."""


class Trouble:
    """What the counters showed that has not been explained yet."""

    def __init__(
        self,
        runtime: XlaRuntime,
        own_reads: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`own_reads` is the number of transfers from the device by tputui itself."""
        self._runtime = runtime
        self._own_reads = own_reads
        self._clock = clock
        self._reads, self._own = ResettableTotal(runtime.reads()), ResettableTotal(own_reads())
        self._fallbacks: dict[str, ResettableTotal] = {}
        self._checked_step = 0
        self._checked = clock()
        self._opened: dict[str, float] = {}
        self._open: dict[str, str] = {}
        """What is to be explained: a sentence by kind."""
        self.fallbacks: dict[str, int] = {}
        """Operations on the host between the two newest checks, with their counts."""
        self.steps = 1
        """Steps between these checks."""
        self.seconds = 0.0
        """Time between them."""
        self.reads = 0
        """Transfers from the device between them."""

    def compiled(self, kind: str, why: str) -> None:
        """A compilation after warm-up needs an explanation."""
        self._add(kind, why)

    def check(self, step: int) -> bool:
        """Reads the counters and returns True, if it is time to; `step` is the number of steps so far."""
        now, steps = self._clock(), step - self._checked_step
        if steps < CHECK_STEPS or (step > EARLY_STEPS and now - self._checked < CHECK_INTERVAL_S):
            return False
        self.steps, self.seconds = steps, now - self._checked
        self._checked_step, self._checked = step, now
        self.fallbacks = self._new_fallbacks()
        self.reads = reads = int(self._reads.read(self._runtime.reads()) - self._own.read(self._own_reads()))
        for name, count in self.fallbacks.items():
            self._add(name, f"{name} ran on the host CPU {count / steps:.1f} times a step")
        if reads / steps > READS_PER_STEP:
            self._add(READS, f"{reads / steps:.1f} transfers from the device a step")
        return True

    def take(self) -> Reason | None:
        """Why a window should open now; None if nothing is to be explained."""
        in_graph = {kind: why for kind, why in self._open.items() if kind == RECOMPILES}
        chosen = in_graph or self._open
        if not chosen:
            return None
        self._opened.update(dict.fromkeys(chosen, self._clock()))
        self._open = {kind: why for kind, why in self._open.items() if kind not in chosen}
        return Reason("; ".join(chosen.values()), bool(in_graph))

    def settle(self, reason: Reason, operators: Iterable[str]) -> None:
        """A window ended, in which these operations ran on the host: what it showed opens no other window soon."""
        if reason.in_graph:
            return
        now = self._clock()
        for kind in (READS, READ_COMPILES, *operators):
            self._opened[kind] = now
            self._open.pop(kind, None)
        self._reads.read(self._runtime.reads())
        self._own.read(self._own_reads())
        self._new_fallbacks()

    def _add(self, kind: str, why: str) -> None:
        opened = self._opened.get(kind)
        if opened is None or self._clock() - opened >= AGAIN_AFTER_S:
            self._open.setdefault(kind, why)

    def _new_fallbacks(self) -> dict[str, int]:
        added = {
            name: int(self._fallbacks.setdefault(name, ResettableTotal()).read(count))
            for name, count in self._runtime.fallbacks().items()
        }
        return {name: count for name, count in added.items() if count > 0}
