"""Pictures of the diagnosis panel and the header line, compared where Textual is what drew them."""

from __future__ import annotations

import pytest
import textual

from tests.ui import diagnosed, made
from tests.ui.driving import monitor
from tests.ui.test_base_app_pictures import DRAWN_BY, SIZES, Compare, pressing

pytestmark = pytest.mark.skipif(
    textual.__version__ != DRAWN_BY, reason=f"the pictures were drawn by Textual {DRAWN_BY}; another may draw otherwise"
)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_diagnosis(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert snap_compare(monitor(diagnosed.slowed()), terminal_size=size, run_before=pressing("W"))


@pytest.mark.parametrize("size", SIZES[:2], ids=str)
def test_diagnosis_in_full_screen(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert snap_compare(monitor(diagnosed.slowed()), terminal_size=size, run_before=pressing("W", "down", "enter"))


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_ignored_findings_in_full_screen(snap_compare: Compare, size: tuple[int, int]) -> None:
    run = diagnosed.slowed(sync_code="total += loss.item()  # tputui: ignore sync")
    assert snap_compare(monitor(run), terminal_size=size, run_before=pressing("W", "enter", "end"))


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_no_findings_in_full_screen(snap_compare: Compare, size: tuple[int, int]) -> None:
    run = made.changed(made.running(), time_spent=diagnosed.time_spent())
    assert snap_compare(monitor(run), terminal_size=size, run_before=pressing("W", "enter"))


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_step_budget(snap_compare: Compare, size: tuple[int, int]) -> None:
    run = made.changed(made.running(), time_spent=diagnosed.time_spent())
    assert snap_compare(monitor(run), terminal_size=size, run_before=pressing(*("99" if size[0] == 80 else "9")))
