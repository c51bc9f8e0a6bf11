"""The step budget in the pace panel: where the wall time goes, and how busy the device is."""

from __future__ import annotations

import math
import re

import pytest
from msgspec.structs import replace

from tests.ui import diagnosed, made
from tputui.diagnosis.step_budget import DUTY, EXECUTIONS, DeviceLane, step_budget
from tputui.state.chart_data import DevicePoint
from tputui.state.snapshot import DevicesView, Snapshot
from tputui.telemetry.events import CoreSample
from tputui.ui.monitor.epochs import SECTION_GLYPHS
from tputui.ui.monitor.pace import PacePanel


def drawn(snapshot: Snapshot, width: int = 78, height: int = 18, *, is_full: bool = True) -> list[str]:
    panel = PacePanel()
    panel.set_class(is_full, "-maximised")
    return ["".join(span.text for span in line) for line in panel.draw(PacePanel.pick(snapshot), width, height).rows]


def run(**changes: object) -> Snapshot:
    return made.changed(made.running(), time_spent=diagnosed.time_spent(), **changes)


def test_the_parts_of_the_host_sum_to_the_wall_time() -> None:
    found = step_budget(run())
    assert found is not None
    assert found.newest is not None
    for lane, wall_s in ((found.newest, 1.2), (found.whole, 50.0)):
        assert lane.wall_s == pytest.approx(wall_s)
        assert math.fsum(lane.sections_s.values()) == pytest.approx(lane.wall_s)
    assert found.newest.sections_s["other"] == pytest.approx(0.12)
    excess = replace(diagnosed.time_spent(), newest_s={"data": 1.0, "execute": 0.3})
    found = step_budget(made.changed(run(), time_spent=excess))
    assert found is not None
    assert found.newest is not None
    assert math.fsum(found.newest.sections_s.values()) == pytest.approx(1.2), "two clocks differ a little"


def test_bars_and_shares_of_the_newest_reports_and_of_the_run() -> None:
    lines = drawn(run())
    newest = next(index for index, line in enumerate(lines) if line.startswith(" newest"))
    assert lines[newest].endswith("80 steps, 1.2 s")
    bar = lines[newest][9:].removesuffix(" 80 steps, 1.2 s")
    for name, share in (("data", 0.25), ("execute", 0.25), ("evaluate", 0.05)):
        assert bar.count(SECTION_GLYPHS[name][0]) / len(bar) == pytest.approx(share, abs=0.02)
    assert "\u2592 data 25 %" in lines[newest + 1]
    device = next(index for index, line in enumerate(lines) if line.startswith(" device"))
    assert lines[device + 1].strip() == "busy 60 %, idle 40 % by time of executions"
    whole = next(line for line in lines if line.startswith(" total "))
    assert whole.endswith("50 s")


@pytest.mark.parametrize("width", [32, 40, 78, 200])
def test_shares_add_up_to_the_whole_in_any_width(width: int) -> None:
    lines = drawn(run(), width, 14, is_full=False)
    newest = next(index for index, line in enumerate(lines) if line.startswith(" newest"))
    device = next(index for index, line in enumerate(lines) if line.startswith(" device"))
    shares = [int(share) for share in re.findall(r"(\d+) %", " ".join(lines[newest + 1 : device]))]
    assert sum(shares) == pytest.approx(100, abs=len(shares))
    assert all(len(line) <= width for line in lines)


def test_the_host_has_room_in_the_panel_at_120x36() -> None:
    lines = drawn(run(), 32, 7, is_full=False)
    assert len(lines) == 7
    assert lines[5].startswith(" newest")
    assert "data 25 %" in lines[6]
    assert "execute 25 %" in lines[6]


@pytest.mark.parametrize("height", range(4, 18))
def test_a_history_is_whole_or_not_in_the_panel(height: int) -> None:
    for snapshot in (run(), made.running()):
        lines = drawn(snapshot, 48, height, is_full=False)
        assert len(lines) <= max(height, 5), "the figures alone may be scrolled"


def test_the_device_lane_names_its_source_or_why_it_is_not_known() -> None:
    def lanes(snapshot: Snapshot) -> list[DeviceLane]:
        found = step_budget(snapshot)
        assert found is not None
        assert found.newest is not None
        return [found.newest.device, found.whole.device]

    cores = [CoreSample(core=core, duty_cycle_percent=70.0 + core) for core in range(3)]
    devices = DevicesView(t=made.NOW, cores=cores, reason=None, absent=[])
    history = [DevicePoint(t=made.NOW - 1, duty_cycle_percent=40.0, lowest_percent=30.0)]
    assert lanes(run(devices=devices, device_history=history)) == [DeviceLane(0.71, DUTY), DeviceLane(0.4, DUTY)]
    newest, whole = lanes(run())
    assert newest.by == whole.by == EXECUTIONS
    assert newest.busy == pytest.approx(0.6)
    assert whole.busy == pytest.approx(4.1 / 50)
    overlapping = replace(diagnosed.time_spent(), newest_execute_s=3.0)
    assert lanes(made.changed(run(), time_spent=overlapping))[0].busy is None
    unread = replace(diagnosed.time_spent(), newest_execute_s=None)
    lines = "\n".join(drawn(made.changed(run(), time_spent=unread, xla=None)))
    assert "device  not known: no time of executions reported" in lines


def test_a_run_that_measures_no_sections_has_no_budget_and_a_small_panel_no_line_about_it() -> None:
    assert "step budget: not measured by the program of this run" in "\n".join(drawn(made.running()))
    assert "budget" not in "\n".join(drawn(made.running(), is_full=False))
