"""Names of metrics in little room."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ui import made
from tputui.state.snapshot import MeterView
from tputui.ui.monitor.meters import MetersPanel
from tputui.ui.render.lines import cells_of
from tputui.ui.render.names import shortened

NORMS = tuple(
    f"layer{layer}/very_long_block_name_{block}/grad_norm_before_clipping" for layer in range(6) for block in range(10)
)


def test_what_names_have_in_common_is_cut_and_what_differs_stays() -> None:
    short = shortened((*NORMS, "loss"), 25)

    assert short[NORMS[0]] == "layer0/\u2026_0/grad_norm_bef\u2026"
    assert short[NORMS[57]] == "layer5/\u2026_7/grad_norm_bef\u2026"
    assert short["loss"] == "loss"
    parts = shortened(("encoder/block/attention/output/weight", "decoder/block/attention/output/weight"), 20)
    assert list(parts.values()) == ["encoder/block/atten\u2026", "decoder/block/atten\u2026"]


@given(st.integers(14, 70), st.sampled_from([1, 7, 60]))
def test_sixty_names_of_sixty_characters_stay_different(room: int, number: int) -> None:
    short = shortened(NORMS[:number], room)

    assert len(set(short.values())) == number
    assert max(map(cells_of, short.values())) <= room


@given(st.lists(st.text(max_size=30), max_size=8).map(tuple), st.integers(1, 40))
def test_every_name_fits_and_short_ones_stay_whole(names: tuple[str, ...], room: int) -> None:
    short = shortened(names, room)

    assert set(short) == set(names)
    assert all(cells_of(text) <= room for text in short.values())
    assert all(short[name] == name for name in names if max(map(len, names)) <= room and cells_of(name) <= room)


@pytest.mark.parametrize("width", [38, 50, 84])
def test_the_meters_panel_shows_values_beside_sixty_long_names(width: int) -> None:
    reading = made.running().meters[0].reading
    meters = [
        MeterView(name=name, split=split, epoch=3, reading=reading, reduced="")
        for name in NORMS
        for split in ("train", "valid")
    ]
    drawing = MetersPanel().draw(MetersPanel.pick(made.changed(made.running(), meters=meters)), width, 70)

    rows = ["".join(span.text for span in row).split() for row in drawing.rows[:60]]
    assert all(row[1:3] == [f"{reading.avg:.4f}"] * 2 for row in rows)
    assert len({row[0] for row in rows}) == 60
