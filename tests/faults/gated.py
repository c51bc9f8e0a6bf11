"""A task with a gate: at a given position it waits until a test opens the gate, then does the requested action."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal

from engine.task import Options, Splits
from tests.engine.mytask import Line, Points, PointsData, PointsModel

NUM_CORES = 8
BATCH = 2 * NUM_CORES
STEPS_PER_EPOCH = 4
VALID_STEPS = 3
BALLAST = 1 << 20
"""Float32s that make a checkpoint larger than all journals of a test: 4 MiB."""

Place = Literal["nowhere", "start", "trace", "data", "evaluate", "save"]


class GatedData(PointsData, frozen=True, kw_only=True):
    """Keys of `[data]`."""

    num_train: int = STEPS_PER_EPOCH * BATCH
    num_valid: int = VALID_STEPS * BATCH
    gate: str = ""
    """Folder in which a test and the task meet."""
    at: Place = "nowhere"
    """Position of the gate in the run."""
    recurrent_steps: int = 0
    """Steps of a recurrent network that is unrolled, so that the compiler has to do; 0 for none."""


class Gate:
    """Waits at a position, at most once."""

    def __init__(self, data: GatedData, position: Place) -> None:
        self._keeper = GateKeeper(Path(data.gate))
        self._here = data.at == position

    def __call__(self) -> None:
        """Reports that it was reached, waits until it is opened, and does the requested action."""
        if not self._here:
            return
        self._here = False
        act(self._keeper.wait())


class GateKeeper:
    """Files in the folder of the gate, by which a test and the task communicate."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._reached = folder / "reached"
        self._opened = folder / "open"

    @property
    def is_reached(self) -> bool:
        """Whether the task waits, or has waited."""
        return self._reached.exists()

    def open(self, word: str = "go") -> None:
        """Opens the gate with an action; written atomically, because the task may read it at any time."""
        written = self.folder / "written"
        written.write_text(word)
        written.rename(self._opened)

    def wait(self) -> str:
        """The task waits here; gives the word with which it is let go."""
        self._reached.touch()
        while not self._opened.exists():
            threading.Event().wait(0.02)
        return self._opened.read_text()


def act(word: str) -> None:
    """Continues, or fails in one of several ways."""
    if word == "raise":
        raise ValueError("shard 7 is cut short")
    if word == "abort":
        os.abort()
    if word == "exit":
        os._exit(0)


class GatedPoints(Points):
    """Points on a line; the gate is before the batch of that number, counted from 1."""

    def __init__(self, start: int, size: int, gate: Gate, batch: int) -> None:
        super().__init__(start, size)
        self._gate = gate
        self._batch = batch

    def fetch(self, indices: Any) -> dict[str, Any]:
        """The points; waits if the gate is before them."""
        if self._fetches + 1 == self._batch:
            self._gate()
        return super().fetch(indices)


class Gated(Line):
    """Fits a line."""

    data_options: ClassVar[type[Options]] = GatedData

    def load(self, data: PointsData, seed: int) -> Splits:
        """Training and validation points, with the gates of the second epoch."""
        assert isinstance(data, GatedData)
        Gate(data, "start")()
        train = GatedPoints(0, data.num_train, Gate(data, "data"), STEPS_PER_EPOCH + 3)
        return Splits(train, GatedPoints(data.num_train, data.num_valid, Gate(data, "evaluate"), VALID_STEPS + 2))

    def model(self, options: PointsModel, data: PointsData) -> Any:
        """A line, with the gates of its tracing and of its saving."""
        assert isinstance(data, GatedData)
        return make_net(Gate(data, "trace"), Gate(data, "save"), data.recurrent_steps)


def make_net(traced: Callable[[], None], saved: Callable[[], None], recurrent_steps: int) -> Any:
    """[n, 1] -> [n, 1]; calls `traced` in its first forward pass and `saved` in its second save."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(1, 1)
            self.cell = nn.LSTMCell(1, 16) if recurrent_steps else None
            self.register_buffer("ballast", torch.zeros(BALLAST))
            self._saves = 0

        def forward(self, x: Any) -> Any:
            traced()
            y = self.line(x)
            state = None
            for _ in range(recurrent_steps):
                assert self.cell is not None
                state = self.cell(x, state)
            return y if state is None else y + 0.01 * state[0].mean(dim=1, keepdim=True)

        def get_extra_state(self) -> Any:
            self._saves += 1
            if self._saves == 2:
                saved()
            return torch.zeros(1)

        def set_extra_state(self, state: Any) -> None:
            """Empty."""

    return Net()
