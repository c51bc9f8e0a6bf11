"""`tputui show RUN --model` and `--code`: the layers of a run's network, and the code that it executed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests import recorded
from tputui.cli.main import main
from tputui.exit_codes import ExitCode
from tputui.telemetry import code_record
from tputui.telemetry.code_record import CodeRecord
from tputui.telemetry.layer_table import BYTES_MAX

TABLE = {
    "batch": 64,
    "num_layers": 3,
    "parameters": 1300,
    "trainable": 1290,
    "layers": [
        {"name": "head", "kind": "Linear", "shapes": [[64, 10]], "parameters": 1290, "trainable": 1290},
        {"name": "odd\u001b[31m", "kind": "Module", "shapes": None, "parameters": 10, "trainable": 0},
    ],
}


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return recorded.write_run(tmp_path)


def shown(run_dir: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    assert main(["show", str(run_dir), "--model", *flags]) == ExitCode.DONE
    return capsys.readouterr().out


def test_layer_table_has_shapes_counts_and_no_escapes(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run_dir / "model.json").write_text(json.dumps(TABLE))
    lines = shown(run_dir, capsys).splitlines()
    assert lines[0].split() == ["layer", "type", "output", "parameters", "trainable"]
    assert lines[2].split() == ["head", "Linear", "[64,", "10]", "1,290", "1,290"]
    assert "not called" in lines[3]
    assert "\x1b" not in lines[3]
    assert lines[4] == "and 1 more layers"
    assert lines[-2:] == ["1,300 parameters, 1,290 trainable, 10 frozen", "shapes are of a batch of 64 examples"]
    assert json.loads(shown(run_dir, capsys, "--json"))["layers"][0]["shapes"] == [[64, 10]]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "has no model.json: it is written when the first training step is traced"),
        (b"{", "is not a table of layers"),
        (b'{"batch": "x"}', "is not a table of layers"),
        (b" " * (BYTES_MAX + 1), "cannot be read: it is longer than"),
    ],
    ids=["missing", "cut short", "other types", "too long"],
)
def test_run_without_layer_table_is_reported(
    run_dir: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, says: str
) -> None:
    if content is not None:
        (run_dir / "model.json").write_bytes(content)
    assert main(["show", str(run_dir), "--model"]) == ExitCode.USAGE
    assert says in capsys.readouterr().err


def test_pipe_as_layer_table_does_not_block(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(run_dir / "model.json")
    assert main(["show", str(run_dir), "--model"]) == ExitCode.USAGE
    assert "not a regular file" in capsys.readouterr().err


def test_code_of_a_run_is_printed_without_escapes(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = CodeRecord(
        diff="--- a/train.py\n+++ b/train.py\n+print('\x1b[31m')\n",
        diff_bytes=50,
        python="/usr/bin/python3",
        packages={"torch": "2.9.0"},
        environment={"XLA_FLAGS": "--a=1"},
    )
    code_record.save(run_dir, record)
    assert main(["show", str(run_dir), "--code"]) == ExitCode.DONE
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[0] == "command      tputui run digits.toml"
    assert "  torch 2.9.0" in lines
    assert "  XLA_FLAGS=--a=1" in lines
    assert lines[-3:] == ["--- a/train.py", "+++ b/train.py", "+print('\\x1b[31m')"]
    assert main(["show", str(run_dir), "--code", "--json"]) == ExitCode.DONE
    assert json.loads(capsys.readouterr().out)["code"]["packages"] == {"torch": "2.9.0"}


def test_run_without_code_is_reported(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(run_dir), "--code"]) == ExitCode.USAGE
    assert "did not record its code" in capsys.readouterr().err
