"""Formats numbers, times, sizes and untrusted text, in the same way for the screen, lines of text and reports."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from tputui.telemetry.events import MemoryForecast, MeterReading, Phase, RequestKind

UNKNOWN = "-"
PREFIXES = ("", "k", "M", "G", "T", "P", "E")
"""Text of an unknown value."""

REQUESTS: dict[RequestKind, str] = {
    "checkpoint": "save a checkpoint",
    "stop": "stop",
    "stop_after_epoch": "stop after the epoch",
    "stop_now": "stop at once",
    "stacks": "collect the stacks",
    "trace": "profile steps",
}
"""What a request asks for, after "request to"."""

PHASES: dict[Phase, str] = {
    "starting": "starting",
    "data": "waiting for data",
    "tracing": "tracing",
    "compiling": "compiling",
    "executing": "executing",
    "reporting": "reporting",
    "evaluating": "evaluating",
    "saving": "saving",
    "ending": "ending",
    "unknown": "running, phase not reported",
}
"""What a process is doing, after "while"."""

METERS_MAX = 6
"""Averages of a split in a line about an epoch."""
CORES_NAMED_MAX = 8
"""Maximum number of cores listed individually if they are not a range."""


def cores(indices: list[int]) -> str:
    """`core 5`, `cores 0-7`, `cores 1, 5`; empty if there are none."""
    in_order = sorted(set(indices))
    if len(in_order) <= 1:
        return f"core {in_order[0]}" if in_order else ""
    if in_order[-1] - in_order[0] == len(in_order) - 1:
        return f"cores {in_order[0]}-{in_order[-1]}"
    more = f" and {len(in_order) - CORES_NAMED_MAX} more" if len(in_order) > CORES_NAMED_MAX else ""
    return f"cores {', '.join(map(str, in_order[:CORES_NAMED_MAX]))}{more}"


_SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def number(value: float | None, digits: int = 4) -> str:
    """A number with about `digits` significant digits: `0.4132`, `12.35`, `1.2e-07`, `NaN`, `-inf`."""
    if value is None:
        return UNKNOWN
    size = abs(value)
    if value == 0 or 1e-3 <= size < 10:  # first, since runs with very many epochs have many such values
        return f"{value:.{digits}f}"
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if 10 <= size < 1e6:
        return f"{value:.{max(0, digits - len(str(int(size))) + 1)}f}"
    return f"{value:.{digits - 1}g}"


def exact(value: float | None) -> str:
    """A configured number, not rounded: `0.004`, `3e-05`."""
    return UNKNOWN if value is None else f"{value:.6g}"


def counted(number: int, noun: str) -> str:
    """`1 event`, `3,000 events`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def ordinal(number: int) -> str:
    """`1st`, `32nd`, `113th`."""
    suffix = "th" if number // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{suffix}"


def epoch_of(epoch: int, num_epochs: int) -> str:
    """`3/10`, or `3` if the number of epochs is not known, which is 0."""
    return f"{epoch}/{num_epochs}" if num_epochs else str(epoch)


def with_reason(text: str, reason: str) -> str:
    """`run done: 3 epochs trained`, or `run done` if there is no reason, or one that repeats the text."""
    return f"{text}: {reason}" if reason and not text.endswith(f" {reason}") else text


def applied(step: int, path: str | None, lack: str | None) -> str:
    """How a request was carried out: `applied after step 88: checkpoints/step-88.pt`. `lack`: what may be missing."""
    return f"applied after step {step:,}{f': {path}' if path else ''}{f'; {lack}' if lack else ''}"


def device_cores(number: int, device: str) -> str:
    """`8 x TPU`, or `8 cores, device unknown`."""
    return f"{counted(number, 'core')}, device unknown" if device == "unknown" else f"{number} x {device}"


def more(number: int, noun: str) -> str:
    """`1 column more`, `3 columns more`."""
    return f"{counted(number, noun)} more"


def count(value: int | None) -> str:
    """An integer with thousands separators: `12,345`."""
    return UNKNOWN if value is None else f"{value:,}"


def strategy(name: str) -> str:
    """The strategy of a run; empty if it has none that the user chose, as a script of their own."""
    return "" if name in ("script", "unknown") else name


def ruled_rate(lr: float, rule: str) -> str:
    """`0.004 (0.0005 x 8 cores, x 0.5 every 5 epochs)`: a learning rate and where it comes from; empty for NaN."""
    return "" if math.isnan(lr) else f"{exact(lr)} ({rule})" if rule not in ("", exact(lr)) else exact(lr)


def examples(train: int, valid: int) -> str:
    """`60,000 examples, 10,000 to validate`; empty if they are not known."""
    validate = f", {count(valid)} to validate" if valid else ""
    return f"{count(train)} examples{validate}" if train else ""


def ragged_end(steps: int, global_batch: int, examples: int) -> str:
    """`22 steps of 64 take a different 1,408 of 1,437 examples each epoch`; empty if none is left out."""
    taken = steps * global_batch
    if not steps or taken >= examples:
        return ""
    of = f"{count(taken)} of {count(examples)} examples"
    return f"{count(steps)} steps of {count(global_batch)} take a different {of} each epoch"


def size(num_bytes: float | None) -> str:
    """A number of bytes: `353 KiB`, `1.2 GiB`."""
    if num_bytes is None:
        return UNKNOWN
    value, power = float(num_bytes), 0
    while abs(value) >= 1024 and power < len(_SIZE_UNITS) - 1:
        value, power = value / 1024, power + 1
    unit = _SIZE_UNITS[power]
    return f"{value:.0f} {unit}" if unit == "B" or abs(value) >= 100 else f"{value:.1f} {unit}"


def failure_moment(step: int, phase: Phase) -> list[str]:
    """When in its training a process failed, as far as known: `step 7`, `while compiling`; `after step 7` if the
    newest step was only read from output or logs."""
    if phase == "unknown":
        return [f"after step {step:,}"] if step else []
    return [*([f"step {step:,}"] if step else []), f"while {PHASES[phase]}"]


def seen_while(phase: Phase) -> str:
    """`seen while executing`, of a request; `seen` if the run does not report its phase."""
    return "seen" if phase == "unknown" else f"seen while {PHASES[phase]}"


def full_disk(directory: Path, free_bytes: int) -> str:
    """The sentence about a disk that cannot take the events of a run."""
    return f"the disk of {directory} is full ({size(free_bytes)} free), so the run is not recorded; delete files there"


def forecast(core: MemoryForecast) -> str:
    """Predicted memory: `predicted 412 MiB a core of 16.0 GiB: activations 300 MiB, optimizer 75.0 MiB`.

    Parts of less than 1 % are left out.
    """
    parts = {
        "activations": core.activations_bytes,
        "parameters": core.parameters_bytes,
        "gradients": core.gradients_bytes,
        "optimizer": core.optimizer_bytes,
        "inputs": core.inputs_bytes,
        "telemetry": core.telemetry_bytes,
    }
    ranked = sorted(parts.items(), key=lambda part: -part[1])
    listed = ", ".join(f"{name} {size(part)}" for name, part in ranked if part * 100 >= core.total_bytes)
    of = f" of {size(core.limit_bytes)}" if core.limit_bytes is not None else ""
    again = ", blocks recomputed" if core.rematerialised else ""
    return f"predicted {size(core.total_bytes)} a core{of}: {listed}{again}"


def duration(seconds: float | None) -> str:
    """A duration: `13.1 ms`, `0.40 s`, `12 s`, `3 min 20 s`, `5 h 02 min`, `3 d 4 h`."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < 0.1:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 10:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
    whole = round(seconds)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{minutes} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{hours} h {minutes % 60:02d} min"
    return f"{days} d {hours % 24} h"


def utc(t: float, form: str = "%Y-%m-%dT%H:%M:%SZ", unknown: str = UNKNOWN) -> str:
    """A unix time in UTC: `2025-10-09T08:53:20Z`, or in another `form`; `unknown` if it is not a valid time."""
    try:
        return datetime.fromtimestamp(t, UTC).strftime(form)
    except (ValueError, OverflowError, OSError):
        return unknown


def step_time(seconds: float) -> str:
    """The time of a step with three digits below a second: `47.5 ms`, `149 ms`."""
    return f"{seconds * 1e3:.0f} ms" if 0.1 <= seconds < 0.9995 else duration(seconds)


def in_seconds(value: float | None) -> str:
    """A time in a column of seconds, never in scientific notation: `0.00`, `0.05`, `16.1`."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return f"{value:.2f}" if value < 0.1 else number(value, 2)


def rate(per_s: float | None, unit: str) -> str:
    """A rate: `4,885 examples/s`."""
    if per_s is None or not math.isfinite(per_s):
        return UNKNOWN
    return f"{per_s:,.0f} {unit}/s" if per_s >= 100 else f"{number(per_s, 3)} {unit}/s"


def with_prefix(value: float) -> str:
    """A number with a decimal prefix: `831 M`, `1.23 T`."""
    power = min(max(int(math.log10(value)) // 3, 0), len(PREFIXES) - 1) if value >= 1 else 0
    return f"{value / 1000**power:.3g} {PREFIXES[power]}"


def slower(share: float) -> str:
    """By how much a time exceeds that of others, from its share: `34 % slower`, `3.5 x slower`."""
    return f"{share * 100:.0f} % slower" if share < 2.0 else f"{share + 1.0:.2g} x slower"


def percent(value: float | None) -> str:
    """A share in percent: `87 %`."""
    return UNKNOWN if value is None or not math.isfinite(value) else f"{value:.0f} %"


def whole(seconds: float) -> str:
    """An age in whole seconds, never negative: clocks of two hosts differ a little."""
    clipped = max(0.0, seconds)
    return f"{int(clipped)} s" if clipped < 60 else duration(clipped)


def meters_line(
    train: Mapping[str, MeterReading],
    valid: Mapping[str, MeterReading],
    scores: Mapping[str, float],
    *,
    monitor: str = "",
) -> str:
    """Averages and scores of an epoch: `loss 0.4132, accuracy 0.87; validation loss 0.41, accuracy 0.90, auc 0.97`.

    Of more than `METERS_MAX` of a split the loss, the metric `monitor` and the first ones: `loss 0.4, ... +57`.
    """
    trained = averages({name: meter.avg for name, meter in train.items()}, monitor)
    validated = averages({name: meter.avg for name, meter in valid.items()} | dict(scores), monitor)
    if not validated:
        return trained
    return f"{trained}; validation {validated}" if trained else f"validation {validated}"


def averages(figures: Mapping[str, float], monitor: str = "") -> str:
    """`loss 0.4132, accuracy 0.87`: of more than `METERS_MAX` the loss, the metric `monitor` and the first ones."""
    if len(figures) <= METERS_MAX:
        return ", ".join([f"{name} {number(figure)}" for name, figure in figures.items()])
    first = sorted(figures, key=lambda name: name not in ("loss", monitor))[:METERS_MAX]
    return ", ".join([f"{name} {number(figures[name])}" for name in first]) + f" +{len(figures) - METERS_MAX}"


def sections(sections_s: Mapping[str, float], trace_s: Mapping[str, float]) -> str:
    """Wall time of an epoch by section: `data 0.05 s, trace 0.20 s (forward 0.08 s, backward 0.12 s)`."""
    of_trace = ", ".join(f"{name} {duration(seconds)}" for name, seconds in trace_s.items())
    inside = {"trace": f" ({of_trace})"} if of_trace else {}
    return ", ".join(f"{name} {duration(seconds)}{inside.get(name, '')}" for name, seconds in sections_s.items())


def inert(text: str) -> str:
    """Untrusted text with control characters escaped, such as `\\x1b`, so that a terminal does not execute them.

    Also escapes direction overrides and characters that cannot be encoded; a tab becomes spaces.
    """
    if text.isprintable() and text.isascii():
        return text
    return "".join(_inert(character) for character in text)


def _inert(character: str) -> str:
    if character.isprintable():
        return character
    if character == "\t":
        return "    "
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def age(seconds: float) -> str:
    """An age that is updated once a minute: `12 s`, `3 min`, `5 h 02 min`, `3 d 4 h`."""
    return f"{int(seconds) // 60} min" if 60 <= seconds < 3600 else whole(seconds)


def short_age(seconds: float) -> str:
    """An age in its largest unit: `42s`, `7m`, `3h`, `12d`."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"
