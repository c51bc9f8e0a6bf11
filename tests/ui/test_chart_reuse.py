"""The loss chart of a long run is not drawn again for every report, but shows each report soon."""

from __future__ import annotations

import math

import pytest

from tests import recorded
from tputui.state.reducer import RunState
from tputui.state.snapshot_builder import ViewerContext, build_snapshot
from tputui.ui.monitor.loss import LossPanel
from tputui.ui.widgets.line_widget import plain_text

WIDTH, HEIGHT = 76, 12


class LongRun:
    """10,000 steps of two cores, to which others can be added."""

    def __init__(self) -> None:
        self.panel = LossPanel()
        self.now = 0.0
        self.panel.clock = lambda: self.now
        self._state = RunState()
        self._step = 0
        for _ in range(100):
            self.add([2.3 * math.exp(-(self._step + step) / 4_000) + 0.1 for step in range(100)])

    def add(self, losses: list[float]) -> None:
        seq = self._step + 1
        event = recorded.steps_recorded(recorded.T0 + self._step, seq, [[loss, loss] for loss in losses])
        self._state.apply("worker-0", seq, event)
        self._step += len(losses)

    def drawn(self) -> tuple[str, str]:
        """The legend, and the chart."""
        snapshot = build_snapshot(self._state, ViewerContext(now=recorded.T0 + self._step, run="long", dir="long"))
        drawing = self.panel.draw(LossPanel.pick(snapshot), WIDTH, HEIGHT)
        return plain_text(drawing.head), plain_text(drawing.rows)


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
