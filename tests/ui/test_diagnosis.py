"""The diagnosis panel, and the line of the header about what slows a run down."""

from __future__ import annotations

from typing import get_args

import pytest

from tests.ui import diagnosed, made, pods
from tests.ui.driving import AppPilot, drive, first_frame, monitor, text, until
from tests.ui.monitored import app_of
from tputui.diagnosis.diagnose import RecentVerdicts, diagnose
from tputui.diagnosis.goodput import goodput_of
from tputui.diagnosis.verdict import RuleName, Verdict, found
from tputui.state.snapshot import Snapshot
from tputui.text import verdict_lines
from tputui.ui.app import ScreenApp
from tputui.ui.base import palette
from tputui.ui.monitor.body import Body
from tputui.ui.monitor.cores import CoresPanel
from tputui.ui.monitor.diagnosis import DiagnosisPanel
from tputui.ui.monitor.header import Header
from tputui.ui.monitor.screen import MonitorScreen

SLOW = "slow: recompile at train.py:41, 8.3 s lost (14 % of the wall time); W: why"


def drawn(snapshot: Snapshot, width: int = 118, height: int = 20) -> list[str]:
    """The lines of the panel, as text."""
    drawing = DiagnosisPanel().draw(DiagnosisPanel.pick(snapshot), width, height)
    return ["".join(span.text for span in line) for line in (*drawing.head, *drawing.rows)]


def header(snapshot: Snapshot, width: int = 120, verdicts: tuple[Verdict, ...] | None = None) -> Header:
    found = Header()
    found.show(snapshot, replaying=False, verdicts=diagnose(snapshot) if verdicts is None else verdicts)
    return found


def said(head: Header, width: int = 120) -> str:
    return "\n".join("".join(span.text for span in line) for line in head.paint(width, 4))


def unrequested(snapshot: Snapshot) -> Snapshot:
    """Without a request, whose receipt comes before the alarms."""
    return made.changed(snapshot, requests=[])


# The list.


def test_the_worst_is_first_with_its_line_its_cost_and_its_share() -> None:
    rows = [row.split() for row in drawn(diagnosed.slowed())]
    assert [row[:7] for row in rows[:3]] == [
        ["\u25b2", "recompile", "train.py:41", "8.3", "s", "14", "%"],
        ["\u25b2", "sync", "train.py:57", "1.4", "s", "2", "%"],
        ["\u25b2", "fallback", "train.py:63", "0.66", "s", "1", "%"],
    ]
    assert rows[3][:3] == ["batch", "size", "hint"], "hints come last"


def test_a_slow_host_costs_a_share_of_each_step() -> None:
    (slow,) = (row for row in drawn(pods.troubled(32)) if "slow host" in row)
    assert slow.split("host 3")[0].split() == ["\u25b2", "slow", "host", "11", "%", "of", "a", "step"]


def test_without_findings_it_claims_no_more_than_doctor() -> None:
    run = made.changed(made.running(), time_spent=diagnosed.time_spent())
    panel = DiagnosisPanel()
    panel.set_class(True, "-maximised")
    drawing = panel.draw(DiagnosisPanel.pick(run), 200, 40)
    first, *rows = ["".join(span.text for span in line) for line in (*drawing.head, *drawing.rows)]
    assert first == " no findings"
    goodput = [*verdict_lines.goodput_blocks(goodput_of(run), None)]
    assert [row.strip() for row in rows[: len(goodput)]] == [line.strip() for line in goodput]

    verdicts = diagnose(run)
    assert {verdict.status for verdict in verdicts} == {"not available", "not enough data yet"}
    clear = len(get_args(RuleName)) - len(verdicts)
    checked = rows.index(f"   checked, nothing found  {clear} rules")
    unchecked = rows.index(f"   not checked  {len(verdicts)} rules")
    assert checked < unchecked == len(rows) - len(verdicts) - 1
    assert "   recompile       programs that compile again after warm-up" in rows[checked:unchecked]
    assert (
        "   slow host       a host that the others wait for in every step: not available, the run has one host" in rows
    )
    for verdict in verdicts:
        title, reason = verdict_lines.TITLES[verdict.rule], f": {verdict.status}, {verdict.text}"
        assert any(row.strip().startswith(title) and row.endswith(reason) for row in rows[unchecked:])
    assert len(rows[checked:unchecked]) - 2 + len(verdicts) == len(get_args(RuleName))


@pytest.mark.parametrize("width", [78, 118, 158])
def test_findings_come_before_goodput_and_rules_in_full_screen(width: int) -> None:
    panel = DiagnosisPanel()
    panel.set_class(True, "-maximised")
    run = made.changed(diagnosed.slowed(), time_spent=diagnosed.time_spent())
    drawing = panel.draw(DiagnosisPanel.pick(run), width, 20)
    rows = ["".join(span.text for span in line) for line in drawing.rows]
    found_at = next(at for at, row in enumerate(rows) if "recompile" in row and "train.py:41" in row)
    goodput_at = next(at for at, row in enumerate(rows) if row.split()[:1] == ["goodput"])
    rules_at = next(at for at, row in enumerate(rows) if "checked, nothing found" in row)
    assert found_at == 0 < goodput_at < rules_at
    assert not any(row.startswith("   recompile  ") for row in rows[rules_at:])


def test_rules_fill_the_panel_where_there_is_room_for_all_of_them() -> None:
    run = made.changed(made.running(), time_spent=diagnosed.time_spent())
    assert any("checked, nothing found" in row for row in drawn(run, height=60))
    assert not any("checked, nothing found" in row for row in drawn(run, height=12))


def test_a_short_run_says_how_many_steps_are_missing() -> None:
    first, *rest = drawn(diagnosed.early())
    assert first == " no findings yet: 12 of 20 steps"
    assert any(row.split()[:2] == ["input-bound", "not"] for row in rest)
    ended = made.changed(diagnosed.early(), condition="stopped", ended=made.NOW)
    assert drawn(ended)[0] == " no findings: the run ended after 12 of the 20 steps that a diagnosis needs"


def test_a_run_that_records_little_is_not_called_healthy() -> None:
    silent = made.changed(made.running(), xla=None, epochs=[])
    first, *rest = drawn(silent)
    assert first == " no findings"
    assert any(row.split()[:3] == ["recompile", "not", "available:"] for row in rest)


@pytest.mark.parametrize("width", [1, 20, 40, 78, 200])
def test_untrusted_texts_are_inert_and_no_width_breaks_the_panel(width: int) -> None:
    hostile = Verdict(
        rule="recompile", status="found", text="a\x1b[31mb", file="/x", line=1, where="\x1b]0;x\x07t.py:1",
        function="\x1b[2Jf", lost_s=1.0, share=0.5, evidence=["\x1b[1m"], fix="\x1b[1mfix",
    )  # fmt: skip
    panel = DiagnosisPanel()
    part = DiagnosisPanel.pick(made.running())._replace(verdicts=(hostile,))
    for is_full in (False, True):
        panel.set_class(is_full, "-maximised")
        text_drawn = "".join(span.text for line in panel.draw(part, width, 10).rows for span in line)
        assert "\x1b" not in text_drawn
        assert "\x07" not in text_drawn
    assert "\x1b" not in said(header(unrequested(made.running()), verdicts=(hostile,)))


# Keys.


def test_w_shows_it_and_enter_the_evidence_and_fix_of_the_chosen_one() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("W")
        shown = text(pilot.app.screen)
        assert "W diagnosis" in shown
        assert "train.py:57" in shown
        assert "drop_last" not in shown
        await pilot.press("enter")
        assert "drop_last=True" in text(pilot.app.screen)
        assert "predicted 2.93x as fast" in text(pilot.app.screen)
        await pilot.press("j", "j", "j")
        lines = [line for line in text(pilot.app.screen).splitlines() if "lost" in line]
        assert "fallback" in lines[0], "the chosen one is at the top"
        assert "torch.where" in text(pilot.app.screen)
        await pilot.press("W")
        assert "1 cores" in text(pilot.app.screen)

    drive(monitor(diagnosed.slowed()), script, size=(80, 24))


def test_w_twice_fills_the_screen_whatever_message_is_late() -> None:
    async def script(pilot: AppPilot) -> None:
        body = pilot.app.screen.query_one(Body)
        await pilot.press("W")
        # As on a busy machine: what the panel before it posted when it got the focus.
        cores = body.get(CoresPanel)
        body.post_message(cores.Selected(cores))
        await pilot.pause()
        await pilot.press("W")
        assert body.maximised
        assert "drop_last=True" in text(pilot.app.screen)

    drive(monitor(diagnosed.slowed()), script, size=(120, 36))


def test_full_screen_has_the_evidence_where_the_panel_filled_the_screen_already() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("W")
        assert "1 cores" not in text(pilot.app.screen)
        assert "compiled at an explicit sync" not in text(pilot.app.screen)
        await pilot.press("W")
        assert "compiled at an explicit sync" in text(pilot.app.screen)
        await pilot.press("W")
        assert "compiled at an explicit sync" not in text(pilot.app.screen)

    drive(monitor(diagnosed.slowed()), script, size=(70, 14))


def test_the_chosen_verdict_stays_chosen_when_its_figures_change() -> None:
    run = diagnosed.slowed()
    source = made.HandSource(run)

    async def script(pilot: AppPilot) -> None:
        await pilot.press("W", "j", "j", "enter")
        panel = pilot.app.screen.query_one(DiagnosisPanel)
        chosen = panel._chosen
        source.served = made.changed(run, now=run.now + 30, steps=run.steps + 100)
        await until(pilot, lambda: "430" in text(pilot.app.screen))
        assert panel._chosen == chosen
        assert panel._part is not None
        assert panel._index(panel._part.verdicts) == 1

    drive(ScreenApp(lambda: MonitorScreen(source, made.RUN_DIR)), script, size=(80, 24))


def test_the_panel_appears_at_120x36_once_something_is_found_and_goes_when_it_no_longer_holds() -> None:
    source = made.HandSource(made.running())

    async def script(pilot: AppPilot) -> None:
        await first_frame(pilot)
        panel = pilot.app.screen.query_one(DiagnosisPanel)
        assert not panel.display
        source.served = diagnosed.slowed()
        await until(pilot, lambda: panel.display)
        assert pilot.app.screen.query_one(Body).selected == "cores"
        source.served = made.running()
        await until(pilot, lambda: "no findings" in text(pilot.app.screen))
        assert panel.display, "panels do not move to and fro"
        source.served = made.changed(made.running(), now=made.NOW + 11)
        await until(pilot, lambda: not panel.display)

    drive(ScreenApp(lambda: MonitorScreen(source, made.RUN_DIR)), script, size=(120, 36))


def test_it_can_be_hidden_shown_and_found_in_palette_and_help() -> None:
    async def script(pilot: AppPilot) -> None:
        await first_frame(pilot)
        entries = list(palette.commands(pilot.app.screen, pilot.app.theme))
        assert palette.found(entries, "diagnosis")[0][1].title == "Diagnosis: why the run is slow"
        assert palette.found(entries, "bottleneck")[0][1].title == "Diagnosis: why the run is slow"
        panel = pilot.app.screen.query_one(DiagnosisPanel)
        await pilot.press("P", "W", "escape")
        assert not panel.display
        assert "hidden W" in text(pilot.app.screen)
        await pilot.press("W")
        assert panel.display
        await pilot.press("question_mark", "slash", *"diagnosis")
        assert "worst first" in text(pilot.app.screen)

    drive(app_of(diagnosed.slowed()), script, size=(120, 36))


# The header.


def test_the_header_names_what_costs_more_than_a_tenth_and_esc_hides_it() -> None:
    run = unrequested(diagnosed.slowed())
    head = header(run)
    assert SLOW in said(head)
    assert "5 recompiles" not in said(head), "the same thing once"
    assert head.acknowledge()
    assert "slow:" not in said(head)
    cheaper = made.changed(run, started=run.now - 100)
    assert "slow:" not in said(header(cheaper)), "it no longer holds"
    assert "5 recompiles" in said(header(cheaper))


def test_an_ended_run_shows_it_only_if_the_pace_keeps_its_place() -> None:
    ended = made.changed(unrequested(diagnosed.slowed()), condition="done", condition_reason="4 epochs trained")
    assert SLOW in said(header(ended), width=120)
    narrow = said(header(ended), width=60)
    assert "/step" in narrow
    assert "4 epochs trained" in narrow
    assert "slow:" not in narrow


def test_a_moment_of_the_past_has_no_line_about_what_came_later() -> None:
    slow = unrequested(diagnosed.slowed())
    source = made.HandSource(slow, made.LivePlayer())
    source.newest_served = slow

    async def script(pilot: AppPilot) -> None:
        await until(pilot, lambda: SLOW in text(pilot.app.screen))
        source.served = unrequested(diagnosed.early())
        await pilot.press("left")
        await until(pilot, lambda: "viewing" in text(pilot.app.screen))
        assert "slow:" not in text(pilot.app.screen)
        source.served = slow
        await until(pilot, lambda: SLOW in text(pilot.app.screen))

    drive(ScreenApp(lambda: MonitorScreen(source, made.RUN_DIR)), script, size=(200, 50))


# When verdicts are found.


def test_verdicts_are_found_once_a_second_and_at_once_with_new_evidence() -> None:
    recent = RecentVerdicts()
    run = diagnosed.slowed()
    first = recent.of(run)
    assert first == diagnose(run)
    assert recent.of(made.changed(run, now=run.now + 0.4, steps=run.steps + 9)) is first
    with_heartbeat = run.evidence.fork()
    with_heartbeat.num_beats += 1
    assert recent.of(made.changed(run, now=run.now + 0.5, evidence=with_heartbeat)) is first
    assert recent.of(made.changed(run, now=run.now + 1.1)) is not first
    healthy = made.running()
    assert found(recent.of(made.changed(healthy, now=run.now + 1.1))) == ()
    ended = made.changed(run, condition="done", ended=run.now)
    assert recent.of(ended) == diagnose(ended)
    of_part = recent.of(made.changed(ended, is_behind=True))
    assert recent.of(ended) is not of_part, "nothing else changes once a run has ended"
