"""A task with a gate: at a named place of its run it waits until a test opens it, and does what is written on it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal

from engine.tasks.base import Options, Sizes, Splits, Task

NUM_CORES = 8
BATCH = 2 * NUM_CORES
STEPS_PER_EPOCH = 4
VALID_STEPS = 3
BALLAST = 1 << 18
"""Float32s that make a checkpoint larger than all journals of a test: 1 MiB."""

Place = Literal["nowhere", "start", "trace", "data", "evaluate", "save"]


class GatedData(Options, frozen=True, kw_only=True):
    """Keys of `[data]`."""

    gate: str = ""
    """Folder in which a test and the task meet."""
    at: Place = "nowhere"
    """Where the gate stands."""
    recurrent_steps: int = 0
    """Steps of a recurrent network that is unrolled, so that the compiler has to do; 0 for none."""


class Gate:
    """Waits at a place, at most once."""

    def __init__(self, data: GatedData, place: Place) -> None:
        self._folder = Path(data.gate)
        self._here = data.at == place

    def __call__(self) -> None:
        """Says that it was reached, waits for the file `open`, and does what stands in it."""
        if not self._here:
            return
        self._here = False
        (self._folder / "reached").touch()
        opened = self._folder / "open"
        while not opened.exists():
            threading.Event().wait(0.02)
        act(opened.read_text())


def act(word: str) -> None:
    """Goes on, or ends in one of the ways that code can."""
    if word == "raise":
        raise ValueError("shard 7 is cut short")
    if word == "abort":
        os.abort()
    if word == "exit":
        os._exit(0)


class Points:
    """Points on a line; the gate stands before a batch of the second epoch."""

    def __init__(self, first: int, size: int, gate: Gate, batch: int) -> None:
        self._first = first
        self._size = size
        self._gate = gate
        self._batch = batch
        self._fetched = 0

    def __len__(self) -> int:
        return self._size

    def fetch(self, indices: Any) -> dict[str, Any]:
        """`x` and `y` of the line, [n, 1]."""
        import torch

        self._fetched += 1
        if self._fetched == self._batch:
            self._gate()
        x = torch.from_numpy(indices).float().add(self._first).remainder(7).sub(3).unsqueeze(1)
        return {"x": x, "y": 2 * x + 1}


class Gated(Task):
    """Fits a line."""

    data_options: ClassVar[type[Options]] = GatedData
    model_options: ClassVar[type[Options]] = Options
    meters: ClassVar[tuple[str, ...]] = ("loss",)

    def sizes(self, data: GatedData, seed: int) -> Sizes:
        """Small."""
        return Sizes(STEPS_PER_EPOCH * BATCH, VALID_STEPS * BATCH)

    def load(self, data: GatedData, seed: int) -> Splits:
        """Training and validation points."""
        Gate(data, "start")()
        sizes = self.sizes(data, seed)
        train = Points(0, sizes.train, Gate(data, "data"), STEPS_PER_EPOCH + 3)
        return Splits(train, Points(sizes.train, sizes.valid, Gate(data, "evaluate"), VALID_STEPS + 2))

    def model(self, options: Options, data: GatedData) -> Any:
        """A line, with the gates of its tracing and of its saving."""
        return make_net(Gate(data, "trace"), Gate(data, "save"), data.recurrent_steps)

    def predict(self, model: Any, batch: dict[str, Any]) -> dict[str, Any]:
        """`y` [examples, 1]."""
        return {"y": model(batch["x"])}

    def outcomes(self, predictions: dict[str, Any], batch: dict[str, Any]) -> dict[str, Any]:
        """Squared distance."""
        return {"loss": (predictions["y"] - batch["y"]).square().sum(dim=1)}


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
            """Nothing is in it."""

    return Net()
