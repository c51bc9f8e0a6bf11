"""What is done about a stall, as the run's configuration says: nothing, a word about it, or a save and a stop.

Whether there is one is judged by what every viewer judges by, so that the screen and the deed agree. Must not act but
by what it returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tputui.state.liveness import assess
from tputui.supervise.escalation import Escalation
from tputui.supervise.worker_state import WorkerState
from tputui.telemetry import events as ev
from tputui.telemetry.reporter import Reporter

LOOK_S = 1.0
"""Between two looks."""
SURE_S = 3.0
"""A stall that does not last so long was none: the host's clock may have jumped."""
POLICIES = ("notify", "save-stop", "continue")


class StallPolicy:
    """Finds stalls of the training processes of one worker."""

    def __init__(
        self, config: Mapping[str, Any], ledger: WorkerState, escalation: Escalation, reporter: Reporter
    ) -> None:
        """`config` is the run's."""
        table = config.get("stall")
        policy = table.get("policy") if isinstance(table, dict) else None
        self._policy = policy if policy in POLICIES else "notify"
        self._ledger = ledger
        self._escalation = escalation
        self._reporter = reporter
        self._due = 0.0
        self._since: float | None = None
        self._is_told = False

    def look(self, now: float, tick: float) -> ev.RequestKind | None:
        """What is to be asked of the run at this moment. `now` is unix time, `tick` never goes back."""
        if self._policy == "continue" or tick < self._due:
            return None
        self._due = tick + LOOK_S
        state = self._ledger.state
        gone = {exited.process for writer in state.workers for exited in writer.rank_exits}
        verdict = assess(state, {name: name not in gone for name in state.processes}, now)
        if verdict.condition != "stalled" or not state.workers:
            self._since, self._is_told = None, False
            return None
        self._since = tick if self._since is None else self._since
        if self._is_told or tick - self._since < SURE_S:
            return None
        self._is_told = True
        step = max(writer.steps_done for writer in state.workers)
        self._reporter.emit(ev.StallFound(t=now, text=verdict.reason, step=step, policy=self._policy))
        return self._escalation.on_stall(tick) if self._policy == "save-stop" else None
