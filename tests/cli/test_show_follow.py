"""`tputui show --json --follow`: bounded JSON lines, one per change, until the run has ended."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests import recorded
from tests.cli.helpers import one_sentence, tputui
from tests.deadline import DEADLINE_S
from tests.supervise.harness import Bench
from tputui.cli.main import main
from tputui.state.reducer import RunState
from tputui.state.snapshot_builder import ViewerContext, build_snapshot
from tputui.telemetry import events as ev
from tputui.telemetry import requests
from tputui.text import show_stream
from tputui.text.show_stream import AGES, FIRST_ONLY, NEWEST_MAX

PAGE = Path(__file__).parents[2] / "docs" / "json.md"
STEPS = """
    for step in range(1, 4):
        reporter.emit(ev.ProgressReported(t=time.time(), epoch=1, epoch_step=step, step=step, step_s=0.1,
                                          examples_per_s=1.0, lr=0.1, report_steps=1))
        next_request()
    end("done", 0, step=3)
"""


def test_ended_run_is_one_line_with_the_documented_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = recorded.write_run(tmp_path)
    assert main(["show", str(run_dir), "--json", "--follow"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    shown = json.loads(line)
    documented = re.findall(r"^\| `(\w+)` \|", PAGE.read_text().partition("## Its parts")[0], re.M)
    assert sorted(shown) == sorted(documented)
    assert (shown["version"], shown["state"], shown["steps"]) == (2, "done", 66)
    assert all(len(shown[name]) <= most for name, most in NEWEST_MAX.items())
    assert main(["show", str(run_dir), "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert set(whole) - set(shown) == {"goodput", "labels"}


def test_changes_of_a_live_run_print_lines_until_its_end(bench: Bench) -> None:
    watched = bench.supervise(STEPS)
    command = [sys.executable, "-P", "-m", "tputui", "show", str(watched.run_dir), "--json", "--follow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        lines: list[dict[str, Any]] = []
        for text in follower.stdout:
            lines.append(json.loads(text))
            if lines[-1]["steps"] in (1, 2) and [line["steps"] for line in lines].count(lines[-1]["steps"]) == 1:
                requests.submit(watched.run_dir, "checkpoint", by="test", now=time.time())
            elif lines[-1]["steps"] == 3 and [line["steps"] for line in lines].count(3) == 1:
                requests.submit(watched.run_dir, "stop", by="test", now=time.time())
        assert follower.wait(DEADLINE_S) == 0
    assert {1, 2, 3} <= {line["steps"] for line in lines}
    assert (lines[-1]["state"], lines[-1]["exit_code"]) == ("done", 0)
    assert all(name in lines[0] and name not in line for name in FIRST_ONLY for line in lines[1:])
    compared = [{name: value for name, value in line.items() if name not in AGES} for line in lines[1:]]
    assert all(left != right for left, right in pairwise(compared))


def test_idle_timeout_and_wrong_words(bench: Bench, tmp_path: Path) -> None:
    watched = bench.supervise("    next_request()\n    end('done', 0)")
    idle = tputui("show", watched.run_dir, "--json", "--follow", "--idle-timeout", "1.5")
    assert idle.code == 6
    assert "nothing changed within 1.5 s" in idle.err
    requests.submit(watched.run_dir, "stop", by="test", now=time.time())
    plain = tputui("show", watched.run_dir, "--follow")
    assert plain.code == 2
    assert "--json --follow" in one_sentence(plain)


def test_a_stalled_run_does_not_change_by_the_time_that_it_is_silent() -> None:
    state = RunState()
    for writer, events in (("supervisor-0", recorded.supervisor_events(None)), ("worker-0", recorded.worker_events())):
        for seq, event in enumerate(events):
            if not isinstance(event, ev.TrainingEnded):
                state.apply(writer, seq, event)
    alive = {"supervisor-0": True, "worker-0": True}
    newest = max(each.newest_t or 0.0 for each in state.in_order)
    views = [
        build_snapshot(state, ViewerContext(now=newest + silent_s, run="a", dir="/a", alive=alive))
        for silent_s in (31.0, 32.0, 47.0)
    ]
    assert [view.condition for view in views] == ["stalled"] * 3
    assert views[0].condition_reason != views[1].condition_reason
    first, *later = [show_stream.without_ages(show_stream.stream_object(view, is_first=True)) for view in views]
    assert later == [first, first]
