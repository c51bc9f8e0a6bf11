"""`diagnose`: the verdicts on a run, from all rules.

Which rules of the diagnosis could not be checked on a run, and why. A rule without any verdict was checked and found
nothing.
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
from tputui.diagnosis.one_cause import with_one_verdict_per_cause
from tputui.diagnosis.verdict import LearningRule, RuleName, Verdict, found, in_order
from tputui.state.run_condition import ENDED
from tputui.state.snapshot import Snapshot
from tputui.telemetry.events import Observation


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
