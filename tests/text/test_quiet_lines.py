"""`--quiet`: one line an epoch, or one a minute without epochs; warnings, failures and the end."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import msgspec

from tests import recorded
from tests.cli.helpers import one_sentence, tputui
from tests.state import pod
from tputui.session.session import Session
from tputui.telemetry import events as ev
from tputui.telemetry.logged_values import LoggedColumns, values_logged
from tputui.text.lines import QuietWriter, follow

SCRIPT = r"""
import tputui
with tputui.start(total_steps=6, epochs=2) as run:
    for number in (1, 2):
        with run.epoch(number):
            for step in range(3):
                run.step(loss=1.0 / number, examples=4)
                print("\x1b[31mred\x1b[0m 10%|#\r 20%|##\r\x1b[2K\x1b]0;title\x07done", flush=True)
            run.valid(loss=0.5 / number)
"""


def quiet(run_dir: Path) -> list[str]:
    """The lines of a replay without waiting."""
    session, out = Session.replay(run_dir, speed=1e9), io.StringIO()
    follow(session, out, as_json=False, writer=QuietWriter(), wait=lambda seconds: None)
    session.close()
    return out.getvalue().splitlines()


def run_of(tmp_path: Path, name: str, events: Iterable[ev.Event]) -> Path:
    """A run whose values are these events."""
    run_dir = recorded.write_run(tmp_path)
    (run_dir / "worker-0.jsonl").unlink()
    recorded.write_journal(run_dir / f"{name}.jsonl", events)
    return run_dir


def test_a_run_with_epochs_has_a_line_for_each(tmp_path: Path) -> None:
    assert quiet(recorded.write_run(tmp_path)) == [
        "run digits-1 started: tputui run digits.toml",
        "epoch 1/3  step 22/66  loss 1.4089; validation loss 0.4000, accuracy 0.9000  1.5 s  best",
        "epoch 2/3  step 44/66  loss 0.5023; validation loss 0.2000, accuracy 0.9500  1.5 s  best",
        "epoch 3/3  step 66/66  loss 0.2002; validation loss 0.1333, accuracy 0.9667  1.5 s  best",
        "training done at step 66: 3 epochs trained",
        "run done: 3 epochs trained",
    ]


def test_of_many_averages_a_line_has_the_loss_the_monitored_one_and_the_first(tmp_path: Path) -> None:
    names = [f"norm_{number}" for number in range(58)] + ["accuracy", "loss"]
    many = {name: recorded.reading([0.25]) for name in names}
    events = [
        msgspec.structs.replace(event, train=many, valid=many, monitor="accuracy")
        if isinstance(event, ev.EpochEnded)
        else event
        for event in recorded.worker_events()
    ]

    first = "accuracy 0.2500, loss 0.2500, norm_0 0.2500, norm_1 0.2500, norm_2 0.2500, norm_3 0.2500 +54"
    assert f"  {first}; validation {first}  " in quiet(run_of(tmp_path, "worker-0", events))[1]


def test_warnings_failures_and_the_first_bad_loss_are_printed(tmp_path: Path) -> None:
    events = []
    for event in recorded.worker_events():
        events.append(event)
        if isinstance(event, ev.StepsRecorded):
            rows = [[float("nan")] * recorded.NUM_CORES] * event.n
            events[-1] = recorded.steps_recorded(event.t, event.first, rows)
    failure = ev.FailureRaised(
        t=events[-1].t, error="ValueError", message="bad row", traceback="one\ntwo", phase="executing", step=66
    )
    warned = ev.WarningRaised(t=failure.t, text="the disk is slow")
    lines = quiet(run_of(tmp_path, "worker-0", [*events[:-1], warned, failure, events[-1]]))
    assert [line for line in lines if line.startswith("non-finite")] == [
        "non-finite loss: 88 values in steps 1 to 11"
    ], "once, not with every report"
    assert "warning: the disk is slow" in lines
    assert {"error: training failed in step 66 while executing: ValueError: bad row", "    one", "    two"} <= {*lines}


def test_bad_losses_of_one_host_are_printed_once_beside_those_of_healthy_hosts() -> None:
    healthy, bad = ([*pod.started(host, 2), *pod.trained(host, recorded.T0 + 2, 1, 40)] for host in (0, 1))
    for at, event in enumerate(bad):
        if isinstance(event, ev.StepsRecorded):
            bad[at] = recorded.steps_recorded(event.t, event.first, [[float("nan")] * pod.CORES] * event.n)
    numbered = [("worker-0", *each) for each in enumerate(healthy)] + [("worker-1", *each) for each in enumerate(bad)]
    writer = QuietWriter()
    lines = [line for each in sorted(numbered, key=lambda one: one[2].t) for line in writer.lines(*each)]
    assert [line for line in lines if line.startswith("non-finite")] == ["non-finite loss: 20 values in steps 1 to 10"]


def test_a_run_without_epochs_has_a_line_a_minute_and_its_last_values(tmp_path: Path) -> None:
    t = recorded.T0
    events: list[ev.Event] = [recorded.opened(t, "logs")]
    for second in range(200):
        columns = LoggedColumns([1.0 / (second + 1)], [second + 1], [t + second], None)
        events.append(values_logged(t + second, "loss", "train", "loss", "log.csv", columns))
    lines = quiet(run_of(tmp_path, "logs-0", events))
    steps = [int(found.group(1)) for line in lines if (found := re.match(r"step (\d+) ", line))]
    assert steps == [1, 61, 121, 181, 200]


def test_json_and_quiet_are_refused_before_a_run_is_created(tmp_path: Path) -> None:
    for words in (
        ["run", "--quiet", "--json", "--", "true"],
        ["replay", recorded.write_run(tmp_path), "--quiet", "--json"],
    ):
        result = tputui(*words, cwd=tmp_path, TPUTUI_RUNS=str(tmp_path / "runs"))
        assert result.code == 2
        assert "give one of them" in one_sentence(result)
    assert not (tmp_path / "runs").exists()


def test_output_off_a_terminal_is_lines_without_escapes(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    run = partial(tputui, cwd=tmp_path, TPUTUI_RUNS=str(tmp_path / "runs"), TERM="xterm-256color", FORCE_COLOR="1")
    result = run("run", "--name", "a", "--no-ui", "--", sys.executable, "train.py")
    assert result.code == 0, result.err
    assert not re.search(r"[^\n -~\u00a0-\U0010ffff]", result.out)
    assert result.out.count("done") >= 6
    result = run("replay", "a", "--quiet")
    lines = result.out.splitlines()
    assert [line for line in lines if "red" in line] == []
    assert [re.sub(r"  [\d.]+ m?s\b", "", line) for line in lines if line.startswith("epoch")] == [
        "epoch 1/2  step 3/6  loss 1.0000; validation loss 0.5000  best",
        "epoch 2/2  step 6/6  loss 0.5000; validation loss 0.2500  best",
    ]
    again = run("replay", "a", "--quiet")
    assert again.out == result.out
