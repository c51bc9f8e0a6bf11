"""Counts printed by the benchmarks; their times are not asserted."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.deadline import DEADLINE_S

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent


def printed(module: str, *arguments: str) -> str:
    """Returns the output of a benchmark."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=DEADLINE_S).stdout


def row(text: str, label: str) -> list[float]:
    """Returns the numbers of a row of a table."""
    found = re.search(rf"^\s*{label}\s+([\d. ]+)$", text, re.M)
    assert found is not None, text
    return [float(figure) for figure in found.group(1).split()]


@pytest.mark.xla
def test_telemetry_compiles_nothing_reads_once_per_report() -> None:
    text = printed("telemetry_overhead", "--pairs", "2", "--warm-up", "2")
    assert row(text, "compiles") == [0, 0]
    on, off = row(text, "transfers_to_device")
    assert on == off
    reads_on, reads_off = row(text, "transfers_from_device")
    assert reads_on - reads_off >= 1, "the reads of the reports"
    programs_on, programs_off = row(text, "executes")
    assert programs_on == programs_off


# `find_spec` instead of an import: importing lightning changes the environment.
@pytest.mark.skipif(find_spec("lightning") is None, reason="compares with lightning")
@pytest.mark.xla
def test_engine_compiles_no_more_than_a_plain_loop() -> None:
    text = printed("engine_speed", "--rounds", "2", "--warm-up", "1", "--epochs", "1", "--case", "8,8")
    assert row(text, "engine: programs compiled after the warm-up") == [0]
    assert row(text, "by hand: programs compiled after the warm-up") == [0]
    assert re.search(r"examples/s, engine / by hand: median [\d.]+", text)
    assert re.search(r"examples/s, engine / Lightning: median [\d.]+", text)


@pytest.mark.xla
def test_a_schedule_down_to_zero_compiles_nothing_after_warm_up() -> None:
    text = printed("many_steps", "--steps", "200", "--case", "spmd-sgd-step")
    assert re.search(r"^spmd-sgd-step +200 +[1-9]\d* +0 ", text, re.M)


needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="these benchmarks need tmux")


@needs_tmux
def test_million_step_run_opens_with_exact_values() -> None:
    text = printed("screen_open", "--rounds", "1", "--longest", "0", "--peers", "nowhere")
    assert "figures that differ from the raw values: 0" in text
    assert "wandb leet is left out" in text
    peak = re.search(r"1,000,000 steps: peak (\d+) MiB", text)
    assert peak is not None
    assert int(peak.group(1)) < 300


@needs_tmux
def test_frames_are_counted_and_missing_peer_is_reported() -> None:
    text = printed("screen_draw", "--rounds", "1", "--seconds", "3", "--peers", "nowhere")
    assert "DataTable + textual-plotext is left out" in text
    frames = re.search(r"tputui, the whole monitor .* ([\d.]+) frames/s", text)
    assert frames is not None
    assert 0 < float(frames.group(1)) <= 11, "at most ten frames a second for ten reports a second"


@needs_tmux
@pytest.mark.parametrize("cores", [8, 2048])
def test_keys_are_answered_during_an_event_flood(cores: int) -> None:
    text = printed("screen_flood", "--rounds", "1", "--seconds", "3", "--case", f"{cores},1000000")
    assert re.search(rf"{cores:,} cores, 1,000,000 events/s( +[\d.,]+){{7}}", text), text
    assert "keys answered: 12 of 12" in text


@needs_tmux
def test_every_event_appears_on_screen() -> None:
    assert re.match(r"5 events: on screen after ", printed("freshness", "--events", "5"))
