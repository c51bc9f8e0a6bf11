"""`TrainingWatch`: notices stalls and the conditions of alerts while a run trains."""

from __future__ import annotations

import time
from pathlib import Path

from tputui.supervise.alerts import AlertRules, Alerts
from tputui.supervise.escalation import Escalation, StallPolicy, StallStacks
from tputui.supervise.record import RunRecord, log_line
from tputui.supervise.worker_state import WorkerState
from tputui.telemetry import events as ev
from tputui.telemetry import run_clock
from tputui.telemetry.rundir import Manifest


class TrainingWatch:
    def __init__(
        self,
        run_dir: Path,
        manifest: Manifest,
        state: WorkerState,
        record: RunRecord,
        escalation: Escalation,
        rules: AlertRules | None,
    ) -> None:
        """`rules` are those of alerts, with which `state` must be measured; None without alerts."""
        self._state = state
        self._record = record
        self._escalation = escalation
        self._stalls = StallPolicy(manifest.config, state, escalation, record.reporter, StallStacks(run_dir))
        self._alerts = Alerts(run_dir, manifest, rules, state, record.emit, log_line) if rules is not None else None

    def check_stall(self) -> ev.RequestKind | None:
        """Reports a new stall; returns the request to make, if any."""
        return self._stalls.check(run_clock.now(), time.monotonic())

    def request_stacks(self) -> None:
        """Requests stacks of a command that has become silent, as of one that stalls."""
        self._stalls.stacks.request()

    def check_alerts(self, silence: str | None, ended: ev.RunEnded | None = None) -> None:
        """Raises and reports alerts; with the end event, those of the end too. No error of them may end the run.

        `silence`: for how long the command has been silent, if that is unusual.
        """
        if self._alerts is None:
            return
        try:
            if ended is not None:
                self._state.read()
                self._state.add(self._record.reporter.writer, ended)
                self._alerts.finish(ended, time.monotonic(), terminated=self._escalation.terminated)
            else:
                self._alerts.check(run_clock.now(), time.monotonic(), silence=silence)
        except Exception as error:
            self._alerts = None
            self._record.warn(f"there are no more alerts, because of a bug in tputui: {type(error).__name__}: {error}")
