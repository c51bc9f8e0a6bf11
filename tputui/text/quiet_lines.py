"""The lines of `--quiet`: one an epoch, warnings, failures and the end; one a minute of a run without epochs."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tputui import formatting as fmt
from tputui.state import snapshot_builder
from tputui.state.process_state import ProcessState
from tputui.state.snapshot import LogLine
from tputui.telemetry import events as ev
from tputui.text.lines import LineWriter, TimedLine

INTERVAL_S = 60.0
"""Shortest time between two reports of a run without epochs."""


class QuietWriter(LineWriter):
    """Prints the start, epochs, warnings, failures and the end, and of a run without epochs a report a minute."""

    def __init__(self, *, timestamps: bool = False) -> None:
        super().__init__(timestamps=timestamps)
        self._newest: TimedLine | None = None
        """Newest report that was not printed."""
        self._printed_t = -math.inf
        """Time of the newest printed report."""
        self._bad: set[tuple[str, str]] = set()
        """Metrics of processes that are NaN or infinite at present, which is printed once."""

    def flush(self) -> list[str]:
        """The newest report of a run without epochs, if it was not printed."""
        return self._stamped([*self._withheld(), *self._last()])

    def _wants(self, line: LogLine, event: ev.Event) -> bool:
        return line.level != "info" or isinstance(event, ev.TrainingEnded | ev.RunEnded)

    def _lines(self, process: str, seq: int, event: ev.Event) -> list[TimedLine]:
        lines = super()._lines(process, seq, event)
        if lines and isinstance(event, ev.TrainingEnded):
            return [*self._last(), *lines]
        return lines

    def _compiled(self, event: ev.XlaMetricsRead, compiles: int, compile_s: float) -> Iterable[str]:
        return ()

    def _own(self, process: ProcessState, event: ev.Event) -> Iterable[str]:
        if isinstance(event, ev.RunStarted | ev.FailureRaised | ev.FailureReported):
            yield from super()._own(process, event)
        elif isinstance(event, ev.TrainingPlanned) and self._is_first(process):
            yield from self._restart(process)
        elif isinstance(event, ev.EpochEnded) and self._is_first(process):
            yield self._epoch(process, event)
        elif isinstance(event, ev.StepsRecorded):
            key = process.name, event.metric
            if not event.bad:
                self._bad.discard(key)
            elif key not in self._bad:
                self._bad.add(key)
                yield from super()._own(process, event)

    def _epoch(self, process: ProcessState, event: ev.EpochEnded) -> str:
        plan = snapshot_builder.plan_of(self._state)
        of_epochs, of_steps = (f"/{plan.num_epochs}", f"/{plan.total_steps}") if plan else ("", "")
        loss = process.values.newest.get("loss") if not event.train else None
        took = event.train_s + event.valid_s
        columns = [
            f"epoch {event.epoch}{of_epochs}",
            f"step {event.step}{of_steps}",
            f"train loss {fmt.number(loss.mean)}" if loss is not None else "",
            fmt.meters_line(event.train, event.valid, event.scores),
            fmt.duration(took) if math.isfinite(took) else "",
            "best" if event.best else "",
        ]
        return "  ".join(column for column in columns if column)

    def _release(self) -> list[TimedLine]:
        return self._sparse(super()._release())

    def _release_logged(self) -> list[TimedLine]:
        return self._sparse(super()._release_logged())

    def _sparse(self, lines: list[TimedLine]) -> list[TimedLine]:
        """The line of a report, if the run has no epochs and the line is due; else withheld until a later one."""
        if not lines or self._has_epochs():
            return []
        if lines[-1][0] - self._printed_t < INTERVAL_S:
            self._newest = lines[-1]
            return []
        self._newest, self._printed_t = None, lines[-1][0]
        return lines

    def _last(self) -> list[TimedLine]:
        """The newest withheld report of a run without epochs; none if it was printed."""
        newest, self._newest = self._newest, None
        return [newest] if newest is not None and not self._has_epochs() else []

    def _has_epochs(self) -> bool:
        return any(worker.epoch_started is not None for worker in self._state.workers)
