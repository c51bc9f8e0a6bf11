"""`follow`: the exact bytes of lines and JSON, and when it returns."""

from __future__ import annotations

import io
import json
from pathlib import Path

import msgspec
import pytest

from tests.recorded import T0, opened, worker_events, write_journal, write_run
from tputui.session.session import Session
from tputui.state.snapshot import Snapshot
from tputui.telemetry import events as ev
from tputui.telemetry.codec import to_json
from tputui.telemetry.journal import JournalWriter
from tputui.telemetry.logged_values import CONSOLE, LoggedColumns, values_logged
from tputui.text.lines import LineWriter, follow, write_line
from tputui.text.show_page import show_text

GOLDEN = Path(__file__).parents[1] / "golden"


def at_once(run_dir: Path) -> Session:
    """A replay without waiting."""
    return Session.replay(run_dir, speed=1e9)


def no_wait(seconds: float) -> None:
    assert 0 < seconds <= 0.2


def followed(session: Session, *, as_json: bool = False) -> tuple[str, str, Snapshot]:
    """The output on stdout and stderr, and the last snapshot."""
    out, narrate = io.StringIO(), io.StringIO()
    snapshot = follow(session, out, as_json=as_json, narrate=narrate, wait=no_wait)
    session.close()
    return out.getvalue(), narrate.getvalue(), snapshot


@pytest.mark.parametrize(("name", "as_json"), [("lines.txt", False), ("events.jsonl", True)])
@pytest.mark.parametrize("live", [True, False])
def test_recorded_run_prints_the_exact_bytes(recorded_run: Path, name: str, as_json: bool, live: bool) -> None:
    session = Session.live(recorded_run) if live else at_once(recorded_run)
    out, narrated, _ = followed(session, as_json=as_json)
    assert out.encode() == (GOLDEN / name).read_bytes()
    assert narrated == ""


def test_killed_run_is_reported_lost_at_the_end(tmp_path: Path) -> None:
    out, _, snapshot = followed(at_once(write_run(tmp_path, ended=False)))
    assert snapshot.condition == "lost"
    assert out.splitlines()[-1] == (
        "state: lost: no end event; supervisor-0 (pid 4242) and worker-0 (pid 4243) gone for 0 s"
    )


def test_unused_tpu_warning_is_repeated_at_end_and_head(tmp_path: Path) -> None:
    warning = "not training on a TPU: PJRT_DEVICE=CPU is set in the environment"
    run_dir = write_run(tmp_path)
    (run_dir / "worker-0.jsonl").unlink()
    events = [
        msgspec.structs.replace(event, device_warning=warning) if isinstance(event, ev.TopologyDeclared) else event
        for event in worker_events()
    ]
    write_journal(run_dir / "worker-0.jsonl", events)
    out, _, snapshot = followed(at_once(run_dir))
    assert out.splitlines()[-1] == f"warning: {warning}"
    page = show_text(snapshot).splitlines()
    assert sum(warning in line for line in page) == 1
    assert page.index(f"warning      {warning}") < 5


def test_every_json_line_is_a_journal_event(recorded_run: Path) -> None:
    out, _, _ = followed(Session.live(recorded_run), as_json=True)
    rows = [json.loads(line) for line in out.splitlines()]
    assert {line["writer"] for line in rows} == {"supervisor-0", "worker-0"}
    for writer in ("supervisor-0", "worker-0"):
        path = recorded_run / f"{writer}.jsonl"
        wire = [json.loads(line) for line in path.read_bytes().splitlines()]
        printed = [line for line in rows if line["writer"] == writer]
        assert [{**row, "c": line["c"], "j": line["j"]} for row, line in zip(printed, wire, strict=True)] == [
            {"writer": writer, **line} for line in wire
        ]


def test_json_writes_events_to_stdout_and_damage_to_stderr(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path)
    with (run_dir / "worker-0.jsonl").open("ab") as file:
        file.write(b"half a li")
    out, narrated, _ = followed(Session.live(run_dir), as_json=True)
    assert all(json.loads(line)["writer"] for line in out.splitlines())
    assert "damage: worker-0.jsonl" in narrated
    out, narrated, _ = followed(Session.live(run_dir))
    assert "damage: worker-0.jsonl" in out.splitlines()[-1]
    assert narrated == ""


def test_missing_directory_is_reported(tmp_path: Path) -> None:
    out, _, _ = followed(Session.live(tmp_path / "gone"))
    assert f"warning: the run's directory {tmp_path / 'gone'} is gone" in out.splitlines()


def test_an_attached_viewer_starts_with_the_newest_lines(recorded_run: Path) -> None:
    whole, _, _ = followed(Session.live(recorded_run))
    out = io.StringIO()
    session = Session.live(recorded_run)
    follow(session, out, as_json=False, earlier=4, wait=no_wait)
    session.close()
    lines = whole.splitlines()
    assert out.getvalue().splitlines() == [f"{len(lines) - 4} earlier lines; --lines all prints them", *lines[-4:]]


class Closed(io.StringIO):
    """A pipe whose reader leaves after some lines."""

    def __init__(self, lines: int) -> None:
        super().__init__()
        self._left = lines

    def write(self, text: str) -> int:
        self._left -= 1
        if self._left < 0:
            raise BrokenPipeError
        return super().write(text)


@pytest.mark.parametrize("as_json", [False, True])
def test_closed_reader_ends_following_quietly(recorded_run: Path, as_json: bool) -> None:
    before = (recorded_run / "worker-0.jsonl").read_bytes()
    session, out = Session.live(recorded_run), Closed(3)
    snapshot = follow(session, out, as_json=as_json, narrate=io.StringIO(), wait=no_wait)
    session.close()
    assert snapshot.run == "digits-1"
    assert out.getvalue().count("\n") == 3
    assert (recorded_run / "worker-0.jsonl").read_bytes() == before


def test_a_running_run_is_followed_until_it_ends(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path, ended=False)
    (run_dir / "supervisor-0.jsonl").unlink()
    writer = JournalWriter(run_dir / "supervisor-0.jsonl")
    waiting: list[ev.Event] = [
        opened(T0, "supervisor"),
        ev.WarningRaised(t=T0 + 10.8, text="the disk is nearly full"),
        ev.RunEnded(t=T0 + 11, outcome="stopped", exit_code=4, reason="stopped on request"),
    ]

    def write_next(seconds: float) -> None:
        no_wait(seconds)
        writer.append([waiting.pop(0)])

    session, out = Session.live(run_dir, clock=lambda: T0 + 11), io.StringIO()
    snapshot = follow(session, out, as_json=False, wait=write_next)
    session.close()
    writer.close()
    assert (snapshot.condition, snapshot.exit_code) == ("stopped", 4)
    assert out.getvalue().splitlines()[-2:] == ["warning: the disk is nearly full", "run stopped: stopped on request"]


def test_following_can_be_interrupted(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path, ended=False)
    session, out = Session.live(run_dir, clock=lambda: T0 + 11), io.StringIO()
    snapshot = follow(session, out, as_json=False, stop=lambda: True, wait=no_wait)
    session.close()
    assert snapshot.condition == "running"


def lines_of(*events: ev.Event) -> list[str]:
    writer = LineWriter()
    return [line for seq, event in enumerate(events) for line in writer.lines("worker-0", seq, event)]


def test_foreign_text_is_escaped_for_the_terminal(recorded_run: Path) -> None:
    nasty = "\x1b]0;owned\x07\x9b2J\u202e"
    events: list[ev.Event] = [
        ev.LogWritten(t=T0, line=nasty),
        ev.WarningRaised(t=T0, text=nasty),
        ev.RunStarted(t=T0, run=nasty, config={}, argv=[nasty]),
        ev.FailureRaised(t=T0, error=nasty, message=nasty, traceback=nasty, phase="data", step=1),
    ]
    write_journal(recorded_run / "worker-1.jsonl", events)
    for as_json in (False, True):
        out, _, _ = followed(Session.live(recorded_run), as_json=as_json)
        assert all(character.isprintable() or character == "\n" for character in out)
        assert "owned" in out


def test_each_event_is_one_line() -> None:
    failed = ev.FailureRaised(
        t=T0, error="ValueError", message="bad", traceback="Traceback:\n  File x", phase="tracing", step=7
    )  # fmt: skip
    assert lines_of(
        ev.RequestSeen(t=T0, request="1", kind="stop", phase="compiling", step=3),
        ev.RequestApplied(t=T0, request="1", kind="stop", step=4, path="checkpoints/a.pt"),
        ev.RequestRefused(t=T0, request="2", kind="checkpoint", why="the run ends"),
        ev.StepsDropped(t=T0, num_records=2, num_steps=20),
        failed,
    ) == [
        "request to stop: seen while compiling",
        "request to stop: applied after step 4: checkpoints/a.pt",
        "warning: request to save a checkpoint: refused: the run ends",
        "warning: worker-0: the disk was too slow; 2 events (20 steps) were dropped so that training could continue",
        "error: training failed in step 7 while tracing: ValueError: bad",
        "    Traceback:",
        "      File x",
    ]


def test_duplicate_event_is_printed_once() -> None:
    writer, event = LineWriter(), ev.WarningRaised(t=T0, text="once")
    assert [writer.lines("worker-0", 0, event) for _ in range(2)] == [["warning: once"], []]


def test_a_stream_without_unicode_gets_escapes(recorded_run: Path) -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii", newline="\n")
    write_line(out, "caf\u00e9 \u4e2d")
    assert raw.getvalue() == b"caf\\xe9 \\u4e2d\n"


def test_json_of_an_event_is_that_of_the_journal() -> None:
    event = ev.WarningRaised(t=T0, text="x")
    assert to_json(event) == {"k": "WarningRaised", "t": T0, "text": "x"}


def test_values_that_a_command_logged_make_one_line_a_second() -> None:
    events: list[ev.Event] = [opened(T0, "logs")]
    for tenth in range(31):
        t = T0 + 1 + tenth / 10
        loss, accuracy = ([value] for value in (1 / (tenth + 1), tenth / 30))
        events.append(values_logged(t, "loss", "train", "loss", CONSOLE, LoggedColumns(loss, [tenth], None, None)))
        events.append(values_logged(t, "acc", "valid", "acc", CONSOLE, LoggedColumns(accuracy, [tenth], None, None)))
    events.append(ev.TrainingEnded(t=T0 + 9, outcome="done", step=30, reason="over"))
    writer = LineWriter()
    lines = [line for seq, event in enumerate(events) for line in writer.lines("logs-0", seq, event)]
    found = [line for line in lines if line.startswith("step ")]
    assert found == [
        "step 0  loss 1.0000, valid acc 0.0000  (from console)",
        "step 10  loss 0.0909, valid acc 0.3333  (from console)",
        "step 20  loss 0.0476, valid acc 0.6667  (from console)",
        "step 30  loss 0.0323, valid acc 1.0000  (from console)",
    ]
