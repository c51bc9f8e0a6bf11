"""What this machine is able to train on, found without importing torch.

Shared by `run`, which refuses in one sentence, and `doctor`, which tells everything. Reads package metadata, /proc,
/dev and the PCI bus; opens no device.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from tputui import tpu_hardware
from tputui.tpu_hardware import Chips
from tputui.versions import version_problem

ROOT = Path("/")


class Holder(NamedTuple):
    """A process that has a device file open."""

    device: str
    pid: int
    command: str


class Devices(NamedTuple):
    """The TPU chips of this host and who holds them."""

    chips: Chips
    """The chips on the PCI bus."""
    files: list[str]
    """Device files of TPU chips."""
    holders: list[Holder]
    num_hidden: int
    """Processes whose open files may not be looked at."""


def installed(package: str) -> str | None:
    """Version of an installed package; None where there is none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def environment_problem(environ: Mapping[str, str], root: Path = ROOT) -> str | None:
    """Why a run cannot start on this machine, in one sentence; None where it can."""
    problem = version_problem(installed("torch"), installed("torch_xla"))
    if problem is not None:
        return problem
    if environ.get("PJRT_DEVICE", "").upper() == "CPU":
        return None
    devices = find_devices(root)
    return taken_sentence(devices.holders[0]) if devices.chips.known and devices.holders else None


def taken_sentence(holder: Holder) -> str:
    """Says who holds a device."""
    return (
        f"{holder.device} is held by process {holder.pid} ({holder.command}); only one process may hold a TPU: wait "
        f"for it, end it with `kill {holder.pid}`, or train on the CPU with PJRT_DEVICE=CPU"
    )


def find_devices(root: Path = ROOT) -> Devices:
    """The TPU chips of this host."""
    files = _device_files(root / "dev")
    holders, num_hidden = _find_holders(root / "proc", files) if files else ([], 0)
    return Devices(tpu_hardware.chips(root / "sys/bus/pci/devices"), files, holders, num_hidden)


def _device_files(dev: Path) -> list[str]:
    """`/dev/accelN` of v2 to v4 and `/dev/vfio/N` of later chips, as processes name them."""
    accel = [f"/dev/{path.name}" for path in dev.glob("accel[0-9]*")]
    vfio = [f"/dev/vfio/{path.name}" for path in (dev / "vfio").glob("[0-9]*")]
    return sorted(accel) + sorted(vfio)


def _find_holders(proc: Path, files: list[str]) -> tuple[list[Holder], int]:
    """Other processes that have one of the files open, and how many would not tell."""
    wanted, holders, num_hidden = set(files), [], 0
    for entry in sorted(proc.glob("[0-9]*"), key=lambda path: int(path.name)):
        pid = int(entry.name)
        try:
            links = [os.readlink(link) for link in (entry / "fd").iterdir()] if pid != os.getpid() else []
        except PermissionError:
            num_hidden += 1
            continue
        except OSError:
            continue
        holders += [Holder(device, pid, _command(entry)) for device in sorted(wanted.intersection(links))]
    return holders, num_hidden


def _command(entry: Path) -> str:
    try:
        return (entry / "comm").read_text().strip()
    except OSError:
        return "?"
