"""Which TPU chips this host has, by its PCI bus, and signs of a TPU that no run here can use.

Shared by the engine, which trains on the chips, and by `doctor`. Opens no device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

GOOGLE = 0x1AE0
"""PCI vendor id."""
PCI_DEVICES = Path("/sys/bus/pci/devices")
DEV = Path("/dev")


class Kind(NamedTuple):
    """A kind of TPU chip."""

    name: str
    cores: int
    """Devices that the runtime offers for a chip. The two TensorCores of a v4 or v5p chip are one device."""


KINDS = {
    0x0027: Kind("TPU v2 or v3", 2),
    0x005E: Kind("TPU v4", 1),
    0x0062: Kind("TPU v5p", 1),
    0x0063: Kind("TPU v5e", 1),
    0x006F: Kind("TPU v6e", 1),
    0x0076: Kind("TPU v7x", 2),
}
"""By PCI device id."""

_OTHER_CLASSES = (0x01, 0x02, 0x03, 0x06, 0x08, 0x0C)
"""PCI base classes of what else Google's cloud puts on the bus: disks, network cards, displays, bridges, buses."""
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
"""Set on TPU hosts by those who run them."""


class Chips(NamedTuple):
    """What the PCI bus shows of TPUs."""

    known: tuple[Kind, ...]
    """A chip each."""
    unknown: tuple[str, ...]
    """Google's devices that are no known chip and nothing else that is known, as `1ae0:0099`."""

    @property
    def summary(self) -> str:
        """`4 x TPU v4`; empty without a known chip."""
        return ", ".join(f"{self.known.count(kind)} x {kind.name}" for kind in dict.fromkeys(self.known))


def chips(pci_devices: Path = PCI_DEVICES) -> Chips:
    """Scans the PCI bus. What cannot be read is left out."""
    known: list[Kind] = []
    unknown: list[str] = []
    for device in _google_devices(pci_devices):
        number = _number(device / "device")
        if number is None:
            continue
        if number in KINDS:
            known.append(KINDS[number])
        elif ((_number(device / "class") or 0) >> 16) not in _OTHER_CLASSES:
            unknown.append(f"{GOOGLE:04x}:{number:04x}")
    return Chips(tuple(known), tuple(unknown))


def signs(found: Chips, environ: Mapping[str, str], dev: Path = DEV, *, variables: bool = True) -> list[str]:
    """What suggests a TPU besides known chips, each in a few words; `variables` includes environment variables."""
    devices = [f"PCI device {name}" for name in dict.fromkeys(found.unknown)]
    # Of all drivers only the TPU's puts its files there; others use /dev/accel/accelN.
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
