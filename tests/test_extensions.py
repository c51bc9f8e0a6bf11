"""Commands and log formats of other packages: the examples of docs/guide/extensions.md, installed as a package."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.helpers import one_sentence, tputui

PAGE = (Path(__file__).parent.parent / "docs" / "guide" / "extensions.md").read_text()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder for PYTHONPATH with the package of the page, as pip installs it."""
    folder = tmp_path / "site"
    installed = folder / "my_lab_tools-1.0.dist-info"
    installed.mkdir(parents=True)
    (folder / "lab_tools.py").write_text("\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.S)))
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: my-lab-tools\nVersion: 1.0\n")
    groups = re.findall(r"^\[project\.entry-points\.\"(.+)\"\]\n(\S+) = \"(.+)\"$", PAGE, re.M)
    (installed / "entry_points.txt").write_text(
        "".join(f"[{group}]\n{name} = {value}\n" for group, name, value in groups)
    )
    return folder


def test_a_command_of_a_package_is_listed_and_runs(package: Path, recorded_run: Path) -> None:
    site = str(package)
    assert "  best        by lab_tools:COMMANDS\n" in tputui("--help", PYTHONPATH=site).out
    assert "Prints the best epoch of a run." in tputui("best", "--help", PYTHONPATH=site).out
    result = tputui("best", recorded_run, PYTHONPATH=site)
    best = next(
        epoch for epoch in reversed(json.loads(tputui("show", recorded_run, "--json").out)["epochs"]) if epoch["best"]
    )
    assert result.out == f"epoch {best['epoch']}: validation loss {best['valid']['loss']['avg']:.4g}\n"


def test_a_command_that_cannot_be_loaded_is_named_with_its_package(package: Path) -> None:
    (package / "lab_tools.py").write_text("import no_such_module\n")
    result = tputui("best", "x", PYTHONPATH=str(package))
    assert result.code == 2
    assert one_sentence(result) == (
        'tputui: the command "best" of my-lab-tools (lab_tools:COMMANDS) cannot be loaded: '
        "ModuleNotFoundError: No module named 'no_such_module'"
    )


def test_a_log_format_of_a_package_is_opened(package: Path, tmp_path: Path) -> None:
    log = tmp_path / "train.lab"
    log.write_text("".join(f"@{step} loss={1 / step}\n" for step in range(1, 51)) + "@51 lo")
    shown = json.loads(
        tputui("show", log, "--json", PYTHONPATH=str(package), XDG_CACHE_HOME=str(tmp_path / "cache")).out
    )
    assert (shown["steps"], shown["train_loss"]) == (50, pytest.approx(0.02))


def test_a_log_format_that_cannot_be_loaded_is_named(package: Path, tmp_path: Path) -> None:
    (package / "lab_tools.py").write_text("LAB_LOG = 3\n")
    log = tmp_path / "train.lab"
    log.write_text("@1 loss=2\n")
    result = tputui("show", log, PYTHONPATH=str(package), XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert result.code == 2
    assert 'the reader "lab-log" of my-lab-tools is no tputui.logs.formats.LogFormat' in one_sentence(result)
    table = tmp_path / "train.csv"
    table.write_text("step,loss\n1,2.0\n2,1.0\n")
    assert tputui("show", table, PYTHONPATH=str(package), XDG_CACHE_HOME=str(tmp_path / "cache")).code == 0
