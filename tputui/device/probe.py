"""Whether the metric services of the TPU runtime answer now, for `tputui doctor`."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import NamedTuple

from tputui.device import service
from tputui.device.sampler import PORTS_VARIABLE, check_listener, metric_ports
from tputui.device.service import RuntimeService, ServiceError


class Probe(NamedTuple):
    """The answer of the services of this host."""

    works: bool
    """False if something must be changed before a run can read them; a TPU that nothing uses is no problem."""
    text: str
    next: str | None = None


def probe(environ: Mapping[str, str], *, has_chips: bool) -> Probe:
    """Asks the ports that a run with this environment would read; at most a few seconds each."""
    try:
        ports = metric_ports(environ, has_chips=has_chips)
    except ValueError as error:
        return Probe(False, str(error), f"unset {PORTS_VARIABLE}")
    if not ports:
        return Probe(True, "not read: no TPU is used")
    if (problem := service.import_problem()) is not None:
        return Probe(False, problem.partition(":")[0], "pip install grpcio")
    return Probe(True, "; ".join(f"port {port}: {_answer(port, is_only=len(ports) == 1)}" for port in ports))


def _answer(port: int, *, is_only: bool) -> str:
    try:
        check_listener(port)
        with contextlib.closing(RuntimeService(port, is_only=is_only)) as connection:
            metrics = connection.read_metrics()
    except ServiceError as error:
        return f"{error}; it starts with the first use of the TPU"
    return f"answers, with {', '.join(sorted(metrics))}" if metrics else "answers without a value"
