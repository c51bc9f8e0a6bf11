"""The loss chart of a long run is not drawn again for every report, but shows each report soon."""

from __future__ import annotations

import math

import pytest

from tests import recorded
from tputui.state.reducer import RunState
from tputui.state.snapshot_builder import ViewerContext, build_snapshot
from tputui.ui.monitor.loss import LossPanel, LossPart
from tputui.ui.widgets.line_widget import plain_text

WIDTH, HEIGHT = 76, 12


class LongRun:
    """10,000 steps of two cores, to which others can be added."""

    def __init__(self) -> None:
        self.panel = LossPanel()
        self.now = 0.0
        self.panel.clock = lambda: self.now
        self._state = RunState()
        self._step = self._seq = 0
        for _ in range(100):
            self.add([2.3 * math.exp(-(self._step + step) / 4_000) + 0.1 for step in range(100)])

    def add(self, losses: list[float]) -> None:
        event = recorded.steps_recorded(recorded.T0 + self._step, self._step + 1, [[loss, loss] for loss in losses])
        self._state.apply("worker-0", self._seq, event)
        self._seq, self._step = self._seq + 1, self._step + len(losses)

    def drawn(self) -> tuple[str, str]:
        """The legend, and the chart."""
        drawing = self.panel.draw(self.part(), WIDTH, HEIGHT)
        return plain_text(drawing.head), plain_text(drawing.rows)

    def part(self) -> LossPart:
        now, alive = recorded.T0 + self._step, {"worker-0": True}
        snapshot = build_snapshot(self._state, ViewerContext(now=now, run="long", dir="long", alive=alive))
        return LossPanel.pick(snapshot)


def test_a_report_changes_the_legend_at_once_and_the_chart_within_half_a_second() -> None:
    run = LongRun()
    _, chart = run.drawn()
    run.add([9.25, 9.25, 9.25])
    run.now = 0.1
    legend, same = run.drawn()
    assert "train 9.25" in legend
    assert same == chart
    run.now = 0.55
    legend, newer = run.drawn()
    assert newer != chart
    assert "9.25" in legend


def test_the_chart_is_drawn_when_steps_reach_its_next_cell() -> None:
    run = LongRun()
    run.add([0.2] * 260)  # The axis ends at step 10,752.
    drawings = [run.drawn()[1]]
    for _ in range(24):
        run.add([0.2] * 20)
        drawings.append(run.drawn()[1])
        fresh = plain_text(LossPanel().draw(run.part(), WIDTH, HEIGHT).rows)
        assert _end_of_curve(fresh) - _end_of_curve(drawings[-1]) <= 1
    # 480 steps of about 150 a cell, reported 20 at a time.
    assert 3 <= len(set(drawings)) <= 5


def _end_of_curve(chart: str) -> int:
    """The last cell with dots."""
    return max(cell for line in chart.splitlines() for cell, sign in enumerate(line) if "\u2800" < sign <= "\u28ff")


@pytest.mark.parametrize("change", ["steps of another column", "not a number", "view", "size"])
def test_a_change_that_is_seen_at_once_draws_the_chart(change: str) -> None:
    run = LongRun()
    _, chart = run.drawn()
    run.now = 0.1
    if change == "steps of another column":
        run.add([9.25] * 200)
    elif change == "not a number":
        run.add([math.nan])
    elif change == "view":
        run.panel.look = run.panel.look._replace(log=True)
    else:
        drawing = run.panel.draw
        run.panel.draw = lambda part, width, height: drawing(part, width - 9, height)  # type: ignore[method-assign]
    assert run.drawn()[1] != chart
