"""`[diagnosis] strict`: findings that make a run fail although training succeeded, for continuous integration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from tputui.diagnosis.diagnose import diagnose
from tputui.diagnosis.verdict import Strict, Verdict, found
from tputui.state.liveness import assess
from tputui.state.reducer import RunState
from tputui.state.snapshot import RunDetails
from tputui.state.snapshot_builder import ViewerContext, build_snapshot
from tputui.telemetry.rundir import Manifest

TABLE = "diagnosis"


def strict_rules(config: Mapping[str, Any]) -> tuple[str, ...]:
    table = config.get(TABLE)
    given = table.get("strict") if isinstance(table, Mapping) else None
    return tuple(name for name in get_args(Strict) if isinstance(given, list | tuple) and name in given)


def check(state: RunState, manifest: Manifest, run_dir: str, now: float) -> tuple[str | None, list[str]]:
    """Evaluates the strict rules on a run that is about to end. Returns why the run fails, None if it does not, and a
    sentence on each rule that could not be checked. Never raises: that would lose the end of the run."""
    try:
        return _check(state, manifest, run_dir, now)
    except Exception as error:
        text = f"strict rules were not checked, because of a bug in tputui: {type(error).__name__}: {error}"
        return None, [text]


def _check(state: RunState, manifest: Manifest, run_dir: str, now: float) -> tuple[str | None, list[str]]:
    rules = strict_rules(manifest.config)
    context = ViewerContext(
        now=now,
        run=manifest.run,
        dir=run_dir,
        created=manifest.created,
        config=manifest.config,
        details=RunDetails(cwd=manifest.cwd),
    )
    liveness = assess(state, dict.fromkeys(state.processes, True), now)
    verdicts = diagnose(build_snapshot(state, context, liveness))
    return _violation(verdicts, rules), _unanswered(verdicts, rules)


def _violation(verdicts: tuple[Verdict, ...], rules: tuple[str, ...]) -> str | None:
    broken = [verdict for verdict in found(verdicts) if not {*rules}.isdisjoint(verdict.rules)]
    if not broken:
        return None
    first = broken[0]
    at = f" at {first.where}" if first.where else ""
    more = f" (and {len(broken) - 1} more; see `tputui doctor`)" if len(broken) > 1 else ""
    return f"strict: {first.rule}{at}: {first.text}{more}"


def _unanswered(verdicts: tuple[Verdict, ...], rules: tuple[str, ...]) -> list[str]:
    return [
        f"strict: {verdict.rule} was not checked: {verdict.text}"
        for verdict in verdicts
        if verdict.rule in rules and verdict.status == "not available"
    ]
