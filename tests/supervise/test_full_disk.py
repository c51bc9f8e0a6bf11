"""A disk that fills up during a run, and has space again later."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.helpers import tputui
from tests.supervise.harness import events_in
from tputui.telemetry import events as ev

SCRIPT = """
import os, sys, time
fill = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)

def fill_up():
    try:
        while True:
            os.write(fill, bytes(4096))
    except OSError:
        pass

time.sleep(0.6)
for step in range(1, 61):
    if step <= 40:
        fill_up()
    elif step == 41:
        os.ftruncate(fill, 0)
    print(f"step {step} loss {1 / step:.4f}", "." * 1000, flush=True)
    time.sleep(0.05)
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """An empty file system of 4 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("only root can mount a small disk")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_is_named_and_the_command_goes_on_with_its_run_undamaged(small_disk: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    words = ("run", "--no-ui", "--name", "full", "--", sys.executable, "train.py", small_disk / "fill")

    result = tputui("--runs-dir", small_disk, *words, cwd=tmp_path)

    run_dir = small_disk / "full"
    assert result.code == 0, result.out + result.err
    warnings = [line for line in result.out.splitlines() if line.startswith("warning: ")]
    assert any(f"the disk of {run_dir} is full (" in line and "delete files there" in line for line in warnings)
    low, after = [event.text for event in events_in(run_dir, "supervisor-0", ev.WarningRaised)]
    assert f"the disk of {run_dir} has only" in low
    assert f"No space left on device); the disk of {run_dir} has" in after
    assert (run_dir / "worker-0.log").read_text().count("\n") == 60
    steps = [event for event in events_in(run_dir, "logs-0", ev.StepsRecorded)]
    assert sum(event.n for event in steps) == 60
    assert "no damage" in tputui("check", run_dir).out
