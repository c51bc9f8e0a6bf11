"""Detects cores, their memory and package versions without opening a device, and the environment that opens the cores.

Does not import torch: the check before a run uses it. Must not change `os.environ`; the worker applies the variables of
`environment` before it imports the runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import psutil

from engine.errors import Problem, Unable
from tputui.config import RunConfig
from tputui.engine_api import DEV, PCI_DEVICES, installed, pci_chips, tpu_signs, version_problem

METRICS_SAMPLES = "8"
"""Samples that the runtime keeps per metric. Only totals are used, and every read copies the samples."""


class Machine(NamedTuple):
    """The devices of this machine."""

    device: str
    """`TPU` or `CPU`."""
    chips: int
    """Number of TPU chips; 0 on a CPU."""
    cores_per_chip: int
    """Cores per chip; 0 on a CPU."""
    reason: str | None
    """Why no TPU is used; None on a TPU."""
    warning: str | None = None
    """Why a TPU that seems to be present is not used; None if there is no sign of one."""
    chip: str | None = None
    """Kind of the TPU chips, as `TPU v3`; None on a CPU."""

    @property
    def tpu_cores(self) -> int:
        return self.chips * self.cores_per_chip


def find(environ: Mapping[str, str], pci_devices: Path = PCI_DEVICES, dev: Path = DEV) -> Machine:
    """The TPU chips on the PCI bus, else virtual cores, with a warning if the machine seems to have a TPU.

    `PJRT_DEVICE=CPU` in the environment selects virtual cores.
    """
    chips = pci_chips(pci_devices)
    if environ.get("PJRT_DEVICE", "").upper() == "CPU":
        reason = "PJRT_DEVICE=CPU is set in the environment"
        there = chips.summary or ", ".join(tpu_signs(chips, environ, dev, variables=False))
        return _cpu(reason, f"{there} here, but {reason}; unset it to train on the TPU" if there else None)
    kinds = set(chips.known)
    if len(kinds) == 1:
        kind = kinds.pop()
        return Machine("TPU", len(chips.known), kind.cores, None, chip=kind.name)
    if kinds:
        reason = f"TPU chips of several kinds ({chips.summary}), and a run uses chips of one kind"
        return _cpu(reason, reason)
    signs = ", ".join(tpu_signs(chips, environ, dev))
    warning = f"this host seems to have a TPU ({signs}), but no known TPU chip is on its PCI bus" if signs else None
    return _cpu("no TPU chip on the PCI bus of this host", warning)


def _cpu(reason: str, warning: str | None) -> Machine:
    return Machine("CPU", 0, 0, reason, f"not training on a TPU: {warning}" if warning else None)


def resolved(config: RunConfig, machine: Machine, num_hosts: int = 1) -> RunConfig:
    """The configuration with `device.cores`, which are those of one host, replaced by the number of cores of all hosts,
    and "all" by that of this machine."""
    config = config.on_cores(machine.tpu_cores or config.device.virtual_cores)
    if num_hosts == 1:
        return config
    cores = config.num_cores * num_hosts
    return msgspec.structs.replace(config, device=msgspec.structs.replace(config.device, cores=cores))


def environment(config: RunConfig, machine: Machine) -> dict[str, str]:
    """Variables that must be set before the runtime is imported."""
    config = resolved(config, machine)
    is_one_core = config.num_cores == 1
    common = {"TF_CPP_MIN_LOG_LEVEL": "2", "XLA_METRICS_SAMPLES": METRICS_SAMPLES}
    if machine.device == "CPU":
        cores = config.device.virtual_cores if is_one_core else config.num_cores // num_processes(config, machine)
        return {"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": str(cores), **common}
    variables = {"PJRT_DEVICE": "TPU", **common}
    if is_one_core:
        chip = config.core_ids[0] // machine.cores_per_chip
        variables |= {"TPU_PROCESS_BOUNDS": "1,1,1", "TPU_VISIBLE_CHIPS": str(chip)}
        variables |= {"TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1"}
    return variables


def num_processes(config: RunConfig, machine: Machine, num_hosts: int = 1) -> int:
    """The number of training processes of a host: one, or under `replica` one per core, on a TPU one per chip. `config`
    has the number of cores of all hosts."""
    if config.num_cores == 1 or config.device.strategy != "replica":
        return 1
    return machine.chips if machine.device == "TPU" else config.num_cores // num_hosts


def device_index(config: RunConfig, machine: Machine) -> int:
    """The device index, within the process, of the core of a run on one core."""
    core = config.core_ids[0]
    return core % machine.cores_per_chip if machine.device == "TPU" else core


def host_problems(config: RunConfig, machine: Machine, num_hosts: int) -> list[Problem]:
    """Problems if the cores of several hosts cannot train together."""
    problems: list[Problem] = []
    if num_hosts == 1:
        return problems
    if isinstance(config.device.cores, list):
        message = (
            f'{config.device.cores} names a core of one host, and the run has {num_hosts}: write a number or "all"'
        )
        problems.append(Problem("device.cores", message))
    elif machine.device == "TPU" and config.device.cores not in ("all", machine.tpu_cores):
        message = (
            f"{config.device.cores} is not possible on {num_hosts} hosts: a slice trains on all {machine.tpu_cores} "
            'TPU cores of each host; write "all"'
        )
        problems.append(Problem("device.cores", message))
    if machine.device == "CPU" and config.device.strategy == "spmd":
        message = (
            f'"spmd" on {num_hosts} hosts is one program over all their cores, which only the runtime of a TPU slice '
            'can run; on CPU devices write "replica"'
        )
        problems.append(Problem("device.strategy", message))
    return problems


def core_problems(config: RunConfig, machine: Machine) -> list[Problem]:
    """Problems if the machine does not have the configured cores."""
    cores = config.device.cores
    there = machine.tpu_cores or config.device.virtual_cores
    kind = "TPU cores" if machine.device == "TPU" else "virtual cores (device.virtual_cores)"
    example = "[0]" if there == 1 else f"[k] with k from 0 to {there - 1}"
    if isinstance(cores, list):
        if cores[0] < there:
            return []
        message = f'{cores} names a missing core: this machine has {there} {kind}; write {example}, or "all"'
    elif cores == "all":
        return []
    elif cores > there:
        fewer = f'{there}, "all", 1' if machine.device == "TPU" and there > 1 else f'at most {there}, "all"'
        message = f"{cores} is more than the {there} {kind} of this machine; write {fewer} or {example}"
    elif machine.device == "TPU" and cores not in (1, there):
        drives = "a process on every chip drives" if config.device.strategy == "replica" else "one process drives"
        message = f'{cores} is not possible: {drives} all {there} {kind} or one; write {there}, "all", 1 or {example}'
    else:
        return []
    return [Problem("device.cores", message)]


def require_packages() -> None:
    """Raises `Unable` if the installed packages cannot train."""
    why_not = package_problem()
    if why_not is not None:
        raise Unable(why_not)


def package_problem() -> str | None:
    """Why the installed torch and torch_xla cannot train, and the command to run; None if they can. No imports."""
    return version_problem(installed("torch"), installed("torch_xla"))


GIB = 1 << 30
HBM_PER_CORE = {
    "TPU v2": 8 * GIB,
    "TPU v3": 16 * GIB,
    "TPU v4": 32 * GIB,
    "TPU v5p": 95 * GIB,
    "TPU v5e": 16 * GIB,
    "TPU v6e": 32 * GIB,
    "TPU v7x": 96 * GIB,  # 192 a chip of two cores
}
"""Bytes by kind of chip."""


class MemoryLimit(NamedTuple):
    bytes: int | None
    """None if unknown."""
    what: str
    """What the figure is, or why it is unknown."""


def memory_limit(machine: Machine, num_cores: int) -> MemoryLimit:
    """The memory of one core: its HBM, or for virtual cores an equal share of the host's free memory."""
    if machine.device == "CPU":
        free = psutil.virtual_memory().available
        return MemoryLimit(
            free // num_cores, f"a core's share of this host's free memory, {num_cores} cores sharing it"
        )
    hbm = HBM_PER_CORE.get(machine.chip or "")
    return MemoryLimit(hbm, "the HBM of a core" if hbm else "the memory of this kind of chip is not known")
