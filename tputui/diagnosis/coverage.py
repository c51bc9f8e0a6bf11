"""Which rules of the diagnosis could not be checked on a run, and why. A rule without any verdict was checked and found
nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from tputui.diagnosis import device_rules, input_rules
from tputui.diagnosis.diagnosed_run import STEPS_MIN, DiagnosedRun
from tputui.diagnosis.verdict import RuleName, Verdict
from tputui.state.run_condition import ENDED


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
