"""A training as its curves alone, and the snapshot of a run that reports or logs them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.diagnosis.runs import snapshot_of
from tests.recorded import T0, steps_recorded
from tputui.state.snapshot import Snapshot
from tputui.telemetry import events as ev
from tputui.telemetry.logged_values import LoggedColumns, values_logged

_FIXTURES = Path(__file__).parents[1] / "fixtures"
RECORDED = _FIXTURES / "learning_curves.json"
"""Curves of real trainings, see `learning_trainings`."""
PUBLIC = _FIXTURES / "public_curves.json"
"""The numbers of logs in public repositories, by the names of those."""


class Training(NamedTuple):
    """The curves of a training; `fault` is the rule that should find it, empty if it is healthy."""

    name: str
    fault: str
    loss: Sequence[float]
    """Training loss, of each step or of each `every` steps."""
    every: int = 1
    epoch_steps: int = 0
    """Steps of an epoch; 0 without epochs."""
    train: Sequence[float] = ()
    """Mean training loss of each epoch; computed from `loss` if there are epochs."""
    valid: Sequence[float] = ()
    """Validation loss after each epoch, or evenly spaced without epochs."""
    lr: Sequence[float] = ()
    """Learning rates, as many as losses; or one that is constant."""
    metrics: Mapping[str, Sequence[float]] = MappingProxyType({})
    """Further logged metrics, evenly spaced: `valid.accuracy`, `grad_norm`."""
    cores: Sequence[list[float]] = ()
    """Losses of each step and core, in place of `loss`."""
    config: Mapping[str, Any] = MappingProxyType({})
    first_step: int = 1
    logged: bool = False
    """Whether a script logs the loss, in place of reporting it."""


def recorded() -> list[Training]:
    """The curves of real trainings."""
    return [Training(**fields) for path in (RECORDED, PUBLIC) for fields in json.loads(path.read_text())]


def logged(name: str, values: Sequence[float], first_step: int, steps: int) -> ev.ValuesLogged:
    """Values evenly spaced over some steps."""
    split, _, rest = name.partition(".")
    at = [first_step - 1 + max(1, round(steps * (index + 1) / len(values))) for index in range(len(values))]
    columns = LoggedColumns(values, at, None, None)
    return values_logged(
        T0 + 1, rest or name, "valid" if split == "valid" and rest else "train", name, "log.csv", columns
    )


def snapshot(run: Training) -> Snapshot:
    """What a viewer has of the training at its end."""
    rows = run.cores or [[value] for value in run.loss]
    steps, cores = len(rows) * run.every, len(rows[0])
    events: list[ev.Event] = [
        ev.TopologyDeclared(t=T0, strategy="spmd", device="CPU", num_cores=cores, num_hosts=1, host_index=0,
                            cores=list(range(cores)))
    ]  # fmt: skip
    if run.logged or run.every > 1:
        for first in range(0, len(rows), 1000):
            part = [row[0] for row in rows[first : first + 1000]]
            events.append(logged("loss", part, run.first_step + first * run.every, len(part) * run.every))
    else:
        for first in range(0, len(rows), 1000):
            events.append(steps_recorded(T0 + 1, run.first_step + first, [*rows[first : first + 1000]]))
    rates = [*run.lr] * len(rows) if len(run.lr) == 1 else [*run.lr]
    for index in range(0, len(rates), max(1, len(rates) // 300)):
        events.append(_progress(run, index, rates[index]))
    events += [logged(name, values, run.first_step, steps) for name, values in run.metrics.items()]
    if run.epoch_steps:
        events += _epochs(run, [row[0] for row in rows], rates)
    elif run.valid:
        events.append(logged("valid.loss", run.valid, run.first_step, steps))
    found = snapshot_of({"worker-0": events})
    return type(found)(**{name: getattr(found, name) for name in found.__struct_fields__} | {"config": {**run.config}})


def _progress(run: Training, index: int, lr: float) -> ev.ProgressReported:
    return ev.ProgressReported(
        t=T0 + 2 + index / 1e4, epoch=1, epoch_step=0, step=run.first_step + (index + 1) * run.every - 1, step_s=0.1,
        examples_per_s=640.0, lr=lr, report_steps=1,
    )  # fmt: skip


def _epochs(run: Training, loss: list[float], rates: list[float]) -> list[ev.Event]:
    width = max(run.epoch_steps // run.every, 1)
    count = len(loss) // width
    events: list[ev.Event] = []
    for epoch in range(1, count + 1):
        part = [value for value in loss[(epoch - 1) * width : epoch * width] if value == value]
        mean = run.train[epoch - 1] if run.train else sum(part) / max(len(part), 1)
        valid = {"loss": run.valid[epoch - 1]} if epoch <= len(run.valid) else {}
        events.append(
            ev.EpochEnded(
                t=T0 + 3 + epoch, epoch=epoch, step=run.first_step - 1 + epoch * run.epoch_steps,
                train={"loss": _reading(mean)}, valid={name: _reading(value) for name, value in valid.items()},
                train_s=1.0, valid_s=0.1, sections_s={}, lr=rates[min(epoch * width, len(rates)) - 1] if rates else 0.1,
                best=bool(valid) and run.valid[epoch - 1] == min(run.valid[:epoch]),
            )
        )  # fmt: skip
    return events


def _reading(value: float) -> ev.MeterReading:
    return ev.MeterReading(val=value, avg=value, sum=value * 640, count=640)
