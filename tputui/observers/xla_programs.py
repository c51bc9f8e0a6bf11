"""Inspects the programs of torch_xla: what they consist of, and why one compiled again."""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from types import FrameType
from typing import Any

from tputui.observers import variables, xla_graph
from tputui.observers.user_frames import UserLine
from tputui.observers.xla_runtime import XlaRuntime
from tputui.telemetry.events import ChangedInput, ProgramObserved

VARIANTS_MAX = 4
"""Earlier compilations of a program whose variables are compared with a new one."""
GRAPH_MAX = 5_000
"""Larger graphs are not inspected: it takes about 0.1 ms per operation."""
WEIGHTS_MAX = 2_000
OPTIMIZERS_MAX = 4


class Place:
    """A sync: the program that it runs, and where."""

    __slots__ = ("ends_step", "frames", "graph", "key", "line", "program", "run", "warm_up")

    def __init__(self, key: object, program: str, line: UserLine, run: int, warm_up: bool) -> None:
        self.key = key
        """Tells programs apart."""
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


class ProgramInspector:
    """Inspects the programs of a process. Not thread-safe."""

    def __init__(self, runtime: XlaRuntime) -> None:
        self._runtime = runtime
        self._variants: dict[object, deque[variables.Specs]] = {}
        self._lines: dict[object, UserLine] = {}
        """The lines that made programs compile again, by key, as far as graphs were compared; later compilations
        without another explanation count for them."""
        self._newest: dict[object, xla_graph.Graph] = {}
        """The program of the newest run, by key, while graphs are compared."""
        self._optimizers: dict[int, dict[int, Any]] = {}
        """Weak references to the optimizers of each thread that trains, by its identifier."""

    def follow(self, optimizer: Any) -> None:
        """Includes the weights of an optimizer in the programs of the calling thread."""
        followed = self._optimizers.setdefault(threading.get_ident(), {})
        if id(optimizer) not in followed and len(followed) < OPTIMIZERS_MAX:
            followed[id(optimizer)] = weakref.ref(optimizer)

    def remember(self, place: Place) -> None:
        """Compares the next run of the program with this one."""
        if place.graph is not None:
            self._newest[place.key] = place.graph

    def forget(self) -> None:
        """Frees the graphs."""
        self._newest.clear()

    def explain(self, place: Place) -> tuple[UserLine, list[ChangedInput] | None]:
        """The line of a compilation, and the inputs that changed; None if they were not compared."""
        now = variables.specs_of(place.frames)
        before = self._variants.setdefault(place.key, deque(maxlen=VARIANTS_MAX))
        changes = [variables.changed(specs, now) for specs in before]
        before.append(now)
        changed = min(filter(None, changes), key=len, default=None)
        earlier = self._newest.get(place.key)
        if place.graph is None or earlier is None:
            return place.line if changed else self._lines.get(place.key, place.line), changed
        names = {(one.before, one.now): one.name for one in changed or []}
        found = xla_graph.difference(earlier, place.graph, names)
        if found.frame is not None:
            self._lines[place.key] = UserLine(found.frame, None)
        return self._lines.get(place.key, place.line), changed or found.inputs or None

    def graph_of(self, place: Place) -> xla_graph.Graph | None:
        """The program that the sync of the calling thread will run, from the variables of the user and the weights."""
        if self._runtime.graph_size() > GRAPH_MAX:
            return None
        weights = self._weights()
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        device = self._runtime.own_device()
        # Another thread may change the tensors of its device now: reading them ends the process.
        known = (*variables.xla_tensors(place.frames), *weights, *gradients)
        roots = [tensor for tensor in known if str(tensor.device) == device]
        return xla_graph.parse(self._runtime.program_text(roots)) if roots else None

    def _weights(self) -> list[Any]:
        found: list[Any] = []
        for reference in self._optimizers.get(threading.get_ident(), {}).values():
            optimizer = reference()
            groups = optimizer.param_groups if optimizer is not None else []
            found += [weight for group in groups for weight in group["params"] if weight.device.type == "xla"]
        return found[:WEIGHTS_MAX]

    def is_whole(self, graph: xla_graph.Graph) -> bool:
        """Whether a program contains most of the graph that ran last: the tensors that are known may lack a part."""
        return 2 * len(graph.operations) + len(graph.parameters) >= self._runtime.graph_size()

    def describe(self, place: Place, graph: xla_graph.Graph) -> ProgramObserved:
        """What a program consists of."""
        weights = {variables.spec_of(weight) for weight in self._weights()}
        return ProgramObserved(
            t=time.time(),
            runtime="torch_xla",
            program=place.program,
            inputs=xla_graph.inputs(graph, weights),
            matmuls=xla_graph.matmuls(graph),
            num_operations=len(graph.operations),
            flops=None,
        )
