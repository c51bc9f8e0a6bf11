"""A task that one rank computes slower than the others, from a given step on."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

from engine.task import Options
from tests.engine.mytask import Line, PointsModel

TIMES = "SLOW_RANK_TIMES"
"""Environment variable: file to which the slow rank appends a line with step and unix time at the end of each delay."""


class SlowRankModel(PointsModel, frozen=True, kw_only=True):
    """Keys of `[model]`."""

    rank: int = -1
    """The slow rank; -1 for none."""
    from_step: int = 1
    """Its first slow step."""
    delay_s: float = 0.0
    """How much longer it takes."""


class SlowRank(Line):
    """Fits a line."""

    model_options: ClassVar[type[Options]] = SlowRankModel

    def model(self, options: SlowRankModel, data: Any) -> Any:  # type: ignore[override]
        """One weight and one bias."""
        self._options, self._step = options, 0
        return super().model(options, data)

    def predict(self, model: Any, batch: dict[str, Any]) -> dict[str, Any]:
        """`y` [examples, 1]."""
        if model.training:
            self._step += 1
            if self._options.rank == own_rank() and self._step >= self._options.from_step:
                threading.Event().wait(self._options.delay_s)
                with Path(os.environ[TIMES]).open("a") as times:
                    times.write(f"{self._step} {time.time()}\n")
        return super().predict(model, batch)


def own_rank() -> int:
    """The rank of this process, by its command line."""
    if "--ranks" not in sys.argv:
        return 0
    return int(sys.argv[sys.argv.index("--ranks") + 1].partition("-")[0])
