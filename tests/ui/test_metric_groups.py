"""Pages of many metrics: groups by the prefix of their names, folded groups and pinned metrics."""

from __future__ import annotations

import msgspec
import pytest
import textual
from hypothesis import given
from hypothesis import strategies as st

from tests.ui import made, measured
from tests.ui.driving import AppPilot, drive, first_frame, monitor, text
from tests.ui.test_metrics import charts, panel, shown
from tests.ui.test_pictures import DRAWN_BY, Compare
from tputui.state.snapshot import Snapshot
from tputui.ui.app import ScreenApp
from tputui.ui.charts.metric_layout import PINNED, Choice, Heading, PageLayout, pages
from tputui.ui.monitor.screen import MonitorScreen

NAMES = ("loss", "lr", *(f"layer{group}/block_{block}" for group in range(4) for block in range(8)), "alone/name")


def many(folder: str = "/runs") -> Snapshot:
    """A run that reports 32 more metrics, in four groups."""
    run = measured.running()
    names = [name for name in NAMES if name.startswith("layer")]
    points = [
        msgspec.structs.replace(point, avg={**point.avg, **{name: len(name) + at for at, name in enumerate(names)}})
        for point in run.meter_history
    ]
    return made.changed(run, meter_history=points, dir=f"{folder}/run")


def headings(pilot: AppPilot) -> list[str]:
    """The headings of the page that is shown: an open one as `layer0/`, a folded one as `[layer0/]`."""
    page = panel(pilot)._page
    rows = page.layout.rows if page is not None else []
    return [f"[{row.group}]" if row.is_folded else row.group for row in rows if isinstance(row, Heading)]


def chosen(pilot: AppPilot) -> str:
    page = panel(pilot)._page
    return page.chosen if page is not None else ""


def groups_of(layouts: list[PageLayout]) -> list[tuple[str, bool]]:
    rows = [row for page in layouts for row in page.rows if isinstance(row, Heading)]
    return list(dict.fromkeys((row.group, row.is_folded) for row in rows))


def test_metrics_of_several_pages_are_grouped_by_prefix() -> None:
    layouts = pages(NAMES, Choice(), 112, 28)
    assert groups_of(layouts) == [(f"layer{number}/", False) for number in range(4)]
    # A prefix of a single name makes no group.
    assert layouts[0].metrics[:3] == ["loss", "lr", "alone/name"]


def test_metrics_of_one_page_have_no_headings() -> None:
    (page,) = pages(NAMES[:12], Choice(), 160, 45)
    assert page.metrics == list(NAMES[:12])
    assert 0 not in page.shape


def test_pinned_metrics_are_first_and_not_in_their_group() -> None:
    layouts = pages(NAMES, Choice(pinned=("layer2/block_5", "lr", "not there")), 112, 28)
    assert layouts[0].metrics[:3] == ["layer2/block_5", "lr", "loss"]
    assert groups_of(layouts)[0] == (PINNED, False)
    assert [name for page in layouts for name in page.metrics].count("layer2/block_5") == 1


def test_a_group_that_goes_on_repeats_its_heading() -> None:
    names = ["loss", *(f"a/{number}" for number in range(40)), "b/0", "b/1"]
    layouts = pages(tuple(names), Choice(), 76, 16)
    firsts = [page.rows[0] for page in layouts[1:]]
    assert all(isinstance(first, Heading) for first in firsts)


choices = st.builds(
    Choice,
    st.lists(st.sampled_from(NAMES), unique=True, max_size=5).map(tuple),
    st.frozensets(st.sampled_from(["layer0/", "layer1/", "layer3/", "unknown/"])),
)


@given(st.lists(st.sampled_from(NAMES), unique=True), choices, st.integers(1, 300), st.integers(1, 90))
def test_every_metric_is_on_one_page_or_folded(names: list[str], choice: Choice, width: int, height: int) -> None:
    layouts = pages(tuple(names), choice, width, height)
    drawn = [name for page in layouts for name in page.metrics]
    assert len(drawn) == len(set(drawn))
    folded = {group for group, is_folded in groups_of(layouts) if is_folded}
    hidden = {name for name in names if name not in drawn}
    assert hidden <= {name for name in names if name.split("/")[0] + "/" in folded} | {"loss"}
    for page in layouts:
        used = sum(page.height if size else 1 for size in page.shape)
        assert used <= height or len(page.rows) == 1
        assert page.items
        assert all(page.selected(item) == item for item in page.items)


@given(choices, st.integers(36, 200), st.integers(8, 60), st.data())
def test_a_cell_of_a_page_is_that_of_its_chart(choice: Choice, width: int, height: int, data: st.DataObject) -> None:
    page = data.draw(st.sampled_from(pages(NAMES, choice, width, height)))
    found = {page.item_at(x, y) for y in range(height) for x in range(0, width, 7)} - {""}
    assert found == set(page.items)


def test_z_folds_the_group_of_the_selected_metric() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("2", "z", "m", "M", "m")
        assert headings(pilot)[0] == "layer0/"
        await pilot.press("Z")
        assert "this metric is in no group" in text(pilot.app.screen)
        await pilot.press(*"jjjjjjj")
        assert chosen(pilot) == "layer0/block_0"
        await pilot.press("Z")
        assert headings(pilot)[0] == "[layer0/]"
        assert "layer0/  8" in shown(pilot)
        assert "8 folded" in shown(pilot)
        assert not any(name.startswith("layer0/") for name in charts(pilot))
        await pilot.press("L", "l", "comma", "j", "k")
        await pilot.press("Z")
        assert headings(pilot)[0] == "layer0/"
        assert chosen(pilot) == "layer0/block_0"

    drive(monitor(many()), script, size=(160, 45))


def test_all_groups_fold_and_unfold() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("2", "z", "m", "E")
        assert headings(pilot) == [f"[layer{number}/]" for number in range(4)]
        assert "1-7 of 7 · 32 folded" in shown(pilot)
        await pilot.press("M", "m", "E")
        assert " of 39" in shown(pilot)
        await pilot.press("u")
        assert "32 folded" in shown(pilot)

    drive(monitor(many()), script, size=(200, 50))


def test_a_search_shows_what_it_finds_in_folded_groups() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("2", "z", "m", "E", "slash", *"er2 _3", "enter")
        assert charts(pilot) == ["layer2/block_3"]
        await pilot.press("escape")
        assert headings(pilot) == [f"[layer{number}/]" for number in range(4)]

    drive(monitor(many()), script, size=(200, 50))


def test_a_pinned_metric_is_on_the_first_page() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("m", "slash", *"er3 _7", "enter", "asterisk")
        assert "pinned" in shown(pilot)
        await pilot.press("escape")
        assert charts(pilot)[0] == "layer3/block_7"
        assert headings(pilot)[0] == PINNED
        await pilot.press("u")
        assert PINNED not in headings(pilot)

    drive(monitor(many()), script, size=(200, 50))


def test_the_choice_is_kept_for_the_folder_of_runs() -> None:
    app = monitor(many("/a"))

    def opened(folder: str) -> ScreenApp:
        again = ScreenApp(lambda: MonitorScreen(made.HandSource(many(folder)), made.RUN_DIR))
        again.views = app.views
        return again

    async def choose(pilot: AppPilot) -> None:
        await pilot.press("2", "z", "m", "asterisk", "E")
        assert headings(pilot) == [PINNED, *(f"[layer{number}/]" for number in range(4))]

    async def kept(pilot: AppPilot) -> None:
        await pilot.press("2", "z", "m")
        assert headings(pilot) == [PINNED, *(f"[layer{number}/]" for number in range(4))]

    async def not_there(pilot: AppPilot) -> None:
        await pilot.press("m")
        assert not any(name.startswith("[") or name == PINNED for name in headings(pilot))

    drive(app, choose, size=(200, 50))
    drive(opened("/a"), kept, size=(200, 50))
    drive(opened("/b"), not_there, size=(200, 50))


@pytest.mark.skipif(textual.__version__ != DRAWN_BY, reason=f"drawn by Textual {DRAWN_BY}")
@pytest.mark.parametrize("size", [(80, 24), (120, 36), (200, 50)], ids=str)
def test_picture_of_groups(snap_compare: Compare, size: tuple[int, int]) -> None:
    async def script(pilot: AppPilot) -> None:
        await first_frame(pilot)
        await pilot.press("2", "z", "m", "asterisk", "j", "j", "j", "j", "j", "j", "j", "j", "Z")

    assert snap_compare(monitor(many()), terminal_size=size, run_before=script)
