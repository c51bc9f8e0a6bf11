"""Makes Lightning find XLA devices without a TPU, or none. Must only be called in processes of our own.

Lightning looks for a TPU on the PCI bus and then in the network, and refuses its XLA path without one. The runtime's
CPU devices take that path once both of Lightning's accelerator classes report devices.
"""

from __future__ import annotations

import sys

from lightning.fabric.accelerators.xla import XLAAccelerator as FabricAccelerator
from lightning.pytorch.accelerators import XLAAccelerator


def offer_cores(num_cores: int) -> None:
    """From now on Lightning finds that many cores; this is printed to stderr."""
    sys.stderr.write(
        "tputui: Lightning finds no TPU here and would refuse its XLA path; in this process it is given "
        f"{num_cores} virtual cores\n"
    )
    _offer(num_cores)


def offer_nothing() -> None:
    """From now on Lightning finds no XLA device, and does not import the runtime to look for one."""
    _offer(0)


def _offer(num_cores: int) -> None:
    for cls in (FabricAccelerator, XLAAccelerator):
        # On the classes, since Lightning calls these methods on the classes.
        setattr(cls, "auto_device_count", staticmethod(lambda: num_cores))  # noqa: B010 - mypy forbids the assignment
        setattr(cls, "is_available", staticmethod(lambda: num_cores > 0))  # noqa: B010
