"""The sections of an epoch's time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tputui.reporting.section_timer import NAMES, SECTIONS_MAX, SectionTimer


class Clock:
    """A clock that is set by the test."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_only_innermost_section_is_charged() -> None:
    clock = Clock()
    sections = SectionTimer(clock=clock)
    clock.now += 1
    with sections.section("evaluate"):
        clock.now += 10
        with sections.section("report"):
            clock.now += 100
        clock.now += 1000
    clock.now += 2
    totals = sections.totals()
    assert (totals["evaluate"], totals["report"], totals["other"]) == (1010, 100, 3)


def test_compile_time_is_subtracted_from_its_section() -> None:
    clock = Clock()
    sections = SectionTimer(clock=clock)
    compiled_s = [7.0]
    sections.compiled_s = lambda: compiled_s[0]
    sections.restart()
    with sections.section("trace"):
        clock.now += 5
        compiled_s[0] += 4
    with sections.section("execute"):
        clock.now += 2
        compiled_s[0] += 1
    totals = sections.totals()
    assert (totals["trace"], totals["execute"], totals["compile"]) == (1, 1, 5)


def test_compiling_in_another_thread_is_capped() -> None:
    clock = Clock()
    sections = SectionTimer(clock=clock)
    sections.compiled_s = lambda: clock.now * 3
    sections.restart()
    with sections.section("trace"):
        clock.now += 5
    assert (sections.totals()["trace"], sections.totals()["compile"]) == (0, 5)


def test_an_exception_leaves_the_section() -> None:
    clock = Clock()
    sections = SectionTimer(clock=clock)
    with pytest.raises(KeyError), sections.section("data"):
        raise KeyError
    clock.now += 7
    assert sections.totals()["other"] == 7


def test_current_section_changes_are_reported() -> None:
    entered: list[str] = []
    sections = SectionTimer(entered.append, Clock())
    with sections.section("evaluate"), sections.section("save"):
        pass
    assert entered == ["evaluate", "save", "evaluate", "other"]


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 1000), st.integers(0, 1000)), max_size=30))
def test_sections_add_up_to_the_wall_time(visits: list[tuple[str, int, int]]) -> None:
    clock = Clock()
    sections = SectionTimer(clock=clock)
    sections.restart()
    for name, inside, after in visits:
        with sections.section(name):
            clock.now += inside
        clock.now += after
    assert sum(sections.totals().values()) == clock.now - 100


def test_sections_of_any_name_are_charged_up_to_a_maximum() -> None:
    clock = Clock()
    charged: list[tuple[str, float]] = []
    sections = SectionTimer(clock=clock, names=(), charged=lambda name, seconds: charged.append((name, seconds)))
    sections.restart()
    for number in range(SECTIONS_MAX + 2):
        with sections.section(f"part {number}"):
            clock.now += 1
    totals = sections.totals()
    assert len(totals) == SECTIONS_MAX
    assert (totals["part 0"], totals["other"], sum(totals.values())) == (1, 3, SECTIONS_MAX + 2)
    assert ("part 65", 1) in charged
