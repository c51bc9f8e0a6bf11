"""Parts of the supervisor: escalation, the outcome of a run, lines of output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tputui.exit_codes import ExitCode
from tputui.supervise import log_tail
from tputui.supervise.escalation import Escalation, Timing
from tputui.supervise.log_tail import LAST_LINES, LINE_CHARS_MAX, LINES_MAX, READ_BYTES, UPDATES_MAX, LogTail
from tputui.supervise.machine import CHILDREN_INTERVAL_S, HostSampler
from tputui.supervise.outcome import WorkerEnd, run_ending
from tputui.telemetry import events as ev

TIMING = Timing(sigterm_grace_s=20, kill_after_s=10)


def test_sigterm_escalates_after_grace_time() -> None:
    escalation = Escalation(TIMING)

    assert escalation.on_sigterm(100) == "stop"
    assert escalation.due(119.9) is None
    assert escalation.due(120) == "stop_now"
    assert escalation.due(121) is None


def test_third_sigterm_changes_nothing() -> None:
    escalation = Escalation(TIMING)

    assert [escalation.on_sigterm(now) for now in (100, 101, 102)] == ["stop", "stop_now", None]


def test_sigterm_to_the_command_escalates_as_one_to_the_supervisor() -> None:
    escalation = Escalation(TIMING)

    escalation.on_request("stop", 100, by="SIGTERM")

    assert escalation.terminated
    assert escalation.on_sigterm(100) == "stop", "a signal to all processes comes to both, and means one stop"
    assert escalation.due(119.9) is None
    assert escalation.due(120) == "stop_now"


def test_stop_now_escalates_once_from_the_first_request() -> None:
    escalation = Escalation(TIMING)

    escalation.on_request("stop_now", 100)
    escalation.on_request("stop_now", 105)

    assert escalation.due(109.9) is None
    assert escalation.due(110) == "kill"
    assert escalation.due(111) is None


@pytest.mark.parametrize("kind", ["checkpoint", "stop", "stop_after_epoch"])
def test_only_stop_requests_escalate(kind: ev.RequestKind) -> None:
    escalation = Escalation(TIMING)

    escalation.on_request(kind, 100)

    assert escalation.due(1e9) is None


def _end(returncode: int, *, stop_asked: bool = False, killed: bool = False) -> WorkerEnd:
    return WorkerEnd(returncode=returncode, stop_asked=stop_asked, killed=killed)


def _trained(outcome: ev.Outcome, reason: str) -> ev.TrainingEnded:
    return ev.TrainingEnded(t=1.0, outcome=outcome, step=3, reason=reason)


def test_worker_report_counts_even_if_it_crashed_later() -> None:
    ending = run_ending(_end(-signal.SIGSEGV), _trained("done", "3 epochs trained"), None, [])

    assert (ending.outcome, ending.exit_code) == ("done", ExitCode.DONE)
    assert ending.reason == "3 epochs trained (its process then ended by signal SIGSEGV)"


def test_exit_code_0_without_end_report_is_a_failure() -> None:
    ending = run_ending(_end(0), None, None, [])

    assert (ending.outcome, ending.exit_code) == ("failed", 3)
    assert "without an end event; it printed nothing" in ending.reason


def test_a_stop_before_training_began_is_a_stop() -> None:
    assert run_ending(_end(4, stop_asked=True), None, None, []).outcome == "stopped"
    assert run_ending(_end(4), None, None, []).outcome == "failed"


def test_a_reason_is_bounded() -> None:
    assert len(run_ending(_end(1), None, None, ["x" * 10_000]).reason) < 700


def _log(tmp_path: Path) -> tuple[Path, LogTail]:
    path = tmp_path / "worker-0.log"
    return path, LogTail(path)


def test_only_complete_lines_are_returned(tmp_path: Path) -> None:
    path, tail = _log(tmp_path)

    path.write_bytes(b"one\ntw")
    first = tail.read()
    path.write_bytes(b"one\ntwo\nthree")

    assert (first, tail.read(), tail.read(final=True)) == (["one"], ["two"], ["three"])
    tail.close()


def test_progress_bar_output_is_reduced_to_its_last_state(tmp_path: Path) -> None:
    path, tail = _log(tmp_path)

    path.write_bytes(b"\r 10%|#   |\r100%|####|\r\nwindows\r\n\r\n")

    assert tail.read() == ["100%|####|", "windows"]
    tail.close()


def test_undecodable_bytes_are_replaced_and_long_lines_cut(tmp_path: Path) -> None:
    path, tail = _log(tmp_path)

    path.write_bytes(b"caf\xe9\n" + b"x" * (LINE_CHARS_MAX + 1) + b"\n")

    assert tail.read() == ["caf\N{REPLACEMENT CHARACTER}", "x" * LINE_CHARS_MAX + " ..."]
    tail.close()


def test_a_flood_of_lines_is_cut_and_counted(tmp_path: Path) -> None:
    path, tail = _log(tmp_path)

    path.write_bytes(b"line\n" * (LINES_MAX + 50))

    lines = tail.read()
    assert len(lines) == LINES_MAX + 1
    assert lines[-1] == "... 50 lines omitted; see worker-0.log"
    tail.close()


def test_a_private_key_is_masked_before_lines_are_cut(tmp_path: Path) -> None:
    path, tail = _log(tmp_path)
    body = [f"MIIEvQIBADANBgkq{number:02d}" for number in range(LAST_LINES)]
    begin, end = "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----"

    path.write_text("\n".join(["line"] * LINES_MAX + [begin, *body[:3]]) + "\n")
    tail.read()
    with path.open("a") as file:
        file.write("\n".join([*body[3:], "failed: 3"]) + "\n")
    assert tail.read() == [*["[redacted]"] * (LAST_LINES - 3), "failed: 3"]
    assert log_tail.read_last(path).lines == [*["[redacted]"] * (LAST_LINES - 1), "failed: 3"]
    path.write_text("\n".join([*body, end]) + "\n")
    assert log_tail.read_last(path).lines == ["[redacted]"] * LAST_LINES
    tail.close()


def test_flood_of_bytes_is_skipped_and_counted(tmp_path: Path) -> None:
    path, tail = _log(tmp_path)

    path.write_bytes(b"step 1 loss 0.9\n" + b"x" * 2 * READ_BYTES + b"\nlast\n")

    lines = tail.read()
    assert (lines[0], lines[-1]) == ("step 1 loss 0.9", "last"), "the first part is kept, too"
    assert "... 22 bytes omitted; see worker-0.log" in lines
    assert (tail.updates[0].text, tail.updates[-1].text, tail.is_cut) == ("step 1 loss 0.9", "last", True)
    assert (tail.updates[0].end, tail.updates[-1].end) == (15, path.stat().st_size - 1)
    assert (tail.read(), tail.updates, tail.is_cut) == ([], [], False)
    tail.close()


def test_of_a_flood_of_lines_the_first_and_the_last_are_left_for_the_parser(tmp_path: Path) -> None:
    path, tail = _log(tmp_path)

    path.write_bytes(b"".join(b"step %d\n" % step for step in range(UPDATES_MAX + 1)))

    tail.read()
    assert (tail.updates[0].text, tail.updates[-1].text) == ("step 0", f"step {UPDATES_MAX}")
    assert (len(tail.updates), tail.is_cut) == (UPDATES_MAX, True)
    tail.close()


def test_tail_starts_at_the_current_end(tmp_path: Path) -> None:
    (tmp_path / "worker-0.log").write_bytes(b"before\n")
    path, tail = _log(tmp_path)

    with path.open("ab") as file:
        file.write(b"after\n")

    assert tail.read() == ["after"]
    tail.close()


def test_zombie_process_is_not_sampled() -> None:
    worker = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    sampler = HostSampler(worker.pid)
    assert {process.role for process in sampler.sample().processes} == {"supervisor", "worker"}

    worker.kill()
    os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)

    assert {process.role for process in sampler.sample().processes} == {"supervisor"}
    worker.communicate()


def test_traffic_of_the_host_is_the_bytes_per_second_between_two_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counted(NamedTuple):
        read_bytes: int = 0
        write_bytes: int = 0
        bytes_recv: int = 0
        bytes_sent: int = 0

    def traffic(sample: ev.HostSampled) -> list[int | None]:
        disk = [sample.disk_read_bytes_per_s, sample.disk_written_bytes_per_s]
        return [*disk, sample.network_received_bytes_per_s, sample.network_sent_bytes_per_s]

    disks: Counted | None = Counted(read_bytes=1000, write_bytes=5)
    interfaces = {"lo": Counted(bytes_recv=1), "eth0": Counted(bytes_recv=10, bytes_sent=20)}
    monkeypatch.setattr("psutil.disk_io_counters", lambda: disks)
    monkeypatch.setattr("psutil.net_io_counters", lambda *, pernic: interfaces)
    now = 100.0
    sampler = HostSampler(os.getpid(), lambda: now)

    now, disks = 102.0, Counted(read_bytes=5000, write_bytes=5)
    interfaces = {"lo": Counted(bytes_recv=9999), "eth0": Counted(bytes_recv=30, bytes_sent=80)}
    assert traffic(sampler.sample()) == [2000, 0, 10, 30]

    # The counters were reset, then the system hides those of the disks, then the clock is set back.
    now, disks = 103.0, Counted(read_bytes=1, write_bytes=7)
    assert traffic(sampler.sample()) == [None, 2, 0, 0]
    now, disks = 104.0, None
    assert traffic(sampler.sample()) == [None, None, 0, 0]
    now = 50.0
    assert traffic(sampler.sample()) == [None] * 4


STARTS_A_RANK = """
import os, sys
if os.fork() == 0:
    os.read(0, 1)
    program = "import os; print('runs', flush=True); os.read(0, 1)"
    os.execve(sys.executable, [sys.executable, "-c", program], {**os.environ, "RANK": "1", "WORLD_SIZE": "2"})
print("forked", flush=True)
os.wait()
"""


def test_a_rank_that_was_seen_before_its_program_began_is_named() -> None:
    command = subprocess.Popen(
        [sys.executable, "-c", STARTS_A_RANK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    assert command.stdin is not None
    assert command.stdout is not None
    now = 0.0
    sampler = HostSampler(command.pid, lambda: now, names_ranks=True)

    def roles() -> set[str]:
        nonlocal now
        # A search for children, and a sample of what it found.
        now += 2 * CHILDREN_INTERVAL_S
        sampler.sample()
        return {process.role for process in sampler.sample().processes}

    try:
        assert command.stdout.readline() == b"forked\n"
        assert roles() == {"supervisor", "worker"}
        command.stdin.write(b"x")
        assert command.stdout.readline() == b"runs\n"
        assert roles() == {"supervisor", "worker", "rank 1"}
    finally:
        command.communicate(b"x")


def test_stall_requests_save_and_stop_then_escalates() -> None:
    escalation = Escalation(Timing(stall_grace_s=120))
    assert escalation.on_stall(10.0) == "stop"
    assert escalation.on_stall(11.0) is None
    assert escalation.due(129.0) is None
    assert escalation.due(130.0) == "stop_now"
    assert escalation.on_sigterm(131.0) is None, "everything was asked"


def test_every_state_of_a_progress_bar_is_left_for_the_parser_once(tmp_path: Path) -> None:
    path, tail = _log(tmp_path)
    taken = []

    with path.open("ab", buffering=0) as file:
        for printed in (b"start\n\r 1/3 loss: 3", b"\r 2/3 loss: 2", b"", b"\r 3/3 loss: 1\nend", b""):
            file.write(printed)
            tail.read()
            assert all(path.read_bytes()[: part.end].endswith(part.text.encode()) for part in tail.updates)
            taken.append([state for part in tail.updates for state in part.text.split("\r") if state])

    assert taken == [["start"], [" 1/3 loss: 3"], [" 2/3 loss: 2"], [" 3/3 loss: 1"], []]
    tail.close()


def test_colours_are_removed_from_lines(tmp_path: Path) -> None:
    path, tail = _log(tmp_path)

    path.write_bytes(b"\x1b[1m20/20\x1b[0m \x1b[32m==\x1b[0m\x1b]0;title\x07 done\x1b[K\n")

    assert tail.read() == ["20/20 == done"]
    tail.close()
