"""What every callback shares: a run directory, a journal, a heart that beats, and the promise never to harm training.

A run that a script makes has no supervisor, so it can be watched, replayed and shown, and requests to it are refused
in words. Must not import a training framework.
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
from tputui.telemetry import requests, rundir
from tputui.telemetry.reporter import Reporter

ROLE = "worker"
HEARTBEAT_INTERVAL_S = 0.5
REFUSAL = "this run is told of by a callback in a script of your own, which takes no requests; end it where it runs"
_log = logging.getLogger("tputui")
_Arguments = ParamSpec("_Arguments")
_Self = TypeVar("_Self", bound="Harmless")


class CallbackRun:
    """One process of a run, as a script tells of it."""

    def __init__(self, what: str, *, runs_dir: str | None = None, config: Mapping[str, Any] | None = None) -> None:
        """Makes a run named after the time and `what`, or joins the one that the environment names.

        Raises `FileExistsError` where this process is told of already, and `OSError` where nothing can be written.
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
        self._heart = threading.Thread(target=self._beat_until_ended, name="tputui-heart", daemon=True)
        self._heart.start()

    def enter(self, phase: ev.Phase) -> None:
        """The script is doing this from now on."""
        if phase != self._phase:
            self._phase, self._since = phase, time.monotonic()

    @property
    def phase(self) -> ev.Phase:
        """What the script is doing."""
        return self._phase

    def emit(self, event: ev.Event) -> None:
        """Records a fact."""
        self.reporter.emit(event)

    def warn(self, text: str) -> None:
        """Something the user should know."""
        self.emit(ev.WarningRaised(t=time.time(), text=text))

    def end(self, outcome: ev.Outcome, reason: str) -> None:
        """Says the last word and closes the journal. Once; later calls do nothing."""
        if self._ended.is_set():
            return
        self.enter("ending")
        self._ended.set()
        self._heart.join(HEARTBEAT_INTERVAL_S)
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
    """Base of callbacks whose errors are told once and never reach the training."""

    _shell: CallbackRun | None = None
    _told = False

    def _tell_once(self, error: Exception, where: str) -> None:
        if self._told:
            return
        self._told = True
        text = f"tputui could not follow {where}: {type(error).__name__}: {error}; training goes on, less is shown"
        _log.warning(text, exc_info=error)
        if self._shell is not None:
            self._shell.warn(text)


def harmless(
    hook: Callable[Concatenate[_Self, _Arguments], None],
) -> Callable[Concatenate[_Self, _Arguments], None]:
    """Guards a hook: whatever goes wrong in it must not end a training that it only watches."""

    @functools.wraps(hook)
    def guarded(self: _Self, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> None:
        try:
            hook(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001, RUF100 - told once; a callback's error would kill every rank
            self._tell_once(error, hook.__name__)

    return guarded  # type: ignore[return-value]  # wraps() calls it bound


def _make(what: str, parent: Path, config: Mapping[str, Any]) -> Path:
    now, number = time.time(), 1
    base = time.strftime("%Y%m%d-%H%M%S-", time.localtime(now)) + re.sub(r"[^A-Za-z0-9._-]+", "-", what)[:64]
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
        )
        try:
            return rundir.create(parent, manifest)
        except FileExistsError:
            number += 1
