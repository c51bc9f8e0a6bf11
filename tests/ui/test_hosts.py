"""The hosts of a run with several: panel, screen of one host, header, checklist, log and keys."""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec
import pytest

from tests.recorded import T0, opened, steps_recorded
from tests.state import pod
from tests.ui import made, pods
from tests.ui.driving import AppPilot, drive, monitor, text, until
from tputui.state.chart_data import OutlierView
from tputui.state.snapshot import Snapshot
from tputui.telemetry import events as ev
from tputui.ui.app import ScreenApp
from tputui.ui.base import host_text, keymap
from tputui.ui.monitor.body import Body
from tputui.ui.monitor.cores import CoresPanel
from tputui.ui.monitor.epochs import EpochsPanel
from tputui.ui.monitor.host_map import MAP_VALUES, grid_of
from tputui.ui.monitor.host_screen import HostPanel, HostScreen
from tputui.ui.monitor.hosts import HostsPanel
from tputui.ui.monitor.log import LogPanel
from tputui.ui.monitor.screen import MonitorScreen
from tputui.ui.monitor.startup import checklist
from tputui.ui.render.lines import Line
from tputui.ui.widgets.dialogs import PromptScreen
from tputui.ui.widgets.panel import Drawing

SIGNS = "\u25cb\u2716\u25b2"


def lines_of(drawing: Drawing) -> list[str]:
    return ["".join(span.text for span in line) for line in [*drawing.head, *drawing.rows]]


def drawn(snapshot: Snapshot, width: int, height: int, **state: Any) -> list[str]:
    """The lines of the panel, without colours."""
    panel = HostsPanel()
    for name, value in state.items():
        setattr(panel, name, value)
    return lines_of(panel.draw(panel.pick(snapshot), width, height))


def row(drawing: list[str], start: str) -> str:
    return next(line for line in drawing if line.strip().startswith(start))


def recorded_pod() -> Snapshot:
    """20 hosts of which one has not joined, one stopped reporting and one has NaN: from events, by the reducer."""
    num_hosts, late, bad, missing = 20, 7, 11, 19
    journals: dict[str, list[ev.Event]] = {}
    for host in range(num_hosts):
        if host == missing:
            continue
        last = 20 if host == late else 200
        events = [*pod.started(host, num_hosts), *pod.trained(host, T0 + 2, 1, last, num_hosts)]
        if host == bad:
            events.append(steps_recorded(T0 + 22, 201, [[math.nan, 0.5]]))
        journals[f"worker-{host}"] = events
        line = ev.LogWritten(t=T0 + 3, line="reading 12 shards")
        journals[f"supervisor-{host}"] = [opened(T0, "supervisor", host), line]
    return pod.shown(pod.reduced(journals), now=T0 + 23)


def test_a_recorded_pod_names_the_hosts_that_stand_out() -> None:
    async def script(pilot: AppPilot) -> None:
        said = text(pilot.app.screen)
        assert "20 hosts x 2 CPU cores" in said
        for sentence in ("host 19  has not joined", "host 11 tpu-vm-11  NaN or inf on core 22", "host 7 tpu-vm-7  "):
            assert sentence in said
        assert "x19 hosts reading 12 shards" in said
        await pilot.press("h", "down", "home", *["right"] * 11, "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, HostScreen))
        said = text(pilot.app.screen)
        assert "host 11" in said
        assert re.search(r"22 +NaN .*\n.* 23 +0\.5000", said)
        assert "reading 12 shards" in said

    drive(monitor(recorded_pod()), script, size=(200, 50))


# The table.


def test_few_hosts_are_a_table_with_their_figures() -> None:
    said = drawn(pods.troubled(4), 150, 12)
    assert said[0].split()[:9] == ["host", "name", "state", "step", "lag", "loss", "data", "compute", "wait"]
    assert "tpu-vm-0" in row(said, "0")
    assert "silent 31 s" in row(said, "1")
    assert " 290 " in row(said, "1")
    assert "NaN or inf" in row(said, "2")
    assert "missing" in row(said, "3")
    assert "gen" in pods_head(pods.with_hosts(pods.pod(2), {1: {"generation": 1}}))
    assert "gen" not in pods_head(pods.pod(2)), "nothing was restarted"
    assert "link" in pods_head(pods.with_hosts(pods.pod(2), {1: {"link": "reconnecting, last heard 12 s ago"}}))


def pods_head(snapshot: Snapshot) -> str:
    return drawn(snapshot, 180, 12)[0]


def test_names_with_control_characters_are_inert() -> None:
    said = drawn(pods.with_hosts(pods.pod(4), {1: {"name": "a\x1b[2Jb\u202e"}}), 120, 12)
    assert "\x1b" not in "".join(said)
    assert "ab" in row(said, "1")


# The map.


@pytest.mark.parametrize("size", [(78, 4), (42, 10), (76, 20), (118, 30), (198, 46)])
@pytest.mark.parametrize("value", MAP_VALUES)
def test_a_map_of_256_hosts_fits_and_shows_every_problem(size: tuple[int, int], value: str) -> None:
    said = drawn(pods.troubled(256), *size, value=value)
    assert len(said) <= size[1]
    assert all(len(line) <= size[0] + 1 for line in said if line[:1].isdigit())
    cells = "".join(line for line in said if line[:1].isdigit())
    assert all(sign in cells for sign in SIGNS), "missing, NaN and silent"


def test_a_host_whose_process_has_just_exited_is_not_called_silent() -> None:
    exited = {"condition": "stalled", "reason": "worker-1 exited 2 s ago", "silent_s": 0.3, "phase_s": 0.3}
    snapshot = pods.with_hosts(pods.pod(256), {1: exited})
    assert any("host 1 tpu-vm-1  worker-1 exited 2 s ago" in line for line in drawn(snapshot, 76, 22))
    assert "host 1 worker-1 exited 2 s ago" in [text for _, text in host_text.alarms(snapshot)]


def test_worst_hosts_are_named_with_the_reason() -> None:
    said = drawn(pods.troubled(256), 76, 22)
    listed = [line.strip() for line in said if line[:1] == " " and "host" in line]
    assert listed == [
        "\u25cb host 255  has not joined",
        "\u2716 host 2 tpu-vm-2  NaN or inf on core 19",
        "\u25b2 host 1 tpu-vm-1  silent 31 s, waiting for data",
        "\u25b2 host 3 tpu-vm-3  12 % slower in data, 1.5 ms per step; 253 hosts wait",
    ]


def test_a_host_that_is_not_connected_is_not_called_silent_or_lost() -> None:
    link = "reconnecting, last heard 12 s ago"
    lost = {"condition": "lost", "reason": "nothing was heard of it for 12 s, and it has no end event", "link": link}
    snapshot = pods.with_hosts(pods.pod(32), {5: lost, 6: {"link": "connected"}})
    listed = [line.strip() for line in drawn(snapshot, 76, 22) if line.startswith(" !")]
    assert listed == [f"! host 5 tpu-vm-5  {link}"]
    assert "host 5" not in str(host_text.alarms(snapshot)), "the viewer has an alarm for lost connections"


def test_many_hosts_with_one_problem_are_listed_together() -> None:
    silent = {"condition": "stalled", "silent_s": 40.0, "phase_s": 40.0}
    said = "\n".join(drawn(pods.with_hosts(pods.pod(64), dict.fromkeys(range(10, 30), silent)), 76, 22))
    assert "hosts 10, 11, 12 and 17 more  silent" in said


def test_a_healthy_pod_names_no_host() -> None:
    said = drawn(pods.pod(256), 76, 22)
    assert not set("".join(said)) & set(SIGNS)
    assert "no host is missing, silent, slow or behind" in "\n".join(said)


def test_a_host_is_behind_only_if_it_is_by_several_reports_and_seconds() -> None:
    slow = made.changed(pods.pod(32), report_steps=76, step_s=0.1)
    for lag, named in ((76, False), (153, True)):
        said = "\n".join(drawn(pods.with_hosts(slow, {5: {"step": made.STEPS - lag}}), 76, 22))
        assert (f"{lag} steps behind" in said) == named
    fast = made.changed(slow, step_s=0.01)
    assert "steps behind" not in "\n".join(drawn(pods.with_hosts(fast, {5: {"step": made.STEPS - 300}}), 76, 22))


def test_a_host_that_reported_early_puts_no_other_behind() -> None:
    ahead = pods.with_hosts(pods.pod(32), {5: {"step": made.STEPS + 900}})
    assert "behind" not in "\n".join(drawn(ahead, 76, 22)[1:]).replace("slow or behind", "")


def test_an_ended_run_has_no_silent_or_missing_host() -> None:
    ended = made.changed(pods.troubled(64), condition="done", slow_host=None, cores=pods.pod(64).cores)
    assert "host 1 " not in "\n".join(drawn(ended, 76, 22))


@pytest.mark.parametrize("num_hosts", [5, 17, 64, 256, 1000, 4096])
@pytest.mark.parametrize("size", [(20, 3), (78, 4), (118, 30)])
def test_every_host_has_a_place_in_the_map(num_hosts: int, size: tuple[int, int]) -> None:
    grid = grid_of(num_hosts, 8, *size)
    assert grid.lines <= size[1]
    assert grid.label + grid.per_line * grid.pitch <= size[0]
    for position in range(0, num_hosts, grid.hosts):
        line, block = divmod(position // grid.hosts, grid.per_line)
        assert grid.position_at(line, grid.label + block * grid.pitch + grid.pitch - 1) == position


def test_phases_are_letters_with_a_legend() -> None:
    said = drawn(pods.troubled(32), 118, 30, value="phase")
    assert "executing" in said[0]
    assert "eeeeeeee" in "".join(said).replace(" ", "")


def test_ended_hosts_and_cores_have_no_phase() -> None:
    running = pods.pod(32)
    cores = [pods.core_of(core.core, condition="ended") if core.core < 8 * 5 else core for core in running.cores]
    snapshot = pods.with_hosts(running, {index: {"condition": "ended"} for index in range(5)}, cores=cores)
    said = drawn(snapshot, 118, 30, value="phase")
    assert "e executing 27" in said[0]
    assert "\u25a0 ended 5" in said[0]
    shown = "".join(said[1:])
    assert shown.count("\u25a0") == 5 * 16
    assert shown.count("e" * 16) == 27


def test_colours_follow_the_distance_from_the_median() -> None:
    app = monitor(pods.with_hosts(pods.pod(64), {9: {"lag_steps": 300, "step": made.STEPS - 300}}))

    def painted(line: Line) -> int:
        return sum(len(span.text) for span in line if span.colours is not None)

    async def script(pilot: AppPilot) -> None:
        panel = pilot.app.screen.query_one(HostsPanel)
        await pilot.press("F")
        assert panel.value == MAP_VALUES[1] == "lag"
        assert panel._part is not None
        rows = panel.draw(panel._part, 118, 30).rows
        if panel._ramp() is not None:
            assert 0 < sum(painted(line) for line in rows) <= 16, "only the host that is behind"
        await pilot.press("u")
        assert panel.value == MAP_VALUES[0]

    drive(app, script, size=(160, 45))


# Keys.


def test_the_panel_of_hosts_is_selected_and_hosts_are_opened() -> None:
    async def script(pilot: AppPilot) -> None:
        body = pilot.app.screen.query_one(Body)
        panel = pilot.app.screen.query_one(HostsPanel)
        await until(pilot, lambda: body.selected == "hosts")
        await pilot.press("enter")
        assert body.maximised, "no host is chosen"
        await pilot.press("enter", "down")
        assert panel.chosen == 255, "the host with the most severe problem"
        await pilot.press("left", "left", "k", "j")
        assert panel.chosen == 253
        await pilot.press("home", "right", "right", "right", "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, HostScreen))
        assert "host 3 tpu-vm-3" in text(pilot.app.screen)
        await pilot.press("left")
        await until(pilot, lambda: "host 2 tpu-vm-2" in text(pilot.app.screen))
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, MonitorScreen)
        assert panel.chosen == 3
        await pilot.press("escape")
        assert panel.chosen is None

    drive(monitor(pods.troubled(256)), script)


def test_arrows_look_back_until_a_host_is_chosen() -> None:
    player = made.HandPlayer()

    async def script(pilot: AppPilot) -> None:
        at = player.position
        await pilot.press("left")
        await until(pilot, lambda: player.position < at)
        at = player.position
        await pilot.press("down", "right")
        await pilot.pause()
        assert player.position == at
        assert pilot.app.screen.query_one(HostsPanel).chosen is not None

    drive(monitor(pods.pod(256), player=player), script)


def test_a_click_chooses_a_host_and_a_second_one_opens_it() -> None:
    async def script(pilot: AppPilot) -> None:
        panel = pilot.app.screen.query_one(HostsPanel)
        await pilot.click(HostsPanel, offset=(6, 3))
        assert panel.chosen is not None
        chosen = panel.chosen
        await pilot.click(HostsPanel, offset=(6, 3), times=2)
        await until(pilot, lambda: isinstance(pilot.app.screen, HostScreen))
        assert pilot.app.screen.index == chosen  # type: ignore[attr-defined]

    drive(monitor(pods.pod(256)), script, size=(160, 45))


def test_a_run_on_one_host_has_no_panel_of_hosts() -> None:
    async def script(pilot: AppPilot) -> None:
        footer = text(pilot.app.screen).splitlines()[-1]
        assert "hosts" not in footer
        await pilot.press("h")
        assert "this run has one host" in text(pilot.app.screen)
        assert pilot.app.screen.query_one(Body).selected == "cores"
        await pilot.press("escape", "F")
        assert "this run has one host" in text(pilot.app.screen)
        await pilot.press("P")
        assert "hosts" not in text(pilot.app.screen)

    drive(monitor(made.running()), script)


def test_the_footer_names_the_keys_of_hosts_that_act() -> None:
    for num_hosts, has_map in ((4, False), (256, True)):

        async def script(pilot: AppPilot) -> None:
            footer = text(pilot.app.screen).splitlines()[-1]
            assert "h hosts" in footer
            assert ("F value" in footer) == has_map  # noqa: B023 - run at once

        drive(monitor(pods.pod(num_hosts)), script, size=(160, 45))


def test_page_keys_move_to_the_ends_of_the_map() -> None:
    async def script(pilot: AppPilot) -> None:
        panel = pilot.app.screen.query_one(HostsPanel)
        await pilot.press("h", "down", "home", "up")
        assert panel.chosen == 0
        await pilot.press(*["pagedown"] * 30)
        assert panel.chosen == 255
        await pilot.press("down", "pageup")
        assert panel.chosen is not None
        assert panel.chosen < 255

    drive(monitor(pods.pod(256)), script)


def test_one_key_selects_the_cores_in_the_shared_place() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("1")
        assert "1 cores" in text(pilot.app.screen)
        assert "h hosts" not in "\n".join(text(pilot.app.screen).splitlines()[:-1])
        await pilot.press("h")
        assert "h hosts" in text(pilot.app.screen)
        await pilot.press("H")
        assert "h hosts" not in "\n".join(text(pilot.app.screen).splitlines()[:-1])
        assert "1 cores" in text(pilot.app.screen), "the cores have the room of the hidden hosts"

    drive(monitor(pods.pod(256)), script)


@pytest.mark.parametrize("size", [(20, 5), (59, 20), (80, 24), (120, 36), (160, 45), (200, 50)])
@pytest.mark.parametrize("num_hosts", [2, 16, 256])
def test_hosts_survive_every_size(size: tuple[int, int], num_hosts: int) -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("down", "enter")
        await pilot.pause()
        assert "host" in text(pilot.app.screen)

    drive(monitor(pods.troubled(num_hosts)), script, size=size)


# Starting, and restarts.


def test_the_checklist_names_hosts_that_have_not_joined() -> None:
    hosts = [pods.host(0), pods.host(1), pods.host(2), pods.host(3)]
    starting = made.changed(made.starting(), hosts=hosts, created=made.NOW - 75)
    step = checklist(pods.with_hosts(starting, {2: pods.missing(2)}))[0]
    assert (step.state, step.seconds, step.detail) == ("running", 75, "3 of 4 joined; missing: host 2")
    assert (checklist(starting)[0].state, checklist(starting)[0].detail) == ("done", "4 hosts")
    assert len(checklist(made.starting())) == 4, "one host has nobody to wait for"


def test_epochs_show_what_restarts_lost() -> None:
    panel = EpochsPanel()
    said = lines_of(panel.draw(panel.pick(pods.troubled(4)), 110, 12))
    assert said[0].endswith("generation 1 from step 221: 29 steps and 14 s lost; host 3, rank 3: SIGKILL")
    assert any("epoch" in line for line in said[1:3])


# The screen of one host.


def test_losses_of_a_host_have_one_format_and_its_figures_are_not_cut() -> None:
    snapshot = pods.troubled(4)
    losses = {8: 0.0010, 9: 0.0009, 10: 0.0123}
    cores = [msgspec.structs.replace(one, loss=losses.get(one.core, 0.5)) for one in snapshot.cores]
    for index in (0, 1):
        panel = HostPanel(index)
        said = lines_of(panel.draw(panel.pick(made.changed(snapshot, cores=cores)), 78, 20))
        assert all(len(line) <= 78 for line in said)
        assert "\u2026" not in "".join(said[:5])
        for word in ("memory ", "HBM ", "time per step", "clock ", "generation"):
            assert word in "\n".join(said[:5])
        assert ("clock that of all hosts" in "\n".join(said)) is (index == 0)
    for core, loss in ((8, "0.0010"), (9, "0.0009"), (10, "0.0123"), (11, "0.5000")):
        assert re.search(rf"^ +{core} +{loss} ", "\n".join(said), re.MULTILINE), said


def test_a_small_map_names_its_value_and_the_chosen_host_in_its_frame() -> None:
    panel = HostsPanel()
    part = panel.pick(pods.pod(256))
    panel.value = "lag"
    drawing = panel.draw(part, 78, 4)
    assert not drawing.head
    assert drawing.note.startswith("steps behind, 256 hosts x 8")
    panel.chosen = 7
    assert panel.draw(part, 78, 4).note.startswith("host 7 tpu-vm-7  ")


def test_the_screen_of_a_host_has_cores_memory_processes_and_log() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("down", "home", "right", "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, HostScreen))
        said = text(pilot.app.screen)
        for core in range(8, 16):
            assert f" {core} " in said
        assert "\u2587" in said, "the loss so far"
        for word in ("GiB of 340 GiB", "worker", "pid 4243", "epoch 1 begins", "shard 12 read again after an error"):
            assert word in said
        assert "shard 12 read\n" not in said, "host 1 did not print this"

        await pilot.press("7")
        await until(pilot, lambda: isinstance(pilot.app.screen, MonitorScreen))
        panel = pilot.app.screen.query_one(LogPanel)
        assert panel.has_focus
        assert [entry.text for entry in panel._entries] == ["epoch 1 begins", "shard 12 read again after an error"]
        await until(pilot, lambda: "] \u00b7 f: others" in text(pilot.app.screen))

    drive(monitor(pods.pod(4)), script)


def test_hosts_stay_selected_over_a_moment_without_hosts() -> None:
    source = made.HandSource(pods.pod(4))

    async def script(pilot: AppPilot) -> None:
        body = pilot.app.screen.query_one(Body)
        await until(pilot, lambda: body.selected == "hosts")
        source.served = made.starting()
        await until(pilot, lambda: body.selected == "cores")
        source.served = pods.pod(4)
        await until(pilot, lambda: body.selected == "hosts")
        await pilot.press("1")
        source.served = made.starting()
        await until(pilot, lambda: not body.has_hosts)
        source.served = pods.pod(4)
        await until(pilot, lambda: body.has_hosts)
        assert body.selected == "cores"

    drive(ScreenApp(lambda: MonitorScreen(source, made.RUN_DIR)), script)


# Header.


def test_the_header_has_hosts_and_cores_and_names_hosts_in_trouble() -> None:
    async def script(pilot: AppPilot) -> None:
        header = "\n".join(text(pilot.app.screen).splitlines()[:4])
        assert "256 hosts x 8 TPU cores" in header
        for alarm in ("host 255 has not joined", "host 1 silent 31 s", "host 3: 12 % slower in data  "):
            assert alarm in header
        assert "restarted once, 29 steps lost" in header

    drive(
        monitor(made.changed(pods.troubled(256), requests=[], num_non_finite=0, non_finite=[])), script, size=(240, 50)
    )


# Log.


def test_equal_lines_of_many_hosts_are_one_line() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("7", "enter")
        said = text(pilot.app.screen)
        assert "x256 hosts epoch 1 begins" in said
        assert "x255 hosts not host 1 shard 12 read" in said
        assert "host 1 \u25b2 warning: shard 12 read again" in said
        await pilot.press("slash", *"again")
        assert "epoch 1 begins" not in text(pilot.app.screen)
        assert "shard 12 read again" in text(pilot.app.screen)

    drive(monitor(pods.pod(256)), script)


def test_the_lines_of_one_of_many_hosts_are_chosen_by_its_number() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("7", "f")
        await until(pilot, lambda: isinstance(pilot.app.screen, PromptScreen))
        await pilot.press(*"999", "enter")
        await until(pilot, lambda: "no line of host 999 among the loaded ones" in text(pilot.app.screen))
        await pilot.press("backspace", "backspace", "backspace", "1", "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, MonitorScreen))
        panel = pilot.app.screen.query_one(LogPanel)
        shown = [entry.text for entry in panel._entries]
        assert shown == ["epoch 1 begins", "shard 12 read again after an error"]
        assert "host 1" in text(pilot.app.screen)

    drive(monitor(pods.pod(256)), script)


def test_the_lines_of_few_hosts_are_cycled_through() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("7", "f", "f")
        panel = pilot.app.screen.query_one(LogPanel)
        assert panel._query.filter.lane == "host 1"
        assert len(panel._entries) == 2

    drive(monitor(pods.pod(4)), script)


# Cores.


def test_an_outlying_core_is_named_with_its_host() -> None:
    cores = pods.pod(256).cores
    cores[1033] = msgspec.structs.replace(cores[1033], loss=0.001)
    cores[2000] = msgspec.structs.replace(cores[2000], loss=math.nan)
    odd = OutlierView(core=1033, by=-0.09, first_step=300, last_step=330)
    panel = CoresPanel()
    crowded = made.changed(pods.pod(256), cores=cores, outlier=odd)
    drawing = panel.draw(panel.pick(crowded), 100, 30)
    said = lines_of(drawing)
    assert len(said) <= 30
    assert "core 1033 (host 129)" in said[0]
    assert "core 2000 (host 250)" in said[0]
    assert "one block per host (8 cores)" in lines_of(panel.draw(panel.pick(crowded), 44, 12))[1]


def test_hosts_have_their_keys_in_the_palette() -> None:
    async def script(pilot: AppPilot) -> None:
        screen = pilot.app.screen
        assert isinstance(screen, MonitorScreen)
        offered = dict((key.action, why) for key, why in screen.keys_offered())
        assert offered[keymap.SELECT_HOSTS] == offered[keymap.NEXT_VALUE] == ""
        assert all(keymap.on_widget("hosts", key.action) in offered for key in keymap.HOSTS)

    drive(monitor(pods.pod(4)), script)
