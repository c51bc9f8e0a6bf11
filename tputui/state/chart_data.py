"""What the charts and the timeline draw: points of series, values per core, marks.

Every list of them is bounded in length, however long the run is. Steps count from 1; times are unix times in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from tputui.state.state_struct import CORES_MAX, Metric
from tputui.telemetry.events import AlertRaised, Int, Split

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
    "restart",
    "end",
]
"""An epoch began; programs were compiled, in warm-up or later; a checkpoint was saved; an epoch was the best so far; a
request was made or answered; values became NaN or infinite; no event or no step for long; a warning; a failure; the run
was resumed from a checkpoint; its training processes were restarted; the run ended."""

Core = Annotated[int, msgspec.Meta(ge=0, lt=CORES_MAX)]


class Segment(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Consecutive steps of a series, reduced for charts. A one-step spike is preserved in `max`."""

    first_step: int
    last_step: int
    mean: float
    """Mean of the finite values over its steps and cores; NaN if none is finite."""
    min: float
    max: float
    num_values: int
    """Finite values in it."""
    num_bad: int
    """NaN and infinite values in it."""

    t: float = 0.0
    """Unix time at which its last step was reported; 0 if unknown."""


class CoreValue(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The value of a core in a step."""

    core: Core
    step: Int
    value: float


class NonFinite(CoreValue, frozen=True, kw_only=True, gc=False):
    """A NaN or infinite value of a core."""

    metric: Metric


class CoreColumn(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The loss of each core over consecutive steps. Shared between snapshots: do not modify.

    Columns follow each other without a gap and may differ in width. In a long run only some of the steps are sampled,
    see `tputui.state.core_series`.
    """

    first_step: int
    last_step: int
    means: Sequence[float]
    """[cores] float32, by global core index: mean of the finite values of the sampled steps; NaN without one."""
    bad_cores: tuple[int, ...]
    """Cores with a NaN or infinite value in a sampled step, in order."""
    num_steps: int
    """Sampled steps: all from the first to the last, or fewer."""
    middle: float
    """Mean of the sampled step numbers: the position of the point of a curve."""
    highest: CoreValue | None = None
    """The highest finite value of all its steps, sampled or not; None if there is none or its core is not known. The
    newest step may have a column of its own and still hold the extreme of the column before."""
    lowest: CoreValue | None = None

    @property
    def is_sampled(self) -> bool:
        """Whether steps were left out."""
        return self.num_steps < self.last_step - self.first_step + 1


class OutlierView(msgspec.Struct, frozen=True, kw_only=True):
    """A core whose loss differs persistently from the others, see `tputui.state.outlier`."""

    core: Core
    by: float
    """Largest difference from the median core, in units of the loss; negative if below."""
    first_step: Int
    last_step: Int
    """Steps from the first to the last in which it was off."""


class SlowCoreView(msgspec.Struct, frozen=True, kw_only=True):
    """A core that computes persistently slower than the others, see `tputui.state.slow_core`."""

    core: int
    share: float
    """How much longer it computes than the median of the others, over the newest 20 steps: 0.25 for a quarter."""
    first_step: int
    num_steps: int
    """Steps since then in which it was slower."""


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A mark on the timeline."""

    t: float
    """Unix time in seconds."""
    step: int
    """Newest step at that time; for an epoch its first step."""
    kind: MarkKind
    text: str
    """`saved 1.2 MiB in 0.30 s: checkpoints/last.pt`."""
    core: int | None
    """The core concerned, if it is a single one."""


class AlertView(AlertRaised, frozen=True, kw_only=True, tag=False):
    """An alert of the run, and to which of its targets it was sent."""

    delivered: list[str] = []
    """Kinds of the targets that it was delivered to."""
    failed: list[str] = []
    """Kinds of the targets that it could not be delivered to."""


class ThroughputPoint(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Throughput of one report, or the mean over neighbouring ones."""

    t: float
    """Unix time of the last of them."""
    step: int
    """Steps done then."""
    step_s: float
    """Mean wall time of a step in seconds, without compiling."""
    examples_per_s: float
    lr: float = math.nan
    """Learning rate of the last of them; NaN if unknown."""


class ThroughputView(msgspec.Struct, frozen=True, kw_only=True):
    """Throughput of training."""

    examples_per_s: float
    """By the reports of the last 10 s, over all cores."""
    steady_step_s: float
    """Median step time of the run so far after its warm-up, so that the start and hiccups do not count."""
    steady_examples_per_s: float
    """Examples per second of the run so far in the same way; NaN if unknown."""
    step_p50_s: float
    """Median step time in seconds, exact to 0.1 %. Computed from the mean step time of each report, weighted by its
    number of steps, since single steps are not timed."""
    step_p95_s: float
    """95th percentile of the step times in seconds, from the same means: a single slow step in a report does not
    show."""
    num_reports: int
    """Reports that these values are based on."""
    history: list[ThroughputPoint]
    """In order of time; at most 512 however long the run."""
    eta_epoch_s: float | None
    """Seconds to the end of the running epoch, including its evaluation; None if unknown."""


class MemoryPoint(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Memory and traffic at one time, as one process sampled it, or of all. Over neighbouring samples, memory is the
    maximum, and CPU and traffic are the mean."""

    t: float
    """Unix time in seconds."""
    hbm_used_bytes: int | None = None
    """Of the fullest core."""
    host_used_bytes: int | None = None
    """Over all hosts."""
    rss_bytes: int | None = None
    """Of the processes of the run, over all hosts."""
    cpu_percent: float | None = None
    """Mean over the hosts; 100 is every CPU busy."""
    disk_read_bytes_per_s: float | None = None
    """As all rates, over all hosts."""
    disk_written_bytes_per_s: float | None = None
    network_received_bytes_per_s: float | None = None
    network_sent_bytes_per_s: float | None = None
    num_samples: int = 1
    """Samples that the means are of."""

    def join(self, later: MemoryPoint) -> MemoryPoint:
        """Both together."""
        return MemoryPoint(
            t=later.t,
            hbm_used_bytes=_most(self.hbm_used_bytes, later.hbm_used_bytes),
            host_used_bytes=_most(self.host_used_bytes, later.host_used_bytes),
            rss_bytes=_most(self.rss_bytes, later.rss_bytes),
            num_samples=self.num_samples + later.num_samples,
            **{name: self._mean(later, name) for name in ("cpu_percent", *TRAFFIC_RATES)},
        )

    def _mean(self, later: MemoryPoint, name: str) -> float | None:
        left: float | None = getattr(self, name)
        right: float | None = getattr(later, name)
        if left is None or right is None:
            return right if left is None else left
        share = later.num_samples / (self.num_samples + later.num_samples)
        return left + (right - left) * share


TRAFFIC_RATES = (
    "disk_read_bytes_per_s",
    "disk_written_bytes_per_s",
    "network_received_bytes_per_s",
    "network_sent_bytes_per_s",
)
"""The fields of a `MemoryPoint` that are the traffic of the hosts, in bytes per second."""


def _most(left: int | None, right: int | None) -> int | None:
    return max((value for value in (left, right) if value is not None), default=None)


class DevicePoint(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The duty cycle of the cores of a host at one time, or over neighbouring samples."""

    t: float
    """Unix time in seconds."""
    duty_cycle_percent: float
    """Mean over the cores."""
    lowest_percent: float
    """Of the core with the lowest one."""


class XlaPoint(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Counters of the XLA runtime at one time, of one process or summed over all: totals since they started, so that
    leaving some out loses no amount."""

    t: float
    """Unix time in seconds."""
    step: int
    """Steps done then."""
    compiles: int
    compile_s: float
    executes: int
    execute_s: float


class MeterPoint(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """AverageMeters at one step."""

    epoch: int
    split: Split
    step: int
    avg: dict[str, float]
    """Mean over the examples of the epoch so far, by name of the meter."""


class LoggedView(msgspec.Struct, frozen=True, kw_only=True):
    """A metric of one split that the script logged itself: read from its log files, or from text that it printed."""

    name: str
    split: Split
    tag: str
    """Its name in the log: `eval_loss`."""
    source: str
    """Path of the log; `console` for values that were read from printed text."""
    value: float
    """The newest value, exactly."""
    step: int
    t: float | None
    """Unix time at which the newest value was logged; None if unknown."""
    epoch: float | None
    """Epoch of the newest value as it was logged, possibly fractional; None if unknown."""
    num_values: int
    """Finite values."""
    num_bad: int
    """NaN and infinite values."""
    min: float
    """Minimum of all finite values; NaN if none is finite."""
    max: float
    points: Sequence[Segment]
    """In order of steps; at most 512 however long the run, and fewer if more than 625 are logged."""
    counted: bool = False
    """Whether the log has no steps, so that `step` counts its values."""
    x: str = ""
    """The x axis that its author chose: the `tag` of another metric, `epoch`, or `time`; empty for steps."""


def share_between(value: float, low: float, high: float) -> float:
    """Position of a value: 0 at `low`, 1 at `high`; 0.5 if these are equal."""
    if not high > low:
        return 0.5
    span = high - low
    # The difference of two floats may be greater than the greatest float.
    return (value - low) / span if math.isfinite(span) else (value / 2 - low / 2) / (high / 2 - low / 2)
