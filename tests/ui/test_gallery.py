"""The pictures screen: opening, following, scrolling, and the reasons for missing pictures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import textual

from tests.ui import made
from tests.ui.driving import AppPilot, drive, first_frame, monitor, text, until
from tests.ui.painted import SHADES, paint, pictured, view
from tests.ui.test_pictures import DRAWN_BY, Compare
from tputui.state.snapshot import SkippedView, Snapshot
from tputui.telemetry import events as ev
from tputui.telemetry.events import PictureKept
from tputui.ui.app import ScreenApp
from tputui.ui.help import HelpScreen
from tputui.ui.monitor.events import SkippedScreen
from tputui.ui.monitor.pictures import PICTURES_MAX, GalleryPanel, GalleryPart, PicturesScreen, why_none
from tputui.ui.monitor.screen import MonitorScreen
from tputui.ui.render.image_grid import UPPER_HALF, Drawer, Example, ImageGrid, Pixels, Tile, coloured, scaled
from tputui.ui.render.lines import width_of

same_textual = pytest.mark.skipif(textual.__version__ != DRAWN_BY, reason=f"drawn by Textual {DRAWN_BY}")


async def opened(pilot: AppPilot) -> None:
    """Open the pictures and wait until they are read."""
    await first_frame(pilot)
    await pilot.press("p")
    await until(pilot, lambda: "epoch 2" in text(pilot.app.screen).splitlines()[0])


def test_p_shows_every_picture_with_its_names(tmp_path: Path) -> None:
    async def script(pilot: AppPilot) -> None:
        await opened(pilot)
        shown = text(pilot.app.screen)
        head = shown.splitlines()[0]
        for part in ("digits-20251009-100000", "epoch 2", "step 220"):
            assert part in head
        for name in ("example 0", "example 1", "input", "true mask", "depth"):
            assert name in shown
        assert UPPER_HALF * 12 in shown

    drive(monitor(pictured(tmp_path), run_dir=tmp_path), script, size=(200, 50))


def test_training_examples_shown_before_first_evaluation(tmp_path: Path) -> None:
    source = made.changed(pictured(tmp_path), pictures=view(tmp_path, epoch=0, examples=1))

    async def script(pilot: AppPilot) -> None:
        await first_frame(pilot)
        await pilot.press("p")
        await until(pilot, lambda: "true mask" in text(pilot.app.screen))
        head = text(pilot.app.screen).splitlines()[0]
        assert "training examples" in head
        assert "epoch 0" not in head

    drive(monitor(source, run_dir=tmp_path), script, size=(200, 50))


@pytest.mark.parametrize("key", ["p", "q", "escape"])
def test_leaving_pictures_returns_to_the_monitor(tmp_path: Path, key: str) -> None:
    async def script(pilot: AppPilot) -> None:
        await opened(pilot)
        assert isinstance(pilot.app.screen, PicturesScreen)
        await pilot.press(key)
        assert isinstance(pilot.app.screen, MonitorScreen)
        assert "1 cores" in text(pilot.app.screen)

    drive(monitor(pictured(tmp_path), run_dir=tmp_path), script)


def test_pictures_follow_the_newest_epoch(tmp_path: Path) -> None:
    source = made.HandSource(pictured(tmp_path))
    newer = made.changed(source.served, pictures=view(tmp_path, epoch=3, examples=1))

    async def script(pilot: AppPilot) -> None:
        await opened(pilot)
        source.served = newer
        await until(pilot, lambda: "epoch 3 \u00b7 step 330" in text(pilot.app.screen))
        assert "example 1" not in text(pilot.app.screen)
        source.served = made.changed(newer, pictures=None)
        await until(pilot, lambda: "no pictures" in text(pilot.app.screen))

    drive(ScreenApp(lambda: MonitorScreen(source, tmp_path)), script)


def test_n_goes_through_the_epochs_with_pictures(tmp_path: Path) -> None:
    views = [view(tmp_path, epoch=epoch, examples=1) for epoch in (0, 1, 2)]
    source = made.HandSource(made.changed(made.running(), pictures=views[-1], picture_history=views))

    async def script(pilot: AppPilot) -> None:
        def title() -> str:
            return text(pilot.app.screen).splitlines()[0]

        await opened(pilot)
        assert "n N: epochs start to 2" in title()
        assert "n epochs" in text(pilot.app.screen)
        await pilot.press("N")
        await until(pilot, lambda: "epoch 1 \u00b7 step 110" in title())
        await pilot.press("N", "N")
        await until(pilot, lambda: "training examples" in title())
        await pilot.press("n")
        await until(pilot, lambda: "epoch 1 \u00b7 step 110" in title())

        # A new epoch does not replace the chosen one; behind the last one, new epochs are followed again.
        more = [*views, view(tmp_path, epoch=3, examples=1)]
        source.served = made.changed(source.served, pictures=more[-1], picture_history=more)
        await until(pilot, lambda: "epochs start to 3" in title())
        assert "epoch 1 \u00b7 step 110" in title()
        await pilot.press("n", "n")
        await until(pilot, lambda: "epoch 3 \u00b7 step 330" in title())
        more = [*more, view(tmp_path, epoch=4, examples=1)]
        source.served = made.changed(source.served, pictures=more[-1], picture_history=more)
        await until(pilot, lambda: "epoch 4 \u00b7 step 440" in title())

        # Looking back, later epochs are not there yet.
        source.served = made.changed(source.served, pictures=views[1], picture_history=views[:2])
        await until(pilot, lambda: "epoch 1 \u00b7 step 110" in title())

    drive(ScreenApp(lambda: MonitorScreen(source, tmp_path)), script)


def test_n_says_that_there_is_one_epoch_only(tmp_path: Path) -> None:
    async def script(pilot: AppPilot) -> None:
        await opened(pilot)
        assert "n epochs" not in text(pilot.app.screen)
        await pilot.press("n")
        assert "there are pictures of one epoch only" in text(pilot.app.screen)

    drive(monitor(pictured(tmp_path), run_dir=tmp_path), script)


@pytest.mark.parametrize(("size", "side"), [((118, 30), 24), ((198, 44), 40), ((158, 39), 32)])
def test_few_small_pictures_are_enlarged_until_they_fill_the_panel(size: tuple[int, int], side: int) -> None:
    small = Pixels(8, 8, bytes(3 * 64))
    examples = [Example(f"#{number} label 7", (Tile("predicted 1", small),)) for number in range(1, 5)]
    rows = ImageGrid(examples, *size, Drawer(scaled, coloured))
    assert len(rows) <= size[1]
    widths = {len(span.text) for row in rows for span in row if UPPER_HALF in span.text}
    assert widths == {side}


def test_a_file_that_arrives_late_is_shown_in_its_place(tmp_path: Path) -> None:
    snapshot = pictured(tmp_path, examples=1)
    late = tmp_path / "pictures" / "epoch-0002" / "0-depth.png"
    late.unlink()

    async def script(pilot: AppPilot) -> None:
        await opened(pilot)
        assert "missing: there is" in text(pilot.app.screen)
        paint(late, SHADES["depth"], 0)
        await until(pilot, lambda: "missing" not in text(pilot.app.screen))

    drive(monitor(snapshot, run_dir=tmp_path), script)


def test_player_keys_work_over_pictures_of_a_replay(tmp_path: Path) -> None:
    player = made.HandPlayer()
    steps: list[tuple[str, Callable[[], bool]]] = [
        ("space", lambda: not player.playing),
        ("right", lambda: player.position == made.NOW + 50),
        ("left", lambda: player.position == made.NOW + 40),
        ("right_square_bracket", lambda: player.speed == 2),
    ]

    async def script(pilot: AppPilot) -> None:
        await opened(pilot)
        assert "paused" not in text(pilot.app.screen)
        for key, holds in steps:
            await pilot.press(key)
            await until(pilot, holds)
        await until(pilot, lambda: "paused" in text(pilot.app.screen))

    drive(monitor(pictured(tmp_path), player=player, run_dir=tmp_path), script)


def test_b_goes_to_the_end_of_a_replay_from_its_pictures(tmp_path: Path) -> None:
    player = made.HandPlayer()

    async def script(pilot: AppPilot) -> None:
        await opened(pilot)
        assert "b end" in last_line(pilot)
        await pilot.press("b")
        await until(pilot, lambda: player.position == player.end)

    drive(monitor(pictured(tmp_path), player=player, run_dir=tmp_path), script, size=(80, 24))


def test_player_keys_work_over_pictures_with_visible_state(tmp_path: Path) -> None:
    player = made.LivePlayer()

    async def script(pilot: AppPilot) -> None:
        await opened(pilot)
        await until(pilot, lambda: "\u25cf live" in text(pilot.app.screen))
        assert "now" not in last_line(pilot)
        await pilot.press("left")
        await until(pilot, lambda: "01:30.0 / 01:40.0" in text(pilot.app.screen) and "b now" in last_line(pilot))
        assert "space play/pause" in last_line(pilot)
        await pilot.press("b")
        await until(pilot, lambda: "\u25cf live" in text(pilot.app.screen) and "now" not in last_line(pilot))
        await pilot.press("question_mark")
        assert "back to now" in text(pilot.app.screen)

    drive(monitor(pictured(tmp_path), player=player, run_dir=tmp_path), script, size=(80, 24))


def test_pictures_without_player_offer_no_time_keys(tmp_path: Path) -> None:
    async def script(pilot: AppPilot) -> None:
        await opened(pilot)
        assert "play" not in last_line(pilot)
        assert "live" not in text(pilot.app.screen)

    drive(monitor(pictured(tmp_path), run_dir=tmp_path), script, size=(80, 24))


def last_line(pilot: AppPilot) -> str:
    """The footer, or the notice over it."""
    return text(pilot.app.screen).splitlines()[-1]


def test_examples_scroll(tmp_path: Path) -> None:
    async def script(pilot: AppPilot) -> None:
        await opened(pilot)
        assert "example 0" in text(pilot.app.screen)
        await pilot.press("end")
        assert "example 5" in text(pilot.app.screen)
        assert "example 0" not in text(pilot.app.screen)
        await pilot.press("home", "j", "j", "k", "down", "up", "pagedown", "pageup", "g")
        assert "example 0" in text(pilot.app.screen)
        await pilot.press("question_mark")
        assert isinstance(pilot.app.screen, HelpScreen)
        assert "to the last example" in text(pilot.app.screen)

    drive(monitor(pictured(tmp_path, examples=6), run_dir=tmp_path), script, size=(80, 24))


def test_footer_offers_pictures_only_if_any(tmp_path: Path) -> None:
    for snapshot, offered in ((made.running(), False), (pictured(tmp_path), True)):

        async def script(pilot: AppPilot, offered: bool = offered) -> None:
            footer = text(pilot.app.screen).splitlines()[-1]
            assert ("p pictures" in footer) is offered
            assert "1-9 panels" in footer

        drive(monitor(snapshot, run_dir=tmp_path), script, size=(80, 24))


def test_missing_pictures_state_reason() -> None:
    run = made.running()
    off = made.changed(run, config={"report": {"pictures": 0}})
    early = made.changed(run, epochs=[])
    lost = made.changed(early, condition="lost")
    doubtful = made.changed(run, warnings=["the losses or pictures of epoch 2 could not be kept: no space left"])
    assert why_none(off) == "no pictures: `report.pictures` is 0 in the run's configuration"
    assert why_none(early) == "no pictures yet: no validation has finished"
    assert why_none(lost) == "no pictures; the run has ended"
    assert why_none(run) == "no pictures: this task draws none: 2 validations finished without any"
    assert why_none(doubtful).endswith("unless a warning in the log (7) reports that they could not be written")


def test_screen_without_pictures_states_reason() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("p")
        await until(pilot, lambda: "this task draws none" in text(pilot.app.screen))

    drive(monitor(made.running()), script, size=(80, 24))


def with_bad_pictures(run_dir: Path) -> Snapshot:
    """Truncated, missing, invalid, outside and too large pictures among valid ones."""
    base = view(run_dir, examples=2)
    (run_dir / base.pictures[1].path).write_bytes((run_dir / base.pictures[1].path).read_bytes()[:99])
    (run_dir / base.pictures[2].path).unlink()
    (run_dir / base.pictures[4].path).write_text("not a picture at all, in spite of its name")
    with (run_dir / base.pictures[5].path).open("wb") as file:
        file.truncate(1 << 30)
    elsewhere = PictureKept(example="example 1", name="\x1b[2Jdepth", path="../../../etc/passwd")
    return made.changed(
        made.running(), pictures=msgspec.structs.replace(base, pictures=[*base.pictures[:-1], elsewhere])
    )


def test_unreadable_picture_is_reported_in_place(tmp_path: Path) -> None:
    async def script(pilot: AppPilot) -> None:
        await opened(pilot)
        shown = text(pilot.app.screen)
        for part in ("damaged or cut", "missing", "not a PNG file", "too large: 1.0 GiB", "refused"):
            assert part in shown
        assert "\x1b" not in shown

    drive(monitor(with_bad_pictures(tmp_path), run_dir=tmp_path), script, size=(200, 50))


def test_pictures_survive_every_size(tmp_path: Path) -> None:
    async def script(pilot: AppPilot) -> None:
        await opened(pilot)
        for size in [(20, 5), (80, 24), (1, 1), (200, 50), (3, 40), (300, 4), (80, 24)]:
            await pilot.resize_terminal(*size)
            await pilot.pause()
        assert "example 0" in text(pilot.app.screen)

    drive(monitor(with_bad_pictures(tmp_path), run_dir=tmp_path), script)


def gallery(examples: int, tiles: int, width: int, height: int, side: int = 8) -> list[str]:
    """The text of the panel with black squares."""
    square = Pixels(side, side, bytes(3 * side * side))
    shown = tuple(
        Example(f"example {number}", tuple(Tile(f"tile {tile}", square) for tile in range(tiles)))
        for number in range(examples)
    )
    part = GalleryPart("run", ev.PicturesKept(t=0.0, epoch=1, step=1, pictures=[]), shown, "")
    drawing = GalleryPanel(Drawer(scaled, coloured)).draw(part, width, height)
    assert all(width_of(line) <= width for line in drawing.rows)
    return ["".join(span.text for span in line) for line in drawing.rows]


def test_colour_legend_is_above_pictures_if_space(tmp_path: Path) -> None:
    legend = "yellow is near; \x1b[31mgray checks: not known"
    shown = made.changed(made.running(), pictures=msgspec.structs.replace(view(tmp_path), legend=legend))

    async def script(pilot: AppPilot) -> None:
        await opened(pilot)
        await until(pilot, lambda: "example 0" in text(pilot.app.screen))
        assert "yellow is near; gray checks: not known" in text(pilot.app.screen).splitlines()[1]
        await pilot.press("end")
        assert "yellow is near" in text(pilot.app.screen)
        await pilot.resize_terminal(80, 10)
        await until(pilot, lambda: "yellow is near" not in text(pilot.app.screen))

    drive(monitor(shown, run_dir=tmp_path), script, size=(80, 24))


def test_small_examples_are_side_by_side() -> None:
    rows = gallery(6, 1, 118, 33)
    assert rows[0].split() == ["example", "0", "example", "1", "example", "2", "example", "3"]
    assert len(rows) == 2 * (2 + 12) + 1


def test_pictures_shrink_to_fit_one_more_example() -> None:
    assert len(gallery(2, 4, 198, 47, side=48)) == 47
    assert len(gallery(2, 4, 198, 36, side=48)) == 2 * (2 + 24) + 1
    assert len(gallery(1, 4, 198, 36, side=48)) == 2 + 24


def test_wide_pictures_are_stacked() -> None:
    rows = gallery(1, 9, 40, 30)
    assert [row.count("tile") for row in rows if "tile" in row] == [3, 3, 3]


def test_picture_memory_is_bounded(tmp_path: Path) -> None:
    kept = [PictureKept(example=f"example {n // 2}", name="input", path=f"{n}.png") for n in range(PICTURES_MAX + 3)]
    snapshot = made.changed(made.running(), pictures=ev.PicturesKept(t=0.0, epoch=2, step=220, pictures=kept))

    async def script(pilot: AppPilot) -> None:
        await opened(pilot)
        await pilot.press("end")
        assert "3 more pictures, not read" in text(pilot.app.screen)

    drive(monitor(snapshot, run_dir=tmp_path), script, size=(80, 24))


def test_only_visible_examples_are_rendered() -> None:
    asked: list[Pixels] = []

    def counted(pixels: Pixels, width: int, height: int) -> Pixels:
        asked.append(pixels)
        return scaled(pixels, width, height)

    square = Pixels(40, 40, bytes(4800))
    examples = [Example(f"example {number}", (Tile("input", square),)) for number in range(64)]
    mosaic = ImageGrid(examples, 80, 21, Drawer(counted, coloured))
    assert len(mosaic) > 400
    assert not asked
    assert "example 63" in "".join(span.text for line in mosaic[-21:] for span in line)
    assert 0 < len(asked) <= 4


def test_large_picture_is_shown_whole() -> None:
    assert len(gallery(1, 1, 118, 21, side=200)) == 21


def test_no_colour_is_a_ramp_of_characters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def script(pilot: AppPilot) -> None:
        await opened(pilot)
        shown = text(pilot.app.screen)
        assert UPPER_HALF not in shown
        assert "@@@@" in shown

    drive(monitor(pictured(tmp_path), run_dir=tmp_path), script)


def test_terminal_without_colour_uses_the_ramp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.delenv("COLORTERM", raising=False)

    async def script(pilot: AppPilot) -> None:
        await opened(pilot)
        assert UPPER_HALF not in text(pilot.app.screen)

    drive(monitor(pictured(tmp_path), run_dir=tmp_path), script)


def skipped(count: int, num_named: int) -> Snapshot:
    examples = [
        ev.ExampleSkipped(
            t=0.0,
            skipped=1,
            limit=9,
            split="valid" if number == 2 else "train",
            where=f"train.csv, row {number}, column image_path: images/{number:05d}.jpg",
            why="the file is cut short",
        )
        for number in range(1, num_named + 1)
    ]
    return made.changed(made.running(), skipped=SkippedView(count=count, limit=500, examples=examples), requests=[])


def test_skipped_examples_are_counted_and_listed() -> None:
    async def script(pilot: AppPilot) -> None:
        assert "\u25b2 3 of at most 500 examples left out (d)" in text(pilot.app.screen)
        await pilot.press("d")
        shown = text(pilot.app.screen)
        assert isinstance(pilot.app.screen, SkippedScreen)
        assert "train.csv, row 1, column image_path: images/00001.jpg  training" in shown
        assert "images/00002.jpg  validation" in shown
        assert shown.count("the file is cut short") == 3
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, MonitorScreen)

    drive(monitor(skipped(3, 3)), script, size=(160, 45))


def test_long_skip_list_scrolls_and_counts_the_rest() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("d", "end")
        assert "and 20 more: each is a warning in the log (7)" in text(pilot.app.screen)
        await pilot.press("home", "down", "up", "pagedown", "pageup")
        assert "row 1," in text(pilot.app.screen)
        await pilot.press("d")
        assert isinstance(pilot.app.screen, MonitorScreen)

    drive(monitor(skipped(120, 100)), script, size=(80, 24))


def test_nothing_is_shown_without_skipped_examples() -> None:
    async def script(pilot: AppPilot) -> None:
        assert "left out" not in text(pilot.app.screen)
        await pilot.press("d")
        assert "no example was left out" in text(pilot.app.screen)

    drive(monitor(made.running()), script)


def test_newly_skipped_examples_are_added_to_the_list() -> None:
    source = made.HandSource(skipped(1, 1))

    async def script(pilot: AppPilot) -> None:
        await pilot.press("d")
        source.served = skipped(2, 2)
        await until(pilot, lambda: "images/00002.jpg" in text(pilot.app.screen))

    drive(ScreenApp(lambda: MonitorScreen(source, made.RUN_DIR)), script)


@same_textual
@pytest.mark.parametrize("size", [(80, 24), (120, 36), (200, 50)], ids=str)
def test_pictures_screen(snap_compare: Compare, tmp_path: Path, size: tuple[int, int]) -> None:
    app = monitor(pictured(tmp_path), run_dir=tmp_path)
    assert snap_compare(app, terminal_size=size, run_before=opened)


@same_textual
def test_damaged(snap_compare: Compare, tmp_path: Path) -> None:
    app = monitor(with_bad_pictures(tmp_path), run_dir=tmp_path)
    assert snap_compare(app, terminal_size=(120, 36), run_before=opened)


@same_textual
def test_no_colour(snap_compare: Compare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = monitor(pictured(tmp_path), run_dir=tmp_path)
    assert snap_compare(app, terminal_size=(80, 24), run_before=opened)


@same_textual
def test_left_out(snap_compare: Compare) -> None:
    async def script(pilot: AppPilot) -> None:
        await first_frame(pilot)
        await pilot.press("d")

    assert snap_compare(monitor(skipped(3, 3)), terminal_size=(120, 36), run_before=script)
