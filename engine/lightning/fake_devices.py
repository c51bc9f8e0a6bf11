"""What Lightning finds of XLA: devices where there is no TPU, or none. Must be called in processes of ours alone.

Lightning asks the PCI bus, and then the network, for a TPU and refuses its XLA path without one. The runtime's CPU
devices go through that same path once both of its accelerator classes are told how many there are.
"""

from __future__ import annotations

import sys

from lightning.fabric.accelerators.xla import XLAAccelerator as FabricAccelerator
from lightning.pytorch.accelerators import XLAAccelerator


def offer_cores(num_cores: int) -> None:
    """From now on Lightning finds that many cores; the log says so."""
    sys.stderr.write(
        "tputui: Lightning finds no TPU here and would refuse its XLA path; in this process alone it is told of "
        f"{num_cores} virtual cores\n"
    )
    _offer(num_cores)


def offer_nothing() -> None:
    """From now on Lightning finds no XLA device, and does not import the runtime to look for one."""
    _offer(0)


def _offer(num_cores: int) -> None:
    for cls in (FabricAccelerator, XLAAccelerator):
        # It stands on classes, and Lightning itself asks the classes.
        setattr(cls, "auto_device_count", staticmethod(lambda: num_cores))  # noqa: B010 - mypy forbids the assignment
        setattr(cls, "is_available", staticmethod(lambda: num_cores > 0))  # noqa: B010
