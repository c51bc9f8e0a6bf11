"""A task for tests of the strategies: a small network fits points of a curve, and each fetch is logged."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from engine.task import Options, Sizes, Splits, Task
from tests.engine.mytask import ask_for_stop

NUM_TRAIN = 264
NUM_VALID = 100
LOG = "BEND_LOG"
"""Environment variable: directory in which each process logs the examples that it fetches, one line per batch."""
STOP_AT, STOP_RUN = "BEND_STOP_AT", "BEND_STOP_RUN"
"""Environment variables: the training batch whose fetch requests a stop, and the run directory."""

DIES_SAVING = "BEND_DIES_SAVING"
"""Environment variable: the process is killed when it saves."""
SAVES_AFTER = "BEND_SAVES_AFTER"
"""Environment variable: the process saves when this journal contains a failure."""


class CurveData(Options, frozen=True, kw_only=True):
    """Keys of `[data]`."""

    break_at: int = -1
    """Training example that cannot be read."""


class CurveModel(Options, frozen=True, kw_only=True):
    """Keys of `[model]`."""

    norm: bool = False
    """Whether it normalises its batch."""
    own_way: bool = False
    """Whether the weights depend on the process."""


class Curve:
    """Points of a curve."""

    def __init__(self, split: str, first: int, size: int, data: CurveData) -> None:
        self._split = split
        self._first = first
        self._size = size
        self._data = data
        self._fetched = 0

    def __len__(self) -> int:
        return self._size

    def fetch(self, indices: Any) -> dict[str, Any]:
        """`x` [n, 4], `y` [n], `index` [n]."""
        import torch

        if self._split == "train" and self._data.break_at in indices:
            raise ValueError("the file is cut short")
        self._fetched += 1
        if self._split == "train" and self._fetched == int(os.environ.get(STOP_AT, 0)):
            ask_for_stop(Path(os.environ[STOP_RUN]))
        if LOG in os.environ:
            with Path(os.environ[LOG], f"{self._split}-{os.getpid()}.txt").open("a") as log:
                log.write(" ".join(map(str, indices)) + "\n")
        points = (indices[:, None] + self._first + 1) * np.array([0.37, 0.61, 0.83, 1.29])
        x = torch.from_numpy(np.sin(points)).float()
        y = x[:, 0] * x[:, 1] + x[:, 2]
        return {"x": x, "y": y, "index": torch.from_numpy(indices).float()}


class CurveTask(Task):
    """Fits a curve."""

    data_options: ClassVar[type[Options]] = CurveData
    model_options: ClassVar[type[Options]] = CurveModel
    meters: ClassVar[tuple[str, ...]] = ("loss", "far")
    scores: ClassVar[tuple[str, ...]] = ("in_order", "worst")

    def sizes(self, data: CurveData, seed: int) -> Sizes:
        """Sizes that are not multiples of the batch."""
        return Sizes(NUM_TRAIN, NUM_VALID)

    def load(self, data: CurveData, seed: int) -> Splits:
        """Neighbouring points for training and validation."""
        return Splits(Curve("train", 0, NUM_TRAIN, data), Curve("valid", NUM_TRAIN, NUM_VALID, data))

    def model(self, options: CurveModel, data: CurveData) -> Any:
        """Two layers."""
        import torch
        from torch import nn

        if options.own_way:
            torch.manual_seed(os.getpid())
        norm = [nn.BatchNorm1d(16)] if options.norm else []
        model = nn.Sequential(nn.Linear(4, 16), *norm, nn.Tanh(), nn.Linear(16, 1))
        if DIES_SAVING in os.environ:
            model.register_state_dict_pre_hook(_die_after_evaluation)  # type: ignore[no-untyped-call]
        if SAVES_AFTER in os.environ:
            model.register_state_dict_pre_hook(_await_failure)  # type: ignore[no-untyped-call]
        return model

    def predict(self, model: Any, batch: dict[str, Any]) -> dict[str, Any]:
        """`y` [examples]."""
        return {"y": model(batch["x"]).squeeze(1)}

    def outcomes(self, predictions: dict[str, Any], batch: dict[str, Any]) -> dict[str, Any]:
        """Squared distance, and whether it is more than 0.5."""
        away = (predictions["y"] - batch["y"]).abs()
        return {"loss": away.square(), "far": (away > 0.5).float()}

    def judged(self, predictions: dict[str, Any], batch: dict[str, Any]) -> dict[str, Any]:
        """Distances with the number of their example."""
        return {"index": batch["index"], "away": (predictions["y"] - batch["y"]).abs()}

    def score(self, judged: dict[str, Any]) -> dict[str, float]:
        """Whether every example is present once and in order, and the greatest distance."""
        in_order = np.array_equal(judged["index"], np.arange(NUM_VALID))
        return {"in_order": float(in_order), "worst": float(judged["away"].max())}


def _die_after_evaluation(model: Any, *_: Any) -> None:
    if not model.training:
        os.kill(os.getpid(), signal.SIGKILL)


def _await_failure(model: Any, *_: Any) -> None:
    deadline = time.monotonic() + 60
    while not model.training and b"FailureRaised" not in Path(os.environ[SAVES_AFTER]).read_bytes():
        if time.monotonic() > deadline:
            raise TimeoutError("the journal has no failure")
        time.sleep(0.02)
