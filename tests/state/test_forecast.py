"""Predicted memory in every view."""

from __future__ import annotations

import json
from pathlib import Path

from tests.recorded import T0
from tests.text.test_show_page import loaded
from tests.ui.test_panels import drawn
from tputui.telemetry import events as ev
from tputui.text.lines import LineWriter
from tputui.text.show_page import show_text, to_show
from tputui.ui.monitor.memory import MemoryPanel

MIB = 1 << 20
CORE = ev.MemoryForecast(
    total_bytes=413 * MIB,
    parameters_bytes=38 * MIB,
    gradients_bytes=37 * MIB,
    optimizer_bytes=75 * MIB,
    activations_bytes=260 * MIB,
    inputs_bytes=2 * MIB,
    telemetry_bytes=MIB,
    biggest=[ev.ModuleMemory(name="features.2 (Stage)", bytes=120 * MIB)],
    batch_per_core=8,
    precision="fp32",
    rematerialised=False,
    limit_bytes=16 << 30,
    limit="the HBM of a core",
)
SAID = "predicted 413 MiB a core of 16.0 GiB: activations 260 MiB, optimizer 75.0 MiB, parameters 38.0 MiB"


def test_show_lists_parts_and_largest_modules(recorded_run: Path) -> None:
    snapshot = loaded(recorded_run, ev.MemoryPredicted(t=T0 + 4, core=CORE))
    predicted = json.loads(json.dumps(to_show(snapshot)))["memory"]["predicted"]
    assert (predicted["total_bytes"], predicted["activations_bytes"]) == (413 * MIB, 260 * MIB)
    assert predicted["biggest"] == [{"name": "features.2 (Stage)", "bytes": 120 * MIB}]
    page = show_text(snapshot)
    row = next(line for line in page.splitlines() if line.startswith("predicted "))
    assert " ".join(row.split()).startswith(SAID)
    assert "most activations: features.2 (Stage) 120 MiB" in page


def test_the_memory_panel_has_a_row_of_it(recorded_run: Path) -> None:
    snapshot = loaded(recorded_run, ev.MemoryPredicted(t=T0 + 4, core=CORE))
    assert SAID in drawn(MemoryPanel, snapshot, width=140).splitlines()[0]
    assert "predicted 413 MiB a core" in drawn(MemoryPanel, snapshot, width=40).splitlines()[0]


def test_lines_report_the_estimate_once() -> None:
    writer = LineWriter()
    (line,) = writer.lines("worker-0", 0, ev.MemoryPredicted(t=T0, core=CORE))
    assert line.startswith(f"memory: {SAID}")


def test_run_without_estimate_omits_it(recorded_run: Path) -> None:
    snapshot = loaded(recorded_run)
    assert to_show(snapshot)["memory"]["predicted"] is None
    assert "predicted" not in show_text(snapshot)
