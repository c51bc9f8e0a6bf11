"""Checkpoints of a script: reports the ones it saved, and carries out requests to save."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tputui.integrations import artifacts
from tputui.integrations.pace import Pace
from tputui.integrations.run_phases import Phases
from tputui.integrations.run_requests import Saved
from tputui.telemetry import events as ev

if TYPE_CHECKING:
    from tputui.integrations.run_process import RunProcess

_clock = time.perf_counter


class Saves:
    """The checkpoints of one thread."""

    def __init__(self, process: RunProcess, pace: Pace, phases: Phases, column: int) -> None:
        self._process = process
        self._pace = pace
        self._phases = phases
        self._column = column

    def report(self, path: Path, seconds: float, best: bool, reason: str) -> tuple[str, int]:
        """Reports a checkpoint; returns its path relative to the run directory, and its bytes."""
        shown, num_bytes = artifacts.shown_path(path, self._process.run_dir), artifacts.num_bytes(path)
        self._process.emit(
            ev.CheckpointSaved(
                t=time.time(),
                path=shown,
                step=self._pace.step,
                epoch=self._process.epoch,
                bytes=num_bytes,
                seconds=float(seconds),
                reason=reason,
                best=bool(best),
            )
        )
        return shown, num_bytes

    def report_removed(self, path: Path) -> None:
        """Reports that a checkpoint was removed."""
        shown = artifacts.shown_path(path, self._process.run_dir)
        self._process.emit(ev.CheckpointDropped(t=time.time(), path=shown))

    def asked(self) -> list[Any]:
        """The requests for which the script shall save now."""
        return self._process.requests.saves_due(self._pace.step, self._column)

    def serve(self, save: Callable[[], Any], asked: Sequence[Any]) -> bool:
        """Calls `save` for these requests; returns whether it did not raise."""
        began = _clock()
        try:
            with self._phases.context("save"):
                saved = save()
        except Exception as error:  # noqa: BLE001, RUF100 - a save that the user asked for must not end training
            why = f"the script could not save: {type(error).__name__}: {error}"
            self._process.requests.saved([*asked], self._column, Saved(self._pace.step, why_not=why))
            self._process.warn(f"the requested save failed: {type(error).__name__}: {error}; training continues")
            return False
        path = Path(saved) if isinstance(saved, str | Path) else None
        self.answer(asked, path, _clock() - began)
        return True

    def answer(self, asked: Sequence[Any], path: Path | None, seconds: float) -> None:
        """Reports that a checkpoint was saved for these requests. All ranks may have the path of one file."""
        requests = self._process.requests
        shown, num_bytes = None, None
        try:
            if path is not None and requests.reports_saves and not self._column:
                shown, num_bytes = self.report(path, seconds, best=False, reason="request")
        except FileNotFoundError:
            # One rank writes it, perhaps on another host.
            if self._process.rank == 0:
                self._process.warn(f"the requested save returned {path}, which does not exist")
        finally:
            # An open request would be served again at the next step, perhaps by this rank alone.
            requests.saved([*asked], self._column, Saved(self._pace.step, shown, num_bytes, seconds))
