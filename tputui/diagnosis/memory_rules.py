"""Rules about memory: runs that ended for lack of it, and memory that grows until there is none left.

The compiler's error is `RESOURCE_EXHAUSTED: ... Ran out of memory in memory space hbm`, in newer versions with the code
`E1000: CompileTimeHbmOom`; both contain the same table of the largest buffers. The texts are untrusted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from tputui import formatting as fmt
from tputui.diagnosis.diagnosed_run import DiagnosedRun
from tputui.diagnosis.verdict import Verdict
from tputui.state.evidence_groups import Line
from tputui.state.run_condition import ENDED
from tputui.state.snapshot import Failure

TEXT_MAX = 1 << 20
"""Characters of a text that are parsed."""
BUFFERS_MAX = 20
"""As many as XLA prints."""
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_AMOUNT = r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s?([KMGT]?)(?:iB|B)?"
_COMPILE = re.compile(rf"Ran out of memory in memory space \w{{1,20}}\.\s+Used {_AMOUNT} of {_AMOUNT}")
_ALLOCATE = re.compile(
    rf"Attempting to (?:allocate|reserve) {_AMOUNT}[^\n]{{0,200}}?There (?:are|is) {_AMOUNT} free"
)  # fmt: skip
_ASKED = re.compile(
    rf"(?:[Oo]ut of memory (?:while trying to allocate|allocating)|Failed to allocate request for) {_AMOUNT}"
)
_MARKS = re.compile(r"RESOURCE_EXHAUSTED|CompileTimeHbmOom|RuntimeBufferAllocationFailure|Resource exhausted")
_BUFFER = re.compile(rf"\b[0-9]{{1,3}}\. Size: {_AMOUNT}")
_SHAPE = re.compile(r"Shape: ([a-z]+[0-9a-z]*\[[0-9,]*\])")
_SOURCE = re.compile(r'source_file="([^"\n]{1,1000})"\s{1,8}source_line=([0-9]{1,9})')
_OPERATOR = re.compile(r'op_name="([^"\n]{1,2000})')
_PADDING = re.compile(r"\(([0-9]{1,6}(?:\.[0-9]{1,6})?)x expansion\)")
_KIND = re.compile(r"Allocation type: ([A-Za-z ]{1,40})")


class Buffer(NamedTuple):
    """A buffer of a program that did not fit."""

    size: int
    shape: str
    """`f32[256,64,256,256]`; empty if not printed."""
    operator: str
    """Last part of the name of the operation; empty if not printed."""
    file: str
    """Source file; empty if the program records no lines."""
    line: int
    expansion: float
    """Factor by which padding enlarges it; 1 if not printed."""
    kind: str
    """`HLO temp`, `argument`, ...; empty if not printed."""


class MemoryShortage(NamedTuple):
    """An error of XLA for lack of device memory."""

    when: Literal["compile", "allocate"]
    needed: int | None
    """Bytes that the program, or the buffer, needs."""
    available: int | None
    """Bytes that the device has, or that were free."""
    code: str
    """`E1000` of newer versions; else empty."""
    buffers: list[Buffer]
    """The largest ones, largest first."""


def parse(text: str) -> MemoryShortage | None:
    """The error in a text; None if it contains none."""
    text = text[:TEXT_MAX]
    if match := _COMPILE.search(text):
        needed, available = _bytes(match[1], match[2]), _bytes(match[3], match[4])
        code = "E1000" if "E1000" in text or "CompileTimeHbmOom" in text else ""
        return MemoryShortage("compile", needed, available, code, _buffers(text))
    if match := _ALLOCATE.search(text):
        return MemoryShortage("allocate", _bytes(match[1], match[2]), _bytes(match[3], match[4]), "", _buffers(text))
    asked = _ASKED.search(text)
    if asked or _MARKS.search(text):  # the error of XLA's CPU devices has no mark
        return MemoryShortage("allocate", _bytes(asked[1], asked[2]) if asked else None, None, "", _buffers(text))
    return None


def _buffers(text: str) -> list[Buffer]:
    starts = [*_BUFFER.finditer(text)][:BUFFERS_MAX]
    ends = [*(start.start() for start in starts[1:]), len(text)]
    made = [_buffer(start, text[start.end() : min(end, start.end() + 5_000)])
            for start, end in zip(starts, ends, strict=False)]  # fmt: skip
    return sorted(made, key=lambda buffer: -buffer.size)


def _buffer(match: re.Match[str], block: str) -> Buffer:
    shape, source, operator = _SHAPE.search(block), _SOURCE.search(block), _OPERATOR.search(block)
    padding, kind = _PADDING.search(block), _KIND.search(block)
    return Buffer(
        size=_bytes(match[1], match[2]),
        shape=shape[1][:200] if shape else "",
        operator=operator[1].rpartition("/")[2].partition("[")[0][:100] if operator else "",
        file=source[1] if source else "",
        line=int(source[2]) if source else 0,
        expansion=float(padding[1]) if padding else 1.0,
        kind=kind[1].strip() if kind else "",
    )


def _bytes(number: str, unit: str) -> int:
    return round(float(number) * _UNITS[unit])


POINTS_MIN = 20
"""Samples that a trend needs, ..."""
SPAN_MIN_S = 60.0
"""... and the time that they must cover."""
POINTS_USED = 64
"""Samples of which every pair is compared."""
GROWTH_MIN = 0.02
"""Growth over the samples, as a share of the limit, below which it is noise."""
LASTING = 0.5
"""The newer half must grow at least half as fast as the older one: a level that is being reached does not."""
HORIZON_S = 86_400.0
"""How far ahead a trend is continued if the end of the run is not known."""
EXPANSION_MIN = 1.5
"""Padding of a buffer from which it is evidence."""
BUFFERS_SHOWN = 3
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python")
_LESS = "use a smaller batch per core, bfloat16, or recompute activations (rematerialisation)"


def out_of_memory(run: DiagnosedRun) -> Iterator[Verdict]:
    """The failure of a run that needed more memory than there is."""
    failure = run.snapshot.failure
    if failure is None:
        return
    error = parse("\n".join([failure.message, *failure.log, failure.traceback, failure.stack]))
    if error is None:
        if failure.kind == "memory":
            yield _host_failure(run, failure)
        return
    needed = f": {fmt.size(error.needed)} needed" if error.needed is not None else ""
    available = (
        f", {fmt.size(error.available)} {'available' if error.when == 'compile' else 'free'}" if error.available else ""
    )
    did = "a program does not fit into device memory" if error.when == "compile" else "a buffer could not be allocated"
    plan = run.snapshot.plan
    batch = f" (now {plan.batch_per_core} per core)" if plan is not None and plan.batch_per_core else ""
    yield run.verdict(
        "out_of_memory",
        f"{did}{needed}{available}",
        line=_line(error, failure),
        fatal=True,
        evidence=list(_evidence(error)),
        fix=f"{_LESS}{batch}",
    )


def _host_failure(run: DiagnosedRun, failure: Failure) -> Verdict:
    reason = failure.message.strip().splitlines()[:1]
    return run.verdict(
        "out_of_memory",
        "the host ran out of memory",
        line=_frame_line(failure),
        fatal=True,
        evidence=[*(text[:200] for text in reason), *([failure.memory] if failure.memory else [])],
        fix="load fewer batches ahead, with fewer processes, and do not keep tensors of earlier steps",
    )


def _evidence(error: MemoryShortage) -> Iterator[str]:
    if error.code:
        yield f"XLA's error {error.code} (CompileTimeHbmOom)"
    for buffer in error.buffers[:BUFFERS_SHOWN]:
        at = f" at {'/'.join(buffer.file.split('/')[-2:])}:{buffer.line}" if buffer.file else ""
        expansion = f", {buffer.expansion:g}x by padding" if buffer.expansion >= EXPANSION_MIN else ""
        details = " ".join(filter(None, (buffer.shape, buffer.operator, f"({buffer.kind})" if buffer.kind else "")))
        yield f"{fmt.size(buffer.size)} {details}{at}{expansion}"
    if error.when == "compile" and not error.buffers:
        yield "the text of the error lists no buffers"


def _line(error: MemoryShortage, failure: Failure) -> Line:
    """The line of the largest buffer in the user's code; else that of the call that failed."""
    user_buffers = [buffer for buffer in error.buffers if buffer.file and not _is_library(buffer)]
    for buffer in user_buffers or [buffer for buffer in error.buffers if buffer.file]:
        return Line(file=buffer.file, line=buffer.line, function="", reason=None)
    return _frame_line(failure)


def _frame_line(failure: Failure) -> Line:
    frame = next((frame for frame in failure.frames if frame.owner == "user"), None)
    return Line.of(frame, "the error names no line of the user's code")


def _is_library(buffer: Buffer) -> bool:
    return any(part in buffer.file for part in _LIBRARIES)


class Trend(NamedTuple):
    """Memory that grows steadily."""

    per_s: float
    now: float
    since_s: float


def memory_trend(run: DiagnosedRun) -> Iterator[Verdict]:
    """Memory that would be exhausted before the run ends."""
    if run.snapshot.condition in ENDED or _is_before_training(run):
        return
    memory, generations = run.snapshot.memory, run.snapshot.generations
    # The processes before a restart have given their memory back.
    since = generations[-1].t if generations else 0.0
    points = [point for point in run.snapshot.memory_history if point.t >= since]
    limit = min((reading.limit_bytes for reading in memory.hbm or ()), default=0)
    device = [(point.t, float(point.hbm_used_bytes)) for point in points if point.hbm_used_bytes is not None]
    yield from _exhausted(run, "device memory", device, limit)
    processes = [(point.t, float(point.rss_bytes)) for point in points if point.rss_bytes is not None]
    if memory.host_total_bytes and memory.host_used_bytes is not None and processes:
        others = max(0.0, memory.host_used_bytes - processes[-1][1])
        yield from _exhausted(run, "memory of the host", processes, memory.host_total_bytes - others)


def _is_before_training(run: DiagnosedRun) -> bool:
    """Whether memory grows because modules, data and the first programs are loaded; not known of a plain command."""
    generations = run.snapshot.generations
    if generations and generations[-1].number and generations[-1].lost_s is None:
        return True
    return run.snapshot.phase not in (None, "unknown") and not run.snapshot.steps


def _exhausted(run: DiagnosedRun, memory: str, samples: list[tuple[float, float]], limit: float) -> Iterator[Verdict]:
    trend = trend_of(samples, limit) if limit > 0 else None
    if trend is None:
        return
    left_s = max(0.0, limit - trend.now) / trend.per_s
    if left_s > (run.snapshot.eta_s if run.snapshot.eta_s is not None else HORIZON_S):
        return
    yield run.verdict(
        "memory_trend",
        f"the {memory} grows by {fmt.size(trend.per_s * 60)} a minute and is exhausted in {fmt.whole(left_s)}",
        fatal=True,
        line_reason="memory is not attributed to lines",
        evidence=[f"{fmt.size(trend.now)} of {fmt.size(limit)} after {fmt.whole(trend.since_s)} of steady growth"],
        fix="do not keep tensors of earlier steps: append float(loss) once per report in place of the loss itself",
    )


def trend_of(samples: Sequence[tuple[float, float]], limit: float) -> Trend | None:
    """The trend of the newer half of samples (unix time, bytes), if it grows steadily; the median of all slopes."""
    newer = samples[len(samples) // 2 :]
    if len(newer) < POINTS_MIN or newer[-1][0] - newer[0][0] < SPAN_MIN_S:
        return None
    stride = -(-len(newer) // POINTS_USED)
    used = newer[::-stride][::-1]
    slope = _slope(used)
    older, newest = _slope(used[: len(used) // 2]), _slope(used[len(used) // 2 :])
    since_s = newer[-1][0] - newer[0][0]
    if slope <= 0 or slope * since_s < GROWTH_MIN * limit or newest < LASTING * max(older, slope):
        return None
    return Trend(slope, newer[-1][1], since_s)


def _slope(samples: Sequence[tuple[float, float]]) -> float:
    """Median slope over all pairs of samples, in bytes per second."""
    slopes = [
        (right[1] - left[1]) / (right[0] - left[0])
        for place, left in enumerate(samples)
        for right in samples[place + 1 :]
        if right[0] > left[0]
    ]
    slopes.sort()
    return slopes[len(slopes) // 2] if slopes else 0.0
