"""Every command on the page about exports runs as it is printed there, one after the other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deadline import DEADLINE_S

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "export-and-notebooks.md"


@pytest.mark.slow
def test_commands_run_as_printed(tmp_path: Path) -> None:
    tools, place = tmp_path / "bin", tmp_path / "place"
    for folder in (tools, place):
        folder.mkdir()
    for name, words in (("python", ""), ("tputui", " -P -m tputui")):
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{words} "$@"\n')
        (tools / name).chmod(0o755)
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    script = next(code for _, code in blocks if code.startswith("# train.py\n"))
    (place / "train.py").write_text(script)
    commands = "".join(code for language, code in blocks if language == "sh")
    assert commands.count("tputui ") == 6
    env = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    env.pop("TPUTUI_RUNS", None)
    done = subprocess.run(
        ["bash", "-euc", commands],
        cwd=place,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert {path.name for path in place.iterdir()} == {"train.py", "runs", "demo-csv", "tb", "demo.html"}
    printed = next(code for language, code in blocks if language == "text").split("  ")
    quiet = [line for line in done.stdout.splitlines() if line.startswith("epoch 2/3  step 40/60")]
    assert len(quiet) >= 2, "of a replay and of a run"
    assert quiet[-1].split("  ")[:3] == printed[:3]
