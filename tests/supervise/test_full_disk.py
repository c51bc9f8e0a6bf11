"""A disk that fills up during a run, and has space again later."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.helpers import one_sentence, tputui
from tests.deadline import DEADLINE_S
from tests.supervise.harness import events_in, is_running, wait_for
from tputui.telemetry import events as ev
from tputui.telemetry.files import free_bytes, free_inodes

SCRIPT = """
import os, sys, time
fill = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)

def fill_up():
    try:
        while True:
            os.write(fill, bytes(4096))
    except OSError:
        pass

def wait_for_warnings(number):
    journal = os.path.join(os.environ["TPUTUI_RUN_DIR"], "supervisor-0.jsonl")
    while open(journal, "rb").read().count(b"WarningRaised") < number:
        time.sleep(0.02)

# Once the supervisor has looked at the disk, it has reserved space for the output.
wait_for_warnings(1)
for step in range(1, 46):
    if step <= 30:
        fill_up()
    print(f"step {step} loss {1 / step:.4f}", "." * 1000, flush=True)
    if step == 30:
        # Meanwhile the supervisor finds several times that it cannot write.
        rounds = 0
        while rounds < 40 or not os.path.exists(sys.argv[2]):
            fill_up()
            time.sleep(0.05)
            rounds += 1
        os.ftruncate(fill, 0)
        wait_for_warnings(2)
"""
"""Its arguments are a file that fills the disk, and one by which the test has it emptied."""


WAITS_FOR_WARNING = """
import os, time
journal = os.path.join(os.environ["TPUTUI_RUN_DIR"], "supervisor-0.jsonl")
while b"WarningRaised" not in open(journal, "rb").read():
    time.sleep(0.02)
"""


@pytest.fixture
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """An empty file system of 4 MB, or with the options of the parameter."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = getattr(request, "param", "size=4m")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("only root can mount a small disk")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_is_named_and_the_command_goes_on_with_its_run_undamaged(small_disk: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    run_dir, is_emptied = small_disk / "full", tmp_path / "emptied"
    words = [sys.executable, "-P", "-m", "tputui", "--runs-dir", str(small_disk), "run", "--no-ui", "--name", "full"]
    words += ["--", sys.executable, "train.py", str(small_disk / "fill"), str(is_emptied)]

    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as viewer:
        assert viewer.stdout is not None
        warned = (line for line in viewer.stdout if line.startswith(f"warning: the disk of {run_dir} is full ("))
        assert "delete files there" in next(warned)
        is_emptied.touch()
        viewer.communicate(timeout=DEADLINE_S)

    assert viewer.returncode == 0
    low, after = [event.text for event in events_in(run_dir, "supervisor-0", ev.WarningRaised)]
    assert f"the disk of {run_dir} has only" in low
    assert f"No space left on device); the disk of {run_dir} has" in after
    assert (run_dir / "worker-0.log").read_text().count("\n") == 45
    steps = [event for event in events_in(run_dir, "logs-0", ev.StepsRecorded)]
    assert sum(event.n for event in steps) == 45
    assert "no damage" in tputui("check", run_dir).out


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_sigterm_while_the_disk_is_full_stops_the_run(small_disk: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    words = ("run", "--detach", "--name", "full", "--", sys.executable, "train.py", small_disk / "fill", "never")
    assert tputui("--runs-dir", small_disk, *words, cwd=tmp_path).code == 0
    run_dir = small_disk / "full"
    wait_for(lambda: free_bytes(small_disk) == 0, "the disk is full")
    supervisor = events_in(run_dir, "supervisor-0", ev.JournalOpened)[0].pid

    os.kill(supervisor, signal.SIGTERM)
    # The space that was reserved for the output takes the last events.
    (ended,) = wait_for(lambda: events_in(run_dir, "supervisor-0", ev.RunEnded), "the end event")
    wait_for(lambda: not is_running(supervisor), "the end of the supervisor")

    assert (ended.outcome, ended.exit_code) == ("stopped", 4)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_the_host_of_a_nearly_full_disk_is_named_if_the_run_has_several(small_disk: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        """
import os, time
journal = os.path.join(os.environ["TPUTUI_RUN_DIR"], "supervisor-1.jsonl")
while b"WarningRaised" not in open(journal, "rb").read():
    time.sleep(0.02)
"""
    )
    words = ("--nnodes", "2", "--host-index", "1", "--", sys.executable, "train.py")
    assert tputui("--runs-dir", small_disk, "run", "--no-ui", "--name", "low", *words, cwd=tmp_path).code == 0
    (warning,) = events_in(small_disk / "low", "supervisor-1", ev.WarningRaised)
    assert warning.text.startswith(f"the disk of {small_disk / 'low'} on host 1 has only ")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
@pytest.mark.parametrize("small_disk", ["size=512m,nr_inodes=60"], indirect=True)
def test_missing_inodes_are_named_in_warnings_and_refusals(small_disk: Path, tmp_path: Path) -> None:
    # A file, since the journal has the words of the command: its text must not be the warning that it waits for.
    (tmp_path / "train.py").write_text(WAITS_FOR_WARNING)
    words: list[str | Path] = [
        "--runs-dir",
        small_disk,
        "run",
        "--no-ui",
        "--name",
        "a",
        "--",
        sys.executable,
        "train.py",
    ]
    assert tputui(*words, cwd=tmp_path).code == 0
    (warning,) = [event.text for event in events_in(small_disk / "a", "supervisor-0", ev.WarningRaised)]
    assert re.match(f"the disk of {small_disk / 'a'} has only [0-9]+ free inodes; once there is none, ", warning)

    # `run` waits only some seconds for the end of the supervisor, which still writes and removes files.
    supervisor = events_in(small_disk / "a", "supervisor-0", ev.JournalOpened)[0].pid
    wait_for(lambda: not is_running(supervisor), "the end of the supervisor")
    free = free_inodes(small_disk)
    assert free is not None
    for number in range(free):
        (small_disk / f"file-{number}").touch()
    words[words.index("a")] = "b"
    export: list[str | Path] = ["export", small_disk / "a", "--to", "html", "--out", small_disk / "a.html"]
    for command in (words, export):
        refused = tputui(*command, cwd=tmp_path)
        assert refused.code == 2
        assert "No space left on device: the disk has no free inodes; delete files there" in one_sentence(refused)
