"""Base of callbacks: `CallbackRun`, a run directory with journal and heartbeat, and `harmless` hooks.

A run that a script creates has no supervisor, so it can be watched, replayed and shown, but requests to it are refused.
Must not import a training framework.
"""

from __future__ import annotations

import functools
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from tputui import __version__
from tputui.telemetry import events as ev
from tputui.telemetry import provenance, requests, rundir
from tputui.telemetry.reporter import Reporter

ROLE = "worker"
HEARTBEAT_INTERVAL_S = 0.5
REFUSAL = "runs reported by TputuiCallback cannot be controlled from here; end the script itself"
_log = logging.getLogger("tputui")
_Arguments = ParamSpec("_Arguments")
_Self = TypeVar("_Self", bound="Harmless")


class CallbackRun:
    """One process of a run that a script reports."""

    def __init__(self, what: str, *, runs_dir: str | None = None, config: Mapping[str, Any] | None = None) -> None:
        """Creates a run named after the time and `what`, or joins the run that the environment names.

        Raises `FileExistsError` if this process is reported already, and `OSError` if nothing can be written.
        """
        named = os.environ.get(rundir.RUN_DIR_VARIABLE)
        self.run_dir = Path(named) if named else _make(what, rundir.runs_dir(runs_dir, os.environ), config or {})
        self.reporter = Reporter(self.run_dir, ROLE)
        self.step = 0
        """Newest step."""
        self.epoch = 0
        """Epoch in training; 0 before the first."""
        self._phase: ev.Phase = "starting"
        self._since = time.monotonic()
        self._inbox = requests.Inbox(self.run_dir)
        self._ended = threading.Event()
        self._heartbeat = threading.Thread(target=self._beat_until_ended, name="tputui-heartbeat", daemon=True)
        self._heartbeat.start()

    def enter(self, phase: ev.Phase) -> None:
        """Begins a phase."""
        if phase != self._phase:
            self._phase, self._since = phase, time.monotonic()

    @property
    def phase(self) -> ev.Phase:
        """The current phase."""
        return self._phase

    def emit(self, event: ev.Event) -> None:
        """Writes an event to the journal."""
        self.reporter.emit(event)

    def warn(self, text: str) -> None:
        """Emits a warning for the user."""
        self.emit(ev.WarningRaised(t=time.time(), text=text))

    def end(self, outcome: ev.Outcome, reason: str) -> None:
        """Reports the end and closes the journal. Later calls do nothing."""
        if self._ended.is_set():
            return
        self.enter("ending")
        self._ended.set()
        self._heartbeat.join(HEARTBEAT_INTERVAL_S)
        self.emit(ev.TrainingEnded(t=time.time(), outcome=outcome, step=self.step, reason=reason))
        self.reporter.close()

    def _beat_until_ended(self) -> None:
        while True:
            phase_s = time.monotonic() - self._since
            self.emit(
                ev.HeartbeatSent(t=time.time(), phase=self._phase, phase_s=phase_s, step=self.step, epoch=self.epoch)
            )
            for request in self._inbox.poll():
                self._refuse(request)
            if self._ended.wait(HEARTBEAT_INTERVAL_S):
                return

    def _refuse(self, request: requests.Request) -> None:
        now, kind = time.time(), request.kind
        self.emit(ev.RequestSeen(t=now, request=request.id, kind=kind, phase=self._phase, step=self.step))
        self.emit(ev.RequestRefused(t=now, request=request.id, kind=kind, why=REFUSAL))


class Harmless:
    """Base of callbacks whose errors are reported once and never reach the training."""

    _run: CallbackRun | None = None
    _error_reported = False

    def _report_once(self, error: Exception, where: str) -> None:
        if self._error_reported:
            return
        self._error_reported = True
        what = f"{type(error).__name__}: {error}"
        text = f"TputuiCallback failed in {where}: {what}; training goes on, some values are missing"
        _log.warning(text, exc_info=error)
        if self._run is not None:
            self._run.warn(text)


def harmless(
    hook: Callable[Concatenate[_Self, _Arguments], None],
) -> Callable[Concatenate[_Self, _Arguments], None]:
    """Catches every error of a hook, so that it does not end a training that it only reports."""

    @functools.wraps(hook)
    def guarded(self: _Self, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> None:
        try:
            hook(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001, RUF100 - reported once; an error of a callback would kill every rank
            self._report_once(error, hook.__name__)

    return guarded  # type: ignore[return-value]  # wraps() calls it bound


def _make(what: str, parent: Path, config: Mapping[str, Any]) -> Path:
    now, number = time.time(), 1
    base = time.strftime("%Y%m%d-%H%M%S-", time.localtime(now)) + re.sub(r"[^A-Za-z0-9._-]+", "-", what)[:64]
    origin = provenance.collect(Path.cwd())
    while True:
        name = base if number == 1 else f"{base}-{number}"
        manifest = rundir.Manifest(
            run=name,
            created=now,
            version=__version__,
            config_path=sys.argv[0],
            config=dict(config),
            argv=list(sys.argv),
            cwd=os.getcwd(),
        ).with_provenance(origin)
        try:
            return rundir.create(parent, manifest)
        except FileExistsError:
            number += 1
