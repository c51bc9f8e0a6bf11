"""The newest values of a run in Prometheus' text format. Names have units; unknown values are left out. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, get_args

from tputui.state import facts
from tputui.state.facts import Fact
from tputui.state.metric_series import MetricSource, metric_series, most_important
from tputui.state.run_condition import RunCondition
from tputui.state.snapshot import Snapshot, best_epoch, monitored
from tputui.telemetry.events import Split

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
METRICS_MAX = 256
CORES_MAX = 4_096
LABEL_MAX = 200
"""Characters of the value of a label."""
SPLITS: tuple[Split, ...] = ("train", "valid")


class _Sample(NamedTuple):
    value: float | None
    labels: Mapping[str, str] = {}


class _Family(NamedTuple):
    name: str
    kind: Literal["gauge", "counter"]
    help: str
    samples: list[_Sample]


def exposition(snapshot: Snapshot) -> str:
    """Every known value, one a line, below the type and the help of its metric."""
    lines: list[str] = []
    for family in (*_of_run(snapshot), *_of_training(snapshot), *_of_machine(snapshot)):
        samples = [sample for sample in family.samples if sample.value is not None]
        if samples:
            name = f"tputui_{family.name}"
            lines += [f"# HELP {name} {family.help}", f"# TYPE {name} {family.kind}"]
            lines += [
                f"{name}{_labels({'run': snapshot.run, **value.labels})} {_number(value.value)}" for value in samples
            ]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_label(value)}"' for name, value in labels.items()) + "}"


def _label(value: str) -> str:
    """The value of a label, bounded and escaped; control characters become spaces."""
    text = "".join(character if character.isprintable() else " " for character in value[:LABEL_MAX])
    return text.replace("\\", r"\\").replace('"', r"\"")


def _number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


def _one(name: str, kind: Literal["gauge", "counter"], text: str, value: float | None) -> _Family:
    return _Family(name, kind, text, [_Sample(value)])


def _fact(name: str, fact: Fact[int] | Fact[float], snapshot: Snapshot) -> _Family:
    return _one(name, "gauge", fact.definition, fact.of(snapshot))


def _of_run(snapshot: Snapshot) -> Iterable[_Family]:
    states = [_Sample(float(snapshot.condition == state), {"state": state}) for state in get_args(RunCondition)]
    yield _Family("run_state", "gauge", "1 for the state that the run is in, 0 for the others.", states)
    topology, plan = snapshot.topology, snapshot.plan
    info = {
        "task": plan.task if plan else "",
        "device": topology.device if topology else "",
        "strategy": topology.strategy if topology else "",
        "cores": str(topology.num_cores) if topology else "",
    }
    yield _Family("run_info", "gauge", "What is trained, and on what.", [_Sample(1.0, info)])
    yield _one("run_started_timestamp_seconds", "gauge", "When the run started, in unix time.", snapshot.started)
    yield _one("run_ended_timestamp_seconds", "gauge", "When the run ended, in unix time.", snapshot.ended)
    yield _fact("run_exit_code", facts.EXIT_CODE, snapshot)
    yield _fact("run_command_exit_code", facts.COMMAND_EXIT_CODE, snapshot)
    yield _fact("run_duration_seconds", facts.DURATION, snapshot)
    newest = "Time of the newest event of the run, in unix time."
    yield _one("last_event_timestamp_seconds", "gauge", newest, snapshot.newest_fact)
    phase = [_Sample(snapshot.phase_s, {"phase": snapshot.phase})] if snapshot.phase is not None else []
    yield _Family("phase_seconds", "gauge", "How long the first process has been in its phase.", phase)


def _of_training(snapshot: Snapshot) -> Iterable[_Family]:
    plan = snapshot.plan
    yield _one("step_total", "counter", "Training steps done, including those before a resume.", snapshot.steps)
    yield _one("epoch", "gauge", "Number of the epoch in training.", snapshot.epoch)
    yield _one("planned_steps", "gauge", "Training steps that are planned.", (plan and plan.total_steps) or None)
    yield _one("planned_epochs", "gauge", "Epochs that are planned.", (plan and plan.num_epochs) or None)
    yield _fact("step_duration_seconds", facts.STEP_TIME, snapshot)
    yield _fact("examples_per_second", facts.SPEED, snapshot)
    yield _fact("steady_step_duration_seconds", facts.STEADY_STEP_TIME, snapshot)
    yield _fact("steady_examples_per_second", facts.STEADY_SPEED, snapshot)
    yield _one("learning_rate", "gauge", "Learning rate.", snapshot.lr)
    yield _fact("remaining_seconds", facts.REMAINING, snapshot)
    yield _fact("loss", facts.LOSS, snapshot)
    yield _fact("epoch_loss", facts.EPOCH_LOSS, snapshot)
    cores = snapshot.cores[:CORES_MAX]
    of_cores = [_Sample(core.loss, {"core": str(core.core)}) for core in cores]
    yield _Family("core_loss", "gauge", "Training loss of the newest step on a core.", of_cores)
    of_cores = [_Sample(core.step, {"core": str(core.core)}) for core in cores]
    yield _Family("core_step_total", "counter", "Training steps done by a core.", of_cores)
    of_cores = [_Sample(core.compute_s, {"core": str(core.core)}) for core in cores]
    yield _Family("core_compute_seconds", "gauge", "Median time that a core computes in a step.", of_cores)
    all_series = metric_series(MetricSource.of(snapshot))
    metrics = [
        _Sample(point.value, {"metric": series.name, "split": split})
        for series in most_important(all_series, METRICS_MAX)
        for split in SPLITS
        if (point := series.newest(split)) is not None
    ]
    yield _Family("metric", "gauge", "Newest value of a metric, in its own unit.", metrics)
    omitted = f"Metrics beyond {METRICS_MAX}, which are left out of tputui_metric; losses and validation come first."
    yield _one("metrics_omitted", "gauge", omitted, max(0, len(all_series) - METRICS_MAX) or None)
    best, name = best_epoch(snapshot.epochs), monitored(snapshot.config, snapshot.epochs)
    if best is not None:
        best_value = [_Sample(facts.BEST_VALUE.of(snapshot), {"metric": name})]
        yield _Family("best_metric", "gauge", facts.BEST_VALUE.definition, best_value)
        yield _fact("best_epoch", facts.BEST_EPOCH, snapshot)
    bad = "NaN and infinite values in training."
    yield _one("non_finite_values_total", "counter", bad, snapshot.num_non_finite)
    yield _one("skipped_examples_total", "counter", "Invalid examples that were left out.", snapshot.skipped.count)
    newest = snapshot.checkpoints[-1] if snapshot.checkpoints else None
    yield _one("checkpoint_step", "gauge", "Step of the newest checkpoint.", newest.step if newest else None)


_OF_DEVICES = {
    "duty_cycle_percent": "Share of the time in which the chip of a core was computing.",
    "hbm_bandwidth_percent": "Share of the memory bandwidth in use.",
    "queued_programs": "Programs that wait for a core.",
    "throttle_score": "0: not throttled; 10: throttled by 100 %.",
    "ici_link_health": "Worst link of a chip to others; 0: healthy, 10: not usable.",
}


def _of_machine(snapshot: Snapshot) -> Iterable[_Family]:
    if (xla := snapshot.xla) is not None:
        yield _one("compiles_total", "counter", "Programs compiled.", xla.compiles)
        yield _one("compile_seconds_total", "counter", "Time of compiling.", xla.compile_s)
        yield _one("recompiles_total", "counter", "Programs compiled after warm-up.", xla.recompiles)
        yield _one("executions_total", "counter", "Programs executed.", xla.executes)
    memory = snapshot.memory
    hbm = (memory.hbm or [])[:CORES_MAX]
    for part, text in (("used", "Used memory of a core."), ("limit", "Memory of a core.")):
        of_cores = [
            _Sample(getattr(core_memory, f"{part}_bytes"), {"core": str(core_memory.core)}) for core_memory in hbm
        ]
        yield _Family(f"device_memory_{part}_bytes", "gauge", text, of_cores)
    devices = snapshot.devices.cores[:CORES_MAX] if snapshot.devices is not None else []
    for name, text in _OF_DEVICES.items():
        values = ((core, getattr(core, name)) for core in devices)
        samples = [_Sample(value, {"core": str(core.core)}) for core, value in values if value is not None]
        yield _Family(f"core_{name}", "gauge", text, samples)
    yield _one("host_memory_used_bytes", "gauge", "Used memory of the hosts.", memory.host_used_bytes)
    yield _one("host_memory_total_bytes", "gauge", "Memory of the hosts.", memory.host_total_bytes)
    cpu = memory.host_cpu_percent
    yield _one("host_cpu_ratio", "gauge", "Share of the CPU time in use.", cpu / 100 if cpu is not None else None)
    processes = [(process, {"role": process.role, "pid": str(process.pid)}) for process in memory.processes[:CORES_MAX]]
    resident = [_Sample(process.rss_bytes, labels) for process, labels in processes]
    yield _Family("process_resident_memory_bytes", "gauge", "Resident memory of a process of the run.", resident)
