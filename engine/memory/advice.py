"""Reports the predicted memory: the event, the warning before the start, and the page after running out of memory.

Must not delay training: if no prediction is available, one sentence says so, and training continues.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from engine.memory import estimate
from engine.memory.estimate import MemoryEstimate, Settings, Shapes, Unpredictable
from engine.process import hardware
from engine.process.hardware import MemoryLimit
from engine.task import Dataset, Plan
from tputui.reporting import events as ev
from tputui.reporting import text_of

HEADROOM = 0.9
"""A setting fits if it needs less than this share of the limit."""
FULL_ROW = 8
"""The TPU processes 8 examples at a time; a batch that is not a multiple wastes a part."""
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_OUT_OF_MEMORY = re.compile(r"RESOURCE_EXHAUSTED|out of memory|Ran out of memory in memory space|std::bad_alloc", re.I)
_ASKED = re.compile(r"allocating (\d+) bytes", re.I)
_USED = re.compile(r"Used ([\d.]+)([KMGT]?) of ([\d.]+)([KMGT]?) hbm", re.I)


class MemoryAdvice(NamedTuple):
    """A prediction, and the inputs to predict other settings."""

    plan: Plan
    batch: Shapes
    settings: Settings
    predicted: MemoryEstimate
    limit: MemoryLimit


def predict(plan: Plan, dataset: Dataset) -> MemoryAdvice:
    """Predicts the memory of the plan's training step. Raises `Unpredictable`."""
    batch, settings = estimate.shapes(dataset), estimate.settings(plan)
    limit = hardware.memory_limit(plan.machine, plan.config.num_cores // plan.num_hosts)
    return MemoryAdvice(plan, batch, settings, estimate.estimate(plan, batch, settings), limit)


def emit_prediction(plan: Plan, dataset: Dataset, emit: Callable[[ev.Event], object]) -> MemoryAdvice | None:
    """Predicts the memory and emits the event, with a warning above the limit. None if it cannot be predicted."""
    try:
        forecast = predict(plan, dataset)
        emit(ev.MemoryPredicted(t=time.time(), core=to_event(forecast)))
        if (text := warning(forecast)) is not None:
            emit(ev.WarningRaised(t=time.time(), text=text))
    except Unpredictable as error:
        emit(ev.WarningRaised(t=time.time(), text=f"the memory of a step cannot be predicted: {error}"))
        return None
    return forecast


def to_event(forecast: MemoryAdvice) -> ev.MemoryForecast:
    """The event of the journal, in bytes per core."""
    predicted, settings = forecast.predicted, forecast.settings
    return ev.MemoryForecast(
        total_bytes=predicted.total,
        parameters_bytes=predicted.parameters,
        gradients_bytes=predicted.gradients,
        optimizer_bytes=predicted.optimizer,
        activations_bytes=predicted.activations,
        inputs_bytes=predicted.inputs,
        telemetry_bytes=predicted.telemetry,
        biggest=[ev.ModuleMemory(name=share.name, bytes=share.bytes) for share in predicted.biggest],
        batch_per_core=settings.batch,
        precision="bf16" if settings.bf16 else "fp32",
        rematerialised=settings.rematerialise,
        limit_bytes=forecast.limit.bytes,
        limit=forecast.limit.what,
    )


def warning(forecast: MemoryAdvice) -> str | None:
    """A warning if the prediction exceeds a core's limit, with settings that would help. Raises `Unpredictable`."""
    limit = forecast.limit
    if limit.bytes is None or forecast.predicted.total <= limit.bytes:
        return None
    helps = "; ".join(f"{key} would take {size(total)}" for key, total, _ in _helps(forecast, limit.bytes, 1.0))
    return (
        f"a step is predicted to take {size(forecast.predicted.total)} per core, which has {size(limit.bytes)} "
        f"({limit.what})" + (f": {helps}" if helps else "")
    )


def out_of_memory_page(error: BaseException, forecast: MemoryAdvice | None) -> str | None:
    """The page for an out-of-memory error: biggest parts, and settings that would help. None for any other error."""
    message = text_of(error)
    if not (isinstance(error, MemoryError) or _OUT_OF_MEMORY.search(message)):
        return None
    first = next((line.strip() for line in message.splitlines() if _OUT_OF_MEMORY.search(line)), type(error).__name__)
    head = f"out of memory: {first[:200]}"
    if forecast is None:
        return f"{head}\nThe memory could not be predicted. Try a smaller data.batch_per_core."
    used, has = _in_words_of(message)
    limit = has or forecast.limit.bytes
    scale = used / forecast.predicted.total if used else 1.0
    requested = _ASKED.search(message)
    unforeseen = int(requested.group(1)) if requested and int(requested.group(1)) > forecast.predicted.total else None
    if unforeseen is not None:
        limit = None
    try:
        helps = list(_helps(forecast, limit, scale))
    except Unpredictable as unable:
        return "\n".join([head, *_table(forecast), f"Other settings cannot be predicted: {unable}"])
    return "\n".join([head, *_table(forecast), *_scaled(used, scale), *_odd(unforeseen), *_advice(helps, limit)])


def size(num_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if num_bytes < 1024:
            return f"{num_bytes:.4g} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:.1f} GiB" if num_bytes < 1024 else f"{num_bytes / 1024:.1f} TiB"


def _helps(forecast: MemoryAdvice, limit: int | None, scale: float) -> Iterator[tuple[str, float, str]]:
    """Settings that would help, with their predicted bytes per core, and a note. Raises `Unpredictable`."""
    settings = forecast.settings

    def total(changed: Settings) -> float:
        return scale * estimate.estimate(forecast.plan, forecast.batch, changed).total

    if settings.batch > 1:
        now, half = total(settings), total(settings._replace(batch=max(1, settings.batch // 2)))
        per_example = (now - half) / (settings.batch - max(1, settings.batch // 2))
        batch = _fitting(settings.batch, now, per_example, limit)
        note = "" if limit is None or now - (settings.batch - batch) * per_example <= limit else "not enough on its own"
        yield (f"data.batch_per_core = {batch}", now - (settings.batch - batch) * per_example, note)
    if not settings.bf16:
        yield ('device.precision = "bf16"', total(settings._replace(bf16=True)), "")
    if not settings.rematerialise and forecast.plan.machine.device != "CPU":
        again = total(settings._replace(rematerialise=True))
        yield ("device.rematerialise = true", again, "blocks are computed twice")


def _fitting(batch: int, now: float, per_example: float, limit: int | None) -> int:
    """The largest smaller batch that fits, a multiple of 8 if possible; half the batch if no limit is known."""
    if limit is None or per_example <= 0:
        return max(1, batch // 2)
    fits = int(batch - (now - HEADROOM * limit) // per_example - 1)
    fits = max(1, min(batch - 1, fits))
    return fits // FULL_ROW * FULL_ROW or fits


def _table(forecast: MemoryAdvice) -> list[str]:
    predicted, settings = forecast.predicted, forecast.settings
    precision = "bf16" if settings.bf16 else "fp32"
    of = f" of {size(forecast.limit.bytes)} ({forecast.limit.what})" if forecast.limit.bytes is not None else ""
    parts = [
        ("activations", predicted.activations),
        ("parameters", predicted.parameters),
        ("gradients", predicted.gradients),
        (f"optimizer ({forecast.plan.config.optim.name})", predicted.optimizer),
        (f"inputs ({forecast.plan.config.data.prefetch_batches} batches ahead)", predicted.inputs),
    ]
    lines = [f"predicted per core: {size(predicted.total)}{of}, at batch {settings.batch} in {precision}"]
    lines += [f"  {name:<28} {size(part):>10}" for name, part in sorted(parts, key=lambda part: -part[1])]
    return lines + [f"    {share.name:<40} {size(share.bytes):>10}" for share in predicted.biggest]


def _scaled(used: float | None, scale: float) -> list[str]:
    if used is None:
        return []
    return [f"the compiler counts {size(used)}, {scale:.2f} times as much; the figures below are scaled by that"]


def _odd(num_bytes: int | None) -> list[str]:
    if num_bytes is None:
        return []
    return [
        f"one allocation of {size(num_bytes)} was requested, more than all of the above: an operation of the task "
        "has an intermediate result of that size"
    ]


def _advice(helps: list[tuple[str, float, str]], limit: int | None) -> list[str]:
    lines = (
        ["settings that would help, each by itself:"] if helps else ["no setting would help; use larger or more cores"]
    )
    for setting, total, note in helps:
        fits = "" if limit is None else ", fits" if total <= limit else ", does not fit"
        lines.append(f"  {setting:<30} about {size(total)} a core{fits}" + (f" ({note})" if note else ""))
    return [*lines, "Not in these figures: the compiler's working space, fragmentation, and what it fuses or reuses."]


def _in_words_of(error: str) -> tuple[float | None, int | None]:
    """The compiler's figures for needed and available memory, if the error has them."""
    match = _USED.search(error)
    if match is None:
        return None, None
    used, used_unit, has, has_unit = match.groups()
    return float(used) * _UNITS[used_unit.upper()], int(float(has) * _UNITS[has_unit.upper()])
