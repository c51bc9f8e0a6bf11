"""What the views say about a run as a whole: each fact has one definition, one value and one text.

Screens, `show`, JSON, HTML pages, notebooks, comparisons, lists of runs and Prometheus take these facts from here.
`docs/facts.md` is generated from this table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from tputui import formatting as fmt
from tputui.state.run_condition import ENDED
from tputui.state.snapshot import Snapshot, best_epoch, monitored
from tputui.telemetry.events import EpochEnded

Value = TypeVar("Value", int, float, str)

Unit = Literal["", "epochs", "steps", "seconds", "examples per second"]


@dataclass(frozen=True, slots=True)
class Fact(Generic[Value]):
    """A fact about a run."""

    label: str
    """What views call it."""
    unit: Unit
    definition: str
    """What the value is, as a sentence."""
    of: Callable[[Snapshot], Value | None]
    """The value; None if it is not known, or makes no sense for the run."""
    format: Callable[[Value], str]
    """The value as text, with its unit."""
    key: str
    """Its key in the object of `show --json`; `a.b` for the key `b` of the object `a`."""

    def text(self, snapshot: Snapshot) -> str:
        """The value as text; empty if there is none."""
        value = self.of(snapshot)
        return "" if value is None else self.format(value)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _duration_s(snapshot: Snapshot) -> float | None:
    if snapshot.started is None:
        return None
    until = snapshot.now
    if snapshot.condition in ENDED:
        until = snapshot.ended or snapshot.newest_fact or until
    return max(0.0, until - snapshot.started)


def _steady(snapshot: Snapshot, examples: bool) -> float | None:
    pace = snapshot.throughput
    if pace is None:
        return None
    return _finite(pace.steady_examples_per_s if examples else pace.steady_step_s)


def _recompiles(snapshot: Snapshot) -> int | None:
    xla = snapshot.xla
    return xla.recompiles if xla is not None and xla.is_never_recompiled is not None else None


def _best(snapshot: Snapshot) -> EpochEnded | None:
    return best_epoch(snapshot.epochs)


def _best_value(snapshot: Snapshot) -> float | None:
    best = _best(snapshot)
    return best.figure(monitored(snapshot.config, snapshot.epochs)) if best is not None else None


def _steps(snapshot: Snapshot) -> int | None:
    """None for logs without steps, whose values are only counted."""
    if snapshot.logged and all(view.counted for view in snapshot.logged):
        return None
    return snapshot.steps or None


def _step_text(seconds: float) -> str:
    return f"{fmt.step_time(seconds)}/step"


def _rate(per_s: float) -> str:
    return fmt.rate(per_s, "examples")


STATE: Fact[str] = Fact(
    "state", "", "What the run does, or how it ended; its reason is beside it.", lambda run: run.condition, str, "state"
)
DURATION: Fact[float] = Fact(
    "duration",
    "seconds",
    "Wall time since the first event; of an ended run up to its end, or of a lost one up to its newest event.",
    _duration_s,
    fmt.duration,
    "duration_s",
)
EPOCH: Fact[int] = Fact(
    "epoch", "epochs", "The epoch in training, or the last one; epochs count from 1.",
    lambda run: run.epoch or None, fmt.count, "epoch",
)  # fmt: skip
STEP: Fact[int] = Fact(
    "step", "steps", "Training steps done, with those before a resume.",
    _steps, fmt.count, "steps",
)  # fmt: skip
LOSS: Fact[float] = Fact(
    "train loss",
    "",
    "Training loss of the newest step: its mean over the cores. NaN or infinite if that of a core is.",
    lambda run: run.newest_loss,
    fmt.number,
    "train_loss",
)
EPOCH_LOSS: Fact[float] = Fact(
    "train loss of the epoch",
    "",
    "Mean training loss over the examples of the last epoch that ended. Lists and comparisons show this one for runs "
    "that have ended.",
    lambda run: run.epoch_loss,
    fmt.number,
    "epoch_loss",
)


def listed_loss(snapshot: Snapshot) -> Fact[float]:
    """The training loss that lists and comparisons show: that of the epoch for a run that has ended, else, or if it has
    none, that of the newest step."""
    return EPOCH_LOSS if snapshot.condition in ENDED and EPOCH_LOSS.of(snapshot) is not None else LOSS


BEST_EPOCH: Fact[int] = Fact(
    "best epoch",
    "epochs",
    "The epoch with the best value of `checkpoint.monitor` so far: exactly one. `best_so_far` of an epoch says that it "
    "was the best one when it ended.",
    lambda run: best.epoch if (best := _best(run)) is not None else None,
    fmt.count,
    "best_epoch",
)
BEST_VALUE: Fact[float] = Fact(
    "best value", "", "The validation metric that `checkpoint.monitor` names, in the best epoch.",
    _best_value, fmt.number, "best_value",
)  # fmt: skip
STEP_TIME: Fact[float] = Fact(
    "step time",
    "seconds",
    "Wall time of a training step, without compiling, evaluating and saving: by the reports of the last 10 s "
    "while the run trains, once it has ended that at steady state.",
    lambda run: _finite(run.step_s),
    _step_text,
    "step_s",
)
SPEED: Fact[float] = Fact(
    "speed",
    "examples per second",
    "Training examples per second over all cores: by the reports of the last 10 s while the run trains, once it has "
    "ended that at steady state.",
    lambda run: _finite(run.examples_per_s) or None,
    _rate,
    "examples_per_s",
)
STEADY_STEP_TIME: Fact[float] = Fact(
    "steady step time",
    "seconds",
    "Median wall time of a training step over the whole run after its warm-up.",
    lambda run: _steady(run, False),
    _step_text,
    "throughput.steady_step_s",
)
STEADY_SPEED: Fact[float] = Fact(
    "steady speed",
    "examples per second",
    "Median of the reported examples per second over the whole run after its warm-up. Comparisons judge this one.",
    lambda run: _steady(run, True),
    _rate,
    "throughput.steady_examples_per_s",
)
LEARNING_RATE: Fact[float] = Fact(
    "lr", "", "Learning rate of the newest report.", lambda run: run.lr, fmt.exact, "lr"
)  # fmt: skip
REMAINING: Fact[float] = Fact(
    "remaining", "seconds", "Estimated time to the end of training; none once the run has ended.",
    lambda run: run.eta_s if run.condition not in ENDED else None, fmt.whole, "eta_s",
)  # fmt: skip
COMPILES: Fact[int] = Fact(
    "compiles", "", "Programs that XLA compiled, of all processes, each counted once; since the newest restart.",
    lambda run: run.xla.compiles if run.xla is not None else None, fmt.count, "xla.compiles",
)  # fmt: skip
RECOMPILES: Fact[int] = Fact(
    "recompiles",
    "",
    "Compilations after warm-up of programs that compile again and again, of the process with most of them. Not known "
    "before the end of warm-up, or if only syncs are counted and there were none.",
    _recompiles,
    fmt.count,
    "xla.recompiles",
)
EXIT_CODE: Fact[int] = Fact(
    "exit code of tputui", "", "Exit code of the run as `tputui run` and `tputui wait` exit with it.",
    lambda run: run.exit_code, str, "exit_code",
)  # fmt: skip
COMMAND_EXIT_CODE: Fact[int] = Fact(
    "exit code of the command",
    "",
    "Exit code of the user's own command, if the run is one; none if a signal ended it.",
    lambda run: run.command_exit_code,
    str,
    "command_exit_code",
)

FACTS: tuple[Fact[int] | Fact[float] | Fact[str], ...] = (
    STATE,
    DURATION,
    EPOCH,
    STEP,
    LOSS,
    EPOCH_LOSS,
    BEST_EPOCH,
    BEST_VALUE,
    STEP_TIME,
    SPEED,
    STEADY_STEP_TIME,
    STEADY_SPEED,
    LEARNING_RATE,
    REMAINING,
    COMPILES,
    RECOMPILES,
    EXIT_CODE,
    COMMAND_EXIT_CODE,
)
