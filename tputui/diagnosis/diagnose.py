"""`diagnose`: the verdicts on a run, from all rules.

Which rules of the diagnosis could not be checked on a run, and why. A rule without any verdict was checked and found
nothing.

Verdicts with one cause are joined to one.

An operation whose result has another shape in every step runs on the host, and what takes its result compiles again. A
function that compiles again and again is compiled no more at the limit. The rest of a function behind a graph break
compiles for each number that is passed on to it. Programs compile for each shape of a loader's batches. What changes in
the same way at several lines is one batch or one number. Steps that wait for their batch in a rhythm are steps that
wait.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import get_args

from msgspec.structs import replace

from tputui.diagnosis import (
    compile_rules,
    device_rules,
    host_rules,
    input_rules,
    memory_rules,
    program_rules,
    rhythm_rules,
)
from tputui.diagnosis.diagnosed_run import STEPS_MIN, DiagnosedRun
from tputui.diagnosis.learning_rules import learning_verdicts, learning_version, unanswered
from tputui.diagnosis.learning_run import LearningRun
from tputui.diagnosis.replacements import replacement
from tputui.diagnosis.rhythm_rules import WAITS
from tputui.diagnosis.verdict import LearningRule, RuleName, Verdict, found, in_order
from tputui.state.evidence_groups import Line
from tputui.state.run_condition import ENDED
from tputui.state.snapshot import Snapshot
from tputui.telemetry.events import OF_LOADER, RESULT_OF, Observation


def with_one_verdict_per_cause(run: DiagnosedRun, verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The verdicts; those with one cause are one."""
    by_result = [*_with_one_per_change(run, [*_with_one_per_result(run, verdicts)])]
    return list(_with_one_per_wait(_with_one_per_break([*_with_one_per_limit(by_result)])))


def _with_one_per_wait(verdicts: Iterable[Verdict]) -> Iterator[Verdict]:
    """The verdicts; that on the wait for batches includes the one on the rhythm in which steps wait."""
    every = list(verdicts)
    part = next((one for one in every if one.rule == "slow_steps" and WAITS in one.text), None)
    whole = next((one for one in every if (one.rule, one.status) == ("input", "found")), None)
    for verdict in every:
        if verdict is whole and part is not None:
            yield replace(
                verdict,
                evidence=[*verdict.evidence, part.text, *part.evidence],
                joined=[*verdict.joined, part.rule],
            )
        elif verdict is not part or whole is None:
            yield verdict


def _with_one_per_break(verdicts: Sequence[Verdict]) -> Iterator[Verdict]:
    """The verdicts; that on a graph break includes those on compilations of what follows it."""
    breaks = [
        (verdict.file, verdict.line)
        for verdict in verdicts
        if (verdict.rule, verdict.status) == ("graph_break", "found")
    ]
    behind = [verdict for verdict in verdicts if _is_behind_break(verdict)]
    rests = {place: [verdict for verdict in behind if (verdict.file, verdict.line) == place] for place in breaks}
    for verdict in verdicts:
        parts = rests.get((verdict.file, verdict.line), [])
        if verdict.rule == "graph_break" and parts:
            yield _including(verdict, max(parts, key=lambda part: part.lost_s or 0.0), fix=verdict.fix)
        elif verdict not in parts:
            yield verdict


def _is_behind_break(verdict: Verdict) -> bool:
    """Whether it is about compilations of the rest of a function, which is named by the line of the break."""
    return verdict.rule in ("recompile", "compile_limit") and f" from line {verdict.line}` " in verdict.text


def _with_one_per_limit(verdicts: Sequence[Verdict]) -> Iterator[Verdict]:
    """The verdicts; that on a function at its limit of programs includes the one on its compilations before."""
    limits = {_call(verdict): verdict for verdict in verdicts if verdict.rule == "compile_limit" and verdict.file}
    before = {
        _call(verdict): verdict for verdict in verdicts if verdict.rule == "recompile" and _call(verdict) in limits
    }
    for verdict in verdicts:
        part = before.get(_call(verdict))
        if part is not None and verdict is limits[_call(verdict)]:
            yield _including(verdict, part, fix=part.fix if part.status == "found" else verdict.fix)
        elif verdict is not part:
            yield verdict


def _including(verdict: Verdict, part: Verdict, *, fix: str) -> Verdict:
    """A verdict with the cost and the evidence of another one that has its cause."""
    return replace(
        part,
        rule=verdict.rule,
        status=verdict.status,
        text=verdict.text,
        function=verdict.function,
        evidence=[*verdict.evidence, part.text, *(line for line in part.evidence if line not in verdict.evidence)],
        fix=fix,
        joined=[*verdict.joined, *part.joined, *([part.rule] if part.status == "found" else [])],
    )


def _call(verdict: Verdict) -> tuple[object, ...]:
    """The line and the program of a verdict on compilations, whose text begins with the name of the program."""
    return verdict.file, verdict.line, verdict.text.partition("` ")[0]


def _with_one_per_change(run: DiagnosedRun, verdicts: Sequence[Verdict]) -> Iterator[Verdict]:
    """The verdicts; those on compilations for the same changes of sizes or numbers are joined at the first line."""
    changes: dict[tuple[object, ...], object] = {}
    for group in run.evidence.compiles:
        same = frozenset((change.before, change.now) for change in group.changes or ())
        if not group.warm_up and len(same) > 1 and all(before and now for before, now in same):
            changes.setdefault((group.line.file, group.line.line), (group.runtime, group.line.file, same))
    joined: dict[object, list[Verdict]] = {}
    for verdict in verdicts:
        is_recompile = (verdict.rule, verdict.status) == ("recompile", "found")
        cause = changes.get((verdict.file, verdict.line)) if is_recompile else None
        joined.setdefault(cause or id(verdict), []).append(verdict)
    for parts in joined.values():
        parts.sort(key=lambda part: part.line or 0)
        # Of several programs at a line, it is not known which of them changed so.
        if len({part.line for part in parts}) == len(parts) > 1:
            parts = [_join(run, parts[0].fix, parts)]
        yield from parts


def _with_one_per_result(run: DiagnosedRun, verdicts: Sequence[Verdict]) -> Iterator[Verdict]:
    """The verdicts; those on one such operation, or on the batches of one loader, are joined to the first of them, with
    the cost of all."""
    results = _results(run)
    joined: dict[tuple[str, Line], list[Verdict]] = {}
    for verdict in verdicts:
        for line, result in results.items():
            if _is_about(verdict, line, result):
                joined.setdefault((result, line), []).append(verdict)
                break
        else:
            yield verdict
    for (result, _), parts in joined.items():
        # The compilations first: they cost most, and their line is that of the operation.
        parts.sort(key=lambda part: (part.status != "found", part.rule != "recompile", -(part.lost_s or 0.0)))
        yield _join(run, parts[0].fix if result == OF_LOADER else replacement(result), parts)


def _results(run: DiagnosedRun) -> dict[Line, str]:
    """The operators whose results made programs compile again, or `OF_LOADER` for the batches of a loader, by line."""
    return {
        group.line: OF_LOADER if change.name.startswith(OF_LOADER) else change.name.removeprefix(RESULT_OF)
        for group in run.evidence.compiles
        for change in group.changes or []
        if change.name.startswith((RESULT_OF, OF_LOADER)) and group.line.file and not group.warm_up
    }


def _is_about(verdict: Verdict, line: Line, operator: str) -> bool:
    """Whether a verdict is one on the line, or on the same operator elsewhere in the function: `x[mask], y[mask]` may
    stand on two lines."""
    if verdict.rule == "recompile":
        return (verdict.file, verdict.line) == (line.file, line.line)
    same = (verdict.file, verdict.function) == (line.file, line.function)
    return verdict.rule == "fallback" and same and verdict.text.startswith(f"{operator} ")


def _join(run: DiagnosedRun, fix: str, parts: Sequence[Verdict]) -> Verdict:
    """The first one, with the cost and the evidence of all."""
    first, *others = parts
    evidence = list(first.evidence)
    for other in others:
        where = f" at {other.where}" if other.line != first.line else ""
        evidence += [f"{other.text}{where}", *(line for line in other.evidence if line not in evidence)]
    joined = list(dict.fromkeys(other.rule for other in others if other.status == "found" and other.rule != first.rule))
    costs = [part.lost_s for part in parts if part.lost_s is not None and part.status == "found"]
    if first.status != "found" or not costs:
        return replace(first, evidence=evidence, fix=fix, joined=joined)
    lost_s = min(sum(costs), run.wall_s)
    # What host and device do at the same time on a CPU is no gain, so that only the compilations are.
    timed = sum(part.lost_s or 0.0 for part in parts if part.speedup is not None)
    gain = run.gain(min(timed, run.wall_s), run.training_s(timed)) if timed else {}
    share = lost_s / run.wall_s if run.wall_s > 0 else None
    return replace(first, lost_s=lost_s, share=share, evidence=evidence, fix=fix, joined=joined, **gain)


def unchecked(run: DiagnosedRun, verdicts: Iterable[Verdict]) -> Iterator[Verdict]:
    """Answers of the rules that gave none, since the run does not record what they need."""
    answered = {rule for verdict in verdicts for rule in verdict.rules}
    for rule, reason_of in _REASONS.items():
        if rule not in answered and (reason := reason_of(run)) is not None:
            yield Verdict(rule=rule, status="not available", text=reason)


def _runtimes(run: DiagnosedRun) -> set[str]:
    evidence = run.evidence
    groups = (evidence.compiles, evidence.programs.values(), evidence.windows, evidence.breaks)
    return {observed.runtime for group in groups for observed in group}


Reason = Callable[[DiagnosedRun], str | None]


def _unless(is_known: Callable[[DiagnosedRun], object], reason: str) -> Reason:
    return lambda run: None if is_known(run) else reason


_of_jax = _unless(lambda run: "jax" in _runtimes(run), "the run does not use JAX")
_of_torch_compile = _unless(lambda run: "torch_compile" in _runtimes(run), "no use of torch.compile was seen")
_of_torch_xla = _unless(
    lambda run: run.snapshot.xla is not None or "torch_xla" in _runtimes(run), "the run does not use torch_xla"
)
_matmuls = _unless(
    lambda run: any(program.matmuls for program in run.evidence.programs.values()), "no program was inspected"
)
_cores = _unless(lambda run: run.snapshot.devices and run.snapshot.devices.cores, "no readings of TPU cores")


def _executions(run: DiagnosedRun) -> str | None:
    xla = run.snapshot.xla
    counted = xla.steps.steps if xla is not None and xla.steps is not None else 0
    few = f"{counted} of the {STEPS_MIN} counted steps that it needs" if counted < STEPS_MIN else None
    return _of_torch_xla(run) or few


def _memory(run: DiagnosedRun) -> str | None:
    if run.snapshot.condition in ENDED:
        return "only known while a run trains"
    return None if run.snapshot.memory_history else "no memory readings"


def _dispatches(run: DiagnosedRun) -> str | None:
    is_counted = run.evidence.dispatches is not None
    return None if is_counted else _of_jax(run) or run.unsupported("dispatches") or "too few steps without compilations"


def _compilations(run: DiagnosedRun) -> str | None:
    return None if run.evidence.compiles else run.unsupported("compilations") or "no compilation was seen"


def _idle(run: DiagnosedRun) -> str | None:
    few = "too few readings of the duty cycle" if device_rules.idle_of(run) is None else None
    return _cores(run) or few


_REASONS: Mapping[RuleName, Reason] = {
    "sync": _unless(
        lambda run: run.snapshot.xla is not None or _runtimes(run) - {"torch_compile"},
        "values that torch reads from its own devices are not observed",
    ),
    "fallback": _of_torch_xla,
    "extra_execution": _executions,
    "graph_break": _of_torch_compile,
    "compile_limit": _of_torch_compile,
    "memory_trend": _memory,
    "tracing": _unless(input_rules.tracing_share, "the time of tracing is not recorded"),
    "slow_steps": _unless(lambda run: run.evidence.times, "the time of single steps is not recorded"),
    "compile_cache": _compilations,
    "donation": _of_jax,
    "replicated": _of_jax,
    "op_by_op": _dispatches,
    "device_put": _dispatches,
    "garbage": _unless(
        lambda run: any(one.collected_s is not None for one in run.evidence.times),
        "garbage collections are not measured",
    ),
    "padding": _unless(
        lambda run: run.snapshot.plan and run.snapshot.plan.valid_examples > 0,
        "the size of the evaluation is not known",
    ),
    "batch_multiple": _unless(
        lambda run: run.snapshot.plan and run.snapshot.plan.batch_per_core > 0, "the batch per core is not known"
    ),
    "feature_multiple": _matmuls,
    "precision": lambda run: None if run.snapshot.plan and run.snapshot.plan.precision else _matmuls(run),
    "device_idle": _idle,
    "throttling": _cores,
    "link_health": _cores,
    "slow_host": _unless(lambda run: len(run.snapshot.hosts) > 1, "the run has one host"),
}
"""Why a rule that found nothing could not be checked; None if it was."""


Rule = Callable[[DiagnosedRun], Iterable[Verdict]]

RULES: tuple[Rule, ...] = (
    memory_rules.out_of_memory,
    memory_rules.memory_trend,
    compile_rules.recompiles,
    compile_rules.extra_executions,
    compile_rules.graph_breaks,
    host_rules.syncs,
    host_rules.fallbacks,
    input_rules.input_bound,
    input_rules.tracing_bound,
    input_rules.padding,
    rhythm_rules.slow_steps,
    rhythm_rules.garbage,
    program_rules.compile_cache,
    program_rules.donations,
    program_rules.replicated_inputs,
    program_rules.operations,
    program_rules.copies,
    compile_rules.batch_multiple,
    compile_rules.feature_multiple,
    compile_rules.precision,
    device_rules.throttling,
    device_rules.link_health,
    host_rules.slow_host,
)


VERDICTS_MAX = 40
"""The worst ones; more lines than that are rather one problem with many lines."""


NEEDED: Mapping[Observation, RuleName] = {
    "compilations": "recompile",
    "graph breaks": "graph_break",
    "compile limits": "compile_limit",
    "reads": "sync",
    "fallbacks": "fallback",
}
"""The rule that judges by what an observer records."""
TIMED: tuple[Rule, ...] = (
    memory_rules.memory_trend,
    input_rules.input_bound,
    input_rules.tracing_bound,
    input_rules.padding,
    rhythm_rules.slow_steps,
    rhythm_rules.garbage,
    program_rules.compile_cache,
)
"""Rules about shares of the time, which CPU cores cannot answer for a TPU."""


def diagnose(snapshot: Snapshot, learning: Sequence[Verdict] | None = None) -> tuple[Verdict, ...]:
    """The verdicts on a run, worst first. A healthy run has none with status `found`.

    `learning` are those of the rules about learning, if the caller has them.
    """
    run = DiagnosedRun.of(snapshot)
    learning = answers_on_learning(snapshot) if learning is None else learning
    verdicts = in_order(device_rules.with_idle_time(run, _all(run, RULES)))[:VERDICTS_MAX]
    return in_order((*verdicts, *learning, *unchecked(run, verdicts)))


def answers_on_learning(snapshot: Snapshot) -> tuple[Verdict, ...]:
    """The verdicts on what a run learns, and the rules about it that lack values."""
    run = LearningRun(snapshot)
    verdicts = learning_verdicts(snapshot, run)
    return (*verdicts, *unanswered(run, verdicts))


def diagnose_rehearsal(snapshot: Snapshot) -> tuple[Verdict, ...]:
    """The verdicts on a rehearsal, worst first and without costs: the times of CPU cores are not those of a TPU."""
    run = DiagnosedRun.of(snapshot, is_rehearsal=True)
    rules = (rule for rule in RULES if rule not in TIMED)
    return tuple(
        replace(verdict, lost_s=None, share=None, speedup=None, speedup_of=None, overlap=None)
        for verdict in in_order(_all(run, rules))[:VERDICTS_MAX]
    )


def unsupported(run: DiagnosedRun) -> Iterator[Verdict]:
    """The rules that lack what an observer would have recorded, had it known the version of its framework."""
    for observation, rule in NEEDED.items():
        if text := run.unsupported(observation):
            yield Verdict(rule=rule, status="not available", text=text)


def _all(run: DiagnosedRun, rules: Iterable[Rule]) -> list[Verdict]:
    verdicts = [verdict for rule in rules for verdict in rule(run)]
    return [*with_one_verdict_per_cause(run, verdicts), *unsupported(run)]


class RecentVerdicts:
    """The verdicts on the newest snapshot of one run. A live screen asks ten times a second, and shows them as they
    were, so that figures that grow all the time do not change with every frame."""

    def __init__(self) -> None:
        self._key: object = None
        self._verdicts: tuple[Verdict, ...] = ()
        self._learning: tuple[object, tuple[Verdict, ...]] | None = None
        """The answers on learning, and the version of the curves that they are about."""

    def of(self, snapshot: Snapshot) -> tuple[Verdict, ...]:
        """The verdicts on a snapshot, or those on one of the same second with the same evidence."""
        second = math.floor(snapshot.now) if math.isfinite(snapshot.now) else None
        newest = (snapshot.steps, snapshot.newest_fact, snapshot.is_behind) if snapshot.condition in ENDED else None
        # Not the evidence itself, which also changes with every heartbeat.
        key = (second, snapshot.condition, len(snapshot.epochs), newest, snapshot.evidence.revision)
        if key != self._key:
            self._key = key
            self._verdicts = diagnose(snapshot, self.learning(snapshot))
        return self._verdicts

    def learning(self, snapshot: Snapshot) -> tuple[Verdict, ...]:
        """The answers on learning, computed again only when a curve has a new value."""
        version = learning_version(snapshot)
        if self._learning is None or self._learning[0] != version:
            self._learning = (version, answers_on_learning(snapshot))
        return self._learning[1]

    def has_found(self, rule: LearningRule, snapshot: Snapshot) -> bool:
        """Whether a rule about learning found something."""
        return any(rule in verdict.rules for verdict in found(self.learning(snapshot)))


def verdict_tests() -> Mapping[str, Callable[[Snapshot], bool]]:
    """The conditions of `--alert` and `--until` on what a run learns, by the name of the rule."""
    recent = RecentVerdicts()
    return {rule: partial(recent.has_found, rule) for rule in get_args(LearningRule)}
