"""Recompiles, executions and reads that count against a run, and the warnings about them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from engine.xla.runtime_counters import AT_SYNC, EXCESS_STEPS, CompileLedger, TraceActivity
from tputui.observers.sinks import ResettableTotal

WARM_UP = {"step": 2, "evaluate": 2}
NOTHING = TraceActivity()


def warm() -> CompileLedger:
    """A ledger whose programs have used up their warm-up runs."""
    ledger = CompileLedger(WARM_UP)
    for name in WARM_UP:
        for _ in range(2):
            assert ledger.ran(name, NOTHING) == []
    return ledger


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=30))
def test_reset_counter_loses_no_earlier_count(moves: list[tuple[int, bool]]) -> None:
    total, counter, added = ResettableTotal(), 0, 0
    for more, reset in moves:
        # A reset followed by a larger count than before looks like no reset.
        counter = 0 if reset and more < counter else counter
        counter += more
        added += more
        total.read(counter)
    assert total.value == added


def test_warm_up_compiles_are_never_recompiles() -> None:
    ledger = CompileLedger(WARM_UP)
    for place in ("other", "trace", AT_SYNC, "save"):
        assert ledger.compiled(place, 1, 0.5) is None
        assert ledger.is_warm("step") is False
    assert ledger.ran("step", NOTHING) == []
    assert ledger.compiled("trace", 1, 0.5) is None
    assert ledger.ran("step", NOTHING) == []
    assert ledger.recompiles == 0


def test_recompile_at_sync_names_program_and_seconds() -> None:
    ledger = warm()
    ledger.compiled(AT_SYNC, 1, 1.26)
    assert ledger.ran("step", NOTHING) == [
        'program "step", run 3: compiled again at its sync (1.3 s); its graph differs from every earlier one in a '
        "shape, a type, a constant or an operation"
    ]
    assert ledger.recompiles == 1


def test_compile_inside_trace_reports_only_what_was_seen() -> None:
    ledger = warm()
    ledger.compiled("trace", 2, 0.004)
    [text] = ledger.ran("step", TraceActivity(scalar_reads=1, fallbacks=["median"]))
    assert text == (
        'program "step", run 3: 2 programs compiled inside its trace, before its sync (4.0 ms); seen in that trace: '
        "median on the host CPU, 1 scalar read (.item(), float(), if tensor)"
    )
    ledger.compiled("trace", 1, 0.004)
    [text] = ledger.ran("step", NOTHING)
    assert text == 'program "step", run 4: 1 program compiled inside its trace, before its sync (4.0 ms)'
    assert ledger.recompiles == 3


def test_a_program_is_not_blamed_for_another_ones_warm_up() -> None:
    ledger = CompileLedger(WARM_UP)
    for _ in range(10):
        ledger.ran("step", NOTHING)
    ledger.compiled("evaluate", 1, 0.1)
    ledger.compiled(AT_SYNC, 1, 0.1)
    assert ledger.ran("evaluate", NOTHING) == []
    assert ledger.recompiles == 0


def test_a_save_that_compiles_after_warm_up_counts_at_once() -> None:
    assert warm().compiled("save", 1, 2.0) == "1 program compiled in save (2.0 s)"


def test_compile_every_step_counts_all_and_limits_warnings() -> None:
    ledger, warnings = warm(), []
    for _ in range(1_000):
        ledger.compiled("trace", 1, 0.01)
        warnings += ledger.ran("step", NOTHING)
    assert ledger.recompiles == 1_000
    assert len(warnings) == 6
    assert "later ones of this kind are reported at the 10th, the 100th" in warnings[2]
    assert warnings[-1].endswith("; 1,000 times after warm-up, 10.0 s in all")


def test_extra_reads_or_executions_warn_once() -> None:
    ledger = warm()
    for _ in range(EXCESS_STEPS - 1):
        ledger.ran("step", NOTHING)
        ledger.stepped("step", 2, 1, 1)
    assert ledger.excess([], 0.2) is None, "too few steps to judge"
    ledger.stepped("step", 2, 1, 1)
    assert ledger.excess([], 0.25) == (
        "2.0 executions a step where 1 is expected; 1.0 scalar reads a step (.item(), float(), if tensor); "
        "the host has waited 250.0 ms for reads so far"
    )
    ledger.stepped("step", 2, 1, 1)
    assert ledger.excess([], 0.3) is None


@given(expected=st.integers(1, 4), steps=st.integers(EXCESS_STEPS, 200))
def test_expected_steps_raise_no_warning(expected: int, steps: int) -> None:
    ledger = CompileLedger(WARM_UP)
    for number in range(steps):
        ledger.ran("step", NOTHING)
        # The first steps of a run may read and execute whatever they need.
        ledger.stepped("step", *((9, expected, 9) if number < 2 else (expected, expected, 0)))
        assert ledger.excess([], 0.0) is None
    assert astuple(ledger.steps) == (steps - 2, (steps - 2) * expected, (steps - 2) * expected, 0)


def test_occasional_scalar_read_raises_no_warning() -> None:
    ledger = warm()
    ledger.ran("step", NOTHING)
    for number in range(200):
        ledger.stepped("step", 1, 1, number % 10 == 0)
        assert ledger.excess([], 0.1) is None
