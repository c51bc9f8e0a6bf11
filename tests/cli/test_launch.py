"""Runs that cannot be started: messages and leftover files; closed or full streams."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import recorded
from tests.cli.helpers import one_sentence, tputui
from tests.deadline import DEADLINE_S
from tests.supervise.harness import Bench
from tputui import config
from tputui.cli import launch
from tputui.cli.console import CommandError
from tputui.exit_codes import ExitCode
from tputui.telemetry import requests, rundir

DIGITS = Path(__file__).parents[2] / "sample_configs/digits.toml"
NOT_UTF8 = os.fsdecode(b"caf\xe9")


def shell(line: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """`tputui WORDS` with a redirection, as a shell does it."""
    command = ["sh", "-c", f'"$@" {line}', "sh", sys.executable, "-P", "-m", "tputui", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


@pytest.mark.parametrize("line", [">&-", "<&-", "2>&-", ">&- 2>&- <&-"])
def test_command_works_with_closed_streams(recorded_run: Path, line: str) -> None:
    done = shell(line, "--runs-dir", recorded_run.parent)

    assert (done.returncode, done.stderr) == (0, "")
    assert ("digits-1" in done.stdout) == (not line.startswith(">"))


def test_viewer_with_full_output_exits_like_the_run(bench: Bench) -> None:
    watched = bench.supervise("next_request(); end('stopped', 4)")
    command = [sys.executable, "-P", "-m", "tputui", "attach", "--no-ui", str(watched.run_dir)]
    with open("/dev/full", "w") as full:
        viewer = subprocess.Popen(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert viewer.stderr is not None
    result = viewer.stderr.readline()
    requests.submit(watched.run_dir, "stop", by="test", now=time.time())
    _, rest = viewer.communicate(timeout=DEADLINE_S)

    assert "No space left on device; waiting for the end of the run" in result
    assert viewer.returncode == ExitCode.STOPPED
    assert "stopped" in rest
    assert "Traceback" not in rest


def test_non_utf8_directory_is_rejected_without_a_run(tmp_path: Path) -> None:
    here = tmp_path / NOT_UTF8
    here.mkdir()

    result = tputui("run", DIGITS, "--set", "device.cores=1", "--detach", cwd=here)

    assert result.code == ExitCode.USAGE
    assert "caf\\udce9' is not valid UTF-8, but a run records it; rename it" in one_sentence(result)
    assert not [path for path in here.rglob("*") if path.name != "runs"]


def test_non_utf8_config_path_is_rejected_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(CommandError) as refused:
        launch.create_run(
            tmp_path, config.load(DIGITS), config_path=f"{NOT_UTF8}.toml", name=None, resume=None, argv=["tputui"]
        )

    assert refused.value.code == ExitCode.USAGE
    assert "caf\\udce9.toml' is not valid UTF-8" in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_runs_in_non_utf8_directory_are_listed_and_shown(tmp_path: Path) -> None:
    parent = tmp_path / NOT_UTF8
    recorded.write_run(parent)

    for words in (["runs", "--json"], ["show", "digits-1", "--json"]):
        result = tputui("--runs-dir", parent, *words)
        assert result.code == ExitCode.DONE, result.err
        assert "digits-1" in json.dumps(json.loads(result.out))
    assert tputui("--runs-dir", parent, "show", "digits-1").code == ExitCode.DONE


def test_unstartable_supervisor_leaves_no_directory(tmp_path: Path) -> None:
    run_dir = rundir.create(tmp_path, recorded.manifest())
    (run_dir / "supervisor.log").mkdir()

    with pytest.raises(CommandError) as refused:
        launch.start_supervisor(run_dir)

    assert "digits-1 could not be started: Is a directory" in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_supervisor_that_exits_early_leaves_no_directory(tmp_path: Path) -> None:
    run_dir = rundir.create(tmp_path, recorded.manifest())
    # No room for a journal.
    (run_dir / "supervisor-0.jsonl").symlink_to(tmp_path / "nowhere" / "file")

    with pytest.raises(CommandError) as refused:
        launch.start_supervisor(run_dir)

    assert "did not start: its supervisor ended with exit code 2" in str(refused.value)
    assert list(tmp_path.iterdir()) == []
