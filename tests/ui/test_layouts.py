"""Panels hidden, resized by key and mouse, and saved as named layouts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ui import made
from tests.ui.driving import AppPilot, drive, first_frame, monitor, text, until
from tputui.state.snapshot import Snapshot
from tputui.ui.app import ScreenApp
from tputui.ui.base.palette import commands, found
from tputui.ui.base.preferences import Views
from tputui.ui.monitor.arrangement import (
    DIAGNOSIS,
    FAILURE,
    HOSTS,
    LASTING,
    LEAST_HEIGHT,
    LEAST_WIDTH,
    PANELS,
    Layout,
    apportioned,
    arrange,
)
from tputui.ui.monitor.body import Body
from tputui.ui.monitor.layouts import (
    LAYOUTS_MAX,
    ChosenLayout,
    InvalidLayout,
    LayoutsScreen,
    SavedLayouts,
    layout_of,
    lines_of,
)
from tputui.ui.monitor.loss import LossPanel
from tputui.ui.monitor.screen import MonitorScreen
from tputui.ui.widgets.panel import Box

SIZES = [(80, 24), (120, 36), (200, 50)]
KEYS = [
    f"{kind}.{part}"
    for kind in ("narrow", "wide")
    for part in ("strip", "chart", "middle", "last", "upper", "lower", *PANELS)
]
LAYOUTS = st.builds(
    Layout,
    st.sets(st.sampled_from(PANELS)).filter(lambda hidden: not hidden >= LASTING).map(frozenset),
    st.dictionaries(st.sampled_from(KEYS), st.integers(1, 10_000).map(lambda share: share / 10_000)),
)


def body_of(pilot: AppPilot) -> Body:
    return pilot.app.screen_stack[1].query_one(Body)


def shown(pilot: AppPilot) -> str:
    return text(pilot.app.screen)


def boxes(pilot: AppPilot) -> dict[str, Box]:
    """The boxes of the visible panels, as drawn."""
    body = body_of(pilot)
    at = body.region
    found = {panel.id or "": panel.region for panel in body.panels() if panel.display}
    return {name: Box(box.x - at.x, box.y - at.y, box.width, box.height) for name, box in found.items()}


def opened(views: Views, snapshot: Snapshot | None = None) -> ScreenApp:
    source = made.HandSource(snapshot or made.running())
    return ScreenApp(lambda: MonitorScreen(source, made.RUN_DIR), views=views)


def tiles(found: dict[str, Box], width: int, height: int) -> bool:
    cells = [
        (x, y)
        for box in found.values()
        for x in range(box.x, box.x + box.width)
        for y in range(box.y, box.y + box.height)
    ]
    return sorted(cells) == [(x, y) for x in range(width) for y in range(height)]


# The arrangement.


@settings(max_examples=150, deadline=None)
@given(
    layout=LAYOUTS,
    size=st.sampled_from([(60, 13), (80, 18), (100, 24), (110, 26), (120, 31), (200, 45)]),
    failed=st.booleans(),
    of_run=st.sampled_from([(0, 0), (1, 1), (8, 1), (2048, 1), (32, 4), (128, 16), (2048, 256)]),
    data=st.data(),
)
def test_every_layout_tiles_the_screen_with_minimum_sizes(
    layout: Layout, size: tuple[int, int], failed: bool, of_run: tuple[int, int], data: st.DataObject
) -> None:
    num_cores, num_hosts = of_run
    exist = [name for name in PANELS if layout.shows(name) and (name != HOSTS or num_hosts > 1)]
    wanted = data.draw(st.sampled_from(exist))
    found = arrange(*size, wanted, num_cores=num_cores, num_hosts=num_hosts, failed=failed, layout=layout).boxes
    assert tiles(found, *size)
    assert wanted in found
    assert not layout.hidden & set(found)
    assert all(box.width >= LEAST_WIDTH for box in found.values())
    assert all(box.height >= (3 if name in ("cores", HOSTS) else LEAST_HEIGHT) for name, box in found.items())


def test_room_of_hidden_panels_goes_to_others() -> None:
    every = arrange(120, 31, "cores", num_cores=8).boxes
    without = arrange(120, 31, "cores", num_cores=8, layout=Layout(frozenset({"xla", "memory"}))).boxes
    assert {"events", "log"} <= set(without), "both fit now"
    assert without["log"].height == every["log"].height
    one_row_less = arrange(120, 31, "cores", num_cores=8, layout=Layout(frozenset({"pace", "meters", "epochs"}))).boxes
    assert one_row_less["loss"].height > every["loss"].height
    narrow = arrange(80, 18, "cores", num_cores=8, layout=Layout(frozenset({"loss"}))).boxes
    assert set(narrow) == {"cores", "meters", "epochs", "log"}
    assert set(arrange(80, 18, "events", num_cores=8, layout=Layout(frozenset({"loss"}))).boxes) == {
        "cores",
        "meters",
        "epochs",
        "events",
    }
    alone = Layout(frozenset(LASTING) - {"pace"})
    assert arrange(80, 18, "pace", num_cores=8, layout=alone).boxes == {"pace": Box(0, 0, 80, 18)}


def test_sizes_are_shares_of_any_terminal() -> None:
    layout = Layout(
        sizes={"wide.cores": 0.6, "wide.loss": 0.4, "wide.upper": 0.5, "wide.middle": 0.2, "wide.lower": 0.3}
    )
    for width, height in ((120, 30), (200, 50), (160, 40)):
        found = arrange(width, height, "cores", num_cores=8, layout=layout).boxes
        assert found["cores"].width == width * 6 // 10
        assert found["cores"].height == height // 2
    narrow = arrange(80, 18, "cores", num_cores=8, layout=layout)
    assert narrow == arrange(80, 18, "cores", num_cores=8), "a narrow terminal has its own sizes"


@given(
    wanted=st.lists(st.floats(0.001, 1e6), min_size=1, max_size=6),
    least=st.integers(0, 20),
    total=st.integers(1, 400),
)
def test_apportioned_sizes_add_up(wanted: list[float], least: int, total: int) -> None:
    sizes = apportioned(total, wanted, [least] * len(wanted))
    assert sum(sizes) == total
    assert least * len(wanted) > total or min(sizes) >= least


# Hidden panels.


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_hidden_panel_moves_the_focus_and_its_number_shows_it_again(size: tuple[int, int]) -> None:
    async def script(pilot: AppPilot) -> None:
        body = body_of(pilot)
        await pilot.press("2", "H")
        assert "loss is hidden; 2 shows it again" in shown(pilot)
        assert body.selected == "meters"
        assert pilot.app.screen.focused is body.panel
        assert "2 loss" not in shown(pilot)
        assert "P hidden 2" in shown(pilot).splitlines()[-1]
        assert "m metrics" not in shown(pilot).splitlines()[-1]
        assert tiles(boxes(pilot), body.size.width, body.size.height)
        await pilot.press("l")
        assert "loss is hidden; 2 shows it again" in shown(pilot)
        await pilot.press("1", "tab")
        assert body.selected == "meters", "tab skips hidden panels"
        await pilot.press("2")
        assert body.selected == "loss"
        assert "2 loss" in shown(pilot)
        assert "hidden" not in shown(pilot).splitlines()[-1]

    drive(monitor(made.running()), script, size=size)


def test_hiding_in_full_screen_shows_the_others() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("9", "9", "H")
        body = body_of(pilot)
        assert (body.maximised, body.selected) == (False, "events")
        await pilot.press("u")
        assert "9 pace" in shown(pilot)

    drive(monitor(made.running()), script)


def test_a_change_can_be_undone_after_the_screen_was_left() -> None:
    views = Views()

    async def script(pilot: AppPilot) -> None:
        app = pilot.app
        assert isinstance(app, ScreenApp)
        app.push_screen(MonitorScreen(made.HandSource(made.running()), made.RUN_DIR))
        await until(pilot, lambda: len(app.screen_stack) == 3)
        await first_frame(pilot)
        await pilot.press("H", "P", "s", *"mine", "enter", "escape", "q")
        await until(pilot, lambda: len(app.screen_stack) == 2)
        assert SavedLayouts(views).last() == ChosenLayout(Layout(frozenset({"cores"})), "mine")
        await pilot.press("u", "u")
        assert SavedLayouts(views).last() == ChosenLayout()
        assert SavedLayouts(views).names() == []

    drive(opened(views), script)


def test_the_last_panel_and_the_failure_cannot_be_hidden() -> None:
    async def script(pilot: AppPilot) -> None:
        body = body_of(pilot)
        await pilot.press("0", "H")
        assert "the failure cannot be hidden" in shown(pilot)
        await pilot.press(*"1H" * len(LASTING))
        for name in LASTING:
            if name != "pace" and body.layout_now.shows(name):
                body.toggle(name)
        assert [name for name in body.names() if name != FAILURE] == ["pace"]
        await pilot.press("9", "H")
        assert "pace is the only panel left" in shown(pilot)
        assert "9 pace" in shown(pilot)

    drive(monitor(made.failed()), script)


def test_a_hidden_panel_shows_the_newest_values_once_it_is_shown() -> None:
    source = made.HandSource(made.running())

    async def script(pilot: AppPilot) -> None:
        await pilot.press("8", "H")
        source.served = made.failed()
        await until(pilot, lambda: "FAILED" in shown(pilot))
        await pilot.press("8", "8")
        panel = body_of(pilot).panel
        await until(pilot, lambda: panel.size.height > 20)
        assert panel.as_text().splitlines()[1].strip() in shown(pilot).replace("\u2502", "")

    drive(ScreenApp(lambda: MonitorScreen(source, made.RUN_DIR)), script, size=(120, 36))


# Sizes by key.


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_keys_resize_the_selected_panel_and_u_restores_it(size: tuple[int, int]) -> None:
    async def script(pilot: AppPilot) -> None:
        body = body_of(pilot)
        body.clock = lambda: 0.0
        await pilot.press("2")
        before = boxes(pilot)
        await pilot.press("shift+up", "shift+up")
        await pilot.pause()
        after = boxes(pilot)
        assert after["loss"].height == before["loss"].height - 2
        assert tiles(after, body.size.width, body.size.height)
        await pilot.press("shift+down", "shift+down", "shift+down")
        await pilot.pause()
        assert boxes(pilot)["loss"].height == before["loss"].height + 1
        await pilot.press("u")
        await pilot.pause()
        assert boxes(pilot) == before, "keys in quick succession are one change"
        await pilot.press("shift+right")
        await pilot.pause()
        if size[0] == 80:
            assert "loss cannot be resized: it has the whole width" in shown(pilot)
            return
        assert boxes(pilot)["loss"].width == before["loss"].width + 2
        assert boxes(pilot)["cores"].width == before["cores"].width - 2
        await pilot.press("backspace")
        await pilot.pause()
        assert boxes(pilot) == before

    drive(monitor(made.running()), script, size=size)


def test_panels_keep_their_minimum_size() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press(*["shift+left"] * 40)
        await pilot.pause()
        assert boxes(pilot)["cores"].width == LEAST_WIDTH
        assert "cores has its minimum width" in shown(pilot)
        await pilot.press("z", "shift+right")
        assert "cores cannot be resized: esc shows all panels" in shown(pilot)

    drive(monitor(made.running()), script)


def test_sizes_survive_a_resized_terminal() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("1", *["shift+right"] * 10)
        await pilot.pause()
        share = boxes(pilot)["cores"].width / 120
        for width, height in ((80, 24), (200, 50), (160, 45)):
            await pilot.resize_terminal(width, height)
            await pilot.pause()
            found = boxes(pilot)
            body = body_of(pilot)
            assert tiles(found, body.size.width, body.size.height)
            if width > 80:
                assert abs(found["cores"].width - share * width) <= 1
        await pilot.resize_terminal(120, 36)
        await pilot.pause()
        assert boxes(pilot)["cores"].width == round(share * 120)

    drive(monitor(made.running()), script)


# Sizes by mouse.


async def drag(pilot: AppPilot, start: tuple[int, int], end: tuple[int, int]) -> None:
    """Drag with the mouse, in cells of the body."""
    body = body_of(pilot)
    await pilot.mouse_down(body, offset=start)
    await pilot.pause()
    for part in (1, 2):
        at = tuple(one + (other - one) * part // 2 for one, other in zip(start, end, strict=True))
        await pilot.hover(body, offset=(at[0], at[1]))
        await pilot.pause()
    await pilot.mouse_up(body, offset=end)
    await pilot.pause()


@pytest.mark.parametrize("size", SIZES[1:], ids=str)
def test_borders_are_dragged_with_the_mouse(size: tuple[int, int]) -> None:
    async def script(pilot: AppPilot) -> None:
        body = body_of(pilot)
        before = boxes(pilot)
        cores = before["cores"]
        await drag(pilot, (cores.width - 1, 5), (cores.width + 9, 7))
        after = boxes(pilot)
        assert after["cores"] == cores._replace(width=cores.width + 10)
        assert after["loss"].width == before["loss"].width - 10
        assert pilot.app.screen.query_one(LossPanel).look.cursor is None, "the drag reads no values"
        await drag(pilot, (60, cores.height), (60, cores.height - 3))
        lower = boxes(pilot)
        assert {lower[name].height for name in ("cores", "loss")} == {cores.height - 3}
        assert {lower[name].height for name in ("pace", "meters", "epochs")} == {before["pace"].height + 3}
        assert tiles(lower, body.size.width, body.size.height)
        await pilot.press("u")
        await pilot.pause()
        assert boxes(pilot) == after, "a drag is one change"
        await pilot.press("u")
        await pilot.pause()
        assert boxes(pilot) == before

    drive(monitor(made.running()), script, size=size)


def test_a_drag_stops_at_minimum_sizes_and_outside() -> None:
    async def script(pilot: AppPilot) -> None:
        cores = boxes(pilot)["cores"]
        await drag(pilot, (cores.width, 5), (0, 5))
        assert boxes(pilot)["cores"].width == LEAST_WIDTH
        await drag(pilot, (5, cores.height - 1), (5, 30))
        assert boxes(pilot)["pace"].height == LEAST_HEIGHT

    drive(monitor(made.running()), script)


def test_a_border_is_not_dragged_by_a_mouse_that_left_at_once() -> None:
    async def script(pilot: AppPilot) -> None:
        body, before = body_of(pilot), boxes(pilot)
        await pilot.hover(body, offset=(before["cores"].width, 1))
        await pilot.mouse_down(body, offset=(before["cores"].width, 1))
        await pilot.hover(pilot.app.screen.query_one("#header"), offset=(80, 1))
        await pilot.pause()
        await pilot.hover(body, offset=(80, 5))
        await pilot.pause()
        assert boxes(pilot) == before

    drive(monitor(made.running()), script)


def test_at_80x24_a_drag_keeps_the_panel_in_the_shared_place() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("8")
        await pilot.pause()
        before = boxes(pilot)
        top = before["events"].y
        await drag(pilot, (30, top - 1), (30, top - 4))
        after = boxes(pilot)
        assert set(after) == set(before)
        assert after["events"].height == before["events"].height + 3
        assert after["loss"].height == before["loss"].height - 3

    drive(monitor(made.running()), script, size=(80, 24))


def test_the_border_of_a_failure_is_dragged() -> None:
    async def script(pilot: AppPilot) -> None:
        failure = boxes(pilot)[FAILURE]
        await drag(pilot, (30, failure.height), (30, failure.height - 4))
        assert boxes(pilot)[FAILURE].height == failure.height - 4

    drive(monitor(made.failed()), script, size=(120, 60))


def test_double_click_restores_a_border_and_opens_a_title() -> None:
    async def script(pilot: AppPilot) -> None:
        body = body_of(pilot)
        before = boxes(pilot)
        cores = before["cores"]
        await drag(pilot, (cores.width - 1, 5), (cores.width + 9, 5))
        await drag(pilot, (60, cores.height), (60, cores.height - 3))
        await pilot.double_click(body, offset=(cores.width + 10, 4))
        await pilot.pause()
        assert boxes(pilot)["cores"].width == cores.width
        assert boxes(pilot)["cores"].height == cores.height - 3
        await pilot.double_click(body, offset=(60, cores.height - 4))
        await pilot.pause()
        assert boxes(pilot) == before
        await pilot.double_click(body, offset=(5, cores.height))
        await pilot.pause()
        assert body.maximised
        assert body.selected == "pace"

    drive(monitor(made.running()), script)


def test_the_border_under_the_mouse_is_highlighted() -> None:
    def tones(pilot: AppPilot, name: str, row: int) -> list[str]:
        panel = next(each for each in body_of(pilot).panels() if each.id == name)
        return [span.tone for span in panel._lines[row]]

    async def script(pilot: AppPilot) -> None:
        body = body_of(pilot)
        cores = boxes(pilot)["cores"]
        await pilot.hover(body, offset=(cores.width, 5))
        await pilot.pause()
        assert (tones(pilot, "cores", 5)[-1], tones(pilot, "loss", 5)[0]) == ("info", "info")
        assert tones(pilot, "cores", 5)[0] == "accent"
        assert str(body.styles.pointer) == "ew-resize"
        await pilot.hover(body, offset=(60, cores.height))
        await pilot.pause()
        assert tones(pilot, "cores", 5)[-1] == "accent"
        assert tones(pilot, "loss", -1)[0] == "info"
        assert tones(pilot, "meters", 0)[0] == "info"
        assert str(body.styles.pointer) == "ns-resize"
        await pilot.hover(pilot.app.screen.query_one("#header"), offset=(5, 1))
        await pilot.pause()
        assert tones(pilot, "meters", 0)[0] == "dim"
        assert str(body.styles.pointer) == "default"

    drive(monitor(made.running()), script)


# Named layouts.


def test_layouts_are_saved_chosen_deleted_and_restored_at_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "view.json"

    async def first(pilot: AppPilot) -> None:
        await pilot.press("5", "H", "1", "shift+right", "P", "s")
        await pilot.press(*"wide  cores", "enter")
        await pilot.pause()
        assert "layout wide cores saved" in text(pilot.app.screen_stack[1])
        assert "(*) wide cores" in shown(pilot)
        await pilot.press("6", "escape")
        await pilot.pause()
        assert set(boxes(pilot)) == set(LASTING) - {"xla", "memory", DIAGNOSIS}

    views = Views.opened(path)
    drive(opened(views), first)
    views.write()

    async def second(pilot: AppPilot) -> None:
        await pilot.pause()
        assert set(boxes(pilot)) == set(LASTING) - {"xla", "memory", DIAGNOSIS}
        assert "P hidden 5 6" in shown(pilot)
        await pilot.press("P", "up")
        assert "wide cores changed; s saves it" in shown(pilot)
        await pilot.press("space")
        await pilot.pause()
        assert "6 memory" in shown(pilot)
        assert body_of(pilot).layout_now.hidden == {"xla"}
        await pilot.press("up", "enter")
        assert body_of(pilot).chosen == ChosenLayout()
        await pilot.press("u")
        await until(pilot, lambda: "(*) wide cores" in shown(pilot))
        await pilot.press("down", "D")
        assert "wide cores" not in shown(pilot).split("layouts", 1)[1]
        await pilot.press("u")
        await until(pilot, lambda: "(*) wide cores" in shown(pilot))
        await pilot.press("D", "D")
        assert "only saved layouts can be deleted" in text(pilot.app.screen_stack[1])

    views = Views.opened(path)
    drive(opened(views), second)
    views.write()
    stored = json.loads(path.read_text())
    assert stored["saved.layout.wide cores"][:2] == ["version 1", "hide xla"]
    assert stored["monitor.layout"][:2] == ["version 1", "hide xla"], "the panels stay as they are"


def test_a_saved_layout_is_replaced_and_u_brings_it_back() -> None:
    views = Views()
    SavedLayouts(views).save("mine", Layout(frozenset({"pace"})))

    async def script(pilot: AppPilot) -> None:
        await pilot.press("P", "down", "space", "s", *"mine", "enter")
        await pilot.pause()
        assert "layout mine replaced" in text(pilot.app.screen_stack[1])
        assert body_of(pilot).saved.get("mine").hidden == {"loss"}
        await pilot.press("u")
        await until(pilot, lambda: body_of(pilot).saved.get("mine").hidden == {"pace"})
        assert body_of(pilot).layout_now.hidden == {"loss"}

    drive(opened(views), script)


def test_names_that_cannot_be_saved_are_refused() -> None:
    views = Views()
    saved = SavedLayouts(views)
    for number in range(LAYOUTS_MAX):
        saved.save(f"layout {number}", Layout())
    assert saved.valid_name(" layout   3 ") == "layout 3"
    for name, why in (("", "type a name"), ("Default", "built-in"), ("x" * 25, "25 characters"), ("new", "20 layouts")):
        with pytest.raises(ValueError, match=why):
            saved.valid_name(name)

    async def script(pilot: AppPilot) -> None:
        await pilot.press("P", "s", *"new", "enter")
        await pilot.pause()
        assert "20 layouts are saved, the maximum; delete one first" in shown(pilot)
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, LayoutsScreen)

    drive(opened(views), script)


def test_a_reset_of_the_view_keeps_saved_layouts(tmp_path: Path) -> None:
    views = Views.opened(tmp_path / "view.json")
    saved = SavedLayouts(views)
    saved.save("mine", Layout(frozenset({"pace"})))
    saved.keep(ChosenLayout(saved.get("mine"), "mine"))
    views.write()
    views = Views.opened(tmp_path / "view.json")
    views.reset()
    views.write()
    saved = SavedLayouts(Views.opened(tmp_path / "view.json"))
    assert saved.names() == ["mine"]
    assert saved.last() == ChosenLayout()


@given(layout=LAYOUTS)
def test_every_layout_round_trips(layout: Layout) -> None:
    assert layout_of(lines_of(layout)) == layout


DAMAGED: list[tuple[Any, str]] = [
    (5, "it is damaged"),
    ([], "it is damaged"),
    (["version 1", 5], "it is damaged"),
    ({"version": 1}, "it is damaged"),
    (["version x"], "it is damaged"),
    (["version 1"] * 1_000, "it is damaged"),
    (["version 2", "show everything"], "a newer version of tputui saved it"),
    (["version 1", "hide xla", "size wide.cores banana"], "line 3 is damaged"),
    (["version 1", "size wide.cores nan"], "line 2 is damaged"),
    (["version 1", "size wide.cores -0.5"], "line 2 is damaged"),
    (["version 1", "show xla"], "line 2 is damaged"),
    (["version 1", *(f"hide {name}" for name in PANELS)], "it hides every panel"),
]


@pytest.mark.parametrize(("stored", "why"), DAMAGED, ids=str)
def test_a_damaged_layout_is_refused_with_a_reason(stored: object, why: str) -> None:
    with pytest.raises(InvalidLayout, match=why):
        layout_of(stored)


def test_unknown_panels_and_sizes_are_ignored() -> None:
    layout = layout_of(["version 1", "hide gpu", "hide xla", "size huge.gpu 0.5"])
    assert layout.hidden == {"xla"}
    assert arrange(120, 31, "cores", num_cores=8, layout=layout._replace(hidden=frozenset())) == arrange(
        120, 31, "cores", num_cores=8
    )


def test_damaged_layouts_are_reported_and_the_default_is_used(tmp_path: Path) -> None:
    path = tmp_path / "view.json"
    newer = {"panels": {"xla": {"hidden": True}}}
    path.write_text(
        json.dumps(
            {
                "monitor.layout": ["version 1", "hide xla", "size wide.cores much"],
                "saved.layout.good": ["version 1", "hide pace"],
                "saved.layout.newer": newer,
                "saved.layout.\x1b[2J": ["version 1"],
            }
        )
    )

    async def script(pilot: AppPilot) -> None:
        await until(pilot, lambda: "layout ignored: line 3 is damaged; the default one is shown" in shown(pilot))
        assert set(boxes(pilot)) == set(LASTING) - {DIAGNOSIS}
        await pilot.press("P", "up")
        assert "newer cannot be used: it is damaged" in shown(pilot)
        assert "\x1b" not in shown(pilot)
        await pilot.press("space")
        assert "layout newer refused: it is damaged; the panels stay" in text(pilot.app.screen_stack[1])
        await pilot.press("up", "space")
        await pilot.pause()
        assert set(boxes(pilot)) == set(LASTING) - {"pace", DIAGNOSIS}

    views = Views.opened(path)
    drive(opened(views), script, size=(160, 45))
    views.write()
    assert json.loads(path.read_text())["saved.layout.newer"] == newer, "a layout of another version stays"


# The dialog and the palette.


def test_the_dialog_hides_by_number_and_by_click() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("P", "9")
        assert "9 [ ] pace" in shown(pilot)
        lines = shown(pilot).splitlines()
        row = next(index for index, line in enumerate(lines) if "4 [x] epochs" in line)
        await pilot.click(offset=(lines[row].index("epochs"), row))
        await pilot.pause()
        assert "4 [ ] epochs" in shown(pilot)
        await pilot.press("P")
        assert isinstance(pilot.app.screen, MonitorScreen)
        assert "P hidden 4 9" in shown(pilot)
        await pilot.click(offset=(shown(pilot).splitlines()[-1].index("hidden"), 35))
        assert isinstance(pilot.app.screen, LayoutsScreen)

    drive(monitor(made.running()), script)


def test_the_dialog_scrolls_if_there_are_many_layouts() -> None:
    views = Views()
    for number in range(LAYOUTS_MAX):
        SavedLayouts(views).save(f"layout {number:02}", Layout())

    async def script(pilot: AppPilot) -> None:
        await pilot.press("P", "up")
        assert "layout 19" in shown(pilot)
        assert "esc close" in shown(pilot)
        await pilot.press("down")
        assert "1 [x] cores" in shown(pilot)

    drive(opened(views), script, size=(80, 24))


def test_the_palette_has_panels_and_layouts() -> None:
    views = Views()
    SavedLayouts(views).save("it's mine", Layout(frozenset({"pace"})))

    async def script(pilot: AppPilot) -> None:
        entries = list(commands(pilot.app.screen, pilot.app.theme))
        app = pilot.app
        assert isinstance(app, ScreenApp)
        body, seen = body_of(pilot), []
        for query in ("hide xla", "layout it's mine", "layout default", "wider", "default sizes"):
            await app.run_command(found(entries, query)[0][1], app.screen)
            seen.append((set(body.layout_now.hidden), bool(body.layout_now.sizes)))
        assert seen == [({"xla"}, False), ({"pace"}, False), (set(), False), (set(), True), (set(), False)]

    drive(opened(views), script)
