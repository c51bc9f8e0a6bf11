"""Utilisation of the cores: the operations of a step against the published peak of the chips, in every view."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.diagnosis.runs import reports, snapshot_of, topology
from tests.recorded import T0
from tests.ui.test_panels import drawn
from tputui import environment
from tputui.state.snapshot import FlopsView, Snapshot
from tputui.telemetry import events as ev
from tputui.text.show_page import show_text, to_show
from tputui.ui.monitor.pace import PacePanel


def run(flops: float | None, device: str = "TPU", chip: str | None = "TPU v3", reason: str | None = None) -> Snapshot:
    """A run of 8 cores with 100 ms a step."""
    events = [replace(topology(device), chip=chip), ev.FlopsCounted(t=T0, flops_per_step=flops, reason=reason)]
    return snapshot_of({"worker-0": [*events, *reports()]})


def view(snapshot: Snapshot) -> FlopsView:
    assert snapshot.flops is not None
    return snapshot.flops


def test_mfu_is_a_share_of_the_peak_of_all_cores() -> None:
    snapshot = run(0.25 * 0.1 * 8 * 61.5e12)
    assert view(snapshot).peak_flops_per_s == 8 * 61.5e12
    assert view(snapshot).mfu == pytest.approx(0.25, rel=2e-3)
    assert json.loads(json.dumps(to_show(snapshot)))["flops"]["mfu"] == view(snapshot).mfu
    assert "flops        12.3 TFLOP/step  MFU 25 % of 492 TFLOP/s" in show_text(snapshot)
    assert "flops   12.3 TFLOP/step  MFU 25 % of 492 TFLOP/s" in drawn(PacePanel, snapshot, width=60)


@pytest.mark.parametrize(
    ("chip", "teraflops"), [("TPU v2", 180), ("TPU v4", 2200), ("TPU v5e", 1576), ("TPU v5p", 3672), ("TPU v6e", 7344)]
)
def test_peaks_are_per_core_of_the_runtime(chip: str, teraflops: int) -> None:
    assert view(run(1e12, chip=chip)).peak_flops_per_s == teraflops * 1e12


@pytest.mark.parametrize(
    ("device", "chip", "reason"),
    [
        ("CPU", None, "no published peak for a CPU device"),
        ("unknown", None, "the device is not known"),
        ("TPU", None, "the kind of TPU is not known"),
        ("TPU", "TPU v2 or v3", "no published peak for TPU v2 or v3"),
    ],
)
def test_without_a_peak_the_reason_is_shown(device: str, chip: str | None, reason: str) -> None:
    snapshot = run(7.7e6, device, chip)
    assert (view(snapshot).mfu, view(snapshot).reason) == (None, reason)
    assert f"7.7 MFLOP/step  MFU not known: {reason}" in show_text(snapshot)
    assert "7.7 MFLOP/step" in drawn(PacePanel, snapshot, width=24)


def test_uncounted_operations_have_a_reason() -> None:
    snapshot = run(None, reason="the number of operations of aten.x is not known")
    assert view(snapshot).mfu is None
    assert "not known: the number of operations of aten.x is not known" in show_text(snapshot)
    assert view(run(float("inf"))).flops_per_step is None
    assert view(run(1e300, chip="TPU v4")).mfu is not None


def test_v2_and_v3_are_distinguished_by_their_subsystem(tmp_path: Path) -> None:
    for subsystem, name in (("0x004e", "TPU v2"), ("0x004f", "TPU v3"), (None, "TPU v2 or v3")):
        device = tmp_path / name / "0000:00:01.0"
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x1ae0\n")
        (device / "device").write_text("0x0027\n")
        if subsystem:
            (device / "subsystem_device").write_text(f"{subsystem}\n")
        assert environment.chip_name(tmp_path / name) == name
