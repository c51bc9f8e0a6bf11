"""Every example on the pages about your own script, alerts and logs runs as it is printed there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.deadline import DEADLINE_S
from tests.observers.observed import installed
from tputui.config import ScriptConfig, script_from_builtins
from tputui.state import conditions
from tputui.supervise.alerts import AlertMessage, AlertRules

GUIDE = Path(__file__).parents[2] / "docs" / "guide"
PAGE = (GUIDE / "own-script.md").read_text()
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
_FILE_NAME = re.compile(r"# (\S+\.\w+)\n")


def in_path(folder: Path) -> str:
    """PATH with this interpreter as `python` and its tputui first."""
    (folder / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (folder / "tputui").write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m tputui "$@"\n')
    for name in ("python", "tputui"):
        (folder / name).chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        "own-script",
        "alerts",
        "metrics-from-logs",
        "open-existing-logs",
        pytest.param("rehearse", marks=pytest.mark.xla),
    ],
)
def test_examples_run_as_printed(page: str, tmp_path: Path) -> None:
    place, tools = tmp_path / "place", tmp_path / "bin"
    place.mkdir()
    tools.mkdir()
    # The entry points of this tree, as an installation has them.
    paths = os.pathsep.join([str(installed(tmp_path)), str(GUIDE.parents[1])])
    env = {**os.environ, "PATH": in_path(tools), "PYTHONPATH": paths}
    num_run = 0
    for language, code in _BLOCK.findall((GUIDE / f"{page}.md").read_text()):
        name = _FILE_NAME.match(code)
        if name is not None:
            (place / name.group(1)).write_text(code)
        elif language == "sh":
            num_run += 1
            done = subprocess.run(
                ["bash", "-euc", code],
                cwd=place,
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
                check=False,
            )
            assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
    assert num_run > 0


def test_page_of_own_scripts_lists_every_key() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", PAGE.partition("| key of `[script]` |")[2].partition("\n\n")[0], re.M)
    assert listed == list(ScriptConfig.__struct_fields__)


def test_configuration_on_the_page_of_alerts_is_valid() -> None:
    page = (GUIDE / "alerts.md").read_text()
    (toml,) = re.findall(r"```toml\n(.*?)```", page, re.S)
    run = script_from_builtins(tomllib.loads(toml), "train.toml")
    rules = AlertRules.of({"alerts": {"on": run.alerts.on, "targets": run.alerts.targets}})
    assert [target.kind for target in rules.targets] == ["bell", "command", "webhook"]
    for state in conditions.STATES:
        assert f"`{state}`" in page
    listed = re.findall(r"`(TPUTUI_ALERT\w*)`", page)
    message = AlertMessage(0.0, "a", "/a", "vm", "done", "a done", "done", 1, 1, {})
    assert set(listed) == set(message.variables())
    assert all(f"`{field}`" in page for field in json.loads(message.payload()))
