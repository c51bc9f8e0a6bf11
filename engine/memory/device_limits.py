"""How much memory a core has, as far as it is known without opening a device. Must not import torch."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import psutil

from engine.process.hardware import Machine
from tputui.tpu_hardware import GOOGLE, PCI_DEVICES

GIB = 1 << 30
HBM_PER_CORE = {
    ("0x0027", "0x004e"): 8 * GIB,  # v2
    ("0x0027", "0x004f"): 16 * GIB,  # v3
    ("0x005e", None): 32 * GIB,  # v4
    ("0x0062", None): 95 * GIB,  # v5p
    ("0x0063", None): 16 * GIB,  # v5e
    ("0x006f", None): 32 * GIB,  # v6e
    ("0x0076", None): 96 * GIB,  # v7x: 192 a chip of two cores
}
"""Bytes of a core by PCI device id, and by the subsystem's where that tells two chips apart."""


class MemoryLimit(NamedTuple):
    """What a core may use."""

    bytes: int | None
    """None where it is not known."""
    what: str
    """What the figure is, or why there is none."""


def of_core(machine: Machine, num_cores: int, pci_devices: Path = PCI_DEVICES) -> MemoryLimit:
    """What one core has: its HBM, or its share of the host's free memory, which virtual cores have between them."""
    if machine.device == "CPU":
        free = psutil.virtual_memory().available
        return MemoryLimit(
            free // num_cores, f"a core's share of this host's free memory, {num_cores} cores sharing it"
        )
    for path in sorted(pci_devices.glob("*/vendor")):
        device, subsystem = _identity(path.parent)
        hbm = HBM_PER_CORE.get((device, subsystem)) or HBM_PER_CORE.get((device, None))
        if hbm is not None:
            return MemoryLimit(hbm, "the HBM of a core")
    return MemoryLimit(None, "this kind of chip is not known, and so its memory is not")


def _identity(directory: Path) -> tuple[str, str]:
    """Device and subsystem id of a TPU chip; empty for anything else."""
    try:
        if int((directory / "vendor").read_text(), 16) != GOOGLE:
            return "", ""
        return (directory / "device").read_text().strip(), (directory / "subsystem_device").read_text().strip()
    except (OSError, ValueError):
        return "", ""
