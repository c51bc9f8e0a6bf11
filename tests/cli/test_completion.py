"""Completion of command lines, in the shell that every machine has."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import recorded
from tests.cli.helpers import one_sentence, tputui

OFFERED = """
PATH="$BIN:$PATH"
eval "$(tputui completion bash)"
COMP_LINE="$LINE" COMP_POINT=${#LINE} COMP_TYPE=9
_python_argcomplete tputui
printf '%s\\n' "${COMPREPLY[@]}"
"""


def offered(line: str, cwd: Path, **environ: str) -> list[str]:
    """What bash offers at the end of a line, without the space after the only one."""
    environ = {**os.environ, "LINE": line, "BIN": os.fspath(Path(sys.executable).parent), **environ}
    done = subprocess.run(
        [shutil.which("bash") or "bash", "--norc", "-c", OFFERED], cwd=cwd, env=environ, capture_output=True, text=True
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("tputui s", ["show", "stop", "stacks", "stream", "serve"]),
        ("tputui wait --ti", ["--timeout"]),
        ("tputui run --set optim.l", ["optim.lr=", "optim.lr_scaling="]),
        ("tputui export some --to p", ["parquet"]),
        ("tputui run dig", ["digits.toml"]),
        ("tputui run -- python dig", ["digits.py", "digits.toml"]),
        ("tputui data fe", ["fetch"]),
    ],
)
def test_bash_offers_the_words_that_a_command_takes(line: str, wanted: list[str], tmp_path: Path) -> None:
    for name in ("digits.py", "digits.toml"):
        (tmp_path / name).touch()

    assert sorted(offered(line, tmp_path)) == sorted(wanted)


def test_bash_offers_the_runs_of_the_directory_that_is_named(tmp_path: Path) -> None:
    recorded.write_run(tmp_path / "here", run="20261126-101500-digits")
    recorded.write_run(tmp_path / "there", run="20261126-101500-text")

    assert offered("tputui show ", tmp_path, TPUTUI_RUNS=os.fspath(tmp_path / "here")) == ["20261126-101500-digits"]
    assert offered(f"tputui --runs-dir {tmp_path}/there compare ", tmp_path) == ["20261126-101500-text"]


def test_other_shells_have_a_script_too_and_an_unknown_one_is_refused() -> None:
    assert "compdef _python_argcomplete tputui" in tputui("completion", "zsh").out
    assert "complete --command tputui" in tputui("completion", "fish").out
    refused = tputui("completion", "tcsh")
    assert refused.code == 2
    assert one_sentence(refused).startswith("tputui: completion: argument SHELL: invalid choice: 'tcsh'")
