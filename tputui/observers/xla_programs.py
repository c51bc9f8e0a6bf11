"""Inspects the programs of torch_xla: what they consist of, and why one compiled again."""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Hashable
from math import prod
from types import FrameType
from typing import Any

from tputui.observers import loader_batches, user_frames, xla_graph
from tputui.observers.user_frames import UserLine
from tputui.observers.xla_runtime import CallScopes, XlaRuntime
from tputui.observers.xla_window import SizedCall
from tputui.telemetry.events import RESULT_OF, ChangedInput, ProgramObserved

VARIANTS_MAX = 4
"""Earlier compilations of a program whose variables are compared with a new one."""
GRAPH_MAX = 5_000
"""Larger graphs are not inspected: it takes about 0.1 ms per operation."""
WEIGHTS_MAX = 2_000
OPTIMIZERS_MAX = 4
GRADIENTS_MAX = 8


class Place:
    """A sync: the program that it runs, and where."""

    __slots__ = ("ends_step", "frames", "graph", "key", "line", "program", "run", "warm_up")

    def __init__(self, key: Hashable, program: str, line: UserLine, run: int, warm_up: bool) -> None:
        self.key = key
        """Distinguishes the programs of each thread."""
        self.program = program
        """Its name: the one that the engine gives it, or the function that syncs."""
        self.line = line
        self.run = run
        """Number of runs, with this one."""
        self.warm_up = warm_up
        self.ends_step = True
        """Whether a step of training or evaluation ends with it."""
        self.frames: list[FrameType] = []
        """The user's calls, innermost first."""
        self.graph: xla_graph.Graph | None = None

    @property
    def lines(self) -> Hashable:
        """Distinguishes programs, whichever thread runs them."""
        return self.key[:-1] if isinstance(self.key, tuple) else self.key


class ProgramInspector:
    """Inspects the programs of a process. Not thread-safe."""

    def __init__(self, runtime: XlaRuntime) -> None:
        self._runtime = runtime
        self._variants: dict[object, deque[user_frames.Specs]] = {}
        self._lines: dict[object, UserLine] = {}
        """The lines that made programs compile again, by key, as far as graphs were compared; later compilations
        without another explanation count for them."""
        self._results: dict[object, tuple[str, set[str]]] = {}
        """The operator whose result has another shape in each step, by key of the program that takes it, and the inputs
        that change with it; its line is in `_lines`."""
        self._newest: dict[object, xla_graph.Graph] = {}
        """The program of the newest run, by key, while graphs are compared."""
        self._optimizers: dict[int, dict[int, Any]] = {}
        """Weak references to the optimizers of each thread that trains, by its identifier."""
        self.scopes = CallScopes(runtime)

    def follow(self, optimizer: Any) -> None:
        """Includes the weights of an optimizer in the programs of the calling thread."""
        followed = self._optimizers.setdefault(threading.get_ident(), {})
        if id(optimizer) not in followed and len(followed) < OPTIMIZERS_MAX:
            followed[id(optimizer)] = weakref.ref(optimizer)

    def gradients(self) -> list[tuple[Any, int]]:
        """The gradients of the first and the last weight of each group that the calling thread trains, as `StepSyncs`
        compares them."""
        gradients: list[tuple[Any, int]] = []
        for reference in self._optimizers.get(threading.get_ident(), {}).values():
            # There may be a group for each of hundreds of weights.
            groups = getattr(reference(), "param_groups", ())[: (GRADIENTS_MAX - len(gradients)) // 2]
            for weight in [group["params"][place] for group in groups if group["params"] for place in (0, -1)]:
                gradient = weight.grad
                gradients.append((weakref.ref(gradient), gradient._version) if gradient is not None else (None, 0))
        return gradients

    def remember(self, place: Place) -> None:
        """Compares the next run of the program with this one."""
        if place.graph is not None:
            self._newest[place.key] = place.graph

    def forget(self) -> None:
        """Frees the graphs and the calls that they come from."""
        self._newest.clear()
        self.scopes.forget()

    def explain(self, place: Place, sized: SizedCall | None) -> tuple[UserLine, list[ChangedInput] | None]:
        """The line of a compilation, and the inputs that changed; None if they were not compared. `sized`: a call
        before it in the step whose result has a shape that depends on values."""
        line, changed = self._compare(place)
        if sized is not None and changed and all(_follows_from(sized, change) for change in changed):
            names = {change.name for change in changed}
            self._results[place.key] = sized.operator, names | self._results.get(place.key, ("", set()))[1]
            line = self._lines[place.key] = sized.line
        operator, names = self._results.get(place.key, ("", set()))
        if changed and names.issuperset(change.name for change in changed):
            newest = changed[0]
            line = self._lines[place.key]
            changed = [ChangedInput(name=RESULT_OF + operator, before=newest.before, now=newest.now)]
        elif changed and (at_loader := loader_batches.explain(changed)) is not None:
            return at_loader
        return line, changed

    def _compare(self, place: Place) -> tuple[UserLine, list[ChangedInput] | None]:
        now = user_frames.specs_of(place.frames)
        before = self._variants.setdefault(place.key, deque(maxlen=VARIANTS_MAX))
        # Of equally similar ones the newest.
        changes = [user_frames.changed(specs, now) for specs in reversed(before)]
        before.append(now)
        changed = min(filter(None, changes), key=len, default=None)
        earlier = self._newest.get(place.key)
        if place.graph is None or earlier is None:
            return place.line if changed else self._lines.get(place.key, place.line), changed
        names = {(change.before, change.now): change.name for change in changed or []}
        difference = xla_graph.difference(earlier, place.graph, names)
        if difference.frame is not None:
            self._lines[place.key] = UserLine(difference.frame, None)
        return self._lines.get(place.key, place.line), changed or difference.inputs or None

    def graph_of(self, place: Place) -> xla_graph.Graph | None:
        """The program that the sync of the calling thread will run, from the variables of the user and the weights."""
        if self._runtime.graph_size() > GRAPH_MAX:
            return None
        weights = self._weights()
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        device = self._runtime.own_device()
        # Another thread may change the tensors of its device now: reading them ends the process.
        tensors = (*user_frames.xla_tensors(place.frames), *weights, *gradients)
        roots = [tensor for tensor in tensors if str(tensor.device) == device]
        return xla_graph.parse(self._runtime.program_text(roots), self.scopes.call_of) if roots else None

    def _weights(self) -> list[Any]:
        weights: list[Any] = []
        for reference in self._optimizers.get(threading.get_ident(), {}).values():
            optimizer = reference()
            groups = optimizer.param_groups if optimizer is not None else []
            weights += [weight for group in groups for weight in group["params"] if weight.device.type == "xla"]
        return weights[:WEIGHTS_MAX]

    def is_whole(self, graph: xla_graph.Graph) -> bool:
        """Whether a program contains most of the graph that ran last: the tensors that are known may lack a part."""
        return 2 * len(graph.operations) + len(graph.parameters) >= self._runtime.graph_size()

    def describe(self, place: Place, graph: xla_graph.Graph) -> ProgramObserved:
        """What a program consists of."""
        weights = {user_frames.spec_of(weight) for weight in self._weights()}
        return ProgramObserved(
            t=time.time(),
            runtime="torch_xla",
            program=place.program,
            inputs=xla_graph.inputs(graph, weights),
            matmuls=xla_graph.matmuls(graph),
            num_operations=len(graph.operations),
            flops=None,
        )


def _follows_from(sized: SizedCall, changed: ChangedInput) -> bool:
    """Whether an input may have changed because the result of a call has another shape."""
    before, now = (xla_graph.shape_of(spec) for spec in (changed.before, changed.now))
    if changed.name == xla_graph.AN_INPUT:
        return before is not None or now is not None
    # Its name is that of a variable, which may as well be another batch.
    if before is None or now is None:
        return False
    return set(now) - set(before) <= sized.sizes or prod(now) in sized.sizes
