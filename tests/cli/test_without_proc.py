"""The commands of a laptop that only watches, in processes without `/proc` and the calls that only Linux has."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import recorded
from tests.cli.helpers import CommandResult, one_sentence, tputui
from tests.deadline import DEADLINE_S
from tests.ui.test_terminal import Terminal

ROOT = Path(__file__).parents[2]
PATH = os.pathsep.join([str(ROOT / "tests" / "without_proc"), str(ROOT)])
NOW = re.compile(r'"now": [\d.]+')
TPUTUI = (sys.executable, "-P", "-m", "tputui")
CANNOT_LAUNCH = (
    "tputui: this machine can list, watch, replay and compare runs, but launching needs Linux: launch on the TPU VM, "
    "by `ssh HOST` and `tputui run` there, and watch from here with `tputui attach ssh://HOST/RUN`"
)


@pytest.fixture(autouse=True)
def runs(tmp_path: Path) -> Path:
    """Two recorded runs."""
    for name in ("first", "second"):
        recorded.write_run(tmp_path / "runs", run=name)
    return tmp_path / "runs"


def without_proc(folder: Path, *words: str) -> CommandResult:
    """Runs a command there to its end."""
    done = subprocess.run(
        [*TPUTUI, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": PATH},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    return CommandResult(done.returncode, done.stdout, done.stderr)


def test_linux_is_hidden_from_these_processes(tmp_path: Path) -> None:
    code = "import os, sys; print(sys.platform, os.path.exists('/proc/self/stat'), hasattr(os, 'pidfd_open'))"
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": PATH}, capture_output=True)
    assert done.stdout == b"darwin False False\n"


@pytest.mark.parametrize(
    "words",
    [
        ["runs", "--json"],
        ["show", "first"],
        ["show", "first", "--json"],
        ["doctor", "first"],
        ["compare", "first", "second"],
        ["attach", "first", "--no-ui"],
        ["replay", "first", "--no-ui"],
        ["wait", "first"],
        ["check", "first"],
        ["stop", "first"],
    ],
    ids=" ".join,
)
def test_commands_print_what_they_print_on_linux(words: list[str], tmp_path: Path) -> None:
    there, here = without_proc(tmp_path, *words), tputui(*words, cwd=tmp_path)
    assert there._replace(out=NOW.sub("", there.out)) == here._replace(out=NOW.sub("", here.out))


def test_a_run_is_exported(tmp_path: Path) -> None:
    assert without_proc(tmp_path, "export", "first", "--to", "csv").code == 0
    assert len((tmp_path / "first-csv" / "epochs.csv").read_text().splitlines()) == 1 + 3


@pytest.mark.parametrize(
    ("words", "wanted"), [([], b"2 runs"), (["attach", "first"], b"DONE"), (["replay", "first"], b"first")]
)
def test_screens_draw_the_recorded_runs(words: list[str], wanted: bytes, tmp_path: Path) -> None:
    environ = {"PYTHONPATH": PATH, "TPUTUI_RUNS": os.fspath(tmp_path / "runs")}
    terminal = Terminal([*TPUTUI, *words], environ)
    try:
        terminal.until(lambda shown: wanted in shown)
        terminal.type(b"q")
        terminal.until(lambda shown: b"\x1b[?1049l" in shown)
        assert terminal.program.wait(DEADLINE_S) == 0
    finally:
        terminal.close()


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--", "true"],
        ["run", "digits.toml"],
        ["rehearse", "--", "true"],
        ["folds", "digits.toml"],
        ["try", "first", "data.workers=2"],
    ],
    ids=" ".join,
)
def test_launching_is_refused_with_what_to_do_instead(words: list[str], tmp_path: Path) -> None:
    refused = without_proc(tmp_path, *words)
    assert (refused.code, refused.out, one_sentence(refused)) == (2, "", CANNOT_LAUNCH)
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["first", "second"]


def test_doctor_says_that_this_machine_only_watches(tmp_path: Path) -> None:
    checked = without_proc(tmp_path, "doctor", "--json")
    findings = {finding["about"]: finding for finding in json.loads(checked.out)["findings"]}
    assert checked.code == 1
    assert f"tputui: {findings['launch']['text']}" == CANNOT_LAUNCH
    assert not {"torch", "device", "metrics"} & findings.keys()
