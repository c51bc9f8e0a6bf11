"""Where a script is in its own loops: `epoch 2 of 3`, `iter_num 60 of 5,000`.

The loops around a line are found in the source, their counters and bounds in the variables of the calls on the stack.
Only names, attributes in the `__dict__` of objects, constants, arithmetic and `len` of built-in types are evaluated:
none of the user's code runs.
"""

from __future__ import annotations

import ast
import dis
import linecache
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from operator import attrgetter
from types import CodeType, FrameType
from typing import Any, NamedTuple, TypeGuard

from tputui.observers.user_frames import callers, local_variables, user_frames

FRAMES_MAX = 8
"""Calls of the user's code whose loops are read."""
_COMPARED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_COUNTERS = (ast.Name, ast.Attribute)
_RANGES = ("range", "trange", "prange")
_TO_EPOCHS = re.compile(r"(?<!per_)epochs?['\"\]]{0,2}(?: \+ 1)?(?:\)|$)", re.IGNORECASE)
"""The end of `range(args.epochs)`, whatever its counter is called."""
_WRAPPERS = ("enumerate", "tqdm", "zip", "track", "list", "iter", "reversed")
_SIZED = (list, tuple, dict, str, range, set, frozenset)
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"int": int, "max": max, "min": min}
_text_of = lru_cache(maxsize=512)(ast.unparse)


class LoopPosition(NamedTuple):
    name: str
    """Its counter."""
    value: int
    start: int | None
    """First value of the counter; None if the source does not tell."""
    end: int | None
    """The value of the counter after the last pass; None if the source does not tell."""
    counter: ast.expr
    counts_epochs: bool
    """Whether its counter, or what it goes to, is called so."""
    code: CodeType
    """The function that it is in."""

    @property
    def last(self) -> int | None:
        """Number of the last pass, from 1: of `range(1, n + 1)`, and of a range from 0, or from where an earlier
        training ended, to n. None if the source does not tell."""
        return None if self.end is None else self.end - (self.start == 1)


class EpochNumbers:
    """Numbers the epochs of a script as it counts them; those of another training, which counts again, go on."""

    def __init__(self) -> None:
        self._counted: int | None = None
        """The newest one as the script counts."""
        self._before = 0
        """What is added to that."""
        self._from_1: bool | None = None
        """Whether the first training counted from 1."""

    def number_of(self, loop: LoopPosition, *, is_new_training: bool) -> int:
        """The number of the epoch that a loop is at. `is_new_training`: it may be of another training."""
        counted, self._counted = self._counted, loop.value
        if counted is not None and (loop.value < counted or (loop.value == counted and is_new_training)):
            self._before += counted + 1 - loop.value
        self._from_1 = loop.start == 1 if self._from_1 is None else self._from_1
        return loop.value + self._before

    def last_of(self, loop: LoopPosition) -> int | None:
        """Number of the last epoch of the training that runs, counted from 1; None if the source does not tell."""
        return None if loop.last is None else loop.last + self._before + (loop.start == 1) - (self._from_1 is True)


class LoopWatch:
    """Notices when a loop goes on, in a fraction of the time of a look at all loops."""

    def __init__(self, caller: FrameType, loop: LoopPosition) -> None:
        self.loop = loop
        self._depth = 0
        """Calls between that of the hook and the outermost one of the function with the loop."""
        for depth, frame in enumerate(callers(caller)):
            if frame.f_code is loop.code:
                self._depth = depth

    def has_moved(self, caller: FrameType) -> bool:
        """Whether the counter has another value; False if the hook is called on another way."""
        frame: FrameType | None = caller
        for _ in range(self._depth):
            if frame is None:
                return False
            frame = frame.f_back
        if frame is None or frame.f_code is not self.loop.code:
            return False
        return bool(_value(self.loop.counter, local_variables(frame), frame.f_globals) != self.loop.value)


class _Loop(NamedTuple):
    """A loop in the source of a function."""

    first_line: int
    last_line: int
    counters: tuple[ast.expr, ...]
    """Names and attributes, such as `epoch` or `self.step`."""
    bound: ast.expr
    """What a `for` goes through, or the comparison that ends a `while`."""
    limits: tuple[ast.Compare, ...] = ()
    """Of `if step >= n: break` in the body of a `for`."""
    breaks: tuple[int, ...] | None = None
    """Lines of a `for` at which it may be left; None of a `while`."""


def positions_at(caller: FrameType | None) -> list[LoopPosition]:
    """The loops around the current lines of the user's calls that count, outermost first."""
    positions: list[LoopPosition] = []
    for frame in islice(user_frames(caller), FRAMES_MAX):
        loops = [loop for loop in _loops_of(frame.f_code) if loop.first_line <= frame.f_lineno <= loop.last_line]
        if loops:
            variables = local_variables(frame)
            here = [_position(loop, variables, frame) for loop in loops]
            positions = [position for position in here if position is not None] + positions
    return positions


def left_in_pass(
    loop: LoopPosition, variables: Mapping[str, Any], line: int, read_line: int
) -> tuple[int, bool] | None:
    """The value of the counter in the last pass of a `for` that a call has left, and whether that pass surely came to
    `read_line`; None if the call is still in it, at `line`, or if the variable may have got its value elsewhere."""
    source = next((inner for inner in _loops_of(loop.code) if loop.counter in inner.counters), None)
    if source is None or source.breaks is None or source.first_line <= line <= source.last_line:
        return None
    value = variables.get(loop.name)
    if type(value) is not int or _num_assignments(loop.code, loop.name) != 1:
        return None
    return value, all(left_at > read_line for left_at in source.breaks)


@lru_cache(maxsize=64)
def _num_assignments(code: CodeType, name: str) -> int:
    """How many instructions of a function give a variable its value."""
    stores = (step.argval for step in dis.get_instructions(code) if step.opname.startswith("STORE_"))
    return sum(target == name or (type(target) is tuple and name in target) for target in stores)


def called_at(frame: FrameType) -> Iterator[tuple[Any, int]]:
    """What the loop that is at its next item calls, as far as that can be read, with the line of each call."""
    variables = local_variables(frame)
    for loop in _nodes_of(frame.f_code):
        if isinstance(loop, ast.For) and loop.lineno <= frame.f_lineno <= (loop.iter.end_lineno or 0):
            for call in (node for part in loop.body for node in ast.walk(part) if isinstance(node, ast.Call)):
                yield _value(call.func, variables, frame.f_globals), call.lineno


@lru_cache(maxsize=64)
def _nodes_of(code: CodeType) -> list[ast.AST]:
    """The parts of the source of a function."""
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename)))
    except (SyntaxError, ValueError, RecursionError):
        return []
    first, last = 1, 1 << 30
    if code.co_name != "<module>":
        first, last = code.co_firstlineno, max((end or 0 for _, end, _, _ in code.co_positions()), default=0)
    return [node for node in ast.walk(tree) if first <= getattr(node, "lineno", 0) <= last]


@lru_cache(maxsize=512)
def _loops_of(code: CodeType) -> tuple[_Loop, ...]:
    """The loops of a function, outermost first."""
    nodes = _nodes_of(code)
    _name_slices(nodes)
    loops = [loop for node in nodes if (loop := _loop(node)) is not None]
    return tuple(sorted(loops, key=attrgetter("first_line")))


def _name_slices(nodes: list[ast.AST]) -> None:
    """Puts the slice in the place of its name: `batches` of a loop is `islice(loader, 100)`, as it was assigned."""
    slices = {
        ast.unparse(node.targets[0]): node.value
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _called(node.value) == "islice"
    }
    for node in nodes if slices else ():
        if isinstance(node, ast.For):
            call = node.iter
            while isinstance(call, ast.Call) and _called(call) in _WRAPPERS and call.args:
                call.args[0] = slices.get(ast.unparse(call.args[0]), call.args[0])
                call = call.args[0]


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def _loop(node: ast.AST) -> _Loop | None:
    if isinstance(node, ast.For):
        target, bound = node.target, node.iter
        if isinstance(target, ast.Tuple) and isinstance(bound, ast.Call) and _called(bound) == "enumerate":
            index, item = target.elts[0], target.elts[-1]
            if _counts_epochs(item) and not _counts_epochs(index):
                target, bound = item, bound.args[0]
        targets = target.elts if isinstance(target, ast.Tuple) else [target]
        counters = tuple(part for part in targets if isinstance(part, _COUNTERS))
        leaving = [part.test for part in node.body if isinstance(part, ast.If) and isinstance(part.body[-1], ast.Break)]
        # A counter that goes up by 1 meets `==` as it does `>=`.
        tests = tuple(test for test in leaving if _is_limit(test, (ast.Gt, ast.GtE, ast.Eq)))
        breaks = tuple(part.lineno for part in ast.walk(node) if isinstance(part, ast.Break))
        return _Loop(node.lineno, node.end_lineno or node.lineno, counters, bound, tests, breaks)
    if isinstance(node, ast.While):
        # `while step < n`, and `if step >= n: break` in it.
        branches = [part for part in node.body if isinstance(part, ast.If)]
        leaving = [part.test for part in branches if any(isinstance(inner, ast.Break) for inner in ast.walk(part))]
        limits = [part for test in (node.test, *leaving) for part in ast.walk(test) if _is_limit(part)]
        # Of `if limit >= 0 and step >= limit`, what the loop itself changes.
        changed = {ast.unparse(part.target) for part in ast.walk(node) if isinstance(part, ast.AugAssign)}
        limits.sort(key=lambda limit: ast.unparse(limit.left) not in changed)
        if limits:
            return _Loop(node.lineno, node.end_lineno or node.lineno, (limits[0].left,), limits[0])
    return None


def _counts_epochs(counter: ast.expr) -> bool:
    return "epoch" in _text_of(counter).lower()


def _is_limit(node: ast.AST, compared: tuple[type[ast.cmpop], ...] = _COMPARED) -> TypeGuard[ast.Compare]:
    if not (isinstance(node, ast.Compare) and isinstance(node.left, _COUNTERS) and len(node.ops) == 1):
        return False
    return isinstance(node.ops[0], compared)


def _position(loop: _Loop, variables: Mapping[str, Any], frame: FrameType) -> LoopPosition | None:
    def value(node: ast.expr) -> Any:
        return _value(node, variables, frame.f_globals)

    counter = next((part for part in loop.counters if type(value(part)) is int), None)
    if counter is None:
        return None
    start, end = _bounds(loop.bound, value)
    name = _text_of(counter)
    for test in loop.limits:
        limit = value(test.comparators[0]) if _text_of(test.left) == name else None
        # `step == -1` is never met.
        if type(limit) is int and not (isinstance(test.ops[0], ast.Eq) and limit < value(counter)):
            # A pass goes on to the test if that is below.
            limit += isinstance(test.ops[0], ast.Gt) + (test.lineno > frame.f_lineno)
            end = limit if end is None else min(end, limit)
    counts_epochs = _counts_epochs(counter) or _TO_EPOCHS.search(_text_of(loop.bound)) is not None
    return LoopPosition(name, value(counter), start, end, counter, counts_epochs, frame.f_code)


def _bounds(bound: ast.expr, value: Callable[[ast.expr], Any]) -> tuple[int | None, int | None]:
    """First value of the counter and the one after its last, as far as the source tells."""
    if isinstance(bound, ast.Compare):
        limit = value(bound.comparators[0])
        # Of `step <= n`, and of `if step > n: break`, the pass with n is the last.
        return None, limit + isinstance(bound.ops[0], ast.LtE | ast.Gt) if type(limit) is int else None
    if isinstance(bound, ast.Call):
        name = _called(bound)
        if name == "islice" and len(bound.args) == 2:
            limit = value(bound.args[1])
            return 0, limit if type(limit) is int else None
        if name in _RANGES:
            numbers = [value(argument) for argument in bound.args]
            if 1 <= len(numbers) <= 2 and all(type(number) is int for number in numbers):
                return (0, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])
        elif name in _WRAPPERS and bound.args:
            start, end = _bounds(bound.args[0], value)
            if name == "enumerate" and len(bound.args) == 1:
                return 0, None if end is None else end - (start or 0)
            return start, end
    return None, None


def _value(node: ast.expr, variables: Mapping[str, Any], names: Mapping[str, Any]) -> Any:
    """The value of an expression; None if it could not be read without running the user's code."""

    def value(part: ast.expr) -> Any:
        return _value(part, variables, names)

    try:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return variables.get(node.id, names.get(node.id))
        if isinstance(node, ast.Attribute):
            held = getattr(value(node.value), "__dict__", {})
            return held.get(node.attr, held.get("_modules", {}).get(node.attr))
        if isinstance(node, ast.Subscript):
            held = value(node.value)
            return held.get(value(node.slice)) if type(held) is dict else None
        if isinstance(node, ast.BinOp):
            parts = value(node.left), value(node.right)
            return _OPERATORS[type(node.op)](*parts) if all(type(part) is int for part in parts) else None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            arguments = [value(argument) for argument in node.args]
            if node.func.id == "len" and type(arguments[0]) in _SIZED:
                return len(arguments[0])
            if all(type(argument) in (int, float) for argument in arguments):
                return _FUNCTIONS[node.func.id](*arguments)
    except (KeyError, IndexError, TypeError, ValueError, ArithmeticError, AttributeError):
        return None
    return None
