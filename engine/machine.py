"""Which cores this machine has, found without opening a device, and the environment that opens the right ones.

Torch-free: the strict check asks it before anything starts. Must not touch `os.environ`; the worker applies what
`environment` returns before it imports the runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from engine.errors import Problem
from tputui.config import RunConfig

METRICS_SAMPLES = "8"
"""Samples that the runtime keeps of each metric. Only totals are read, and every read copies the samples too."""
PCI_DEVICES = Path("/sys/bus/pci/devices")
GOOGLE_VENDOR = "0x1ae0"
CORES_PER_CHIP = {
    "0x0027": 2,  # v2, v3
    "0x005e": 1,  # v4
    "0x0062": 1,  # v5p
    "0x0063": 1,  # v5e
    "0x006f": 1,  # v6e
    "0x0076": 2,  # v7x
}
"""Devices that the runtime offers for a chip, by PCI device id."""


class Machine(NamedTuple):
    """What there is to train on."""

    device: str
    """`TPU` or `CPU`."""
    chips: int
    """TPU chips; 0 without."""
    cores_per_chip: int
    """Cores of a chip; 0 without."""
    reason: str | None
    """Why it is not a TPU, where it is not one."""

    @property
    def tpu_cores(self) -> int:
        """TPU cores of this host."""
        return self.chips * self.cores_per_chip


def find(environ: Mapping[str, str], pci_devices: Path = PCI_DEVICES) -> Machine:
    """Counts the TPU chips on the PCI bus; `PJRT_DEVICE=CPU` in the environment turns them down."""
    wanted = environ.get("PJRT_DEVICE", "").upper()
    if wanted == "CPU":
        return Machine("CPU", 0, 0, "PJRT_DEVICE=CPU is set in the environment")
    chips = [cores for path in sorted(pci_devices.glob("*/vendor")) if (cores := _cores_of_chip(path.parent))]
    if chips:
        return Machine("TPU", len(chips), chips[0], None)
    return Machine("CPU", 0, 0, "no TPU chip on the PCI bus of this host")


def environment(config: RunConfig, machine: Machine) -> dict[str, str]:
    """Variables that must be set before the runtime is imported."""
    one = config.num_cores == 1
    common = {"TF_CPP_MIN_LOG_LEVEL": "2", "XLA_METRICS_SAMPLES": METRICS_SAMPLES}
    if machine.device == "CPU":
        cores = config.device.virtual_cores if one else config.num_cores // num_processes(config, machine)
        return {"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": str(cores), **common}
    variables = {"PJRT_DEVICE": "TPU", **common}
    if one:
        chip = config.core_ids[0] // machine.cores_per_chip
        variables |= {"TPU_PROCESS_BOUNDS": "1,1,1", "TPU_VISIBLE_CHIPS": str(chip)}
        variables |= {"TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1"}
    return variables


def num_processes(config: RunConfig, machine: Machine) -> int:
    """How many processes train: one, or under `replica` one for each core, on a TPU one for each chip."""
    if config.num_cores == 1 or config.device.strategy != "replica":
        return 1
    return machine.chips if machine.device == "TPU" else config.num_cores


def device_index(config: RunConfig, machine: Machine) -> int:
    """Index, among the devices that the process sees, of the core of a run on one core."""
    core = config.core_ids[0]
    return core % machine.cores_per_chip if machine.device == "TPU" else core


def core_problems(config: RunConfig, machine: Machine) -> list[Problem]:
    """Whether the machine has the cores that the configuration names."""
    cores = config.device.cores
    there = machine.tpu_cores or config.device.virtual_cores
    what = "TPU cores" if machine.device == "TPU" else "virtual cores (device.virtual_cores)"
    if isinstance(cores, list):
        if cores[0] < there:
            return []
        message = f"{cores} names a core that is not there: this machine has {there} {what}, 0 to {there - 1}"
    elif cores > there:
        message = f"{cores} is more than the {there} {what} of this machine"
    elif machine.device == "TPU" and cores not in (1, there):
        drives = "a process on every chip drives" if config.device.strategy == "replica" else "one process drives"
        message = f"{cores} cannot be had: {drives} all {there} {what} or one; write {there}, 1 or [k]"
    else:
        return []
    return [Problem("device.cores", message)]


def _cores_of_chip(directory: Path) -> int:
    try:
        if (directory / "vendor").read_text().strip() != GOOGLE_VENDOR:
            return 0
        return CORES_PER_CHIP.get((directory / "device").read_text().strip(), 0)
    except OSError:
        return 0
