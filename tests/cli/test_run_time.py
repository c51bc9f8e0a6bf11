"""A moment of a run as a person writes it, and the whole screen as it was then, printed."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import pytest

from tests.cli.helpers import one_sentence, tputui
from tests.recorded import T0, losses
from tputui.cli.arguments import parse_time, unix_time
from tputui.cli.console import CommandError
from tputui.session.session import load_at
from tputui.telemetry import requests


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("1.5m", 90),
        ("1h2m3s", 3_723),
        ("2d", 172_800),
        ("01:12:30", 4_350),
        ("0:07.5", 7.5),
        ("step:30", 7.25),
        ("step:0,012", 5.8),
        ("step:1", 5.25),
        ("epoch:3", 8.7),
        ("2025-10-09T08:53:27Z", 7),
        ("2025-10-09 10:53:27.5+02:00", 7.5),
        ("end", 11),
    ],
)
def test_moment_is_parsed_in_every_form(recorded_run: Path, text: str, seconds: float) -> None:
    wanted = parse_time(text)
    if wanted.kind == "since":
        assert wanted.value == seconds
    else:
        assert unix_time(wanted, recorded_run) == pytest.approx(T0 + seconds, abs=1e-3)


def test_time_of_day_refers_to_the_first_day_of_the_run(recorded_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    try:
        assert unix_time(parse_time("T08:53:27"), recorded_run) == T0 + 7
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("text", ["", "soon", "12", "1:75", "step:", "step:0", "epoch:x", "T25:00", "2025-13-01", "3y"])
def test_invalid_moment_is_rejected(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        parse_time(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("99:00:00", "--at 99:00:00 is after the end"),
        ("2020-01-01", "--at 2020-01-01 is before the start"),
        ("step:67", "--at step:67: the run has steps 1 to 66"),
        ("epoch:4", "--at epoch:4: the run has epochs 1 to 3"),
    ],
)
def test_moment_outside_the_run_is_reported(recorded_run: Path, text: str, why: str) -> None:
    with pytest.raises(CommandError, match=why):
        unix_time(parse_time(text), recorded_run)


def test_moment_has_nothing_from_later(recorded_run: Path) -> None:
    requests.submit(recorded_run, "stop", by="test", now=T0 + 9)
    snapshot = load_at(recorded_run, T0 + 7.5)
    assert (snapshot.now, snapshot.condition, snapshot.steps, snapshot.requests) == (T0 + 7.5, "running", 33, [])
    assert max(line.t for line in snapshot.logs) <= T0 + 7.5
    assert max(mark.t for mark in snapshot.marks) <= T0 + 7.5


def test_the_screen_of_a_moment_is_printed_whole(recorded_run: Path) -> None:
    result = tputui("replay", recorded_run, "--at", "7.5s", "--once", TZ="UTC")
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0] == "moment       2025-10-09 08:53:27  (7.5 s since the start)"
    for words in ("progress     epoch 2/3  step 33/66", "core 7 ", "loss of all cores", "events", "log", "*"):
        assert words in result.out
    assert "epoch 2 began" in result.out
    assert "epoch 3 began" not in result.out
    assert result.out.isascii()


def test_the_snapshot_of_a_moment_is_one_object(recorded_run: Path) -> None:
    result = tputui("replay", recorded_run, "--at", "step:33", "--once", "--json")
    printed = json.loads(result.out)
    assert (result.code, printed["steps"], printed["state"]) == (0, 33, "running")
    assert printed["core_columns"][-1]["means"] == losses(33)
    assert (len(printed["loss"]), printed["logs"] != [], printed["throughput"]["history"] != []) == (33, True, True)


@pytest.mark.parametrize("words", [["--at", "soon", "--once"], ["--at", "1h", "--once"], ["--at", "5s", "--no-ui"]])
def test_invalid_moment_exits_2_with_one_sentence(recorded_run: Path, words: list[str]) -> None:
    result = tputui("replay", recorded_run, *words)
    assert (result.code, result.out) == (2, "")
    assert "--at" in one_sentence(result)
