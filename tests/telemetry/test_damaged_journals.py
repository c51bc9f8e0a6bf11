"""Journals with damage at every byte, full disks, clocks that jump, and duplicate writers."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests import recorded
from tests.another_user import NOBODY, needs_root
from tests.deadline import DEADLINE_S
from tests.telemetry.test_fuzz import PACK, frame, read
from tests.telemetry.test_journal import LINES, WHOLE
from tputui.exit_codes import ExitCode
from tputui.session import session
from tputui.state.reducer import RunState
from tputui.telemetry import events as ev
from tputui.telemetry import requests, rundir
from tputui.telemetry.codec import decode
from tputui.telemetry.journal import JournalWriter, Tail
from tputui.telemetry.merge import Merge, events_of, open_tail
from tputui.telemetry.reporter import Reporter
from tputui.text.show_page import show_text

ENDS = [sum(map(len, LINES[: count + 1])) for count in range(len(LINES))]


def numbers(path: Path) -> tuple[list[int], bool]:
    """Numbers of the events that are read, and whether damage is reported. Each event must be as written."""
    tail = open_tail(path)
    events = list(events_of(tail))
    has_damage = bool(tail.regions(final=True))
    tail.close()
    for numbered in events:
        assert numbered == decode(LINES[numbered.seq])
    found = [numbered.seq for numbered in events]
    assert found == sorted(set(found))
    return found, has_damage


def test_cut_at_any_byte_loses_nothing_before(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.jsonl"
    for cut in range(len(WHOLE) + 1):
        path.write_bytes(WHOLE[:cut])
        whole = [seq for seq, end in enumerate(ENDS) if end <= cut]
        # A file without a byte has lost nothing: its process was killed before the first event.
        assert numbers(path) == (whole, cut > 0 and cut not in ENDS)


def test_every_flipped_bit_loses_at_most_two_lines(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.jsonl"
    for offset in range(len(WHOLE)):
        content = bytearray(WHOLE)
        content[offset] ^= 1 << (offset % 8)
        path.write_bytes(content)
        found, has_damage = numbers(path)
        assert has_damage
        assert len(found) >= len(LINES) - 2


def test_duplicated_byte_loses_at_most_its_line(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.jsonl"
    for offset in range(len(WHOLE)):
        path.write_bytes(WHOLE[: offset + 1] + WHOLE[offset:])
        found, has_damage = numbers(path)
        # Two newlines are an empty line, which is not damage.
        assert has_damage == (WHOLE[offset] != 0x0A)
        assert len(found) >= len(LINES) - 1


def test_every_duplicated_or_removed_stretch_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.jsonl"
    for offset in range(0, len(WHOLE) - 150):
        path.write_bytes(WHOLE[: offset + 150] + WHOLE[offset:])
        assert numbers(path)[1]
        path.write_bytes(WHOLE[:offset] + WHOLE[offset + 150 :])
        assert numbers(path)[1]


def test_cut_or_flipped_compressed_journal_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.jsonl.zst"
    frames = [frame(PACK(b""), PACK(b"".join(LINES[first : first + 2])), 2) for first in (0, 2, 4)]
    content = b"".join(frames)
    whole = {sum(map(len, frames[:count])): 2 * count for count in range(4)}
    for cut in range(len(content)):
        path.write_bytes(content[:cut])
        found, has_damage = numbers(path)
        assert found == list(range(whole[max(end for end in whole if end <= cut)]))
        assert has_damage == (cut == 0 or cut not in whole)
        path.write_bytes(content[:cut] + bytes([content[cut] ^ 0x10]) + content[cut + 1 :])
        found, has_damage = numbers(path)
        assert has_damage
        assert len(found) >= 4


def test_state_does_not_depend_on_writer_interleaving(recorded_run: Path) -> None:
    merge = Merge(recorded_run)
    entries, quiet = merge.poll(budget_s=60.0)
    assert quiet
    merge.close()
    by_writer = sorted(entries, key=lambda timed: (timed.writer, timed.seq))
    shuffled = sorted(by_writer, key=lambda timed: (timed.seq * 7919) % 13)
    in_order = sorted(shuffled, key=lambda timed: timed.seq)
    twice = [timed for timed in in_order for _ in range(2)]
    states = []
    for entries in (by_writer, in_order, twice):
        state = RunState()
        for timed in entries:
            state.apply(*timed)
        states.append((state.newest_t, [(w.name, w.last_seq, w.steps_done, w.checkpoints) for w in state.in_order]))
    assert states[0] == states[1] == states[2]


WRITE_UNDER_A_LIMIT = """
import resource, sys
from array import array
from pathlib import Path
from tputui.telemetry import events as ev
from tputui.telemetry.reporter import Reporter

run_dir = Path(sys.argv[1])
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (9_001, hard))
reporter = Reporter(run_dir, "worker", queue_bytes_max=64 << 10)
reporter.flush(5)
for number in range(600):
    reporter.record_steps(8 * number + 1, array("f", [0.5 + number] * 64), cores=8)
    reporter.emit(ev.WarningRaised(t=float(number), text=f"warning {number}"))
assert not reporter.flush(0.5)
print(reporter.failure)
print(reporter.num_unwritten)
size = (run_dir / "worker-0.jsonl").stat().st_size
if sys.argv[2] == "room":
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
assert reporter.close() == (sys.argv[2] == "room")
print(size, reporter.num_unwritten)
"""


@pytest.mark.parametrize("later", ["room", "none"])
def test_disk_full_inside_a_line_blocks_nothing(tmp_path: Path, later: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WRITE_UNDER_A_LIMIT, str(tmp_path), later],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    failure, unwritten, (size, left) = *done.stdout.splitlines()[:2], done.stdout.splitlines()[2].split()
    assert "File too large" in failure
    assert int(unwritten) > 0
    assert int(size) == 9_001
    tail = Tail(tmp_path / "worker-0.jsonl")
    events = [numbered.event for numbered in events_of(tail)]
    regions = tail.regions(final=True)
    tail.close()
    if later == "none":
        assert [region.reason for region in regions] == ["the last line is truncated"]
        assert int(left) > 0
        return
    assert (regions, int(left)) == ([], 0)
    assert [event.text for event in events if isinstance(event, ev.WarningRaised)] == [
        f"warning {n}" for n in range(600)
    ]
    kept = sum(event.n for event in events if isinstance(event, ev.StepsRecorded))
    dropped = sum(event.num_steps for event in events if isinstance(event, ev.StepsDropped))
    assert kept + dropped == 8 * 600


def test_failed_small_write_leaves_the_old_file(tmp_path: Path) -> None:
    program = (
        "import resource, sys\nfrom pathlib import Path\nfrom tputui.telemetry.rundir import write_atomically\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "try: write_atomically(Path(sys.argv[1]), bytes(1000))\n"
        "except OSError as error: print(error.errno)\n"
    )
    path = tmp_path / "run.json"
    path.write_bytes(b"old")
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.stdout == "27\n", done.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.json"]
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("cores", [0, -1, -8, 1 << 40])
def test_absurd_core_count_is_reported_not_raised(tmp_path: Path, cores: int) -> None:
    reporter = Reporter(tmp_path, "worker")
    reporter.record_steps(1, b"\0" * 32, cores=cores)
    reporter.emit(ev.LogWritten(t=1.0, line="after"))
    assert reporter.close()
    assert read(tmp_path / "worker-0.jsonl") == (3, [])


def test_large_batch_of_values_becomes_readable_events(tmp_path: Path) -> None:
    reporter = Reporter(tmp_path, "worker", queue_bytes_max=64 << 20)
    reporter.record_steps(1, os.urandom(12 << 20), cores=8)
    assert reporter.close(30.0)
    tail = Tail(tmp_path / "worker-0.jsonl")
    steps = [numbered.event for numbered in events_of(tail)][1:]
    assert tail.regions(final=True) == []
    tail.close()
    assert [(event.first, event.n) for event in steps if isinstance(event, ev.StepsRecorded)] == [
        (1, 131_072),
        (131_073, 131_072),
        (262_145, 131_072),
    ]


def test_unwritable_event_affects_no_other(tmp_path: Path) -> None:
    circle: dict[str, object] = {}
    circle["self"] = circle
    reporter = Reporter(tmp_path, "worker")
    reporter.emit(ev.RunStarted(t=1.0, run="a", config=circle, argv=[]))
    steps = recorded.steps_recorded(1.0, 1, [[0.5]])
    reporter.emit(msgspec.structs.replace(steps, block="x" * (17 << 20)))
    reporter.emit(ev.LogWritten(t=2.0, line="after"))
    assert reporter.close(30.0)
    tail = Tail(tmp_path / "worker-0.jsonl")
    _, first, second, last = [numbered.event for numbered in events_of(tail)]
    tail.close()
    assert isinstance(first, ev.WarningRaised)
    assert isinstance(second, ev.WarningRaised)
    assert ("RunStarted" in first.text, "StepsRecorded" in second.text) == (True, True)
    assert last == ev.LogWritten(t=2.0, line="after")


def test_clock_jumping_back_loses_no_event(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path)
    for name in ("worker-0.jsonl", "supervisor-0.jsonl"):
        path = run_dir / name
        events = [decode(line) for line in path.read_bytes().splitlines()]
        half = len(events) // 2
        path.unlink()
        back = [msgspec.structs.replace(numbered.event, t=numbered.event.t - 5_000) for numbered in events[half:]]
        recorded.write_journal(path, [numbered.event for numbered in events[:half]] + back)
    snapshot = session.load(run_dir)
    assert (snapshot.condition, snapshot.steps, len(snapshot.epochs)) == ("done", 66, 3)
    reach = session.extent(run_dir)
    assert session.load_at(run_dir, reach.end).steps == 66
    assert session.load_at(run_dir, reach.start).steps <= 66


def test_newer_writer_is_reported_and_known_events_are_read(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path)
    path = run_dir / "worker-0.jsonl"
    events = [decode(line) for line in path.read_bytes().splitlines()]
    path.unlink()
    head = msgspec.structs.replace(events[0].event, format=9)
    new: ev.Event = ev.UnknownEvent(t=recorded.T0 + 6, kind="GradientsClipped", fields={"norm": 4.5, "by": {"core": 1}})
    recorded.write_journal(path, [head, new, *[numbered.event for numbered in events[1:]]])
    snapshot = session.load(run_dir)
    assert (snapshot.steps, snapshot.damage.regions) == (66, [])
    assert "format 9" in (snapshot.newer_format or "")
    assert "GradientsClipped" in show_text(snapshot)


def test_second_supervisor_is_rejected_in_one_sentence(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path)
    before = {path.name: path.read_bytes() for path in run_dir.iterdir() if path.is_file()}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tputui.supervise", str(run_dir)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == ExitCode.USAGE
    assert done.stderr.count("\n") == 1
    assert "another supervisor has started it" in done.stderr
    assert {path.name: path.read_bytes() for path in run_dir.iterdir() if path.is_file()} == before


def test_one_of_two_simultaneous_supervisors_writes(tmp_path: Path) -> None:
    writers = []
    for _ in range(2):
        try:
            writers.append(JournalWriter(tmp_path / "supervisor-0.jsonl"))
        except FileExistsError:
            continue
    (writer,) = writers
    writer.close()


AS_NOBODY = f"""
import os, sys
from pathlib import Path
import encodings.idna
from tputui.session import session
from tputui.cli import requests as cli_requests, check, show
from tputui.cli.main import main
from tputui.supervise import __main__ as supervise, supervisor
from tputui.telemetry import requests
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
os.umask(0)
"""
"""Imports everything, then drops all privileges."""


def as_nobody(program: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs a program as another user without privileges."""
    command = [sys.executable, "-c", AS_NOBODY + program, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A folder that every user can read and write, as on a shared disk."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


@needs_root
@pytest.mark.parametrize("command", ["show", "check", "stop", "repair"])
def test_another_user_can_neither_read_nor_control_a_run(open_to_all: Path, command: str) -> None:
    run_dir = recorded.write_run(open_to_all, ended=False)
    before = sorted(path.name for path in run_dir.rglob("*"))
    done = as_nobody("sys.exit(main(sys.argv[1:]))", command, run_dir)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (ExitCode.USAGE, "", 1), done.stderr
    assert "another user's" in done.stderr
    assert sorted(path.name for path in run_dir.rglob("*")) == before


@needs_root
def test_another_user_cannot_write_a_request(open_to_all: Path) -> None:
    run_dir = recorded.write_run(open_to_all, ended=False)
    program = (
        "try: requests.submit(Path(sys.argv[1]), 'stop_now', by='x', now=1.0)\n"
        "except PermissionError: print('refused')\n"
    )
    assert as_nobody(program, run_dir).stdout == "refused\n"
    assert requests.read_all(run_dir) == []


@needs_root
def test_unwritable_directory_is_reported_in_one_sentence(open_to_all: Path) -> None:
    run_dir = rundir.create(open_to_all, recorded.manifest())
    run_dir.chmod(0o555)
    (run_dir / "run.json").chmod(0o444)
    done = as_nobody("sys.exit(supervise.main(sys.argv[1:]))", run_dir)
    assert (done.returncode, done.stderr.count("\n")) == (ExitCode.USAGE, 1), done.stderr
    assert "Permission denied" in done.stderr


def test_path_that_is_not_a_directory_is_reported(tmp_path: Path) -> None:
    run_dir = rundir.create(tmp_path, recorded.manifest())
    (run_dir / "supervisor-0.jsonl").symlink_to("gone/supervisor-0.jsonl")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tputui.supervise", str(run_dir)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert (done.returncode, done.stderr.count("\n")) == (ExitCode.USAGE, 1)


def test_run_is_private_under_any_umask(tmp_path: Path) -> None:
    program = (
        "import os, sys\nos.umask(0)\nfrom pathlib import Path\nfrom tests import recorded\n"
        "from tputui.telemetry import requests\nfrom tputui.telemetry.compressed import seal\n"
        "from tputui.telemetry.reporter import Reporter\nfrom tputui.supervise.log_tail import LogTail\n"
        "run_dir = recorded.write_run(Path(sys.argv[1]))\n"
        "requests.submit(run_dir, 'stop', by='test', now=1.0)\nLogTail(run_dir / 'worker-0.log').close()\n"
        "Reporter(run_dir, 'rank', 1).close()\nseal(run_dir / 'rank-1.jsonl')\n"
        "with open(run_dir / 'worker-0.jsonl', 'ab') as file: file.write(b'torn')\n"
    )
    repair = "import os, sys\nos.umask(0)\nfrom tputui.cli.main import main\nsys.exit(main(['repair', sys.argv[1]]))\n"
    for code, where in ((program, tmp_path), (repair, tmp_path / "digits-1")):
        done = subprocess.run(
            [sys.executable, "-c", code, str(where)], capture_output=True, text=True, timeout=DEADLINE_S
        )
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "digits-1-repaired").is_dir()
    found = [path for path in tmp_path.rglob("*")]
    assert len(found) > 15
    for path in found:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_checkpoint_too_big_for_disk_keeps_the_old_one(tmp_path: Path) -> None:
    program = (
        "import resource, sys\nfrom pathlib import Path\nfrom tputui.reporting import write_file\n"
        "path = Path(sys.argv[1])\n"
        "write_file(path, lambda file: file.write(b'old'))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, 5_000))\n"
        "try: write_file(path, lambda file: [file.write(bytes(1_000)) for _ in range(10)])\n"
        "except OSError as error: print(error.errno)\n"
    )
    path = tmp_path / "step-1.pt"
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.stdout == "27\n", done.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["step-1.pt"]
    assert path.read_bytes() == b"old"


LEAVE_UNDER_A_LIMIT = """
import resource, signal, sys
from pathlib import Path
from engine.process.main_thread import leave
from tputui.exit_codes import ExitCode
from tputui.telemetry import events as ev
from tputui.telemetry.reporter import Reporter

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
reporter = Reporter(Path(sys.argv[1]), "worker")
assert reporter.flush()
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
for number in range(100):
    reporter.emit(ev.WarningRaised(t=float(number), text=f"warning {number}"))
leave(reporter, ExitCode.DONE)
"""


@pytest.mark.parametrize("bytes_max", [1_000, 1_000_000])
def test_ending_process_reports_number_of_unwritten_events(tmp_path: Path, bytes_max: int) -> None:
    command = [sys.executable, "-c", LEAVE_UNDER_A_LIMIT, str(tmp_path), str(bytes_max)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0
    path = tmp_path / "worker-0.jsonl"
    tail = Tail(path)
    # The head of the journal is one of them.
    lost = 101 - len(tail.read())
    tail.close()
    assert path.stat().st_size <= bytes_max
    assert (lost > 0) == (bytes_max == 1_000)
    message = f"tputui: the last {lost} events of worker-0 are in no journal: [Errno 27] File too large\n"
    assert done.stderr == (message if lost else "")
