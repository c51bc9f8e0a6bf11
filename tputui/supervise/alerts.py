"""Evaluates the conditions of `[alerts]` once a second, and raises an alert when one begins to hold.

Runs in the supervisor, so no viewer is needed; therefore the condition `lost`, which means that the supervisor is gone,
can never hold here. A viewer and `tputui wait` see it. Nothing in here may end or delay the loop of the supervisor.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tputui import formatting as fmt
from tputui.state import conditions
from tputui.state.conditions import Condition, InvalidCondition
from tputui.state.liveness import Liveness, assess
from tputui.state.metric_series import MetricSource, metric_series
from tputui.state.snapshot import ENDED, Snapshot
from tputui.state.snapshot_builder import ViewerContext, at_later_moment, build_snapshot
from tputui.supervise.alert_delivery import AlertDelivery, Result
from tputui.supervise.alert_targets import TARGETS_MAX, AlertMessage, InvalidTarget, Target, parse
from tputui.supervise.worker_state import WorkerState
from tputui.telemetry import events as ev
from tputui.telemetry.events import Split
from tputui.telemetry.metric_names import class_of, first_of
from tputui.telemetry.redaction import masked_text
from tputui.telemetry.rundir import Manifest

CHECK_S = 1.0
"""Seconds between two evaluations."""
REARM_S = 60.0
"""A condition that has raised an alert may raise another one after it has not held for so long."""
STALL_MIN_S = 3.0
"""A shorter stall raises no alert: the clock of the host may have jumped."""
END_S = 10.0
"""Longest time for deliveries at the end of the run ..."""
END_TERMINATED_S = 2.0
"""... and if the host is going down: SIGTERM came, and the end event must still be written."""
CONDITIONS_MAX = 32
METRICS_MAX = 64
TABLE = "alerts"


class Trigger:
    """Hysteresis of one condition: raises once when it begins to hold, and again only after it has not held for
    `REARM_S`. The time is an argument."""

    def __init__(self, condition: Condition) -> None:
        self.condition = condition
        self._is_armed = True
        self._quiet_since: float | None = None
        """Since when the condition has not held, while it is not armed."""

    def check(self, holds: bool, tick: float) -> bool:
        """Whether to raise an alert now. `tick` is a monotonic time in seconds."""
        if holds:
            if not self._is_armed and self._quiet_since is not None and tick - self._quiet_since >= REARM_S:
                self._is_armed = True
            raised, self._is_armed, self._quiet_since = self._is_armed, False, None
            return raised
        if not self._is_armed and self._quiet_since is None:
            self._quiet_since = tick
        return False


class AlertRules(NamedTuple):
    """The table `[alerts]` of a run, checked."""

    conditions: list[Condition]
    targets: list[Target]

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> AlertRules:
        """The alerts of a recorded configuration. Raises `InvalidTarget` and `InvalidCondition`."""
        table = config.get(TABLE)
        given = table if isinstance(table, Mapping) else {}
        on, targets = given.get("on") or (), given.get("targets") or ()
        texts = list(dict.fromkeys(map(str, on)))[:CONDITIONS_MAX]
        return cls([conditions.parse(text) for text in texts], [parse(str(text)) for text in targets][:TARGETS_MAX])


def rules_of(config: Mapping[str, Any], host_index: int, log: Callable[[str], None]) -> AlertRules | None:
    """The alerts of a run; None if there are none. Those of a run on several hosts are raised by the first host."""
    try:
        rules = AlertRules.of(config)
    except (InvalidTarget, InvalidCondition) as error:
        log(f"there will be no alerts, because [alerts] is not valid: {error}")
        return None
    return rules if rules.conditions and host_index == 0 else None


class Alerts:
    """The alerts of a run. Not thread-safe."""

    def __init__(
        self,
        run_dir: Path,
        manifest: Manifest,
        rules: AlertRules,
        state: WorkerState,
        emit: Callable[[ev.Event], None],
        log: Callable[[str], None],
    ) -> None:
        """`emit` writes an event to the journal, `log` a line to the log of the supervisor, in any thread."""
        self._run_dir = run_dir.resolve()
        self._manifest = manifest
        self._state = state
        self._emit = emit
        self._triggers = [Trigger(condition) for condition in rules.conditions]
        self._rings = any(target.kind == "bell" for target in rules.targets)
        self._delivery = AlertDelivery(rules.targets, os.environ, log)
        self._due = 0.0
        self._stalled_since: float | None = None
        self._unseen = [condition for condition in rules.conditions if condition.metrics]
        """Conditions some of whose metrics have had no value so far, and that no warning has named."""
        self._built: tuple[object, Snapshot] | None = None

    def check(self, now: float, tick: float, *, silence: str | None = None) -> None:
        """Evaluates the conditions if it is time. `now` is unix time, `tick` a monotonic time. `silence` says for how
        long a command has printed nothing, if that is unusual; such a command counts as stalled."""
        self._report(self._delivery.results())
        if tick < self._due:
            return
        self._due = tick + CHECK_S
        self._evaluate(self._snapshot(now, self._liveness(now, tick, silence)), tick)

    def finish(self, ended: ev.RunEnded, tick: float, *, terminated: bool) -> None:
        """Raises the alerts of the end of the run, and waits a bounded time for all deliveries."""
        liveness = assess(self._state.state, {}, ended.t)
        self._evaluate(self._snapshot(ended.t, liveness), tick)
        self._report(self._delivery.finish(END_TERMINATED_S if terminated else END_S))

    def _liveness(self, now: float, tick: float, silence: str | None) -> Liveness:
        state = self._state.state
        gone = {exited.process for worker in state.workers for exited in worker.rank_exits}
        found = assess(state, {name: name not in gone for name in state.processes}, now)
        if silence is not None and found.condition == "running":
            return found._replace(condition="stalled", reason=silence)
        if found.condition != "stalled":
            self._stalled_since = None
            return found
        self._stalled_since = tick if self._stalled_since is None else self._stalled_since
        return found if tick - self._stalled_since >= STALL_MIN_S else found._replace(condition="running")

    def _snapshot(self, now: float, liveness: Liveness) -> Snapshot:
        state = self._state.state
        read = ({name: process.last_seq for name, process in state.processes.items()}, liveness)
        if self._built is not None and self._built[0] == read:
            return at_later_moment(self._built[1], state, liveness, now)
        context = ViewerContext(
            now=now,
            run=self._manifest.run,
            dir=str(self._run_dir),
            created=self._manifest.created,
            config=self._manifest.config,
        )
        snapshot = build_snapshot(state, context, liveness)
        self._built = (read, snapshot)
        return snapshot

    def _evaluate(self, snapshot: Snapshot, tick: float) -> None:
        for trigger in self._triggers:
            if trigger.check(trigger.condition.holds(snapshot), tick):
                self._raise(trigger.condition, snapshot)
        for condition in list(self._unseen):
            if missing := conditions.missing_metrics(condition, snapshot):
                text = masked_text(fmt.inert(f"alert {condition.text}: {missing}"))
                self._emit(ev.WarningRaised(t=snapshot.now, text=text))
            if missing or all(conditions.value(name, snapshot) is not None for name in condition.metrics):
                self._unseen.remove(condition)

    def _raise(self, condition: Condition, snapshot: Snapshot) -> None:
        text = masked_text(fmt.inert(sentence(condition, snapshot)))
        self._emit(
            ev.AlertRaised(t=snapshot.now, condition=condition.text, text=text, step=snapshot.steps, bell=self._rings)
        )
        self._delivery.send(
            AlertMessage(
                t=snapshot.now,
                run=snapshot.run,
                run_dir=snapshot.dir,
                host=socket.gethostname(),
                condition=masked_text(condition.text),
                text=text,
                state=snapshot.condition,
                step=snapshot.steps,
                epoch=snapshot.epoch,
                metrics=newest_metrics(snapshot),
            )
        )

    def _report(self, results: list[Result]) -> None:
        for result in results:
            self._emit(result)


def sentence(condition: Condition, snapshot: Snapshot) -> str:
    """The text of an alert: `digits-1: valid.loss > 3 (valid.loss 3.42) in epoch 3, step 1,200`."""
    place = f"epoch {snapshot.epoch}, step {snapshot.steps:,}" if snapshot.epoch else f"step {snapshot.steps:,}"
    if condition.text.lower() == snapshot.condition or (condition.text == "ended" and snapshot.condition in ENDED):
        reason = snapshot.condition_reason
        return f"{snapshot.run} {snapshot.condition}{f': {reason}' if reason else ''} ({place})"
    words = dict.fromkeys(word for word in condition.text.replace("(", " ").split() if word not in conditions.STATES)
    values = [(word, conditions.value(word, snapshot)) for word in words if word[:1].isalpha()]
    shown = ", ".join(f"{word} {fmt.number(value)}" for word, value in values if value is not None)
    return f"{snapshot.run}: {condition.text}{f' ({shown})' if shown else ''} in {place}"


def newest_metrics(snapshot: Snapshot) -> dict[str, float]:
    """The newest values of the metrics, at most `METRICS_MAX`, by `train.NAME` and `valid.NAME`."""
    splits: tuple[Split, ...] = ("train", "valid")
    named = [(series.name, split) for series in metric_series(MetricSource.of(snapshot)) for split in splits]
    values = [(name, split, conditions.value(f"{split}.{name}", snapshot)) for name, split in named]
    known = [(name, split, value) for name, split, value in values if value is not None]
    few = first_of(known, METRICS_MAX, lambda found: class_of(found[0], found[1]))
    return {f"{split}.{name}": value for name, split, value in few}
