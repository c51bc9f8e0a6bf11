"""What the benchmarks count must hold; what they time is for people to read."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent


def printed(module: str, *arguments: str) -> str:
    """What a benchmark prints."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=900).stdout


def row(text: str, label: str) -> list[float]:
    """The figures of a row of a table."""
    found = re.search(rf"^\s*{label}\s+([\d. ]+)$", text, re.M)
    assert found is not None, text
    return [float(figure) for figure in found.group(1).split()]


@pytest.mark.xla
def test_telemetry_compiles_nothing_and_reads_the_device_once_a_report() -> None:
    text = printed("telemetry_overhead", "--pairs", "6", "--warm-up", "3")
    assert row(text, "compiles") == [0, 0]
    on, off = row(text, "transfers_to_device")
    assert on == off
    reads_on, reads_off = row(text, "transfers_from_device")
    assert reads_on - reads_off >= 1, "the reads of the reports"
    programs_on, programs_off = row(text, "executes")
    assert programs_on == programs_off


@pytest.mark.xla
def test_the_engine_compiles_nothing_more_than_a_loop_by_hand_on_the_same_work() -> None:
    pytest.importorskip("lightning")
    text = printed("engine_speed", "--rounds", "3", "--warm-up", "2", "--epochs", "1", "--case", "8,8")
    assert row(text, "engine: programs compiled after the warm-up") == [0]
    assert row(text, "by hand: programs compiled after the warm-up") == [0]
    assert re.search(r"examples/s, engine / by hand: median [\d.]+", text)
    assert re.search(r"examples/s, engine / Lightning: median [\d.]+", text)


def test_a_million_steps_open_with_every_figure_equal_to_the_raw_values() -> None:
    text = printed("open_run", "--rounds", "1")
    assert "figures that differ from the raw values: 0" in text
    peak = re.search(r"tputui attach .* peak\s+(\d+) MiB", text)
    assert peak is not None
    assert int(peak.group(1)) < 300
