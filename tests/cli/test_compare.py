"""`tputui compare`: tables, JSON and errors."""

from __future__ import annotations

import json
import math
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests import recorded
from tests.cli.helpers import one_sentence, tputui
from tests.deadline import DEADLINE_S
from tputui.cli.main import main
from tputui.telemetry import code_record, rundir
from tputui.telemetry import events as ev


def write(
    parent: Path, name: str, *, pace: float = 1.0, lr: float = 0.0005, reports: int = 60, batch: float = 64
) -> Path:
    """A recorded run with as many further reports, `pace` times as fast, and a learning rate of its own."""
    manifest = recorded.manifest(name)
    config = {**manifest.config, "optim": {**manifest.config["optim"], "lr": lr}}
    run_dir = rundir.create(parent, msgspec.structs.replace(manifest, config=config))
    worker = recorded.worker_events()
    index = next(index for index, event in enumerate(worker) if isinstance(event, ev.ProgressReported))
    first = worker[index]
    assert isinstance(first, ev.ProgressReported)
    worker[index] = first = msgspec.structs.replace(first, examples_per_s=batch / first.step_s)
    noise = random.Random(name)
    steps_s = [recorded.STEP_S / pace * noise.uniform(0.98, 1.02) for _ in range(reports)]
    more = [
        msgspec.structs.replace(
            first, t=first.t + 0.001 * number, step=first.step + number, step_s=step_s, examples_per_s=batch / step_s
        )
        for number, step_s in enumerate(steps_s, start=1)
    ]
    recorded.write_journal(run_dir / "worker-0.jsonl", [*worker[: index + 1], *more, *worker[-1:]])
    recorded.write_journal(run_dir / "supervisor-0.jsonl", recorded.supervisor_events(worker[-1].t + 0.2, config))
    return run_dir


def test_page_has_verdicts_metrics_and_differences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "slow")
    write(tmp_path, "fast", pace=1.25, lr=0.001)

    assert main(["compare", "slow", "fast", "--runs-dir", str(tmp_path)]) == 0

    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[0].split()[:3] == ["A", "slow", "done"]
    assert any(re.fullmatch(r"B is 2\d(\.\d)? % \+- \d(\.\d)? % faster than A", line) for line in lines)
    assert not any("Student" in line for line in lines), "the method is part of --help"
    assert ["METRIC", "A", "B"] in [line.split() for line in lines]
    (steps,) = [line.split() for line in lines if line.startswith("steady step time ")]
    assert [float(steps[3]), float(steps[5])] == pytest.approx([50, 40], rel=0.02)
    assert ["optim.lr", "0.0005", "*", "0.001"] in [line.split() for line in lines]
    keys = sum(len(value) if isinstance(value, dict) else 1 for value in recorded.CONFIG.values())
    assert f"1 key differs, {keys - 1} are equal (* differs from A)" in lines
    assert all(line == line.rstrip() for line in lines)


def test_step_time_without_examples_is_that_of_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        write(tmp_path, name, batch=math.nan)
    assert main(["compare", "a", "b", "--runs-dir", str(tmp_path)]) == 0
    rows = capsys.readouterr().out.splitlines()
    (steps,) = [line.split() for line in rows if line.startswith("steady step time ")]
    assert [float(steps[3]), float(steps[5])] == pytest.approx([50, 50], rel=0.02)
    assert any("speed of B unknown: the number of examples of a step is not reported" in line for line in rows)


def test_differences_of_the_code_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = write(tmp_path, "one"), write(tmp_path, "two")
    code_record.save(
        one, code_record.CodeRecord(packages={"jax": "0.1.0", "torch": "2.9.0"}, environment={"XLA_FLAGS": "a"})
    )
    assert main(["compare", "one", "two", "--runs-dir", str(tmp_path)]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["code", "recorded", "*", "not", "recorded"] in rows

    code_record.save(two, code_record.CodeRecord(packages={"jax": "0.1.0", "torch": "2.9.1"}, diff="x"))
    assert main(["compare", "one", "two", "--runs-dir", str(tmp_path)]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["packages.torch", "2.9.0", "*", "2.9.1"] in rows
    assert ["environment.XLA_FLAGS", "a", "*", "-"] in rows
    assert not any(row[:1] == ["packages.jax"] for row in rows)


@pytest.mark.parametrize("base", ["fast", "B"])
def test_base_is_given_by_name_or_letter_and_listed_first(
    base: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "slow")
    write(tmp_path, "fast", pace=1.25)

    assert main(["compare", "slow", "fast", "--base", base, "--once", "--runs-dir", str(tmp_path)]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert ["METRIC", "B", "A"] in [line.split() for line in lines]
    assert any(line.startswith("A is 2") and line.endswith("slower than B") for line in lines)


def test_json_has_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dirs = [write(tmp_path, "slow"), write(tmp_path, "fast", pace=1.25), write(tmp_path, "short", reports=2)]

    assert main(["compare", *map(str, dirs), "--json"]) == 0

    printed = json.loads(capsys.readouterr().out)
    assert [(run["label"], run["run"], run["condition"]) for run in printed["runs"]] == [
        ("A", "slow", "done"),
        ("B", "fast", "done"),
        ("C", "short", "done"),
    ]
    none, fast, short = printed["verdicts"]
    assert (printed["base"], none) == (0, None)
    assert fast["ratio"] == pytest.approx(1.25, rel=0.02)
    assert fast["low"] < fast["ratio"] < fast["high"] < 1.4
    assert fast["stands_out"] is True
    assert (short["ratio"], short["short"]) == (None, "too few samples")
    assert printed["runs"][0]["pace"]["step_s"] == pytest.approx(recorded.STEP_S, rel=0.02)
    assert printed["config"]["rows"] == []


def test_damaged_run_is_compared_as_far_as_readable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "whole")
    broken = write(tmp_path, "broken")
    for path in broken.glob("*.jsonl"):
        path.write_bytes(b"garbage")
    (broken / "run.json").write_bytes(b"{")
    broken.rename(tmp_path / "evil\x1b[2Jname")

    assert main(["compare", "whole", str(tmp_path / "evil\x1b[2Jname"), "--runs-dir", str(tmp_path)]) == 0

    out = capsys.readouterr().out
    assert "speed of B unknown: the run cannot be read" in out
    assert "run.json, bytes 0 to 1: cannot be read" in out
    assert "\x1b" not in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["one"], "got 1 run; compare takes 2-8 runs"),
        (["one"] * 9, "got 9 runs; compare takes 2-8 runs"),
        (["one", "./one"], "./one: this run is given twice"),
        (["one", "noe"], "did you mean one?"),
        (["one", "two", "--base", "three"], "--base three: not one of the compared runs"),
        ([], "the following arguments are required: RUN"),
        (["one", "two", "--onec"], 'unknown option "--onec"; did you mean --once?'),
    ],
)
def test_incomparable_runs_are_rejected_in_one_sentence(words: list[str], sentence: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        recorded.write_run(tmp_path, run=name)

    result = tputui("compare", *words, "--runs-dir", ".", cwd=tmp_path)

    assert (result.code, result.out) == (2, "")
    assert sentence in one_sentence(result)


def test_printing_imports_nothing_heavy(tmp_path: Path) -> None:
    for name in ("one", "two"):
        recorded.write_run(tmp_path, run=name)
    code = (
        "import sys; from tputui.cli.main import main; main(sys.argv[1:]); "
        "print(sorted({'torch', 'textual', 'rich', 'numpy'} & set(sys.modules)), file=sys.stderr)"
    )
    argv = [sys.executable, "-P", "-c", code, "compare", "one", "two", "--json", "--runs-dir", str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=DEADLINE_S)
    assert done.stderr.strip() == "[]"


def limited(parent: Path, *words: str, runs: tuple[str, str] = ("before", "after")) -> tuple[int, list[dict[str, Any]]]:
    """The exit code of a comparison with limits, and its results in JSON."""
    done = tputui("--runs-dir", parent, "compare", *runs, "--json", *words)
    return done.code, json.loads(done.out)["limits"]


def test_a_slowdown_beyond_its_limit_and_the_noise_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "before")
    write(tmp_path, "after", pace=0.8)
    words = ["compare", "before", "after", "--runs-dir", str(tmp_path), "--max-slowdown"]

    assert main([*words, "5%"]) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("exceeded")]
    assert re.fullmatch(
        r"exceeded: slowdown of B, at most 5 %: \+2\d\.\d % \(95 % interval \+2\d\.\d to \+2\d\.\d %\)", line
    )
    assert main([*words, "40%"]) == 0
    assert "within: slowdown of B, at most 40 %" in capsys.readouterr().out
    assert main([*words, "25%"]) == 6, "the noise is about 1 %, and the slowdown 25 %"
    assert "it contains the limit, so longer runs are needed" in capsys.readouterr().out
    assert main([*words, "5%", "--base", "after"]) == 0, "the other run is faster"


def test_too_few_reports_decide_no_slowdown(tmp_path: Path) -> None:
    write(tmp_path, "before")
    write(tmp_path, "after", reports=5)
    code, (result,) = limited(tmp_path, "--max-slowdown", "5%")
    assert (code, result["outcome"], result["worse"]) == (6, "undecided", None)
    assert "too few samples" in result["sentence"]


def with_losses(parent: Path, name: str, losses: list[float]) -> None:
    """A recorded run with these validation losses."""
    manifest = recorded.manifest(name)
    run_dir = rundir.create(parent, manifest)
    worker = recorded.worker_events()
    ended = next(event for event in worker if isinstance(event, ev.EpochEnded))
    reading = ended.valid["loss"]
    epochs = [
        msgspec.structs.replace(
            ended,
            t=ended.t + 0.001 * number,
            epoch=number,
            step=ended.step * number,
            valid={"loss": msgspec.structs.replace(reading, avg=loss)},
        )
        for number, loss in enumerate(losses, start=1)
    ]
    index = worker.index(ended)
    recorded.write_journal(run_dir / "worker-0.jsonl", [*worker[:index], *epochs, *worker[-1:]])
    config = manifest.config
    recorded.write_journal(run_dir / "supervisor-0.jsonl", recorded.supervisor_events(worker[-1].t + 0.2, config))


def test_a_metric_is_worse_beyond_the_noise_of_its_curves(tmp_path: Path) -> None:
    noise = random.Random(1)
    curve = [1 + 2 * 0.5**epoch + noise.uniform(-0.002, 0.002) for epoch in range(20)]
    with_losses(tmp_path, "before", curve)
    with_losses(tmp_path, "after", [value * 1.05 for value in curve])
    with_losses(tmp_path, "short", [2.0, 1.5, 1.3])

    code, (result,) = limited(tmp_path, "--max-worse", "valid.loss=1%")
    assert (code, result["outcome"], result["name"]) == (1, "exceeded", "valid.loss")
    assert result["low"] < result["worse"] < result["high"]
    assert result["worse"] == pytest.approx(0.05, abs=0.001)
    assert [limited(tmp_path, "--max-worse", f"valid.loss={share}%")[0] for share in (10, 5)] == [0, 6]
    assert limited(tmp_path, "--max-worse", "valid.loss=1%", "--base", "after")[0] == 0, "the other run is better"
    code, (result,) = limited(tmp_path, "--max-worse", "valid.loss=1%", runs=("before", "short"))
    assert (code, result["outcome"]) == (6, "undecided")
    assert "3 values, and their noise needs 6" in result["sentence"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--max-slowdown", "5"], "'5' is not a percentage such as 5%"),
        (["--max-slowdown", "-5%"], "--max-slowdown"),
        (["--max-worse", "1%"], "'1%' is not METRIC=PERCENT such as valid.loss=1%"),
        (["--max-worse", "valid.los=1%"], "--max-worse valid.los: no run has values of this metric"),
    ],
)
def test_a_limit_that_is_none_is_one_sentence(tmp_path: Path, words: list[str], sentence: str) -> None:
    write(tmp_path, "before")
    write(tmp_path, "after")
    done = tputui("--runs-dir", tmp_path, "compare", "before", "after", *words)
    assert done.code == 2
    assert sentence in one_sentence(done)
