"""What the panels of a run on several hosts show where there is little room."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ui import made, pods
from tputui.state.snapshot import Snapshot
from tputui.ui.monitor.cores import CoresPanel
from tputui.ui.monitor.epochs import EpochsPanel
from tputui.ui.monitor.header import Header
from tputui.ui.monitor.hosts import HostsPanel
from tputui.ui.monitor.memory import MemoryPanel
from tputui.ui.render.lines import width_of
from tputui.ui.widgets.panel import RunPanel


def drawn(kind: type[RunPanel[Any]], snapshot: Snapshot, width: int, height: int) -> list[str]:
    """The lines of a panel; none is cut, but for figures at the end of a table."""
    panel = kind()
    drawing = panel.draw(panel.pick(snapshot), width, height)
    return ["".join(span.text for span in line) for line in [*drawing.head, *drawing.rows]]


def message(snapshot: Snapshot, width: int) -> str:
    """The last line of the header."""
    header = Header()
    header.show(snapshot, replaying=False)
    line = header.paint(width, 4)[3]
    assert width_of(line) <= width
    return "".join(span.text for span in line)


def test_a_host_that_stands_out_loses_its_name_before_its_reason() -> None:
    run = pods.troubled(4)
    assert " \u25b2 host 1 tpu-vm-1  silent 31 s, waiting for data" in drawn(HostsPanel, run, 60, 14)
    narrow = drawn(HostsPanel, run, 43, 14)
    assert " \u25b2 host 1  silent 31 s, waiting for data" in narrow
    assert " \u2716 host 2 tpu-vm-2  NaN or inf on core 19" in narrow
    many = pods.troubled(8)
    slow = next(line for line in drawn(HostsPanel, many, 66, 20) if "slower in" in line)
    assert slow == " \u25b2 host 3  12 % slower in data, 1.5 ms per step; 5 hosts wait"
    slow = next(line for line in drawn(HostsPanel, many, 52, 20) if "slower in" in line)
    assert slow == " \u25b2 host 3  12 % slower in data, 1.5 ms per step"


def test_the_line_of_the_chosen_host_ends_with_a_whole_figure() -> None:
    panel = HostsPanel()
    panel.chosen = 7
    for width, last in ((50, "step"), (60, "loss"), (70, "data"), (198, "HBM")):
        drawing = panel.draw(panel.pick(pods.pod(256)), width, 20)
        said = "".join(span.text for span in drawing.head[0])
        assert len(said) <= width
        assert last in said.rpartition("  ")[2]


@pytest.mark.parametrize("width", [38, 60, 120])
def test_the_heads_of_the_map_of_cores_are_not_cut(width: int) -> None:
    head = drawn(CoresPanel, pods.troubled(256), width, 16)[:2]
    assert all(len(line) <= width for line in head)
    assert head[0].startswith("\u2716 NaN/inf: core 19 (host 2)")
    assert head[1].startswith("one block per ")


def test_processes_of_several_hosts_have_their_host() -> None:
    run = pods.pod(256)
    for width in (30, 42, 100):
        workers = [line for line in drawn(MemoryPanel, run, width, 20) if "worker" in line]
        assert ["host" in line for line in workers] == [True] * 4
        assert all(len(line) <= width for line in workers)
    assert "host" not in next(line for line in drawn(MemoryPanel, made.running(), 100, 20) if "worker" in line)


def test_what_a_restart_lost_is_wrapped_if_there_is_no_epoch_yet() -> None:
    run = made.changed(pods.troubled(4), epochs=[])
    assert drawn(EpochsPanel, run, 42, 8)[:2] == [
        " \u21bb generation 1 from step 221: 29 steps",
        "   and 14 s lost; host 3, rank 3: SIGKILL",
    ]
    assert len(drawn(EpochsPanel, run, 42, 2)) == 2, "one line where there is room for no more"


def test_alarms_without_room_are_counted_and_nan_comes_first() -> None:
    run = made.changed(pods.troubled(256), requests=[], checkpoints=[])
    assert message(run, 80).startswith(" \u25b2 4 NaN/inf  \u25b2 host 255 has not joined  +3 more  esc hides")
    assert "more" not in message(run, 240)
    assert "\u25b2 host 3: 12 % slower in data  \u25b2 restarted once, 29 steps lost  " in message(run, 150)
    ended = made.changed(run, condition="done", condition_reason="training finished", ended=run.now)
    assert message(ended, 80).rstrip().endswith("12 % slower in data  \u25b2 restarted once, 29 steps lost")


def test_alarms_stay_whole_beside_a_receipt() -> None:
    said = message(pods.troubled(256), 120)
    assert said.startswith(" checkpoint saved at step 220")
    assert "\u25b2 4 NaN/inf  +4 more" in said
