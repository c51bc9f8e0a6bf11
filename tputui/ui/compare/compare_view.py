"""The view settings of a comparison, and what its panels draw.

View settings are immutable: every change returns new ones, so that they can be stored and undone.

A reading is delivered if a run has news, and once a second for the ages of live runs.
A run that is over is read to its end and closed. An unreadable run becomes a snapshot with the error. Does not import
Textual.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from tputui.compare.compare import Comparison
from tputui.state.reducer import RunState
from tputui.state.snapshot import Snapshot
from tputui.state.snapshot_builder import ViewerContext, build_snapshot
from tputui.telemetry.events import Split
from tputui.ui.base.reader_thread import PollingThread
from tputui.ui.charts.axis import X_KINDS, XKind
from tputui.ui.charts.columns import WEIGHTS
from tputui.ui.charts.scale import YRange, ranges_of
from tputui.ui.render.lines import Tone

MeterKey = tuple[Split, str]
"""Split and name of a metric; scores belong to the validation split."""


TONES: tuple[Tone, ...] = ("run1", "run2", "run3", "run4", "run5", "run6", "run7", "run8")
"""Colour of each run, by its index."""


class CompareView(NamedTuple):
    """The view settings: base, hidden runs, metric, axes, smoothing, cursor."""

    num_runs: int
    base: int = 0
    """Index of the run that the others are compared to."""
    chosen: int = 0
    """Index of the selected run: keys act on it, and its curve is drawn on top."""
    hidden: frozenset[int] = frozenset()
    """Indices of the runs whose curves are hidden."""
    meter: MeterKey | None = None
    """The metric charted by epoch; None charts the training loss by step."""
    x: XKind = "step"
    log: bool | None = None
    """Whether the y axis is logarithmic; None: if that shows more."""
    smoothing: int = 0
    """Index into `smoothing.WEIGHTS`."""
    cursor: float | None = None
    """Position of the cursor on the x axis, in its unit."""
    ranges: tuple[tuple[str, YRange], ...] = ()
    """The y ranges that differ from the default, by metric, the newest change last."""

    @property
    def metric(self) -> str:
        """The name of the charted metric, as in the stored settings."""
        return "loss" if self.meter is None else " ".join(self.meter)

    @property
    def y(self) -> YRange:
        """The y range of the charted metric."""
        return dict(self.ranges).get(self.metric, YRange())

    def with_y(self, metric: str, y: YRange) -> CompareView:
        """Sets the y range of a metric."""
        others = tuple(entry for entry in self.ranges if entry[0] != metric)
        return self._replace(ranges=others if y.kind == "robust" else (*others, (metric, y)))

    @property
    def weight(self) -> float:
        """Weight of the moving average; 0 disables smoothing."""
        return WEIGHTS[self.smoothing]

    @property
    def order(self) -> list[int]:
        """Indices of the runs, the base first."""
        return [self.base, *(index for index in range(self.num_runs) if index != self.base)]

    def with_stored(self, *, x: str, y_axis: str, smoothing: int, ranges: Sequence[str] = ()) -> CompareView:
        """With the settings of an earlier session; replaces invalid ones by defaults."""
        x_kind: XKind = next((kind for kind in X_KINDS if kind == x), "step")
        weight = min(max(smoothing, 0), len(WEIGHTS) - 1)
        log = {"log": True, "linear": False}.get(y_axis)
        return self._replace(x=x_kind, log=log, smoothing=weight, ranges=tuple(ranges_of(ranges)))

    def choose(self, by: int) -> CompareView:
        """Selects another run, wrapping around."""
        return self._replace(chosen=(self.chosen + by) % self.num_runs)

    def toggle(self) -> CompareView:
        """Hides or shows the selected run's curve; the last visible one stays."""
        hidden = self.hidden ^ {self.chosen}
        return self if len(hidden) == self.num_runs else self._replace(hidden=hidden)

    def rebase(self) -> CompareView:
        """Makes the selected run the base."""
        return self._replace(base=self.chosen)

    def next_x(self) -> CompareView:
        """The next x axis, without a cursor, whose position is in the unit of the old axis."""
        return self._replace(x=X_KINDS[(X_KINDS.index(self.x) + 1) % len(X_KINDS)], cursor=None)

    def next_meter(self, meters: list[MeterKey], by: int) -> CompareView:
        """Cycles through the training loss and the metrics by epoch."""
        choices: list[MeterKey | None] = [None, *meters]
        current = choices.index(self.meter) if self.meter in choices else 0
        return self._replace(meter=choices[(current + by) % len(choices)])

    def smoothed(self, by: int) -> CompareView:
        """More smoothing, or less."""
        return self._replace(smoothing=min(max(self.smoothing + by, 0), len(WEIGHTS) - 1))


class ComparedPart(NamedTuple):
    """The input of every panel."""

    comparison: Comparison
    snapshots: Sequence[Snapshot]
    view: CompareView
    unread: frozenset[int]
    """Indices of the runs that are still being read."""
    ascii_only: bool = False
    """Whether the terminal draws ASCII only."""

    def pretty(self, text: str) -> str:
        """Replaces `+-` by a plus-minus sign if the terminal can draw it."""
        return text if self.ascii_only else text.replace("+-", "\u00b1")


DELIVERY_INTERVAL_S = 0.5
"""Minimum seconds between two readings for the screen; the first one does not wait."""
AGE_INTERVAL_S = 1.0
"""Seconds between two readings that differ only in ages, which are shown in whole seconds."""
POLL_INTERVAL_S = 0.2
"""Seconds between two polls once everything is read."""
_BUDGET_S = 0.04
"""Maximum seconds spent on one run before the next one."""


class ComparedSession(Protocol):
    """The part of `Session` that the reader uses."""

    @property
    def caught_up(self) -> bool: ...
    @property
    def settled(self) -> bool: ...
    def poll(self, budget_s: float) -> object: ...
    def snapshot(self) -> Snapshot: ...
    def close(self) -> None: ...


class RunStates(NamedTuple):
    """The state of every run, in the order of the runs."""

    snapshots: list[Snapshot]
    unread: frozenset[int]
    """Indices of the runs that are not read to their end yet."""


class _Run:
    """A run and its read state."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.source: ComparedSession | None = None
        self.final: Snapshot | None = None
        """The last snapshot, once the run is over or known to be unreadable."""
        self.caught_up = False


class CompareReader(PollingThread):
    """Reads the runs until all are over."""

    def __init__(
        self,
        run_dirs: Sequence[Path],
        deliver: Callable[[RunStates], object],
        open_run: Callable[[Path], ComparedSession],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`deliver` is called in the thread; `clock` returns unix time."""
        super().__init__()
        self._runs = [_Run(run_dir) for run_dir in run_dirs]
        self._deliver = deliver
        self._open = open_run
        self._clock = clock
        self._drawn = threading.Event()
        self._drawn.set()
        self._due = 0.0
        """Monotonic time of the next delivery with news."""
        self._ages_due = 0.0
        """Monotonic time of the next delivery without news."""
        self._has_news = True
        """Whether a run changed since the last delivery."""

    def poll(self) -> float:
        """Reads a slice of every run; stops the thread when all are over."""
        for run in self._runs:
            self._has_news = self._read(run) or self._has_news
        now = time.monotonic()
        if now >= (self._due if self._has_news else self._ages_due) and self._drawn.is_set():
            # Before the delivery: a run that is over by now is so in this reading.
            if all(run.final is not None for run in self._runs):
                self.stop()
            self._due, self._ages_due = now + DELIVERY_INTERVAL_S, now + AGE_INTERVAL_S
            self._has_news = False
            self._drawn.clear()
            self._deliver(self._reading())
        return POLL_INTERVAL_S if all(run.caught_up for run in self._runs) else 0.0

    def close(self) -> None:
        """Closes the runs that are open."""
        for run in self._runs:
            _close(run)

    def drawn(self) -> None:
        """Allows the next delivery: the screen has drawn the last one."""
        self._drawn.set()

    def _read(self, run: _Run) -> bool:
        """Reads a slice of a run; returns whether it has news."""
        if run.final is not None:
            return False
        has_news = not run.caught_up
        try:
            if run.source is None:
                run.source = self._open(run.run_dir)
            has_news = bool(run.source.poll(_BUDGET_S)) or has_news
            run.caught_up = run.source.caught_up
            if run.caught_up and run.source.settled:
                run.final = run.source.snapshot()
        except OSError as error:
            run.final, run.caught_up = self._unreadable(run.run_dir, error), True
        if run.final is not None:
            _close(run)
        return has_news or run.final is not None

    def _reading(self) -> RunStates:
        snapshots = [self._snapshot(run) for run in self._runs]
        return RunStates(snapshots, frozenset(index for index, run in enumerate(self._runs) if not run.caught_up))

    def _snapshot(self, run: _Run) -> Snapshot:
        if run.final is None and run.source is not None:
            try:
                return run.source.snapshot()
            except OSError as error:
                run.final, run.caught_up = self._unreadable(run.run_dir, error), True
                _close(run)
        assert run.final is not None
        return run.final

    def _unreadable(self, run_dir: Path, error: OSError) -> Snapshot:
        reason = f"cannot read the run: {error.strerror or error}: {error.filename or run_dir}"
        return build_snapshot(
            RunState(),
            ViewerContext(now=self._clock(), run=run_dir.absolute().name, dir=str(run_dir), troubles=[reason]),
        )


def _close(run: _Run) -> None:
    if run.source is not None:
        run.source.close()
        run.source = None
