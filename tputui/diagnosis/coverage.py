"""Which rules of the diagnosis could not be checked on a run, and why. A rule without any verdict was checked and found
nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from tputui.diagnosis import device_rules, input_rules
from tputui.diagnosis.diagnosed_run import STEPS_MIN, DiagnosedRun
from tputui.diagnosis.verdict import RuleName, Verdict
from tputui.state.snapshot import ENDED


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


def _reads(run: DiagnosedRun) -> str | None:
    if run.snapshot.xla is not None or _runtimes(run) - {"torch_compile"}:
        return None
    return "values that torch reads from its own devices are not observed"


def _of_torch_xla(run: DiagnosedRun) -> str | None:
    if run.snapshot.xla is not None or "torch_xla" in _runtimes(run):
        return None
    return "the run does not use torch_xla"


def _of_torch_compile(run: DiagnosedRun) -> str | None:
    return None if "torch_compile" in _runtimes(run) else "no use of torch.compile was seen"


def _executions(run: DiagnosedRun) -> str | None:
    if (reason := _of_torch_xla(run)) is not None:
        return reason
    xla = run.snapshot.xla
    counted = xla.steps.steps if xla is not None and xla.steps is not None else 0
    return None if counted >= STEPS_MIN else f"{counted} of the {STEPS_MIN} counted steps that it needs"


def _memory(run: DiagnosedRun) -> str | None:
    if run.snapshot.condition in ENDED:
        return "only known while a run trains"
    return None if run.snapshot.memory_history else "no memory readings"


def _tracing(run: DiagnosedRun) -> str | None:
    return None if input_rules.tracing_share(run) is not None else "the time of tracing is not recorded"


def _evaluation(run: DiagnosedRun) -> str | None:
    plan = run.snapshot.plan
    return None if plan is not None and plan.valid_examples > 0 else "the size of the evaluation is not known"


def _batch(run: DiagnosedRun) -> str | None:
    plan = run.snapshot.plan
    return None if plan is not None and plan.batch_per_core > 0 else "the batch per core is not known"


def _matmuls(run: DiagnosedRun) -> str | None:
    return None if any(program.matmuls for program in run.evidence.programs.values()) else "no program was inspected"


def _precision(run: DiagnosedRun) -> str | None:
    plan = run.snapshot.plan
    return None if plan is not None and plan.precision else _matmuls(run)


def _timed_steps(run: DiagnosedRun) -> str | None:
    return None if run.evidence.times else "the time of single steps is not recorded"


def _collections(run: DiagnosedRun) -> str | None:
    is_measured = any(one.collected_s is not None for one in run.evidence.times)
    return None if is_measured else "garbage collections are not measured"


def _of_jax(run: DiagnosedRun) -> str | None:
    return None if "jax" in _runtimes(run) else "the run does not use JAX"


def _dispatches(run: DiagnosedRun) -> str | None:
    is_counted = run.evidence.dispatches is not None
    return None if is_counted else _of_jax(run) or run.unsupported("dispatches") or "too few steps without compilations"


def _compilations(run: DiagnosedRun) -> str | None:
    if run.evidence.compiles:
        return None
    return run.unsupported("compilations") or "no compilation was seen"


def _cores(run: DiagnosedRun) -> str | None:
    devices = run.snapshot.devices
    return None if devices is not None and devices.cores else "no readings of TPU cores"


def _idle(run: DiagnosedRun) -> str | None:
    if (reason := _cores(run)) is not None:
        return reason
    return None if device_rules.idle_of(run) is not None else "too few readings of the duty cycle"


def _hosts(run: DiagnosedRun) -> str | None:
    return None if len(run.snapshot.hosts) > 1 else "the run has one host"


_REASONS: Mapping[RuleName, Callable[[DiagnosedRun], str | None]] = {
    "sync": _reads,
    "fallback": _of_torch_xla,
    "extra_execution": _executions,
    "graph_break": _of_torch_compile,
    "compile_limit": _of_torch_compile,
    "memory_trend": _memory,
    "tracing": _tracing,
    "slow_steps": _timed_steps,
    "compile_cache": _compilations,
    "donation": _of_jax,
    "replicated": _of_jax,
    "op_by_op": _dispatches,
    "device_put": _dispatches,
    "garbage": _collections,
    "padding": _evaluation,
    "batch_multiple": _batch,
    "feature_multiple": _matmuls,
    "precision": _precision,
    "device_idle": _idle,
    "throttling": _cores,
    "link_health": _cores,
    "slow_host": _hosts,
}
"""Why a rule that found nothing could not be checked; None if it was."""
