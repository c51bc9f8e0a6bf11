"""`tputui try`: what it refuses, and the gain that it measures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.helpers import tputui
from tests.deadline import DEADLINE_S
from tputui.cli.main import main

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "sample_configs" / "digits.toml"
SLOW = """
task = "tests.engine.slowtask:SlowLine"
epochs = 3
[data]
batch_per_core = 16
num_train = 2048
[device]
cores = 2
virtual_cores = 2
"""


def refused(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """The sentence of a refused command."""
    assert main(["try", *map(str, words)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("data.prefetch=5", 'data.prefetch=5: data.prefetch: [data] has no key "prefetch"; did you mean'),
        ("device.precison=bf16", 'did you mean "precision"?'),
        ("data.prefetch_batches=4", "data.prefetch_batches is 4 in"),
        ("data.workers=many", "data.workers=many: data.workers: expected `int`"),
        ("data.global_batch=64", "trains 64 examples per step already, so nothing changes"),
        ("model.channels=8", "model.channels changes the network"),
        ("optim.name=sgd", "optim.name changes how the weights are optimised"),
        ("data.valid_fraction=0.1", "data.valid_fraction changes the examples"),
        ("epochs=3", "epochs has no effect on the pace of training steps"),
        ("checkpoint.keep=7", "checkpoint.keep has no effect on the pace"),
        ("workers", "try: workers: expected KEY=VALUE"),
    ],
)
def test_a_change_without_a_measurable_gain_is_refused(
    capsys: pytest.CaptureFixture[str], change: str, sentence: str
) -> None:
    assert sentence in refused(capsys, DIGITS, change)


def test_what_cannot_be_tried_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    script = tmp_path / "script.toml"
    script.write_text('[script]\ncommand = ["python", "train.py"]\n')
    assert "command of your own" in refused(capsys, script, "data.workers=2")
    assert "a configuration has no diagnosis; give one" in refused(capsys, DIGITS)
    assert "at least 6 blocks" in refused(capsys, DIGITS, "data.workers=2", "--blocks", "3")
    assert "no such run" in refused(capsys, "--runs-dir", tmp_path, "gone", "data.workers=2")


@pytest.mark.slow
def test_the_proposed_change_of_a_run_is_measured_beside_its_prediction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow.toml").write_text(SLOW)
    runs = tmp_path / "runs"
    monkeypatch.setenv("TPUTUI_RUNS", str(runs))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert tputui("run", "slow.toml", "--name", "slow", "--quiet", cwd=tmp_path).code == 0
    shown = tputui("doctor", "slow", cwd=tmp_path)
    assert "measure it: tputui try slow data.workers=" in shown.out
    before = sorted(path.name for path in runs.rglob("*"))
    words = ("try", "slow", "data.workers=3", "--blocks", "6", "--steps", "40", "--json")
    done = tputui(*words, cwd=tmp_path)
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["changes"] == [{"key": "data.workers", "before": 0, "after": 3}]
    # By how much a busy machine shortens the gain is not known.
    assert found["low"] <= found["speedup"] <= found["high"]
    assert found["speedup"] > 1.0
    assert found["rule"] == "input"
    assert found["predicted"] > 1.0
    assert [len(found[side]["blocks"]) for side in ("without", "with")] == [6, 6]
    assert sorted(path.name for path in runs.rglob("*")) == before


@pytest.mark.slow
def test_each_block_can_be_trained_by_a_process_of_its_own(tmp_path: Path) -> None:
    config = tmp_path / "slow.toml"
    config.write_text(SLOW)
    words = ("try", config, "data.prefetch_batches=5", "--blocks", "6", "--steps", "30", "--restart")
    done = tputui(*words, cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert done.code == 0, done.err
    # One in twenty intervals does not contain the truth, so which one it is depends on the machine.
    assert done.out.startswith("data.prefetch_batches=5: ")
    assert "95 % interval" in done.out
    assert done.out.count("in 6 blocks of 30 steps") == 2
    assert "predicted" not in done.out


@pytest.mark.slow
def test_training_that_fails_and_a_time_that_is_over_are_one_sentence(tmp_path: Path) -> None:
    config = tmp_path / "slow.toml"
    config.write_text(SLOW.replace("num_train = 2048", "num_train = 2048\nbreak_at = 3"))
    done = tputui("try", config, "data.workers=2", cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert done.code == 3
    assert "training without the change failed: DatasetError: " in done.err.splitlines()[-1]
    config.write_text(SLOW)
    done = tputui("try", config, "data.workers=2", "--timeout", "1s", cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert done.code == 3
    assert "only 0 blocks of each measured within 1.0 s" in done.err.splitlines()[-1]


@pytest.mark.slow
def test_termination_ends_both_processes(tmp_path: Path) -> None:
    config = tmp_path / "slow.toml"
    config.write_text(SLOW)
    argv = [sys.executable, "-P", "-m", "tputui", "try", str(config), "data.workers=2"]
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)}
    with subprocess.Popen(argv, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any("measuring" in line for line in process.stderr)
        process.terminate()
        assert process.wait(DEADLINE_S) == 130
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not any(b"engine" in words.split(b"\0") and bytes(temporary) in words for words in commands)
    assert not list(temporary.iterdir())
