"""A user's own task, as in a file beside their training script: points on a line, with injected failures."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, ClassVar

from engine.task import Options, Sizes, Splits, Task
from tputui.telemetry import requests


class PointsData(Options, frozen=True, kw_only=True):
    """Keys of `[data]`."""

    num_train: int = 256
    """Points to train on."""
    num_valid: int = 40
    """Points to validate on."""
    break_at: int = -1
    """Training point that cannot be read."""
    fold: int = 0
    """The quarter of the points that is left out."""
    stop_in_evaluation: str = ""
    """Run directory that gets a request to stop while this task is being evaluated."""


class PointsModel(Options, frozen=True, kw_only=True):
    """Keys of `[model]`."""


class Points:
    """Points held in memory."""

    def __init__(self, start: int, size: int, break_at: int = -1, stop_in: str = "") -> None:
        self._start = start
        self._size = size
        self._break_at = break_at
        self._stop_in = stop_in
        self._fetches = 0

    def __len__(self) -> int:
        return self._size

    def fetch(self, indices: Any) -> dict[str, Any]:
        """`x` and `y` of the line."""
        import torch

        if self._break_at in indices:
            raise ValueError("the file is cut short")
        self._fetches += 1
        if self._stop_in and self._fetches == 2:
            ask_for_stop(Path(self._stop_in))
        x = torch.from_numpy(indices).float().add(self._start).remainder(7).sub(3).unsqueeze(1)
        return {"x": x, "y": 2 * x + 1}


class Line(Task):
    """Fits a line."""

    data_options: ClassVar[type[Options]] = PointsData
    model_options: ClassVar[type[Options]] = PointsModel
    meters: ClassVar[tuple[str, ...]] = ("loss",)

    def sizes(self, data: PointsData, seed: int) -> Sizes:
        """As the options say."""
        return Sizes(data.num_train, data.num_valid)

    def load(self, data: PointsData, seed: int) -> Splits:
        """Training and validation points."""
        train = Points(0, data.num_train, break_at=data.break_at)
        return Splits(train, Points(data.num_train, data.num_valid, stop_in=data.stop_in_evaluation))

    def num_folds(self, data: PointsData) -> int:
        """Three."""
        return 3

    def model(self, options: PointsModel, data: PointsData) -> Any:
        """One weight and one bias."""
        import torch

        return torch.nn.Linear(1, 1)

    def predict(self, model: Any, batch: dict[str, Any]) -> dict[str, Any]:
        """`y` [examples, 1]."""
        return {"y": model(batch["x"])}

    def outcomes(self, predictions: dict[str, Any], batch: dict[str, Any]) -> dict[str, Any]:
        """Squared distance."""
        return {"loss": (predictions["y"] - batch["y"]).square().sum(dim=1)}


def ask_for_stop(run_dir: Path) -> None:
    """Sends one request, by the first process to ask, and continues once the worker has received it."""
    try:
        (run_dir / "asked").mkdir()
    except FileExistsError:
        return
    requests.submit(run_dir, "stop", by="test", now=time.time())
    while not any(b"RequestSeen" in journal.read_bytes() for journal in run_dir.glob("worker-*.jsonl")):
        threading.Event().wait(0.05)
