"""What this machine can train on: versions of torch, TPU chips, and the processes that hold them.

Used by the engine, by the commands that train and by `tputui doctor`. Reads package metadata, /proc, /dev and the PCI
bus; imports no torch and opens no device.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/")
SERIES = "2.9"
INSTALL = "pip install 'tputui[xla]'"
GOOGLE = 0x1AE0
"""PCI vendor id."""
PCI_DEVICES = Path("/sys/bus/pci/devices")
DEV = Path("/dev")


class Kind(NamedTuple):
    name: str
    cores: int
    """Devices per chip in the runtime. The two TensorCores of a v4 or v5p chip are one device."""


KINDS = {
    0x0027: Kind("TPU v2 or v3", 2),
    0x005E: Kind("TPU v4", 1),
    0x0062: Kind("TPU v5p", 1),
    0x0063: Kind("TPU v5e", 1),
    0x006F: Kind("TPU v6e", 1),
    0x0076: Kind("TPU v7x", 2),
}
"""By PCI device id."""
_SUBSYSTEM_KINDS = {(0x0027, 0x004E): Kind("TPU v2", 2), (0x0027, 0x004F): Kind("TPU v3", 2)}
"""By PCI device and subsystem id, for chips with the same device id."""

_OTHER_CLASSES = (0x01, 0x02, 0x03, 0x06, 0x08, 0x0C)
"""PCI base classes of Google's other cloud devices: disks, network cards, displays, bridges, buses."""
_VARIABLES = (
    "TPU_NAME",
    "TPU_ACCELERATOR_TYPE",
    "TPU_WORKER_ID",
    "TPU_WORKER_HOSTNAMES",
    "TPU_TOPOLOGY",
    "TPU_CHIPS_PER_HOST_BOUNDS",
    "TPU_HOST_BOUNDS",
    "TPU_VISIBLE_CHIPS",
    "TPU_PROCESS_ADDRESSES",
    "COLAB_TPU_ADDR",
)
"""Environment variables that TPU hosts set."""


class Chips(NamedTuple):
    """The TPU chips on the PCI bus."""

    known: tuple[Kind, ...]
    """The kind of each chip."""
    unknown: tuple[str, ...]
    """Google devices of an unknown type, as `1ae0:0099`."""

    @property
    def summary(self) -> str:
        """`4 x TPU v4`; empty if there is no known chip."""
        return ", ".join(f"{self.known.count(kind)} x {kind.name}" for kind in dict.fromkeys(self.known))


def pci_chips(pci_devices: Path = PCI_DEVICES) -> Chips:
    """Scans the PCI bus. Unreadable devices are left out."""
    kinds: list[Kind] = []
    unknown: list[str] = []
    for device in _google_devices(pci_devices):
        number = _number(device / "device")
        if number is None:
            continue
        if number in KINDS:
            kind = _SUBSYSTEM_KINDS.get((number, _number(device / "subsystem_device") or 0))
            kinds.append(kind or KINDS[number])
        elif ((_number(device / "class") or 0) >> 16) not in _OTHER_CLASSES:
            unknown.append(f"{GOOGLE:04x}:{number:04x}")
    return Chips(tuple(kinds), tuple(unknown))


def chip_name(pci_devices: Path = PCI_DEVICES) -> str | None:
    """The kind of the TPU chips of this host, as `TPU v3`; None without chips, and if there are several kinds."""
    kinds = set(pci_chips(pci_devices).known)
    return kinds.pop().name if len(kinds) == 1 else None


def tpu_signs(chips: Chips, environ: Mapping[str, str], dev: Path = DEV, *, variables: bool = True) -> list[str]:
    """Signs of a TPU other than known chips: devices, device files and, with `variables`, environment variables."""
    devices = [f"PCI device {name}" for name in dict.fromkeys(chips.unknown)]
    # Only the TPU driver creates /dev/accelN; others use /dev/accel/accelN.
    files = [str(Path("/dev", path.name)) for path in sorted(dev.glob("accel[0-9]*")) if not path.is_dir()]
    given = [f"{name} is set" for name in _VARIABLES if environ.get(name)]
    if environ.get("PJRT_DEVICE", "").upper() == "TPU":
        given.insert(0, "PJRT_DEVICE=TPU is set")
    return devices + files[:1] + (given if variables else [])


def _google_devices(pci_devices: Path) -> Iterator[Path]:
    try:
        devices = sorted(pci_devices.iterdir())
    except OSError:
        return
    yield from (device for device in devices if _number(device / "vendor") == GOOGLE)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(), 16)
    except (OSError, ValueError):
        return None


class Holder(NamedTuple):
    """A process that has a device file open."""

    device: str
    pid: int
    command: str


class Devices(NamedTuple):
    """The TPU chips of this host and the processes that use them."""

    chips: Chips
    """The chips on the PCI bus."""
    files: list[str]
    """Device files of TPU chips."""
    holders: list[Holder]
    num_hidden: int
    """Number of processes whose open files cannot be read."""


def installed(package: str) -> str | None:
    """Version of a package; None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def launch_problem() -> str | None:
    """Why this system cannot launch and supervise runs, and what to do, in one sentence; None if it can."""
    # The supervisor finds the processes of a run, and their threads and files, in /proc.
    if sys.platform == "linux" and os.path.exists("/proc/self/stat"):
        return None
    return (
        "this machine can list, watch, replay and compare runs, but launching needs Linux: launch on the TPU VM, by "
        "`ssh HOST` and `tputui run` there, and watch from here with `tputui attach ssh://HOST/RUN`"
    )


def environment_problem(environ: Mapping[str, str], root: Path = ROOT) -> str | None:
    """Why a run cannot start on this machine, in one sentence; None if it can."""
    problem = launch_problem() or version_problem(installed("torch"), installed("torch_xla"))
    if problem is not None:
        return problem
    if environ.get("PJRT_DEVICE", "").upper() == "CPU":
        return None
    devices = find_devices(root)
    return device_in_use(devices.holders[0]) if devices.chips.known and devices.holders else None


def device_in_use(holder: Holder) -> str:
    """The sentence that names the process that uses a device."""
    return (
        f"{holder.device} is in use by process {holder.pid} ({holder.command}); a TPU can have only one process: wait "
        f"for it, end it with `kill {holder.pid}`, or train on the CPU with PJRT_DEVICE=CPU"
    )


def find_devices(root: Path = ROOT) -> Devices:
    files = _device_files(root / "dev")
    holders, num_hidden = _find_holders(root / "proc", files) if files else ([], 0)
    return Devices(pci_chips(root / "sys/bus/pci/devices"), files, holders, num_hidden)


def _device_files(dev: Path) -> list[str]:
    """`/dev/accelN` of v2 to v4 and `/dev/vfio/N` of later chips, as processes name them."""
    accel = [f"/dev/{path.name}" for path in dev.glob("accel[0-9]*")]
    vfio = [f"/dev/vfio/{path.name}" for path in (dev / "vfio").glob("[0-9]*")]
    return sorted(accel) + sorted(vfio)


def _find_holders(proc: Path, files: list[str]) -> tuple[list[Holder], int]:
    """Other processes that have one of the files open, and the number of processes that cannot be checked."""
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


def version_problem(torch: str | None, torch_xla: str | None) -> str | None:
    """Why these versions cannot train and what to type; None if they can. A missing package has the version None."""
    versions = {"torch": torch, "torch_xla": torch_xla}
    missing = [name for name, version in versions.items() if version is None]
    if missing:
        return missing_sentence(missing)
    wrong = [f"{name} {version}" for name, version in versions.items() if version and not _fits(version)]
    if wrong:
        return (
            f"{' and '.join(wrong)} {'does' if len(wrong) == 1 else 'do'} not match: both must be {SERIES}, because "
            f"torch_xla is built for exactly one torch; "
            f"pip install 'torch=={SERIES}.*' 'torch_xla=={SERIES}.*'"
        )
    return None


def missing_sentence(packages: list[str]) -> str:
    """The sentence that these packages are not installed, with what to type."""
    return f"{' and '.join(packages)} {'is' if len(packages) == 1 else 'are'} not installed; {INSTALL}"


def _fits(version: str) -> bool:
    return version.split("+")[0].split(".")[:2] == SERIES.split(".")
