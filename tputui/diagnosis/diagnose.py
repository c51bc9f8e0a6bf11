"""`diagnose`: the verdicts on a run, from all rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tputui.diagnosis import compile_rules, host_rules, input_rules, memory_rules, shape_rules
from tputui.diagnosis.facts import Facts
from tputui.diagnosis.verdict import Verdict, in_order
from tputui.state.snapshot import Snapshot

Rule = Callable[[Facts], Iterable[Verdict]]

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
    shape_rules.batch_multiple,
    shape_rules.feature_multiple,
    shape_rules.precision,
)


VERDICTS_MAX = 40
"""The worst ones; more lines than that are rather one problem with many lines."""


def diagnose(snapshot: Snapshot) -> tuple[Verdict, ...]:
    """The verdicts on a run, worst first. A healthy run has none with status `found`."""
    return in_order(_all(Facts.of(snapshot)))[:VERDICTS_MAX]


def _all(facts: Facts) -> Iterator[Verdict]:
    for rule in RULES:
        yield from rule(facts)
