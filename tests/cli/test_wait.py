"""`tputui wait`: the end of a run, conditions and timeouts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import recorded
from tests.cli.helpers import one_sentence, tputui
from tests.supervise.harness import Bench
from tputui.cli.main import main

STEPS = """
    reporter.emit(ev.ProgressReported(t=time.time(), epoch=1, epoch_step=7, step=7, step_s=0.1, examples_per_s=1.0,
                                      lr=0.1, report_steps=1))
    request = next_request()
    reporter.emit(ev.RequestApplied(t=time.time(), request=request.id, kind=request.kind, step=7))
    end("stopped", 4, reason="stopped on request")
"""


def test_ended_run_gives_its_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = recorded.write_run(tmp_path)
    assert main(["wait", str(run_dir)]) == 0
    assert capsys.readouterr().out == f"{run_dir.name} done, step 66\n"


def test_running_run_is_awaited_until_its_end(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    watched = bench.supervise(STEPS)
    run_dir = str(watched.run_dir)
    assert main(["wait", run_dir, "--until", "step >= 7 and not ended"]) == 0
    assert main(["wait", run_dir, "--timeout", "0.2"]) == 6
    assert main(["wait", run_dir, "--until", "done", "--timeout", "0.1s", "--json"]) == 6
    assert main(["stop", run_dir]) == 0
    assert main(["wait", run_dir]) == 4
    out = capsys.readouterr().out.splitlines()
    assert out[0] == f"{watched.run_dir.name} running, step 7: step >= 7 and not ended"
    assert out[1].startswith(f"{watched.run_dir.name} running, step 7 after 0.20 s")
    assert out[-1] == f"{watched.run_dir.name} stopped, step 7"


def test_condition_that_can_no_longer_hold_exits_6(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = recorded.write_run(tmp_path)
    assert main(["wait", str(run_dir), "--until", "valid.loss < 100"]) == 0
    assert main(["wait", str(run_dir), "--until", "failed", "--json"]) == 6
    answer = json.loads(capsys.readouterr().out.partition("\n")[2])
    assert (answer["state"], answer["until"], answer["holds"]) == ("done", "failed", False)


def test_metrics_that_the_run_never_had_are_named_at_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = recorded.write_run(tmp_path)
    assert main(["wait", str(run_dir), "--until", "valid.los < 3"]) == 6
    out = capsys.readouterr().out
    assert out.startswith(
        f"{run_dir.name} done, step 66: not valid.los < 3 (no metric valid.los (did you mean valid.loss?)"
    )
    assert "there are train.loss, valid.loss" in out
    assert main(["wait", str(run_dir), "--until", "valid.los < 3 or done", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["missing"].startswith("no metric valid.los (did")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--until", "loss < low"], '"loss" is compared with "low", which is not a number'),
        (["--timeout", "soon"], "invalid time 'soon'; write seconds, or a number with a unit: 90s, 10m, 2h"),
    ],
)
def test_invalid_arguments_are_one_sentence(tmp_path: Path, words: list[str], sentence: str) -> None:
    answer = tputui("wait", recorded.write_run(tmp_path), *words)
    assert answer.code == 2
    assert sentence in one_sentence(answer)
