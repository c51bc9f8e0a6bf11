"""What the charts and the timeline draw: points of series, values per core, marks.

Every list of them is bounded in length, however long the run is. Steps count from 1; times are unix times in seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import msgspec

from tputui.telemetry.events import Split

MarkKind = Literal[
    "epoch",
    "compile",
    "recompile",
    "checkpoint",
    "best",
    "request",
    "non_finite",
    "stall",
    "warning",
    "failure",
    "resume",
    "end",
]
"""What happened: an epoch began; programs were compiled, in warm-up or later; a checkpoint was saved; an epoch was the
best so far; a person asked, or was answered; values became NaN or infinite; no word or no step for long; something the
user should know; training broke; it goes on from a checkpoint; the run ended."""


MARK_KINDS: tuple[MarkKind, ...] = get_args(MarkKind)


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a series: consecutive steps reduced to what a chart needs. A one-step spike survives in `max`."""

    first_step: int
    last_step: int
    mean: float
    """Mean of the finite values over its steps and cores; NaN where none is finite."""
    min: float
    max: float
    num_values: int
    """Finite values in it."""
    num_bad: int
    """NaN and infinite values in it."""

    t: float = 0.0
    """Unix time at which its last step was reported; 0 where that was not told."""


class CoreColumn(msgspec.Struct, frozen=True, kw_only=True):
    """What each core's loss was over consecutive steps. Shared between snapshots: not to be changed.

    Columns follow each other without a gap, and need not be of one width. One of a long run is made of samples of its
    steps: see `tputui.state.core_series` for which.
    """

    first_step: int
    last_step: int
    means: Sequence[float]
    """[cores] an array of float32, by global index of the core: mean of the finite values of the steps that were
    sampled; NaN where there is none, so for a core that does not tell."""
    bad_cores: tuple[int, ...]
    """Cores with a NaN or an infinity in a step that was sampled, in order."""
    num_steps: int
    """Steps that were sampled: all from the first to the last, or fewer."""
    middle: float
    """Mean of the steps that were sampled, where a curve has its point."""

    @property
    def is_sampled(self) -> bool:
        """Whether steps were passed over."""
        return self.num_steps < self.last_step - self.first_step + 1


class OutlierView(msgspec.Struct, frozen=True, kw_only=True):
    """A core whose loss differs persistently from the others; see `tputui.state.outlier` for what that takes."""

    core: int
    by: float
    """Its greatest distance from the median core, in units of the loss; negative below."""
    first_step: int
    last_step: int
    """Steps from the first to the last in which it was off."""


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened at a moment."""

    t: float
    """Unix time in seconds."""
    step: int
    """Newest step done then; for an epoch its first one."""
    kind: MarkKind
    text: str
    """For a person: `saved 1.2 MiB in 0.30 s: checkpoints/last.pt`."""
    core: int | None
    """The core it befell, where it was one."""


class EpochStart(msgspec.Struct, frozen=True, kw_only=True):
    """When an epoch began."""

    epoch: int
    first_step: int
    """Its first step in this run."""
    t: float
    """Unix time in seconds."""


class ThroughputPoint(msgspec.Struct, frozen=True, kw_only=True):
    """How fast training went over one report, or the mean over neighbouring ones."""

    t: float
    """Unix time of the last of them."""
    step: int
    """Steps done then."""
    step_s: float
    """Mean wall time of a step in seconds, compiling left out."""
    examples_per_s: float


class ThroughputView(msgspec.Struct, frozen=True, kw_only=True):
    """How fast training goes."""

    examples_per_s: float
    """By the newest report, over all cores."""
    steady_examples_per_s: float
    """At the median step time of the run so far, so that neither the start nor a hiccup counts."""
    step_p50_s: float
    """Median step time in seconds. Steps' own times are not recorded: it is over the reports' mean step times, each
    counted once for every step in it, and exact to 0.1 %."""
    step_p95_s: float
    """The step time in seconds that 95 % of the steps keep, in the same way over reports' means: a single slow step
    within a report does not show in it."""
    num_reports: int
    """Reports that these figures are over."""
    history: list[ThroughputPoint]
    """In order of time; at most 512 however long the run."""
    eta_epoch_s: float | None
    """Seconds to the end of the running epoch, its evaluation included; None where it cannot be told."""


class MemoryPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Memory at a moment, or the most of it over neighbouring ones."""

    t: float
    """Unix time in seconds."""
    hbm_used_bytes: int | None
    """Of the fullest core."""
    host_used_bytes: int | None
    """Over all hosts."""
    rss_bytes: int | None
    """Of the processes of the run, over all hosts."""


class MeterPoint(msgspec.Struct, frozen=True, kw_only=True):
    """What AverageMeters showed at a step."""

    epoch: int
    split: Split
    step: int
    avg: dict[str, float]
    """Mean over the epoch's examples so far, by name of the meter."""
