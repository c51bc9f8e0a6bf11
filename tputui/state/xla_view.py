"""The counters of the XLA runtime as the snapshot has them, and which compilations after warm-up are recompiles.

The one definition that the diagnosis, the counters of the snapshot and all views share.

A program may be compiled once for each of a few states of its inputs: buckets of lengths, a smaller last batch, a
batch of an evaluation. It is recompiled if there are more of them, if it compiles for a state again, or if something
other than a size keeps changing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tputui.state.evidence_groups import CompileGroup
from tputui.telemetry import events as ev
from tputui.telemetry.events import RESULT_OF, ChangedInput

EXTRA_LEAST = 0.05
"""Unexpected executions per step from which they are shown: one in twenty steps."""


class XlaView(ev.XlaMetricsRead, frozen=True, kw_only=True, tag=False):
    """Counters of the XLA runtime, summed over the processes that lead their host; since the newest restart."""

    recompiles: int
    """Programs compiled again and again after warm-up; those of another rank if it compiled more. A program that
    compiles once for each of a few inputs, such as lengths of texts, does not count."""
    late_compiles: int = 0
    """Programs compiled after warm-up, for whatever reason; those of another rank if it compiled more."""

    @property
    def executes_a_step(self) -> float | None:
        """Programs executed per step after warm-up; None before the first such step."""
        return self.steps.executes / self.steps.steps if self.steps and self.steps.steps > 0 else None

    @property
    def expected_a_step(self) -> float | None:
        """Programs per step that the strategy needs."""
        return self.steps.expected_executes / self.steps.steps if self.steps and self.steps.steps > 0 else None

    @property
    def reads_a_step(self) -> float | None:
        """Scalars read from the device per step."""
        return self.steps.scalar_reads / self.steps.steps if self.steps and self.steps.steps > 0 else None

    @property
    def has_extra_executes(self) -> bool:
        """Whether steps execute more programs than the strategy needs."""
        executes, expected = self.executes_a_step, self.expected_a_step
        return executes is not None and expected is not None and executes - expected >= EXTRA_LEAST

    @property
    def is_never_recompiled(self) -> bool | None:
        """Whether nothing was compiled after warm-up; None if unknown, or before the end of warm-up."""
        if self.recompiles > 0:
            return False
        return True if self.steps is not None and self.steps.steps > 0 else None


def is_used(counters: ev.XlaMetricsRead) -> bool:
    """Whether the process has used the runtime, rather than only imported it."""
    return bool(
        counters.compiles
        or counters.executes
        or counters.transfers_to_device
        or counters.transfers_from_device
        or counters.fallbacks
    )


def newest_of(readings: Iterable[ev.XlaMetricsRead | None]) -> ev.XlaMetricsRead:
    """The newest reading of the counters of one process, from all of its journals. There must be one."""
    return max(
        (reading for reading in readings if reading is not None), key=lambda reading: (reading.t, reading.executes)
    )


SIZES_MAX = 3
"""Compilations after warm-up for changed sizes up to which each is the first of its size; with the program before them
these are four."""
VALUES_MAX = 2
"""Compilations after warm-up for changed values, types or numbers of inputs, up to which each is the first of its
state. No program has such buckets on purpose."""
SPEC = re.compile(r"([a-z]+[0-9a-z]*)\[([0-9,]*)\]")
"""Type and shape of an input, as `f32[8,28]`."""
SIZE = re.compile(r"size [0-9]+ in dimension ([0-9]+)")
"""How `torch.compile` reports a shape that changed."""


def late_compiles(groups: Iterable[CompileGroup]) -> tuple[list[list[CompileGroup]], list[list[CompileGroup]]]:
    """The compilations of a run after warm-up, without those that a persistent cache answered: first those of programs
    that are compiled again and again, then those for a few states of the inputs, once each.

    Both by cause: the groups with one cause, the one that shows it first.
    """
    late = _by_cause(_attributed([group for group in groups if not group.warm_up and group.count > group.num_cached]))
    return [same for same in late if not _is_first(same[0])], [same for same in late if _is_first(same[0])]


def num_recompiles(counted: int, groups: Iterable[CompileGroup]) -> int:
    """Recompiles of torch_xla. `counted`: its compilations after warm-up by the counters, which know no states: without
    events, a few are those for the first of their state."""
    recompiled, first = late_compiles(group for group in groups if group.runtime == "torch_xla")
    if recompiled or first:
        return sum(group.total for same in recompiled for group in same)
    return counted if counted > SIZES_MAX else 0


def is_size(change: ChangedInput) -> bool:
    """Whether an input has another size in a dimension, and nothing else."""
    if SIZE.fullmatch(change.before) and SIZE.fullmatch(change.now):
        return True
    before, now = SPEC.fullmatch(change.before), SPEC.fullmatch(change.now)
    return before is not None and now is not None and before[1] == now[1]


def _is_first(group: CompileGroup) -> bool:
    if group.num_repeats:
        return False
    return group.num_states <= (SIZES_MAX if _has_sizes(group) else VALUES_MAX)


def _by_cause(groups: Iterable[CompileGroup]) -> list[list[CompileGroup]]:
    """The groups by cause. JAX compiles each operation outside of a compiled function by itself, such as `true_divide`,
    and does not compare its inputs: it shares the cause of what else compiles at its line."""
    by_place: dict[object, list[CompileGroup]] = {}
    for group in sorted(groups, key=lambda group_of_line: (_is_first(group_of_line), group_of_line.changes is None)):
        is_shared = group.runtime == "jax" and _has_line(group)
        place = group.line if is_shared else group.key
        if place in by_place and not (group.changes is None or _is_first(group)):
            place = group.key
        by_place.setdefault(place, []).append(group)
    return list(by_place.values())


def _attributed(groups: Sequence[CompileGroup]) -> list[CompileGroup]:
    """The groups; those from before their cause was found are joined to the one whose cause was, if there is just one.

    The line of a read, and the input that changed, are found once something has compiled again.
    """
    made = list(groups)
    for explains, may_be_open in ((_has_line, None), (_has_changes, None), (_has_result, _has_sizes)):
        for group in [one for one in made if not explains(one) and (may_be_open is None or may_be_open(one))]:
            causes = [candidate for candidate in made if explains(candidate) and _may_explain(candidate, group)]
            if len(causes) == 1:
                made = [
                    group.join(candidate) if candidate is causes[0] else candidate
                    for candidate in made
                    if candidate is not group
                ]
    return made


def _has_line(group: CompileGroup) -> bool:
    return bool(group.line.file)


def _has_changes(group: CompileGroup) -> bool:
    return bool(group.changes)


def _has_result(group: CompileGroup) -> bool:
    return any(change.name.startswith(RESULT_OF) for change in group.changes or ())


def _has_sizes(group: CompileGroup) -> bool:
    """Whether only sizes changed, which may be those of a result."""
    return all(map(is_size, group.changes or ()))


def _may_explain(later: CompileGroup, group: CompileGroup) -> bool:
    same = (later.runtime, later.program, later.cause) == (group.runtime, group.program, group.cause)
    return same and group.last_step <= later.first_step
