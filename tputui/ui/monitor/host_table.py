"""The table of a few hosts: a row per host, and the lines about one host."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from tputui import formatting as fmt
from tputui.state.host_data import HostCondition, HostView, SlowHostView
from tputui.ui.base import status_text
from tputui.ui.base.host_text import SIGNS, HostProblem
from tputui.ui.render.lines import Line, Span, Tone, clean, crop, width_of

_STATE = 16
"""Cells of the state."""
_NAME = (8, 20)
"""Minimum and maximum number of cells of the name of a host."""

_CONDITIONS: dict[HostCondition, tuple[str, Tone]] = {
    "starting": ("\u25cc", "info"),
    "running": ("\u25cf", "good"),
    "stalled": ("\u25b2", "warn"),
    "ended": ("\u25a0", "dim"),
    "lost": ("?", "bad"),
    "missing": ("\u25cb", "bad"),
}


class _Column(NamedTuple):
    """A column, `width` cells wide with the gap before it."""

    title: str
    width: int
    text: Callable[[HostView], str]
    tone: Callable[[HostView], Tone] = lambda host: "plain"
    is_usual: bool = True
    """Whether it is shown if no host has a value worth showing."""


def _seconds(value: float | None) -> str:
    return fmt.UNKNOWN if value is None else fmt.duration(value)


def _memory(host: HostView) -> str:
    return (
        fmt.percent(100 * host.used_bytes / host.total_bytes) if host.used_bytes and host.total_bytes else fmt.UNKNOWN
    )


def clock(host: HostView) -> str:
    """How far its clock is from that of the first host: `+90 s`; 0 if the difference is within the error."""
    offset = host.clock_offset_s
    if offset is None:
        return fmt.UNKNOWN
    if abs(offset) <= max(host.clock_error_s or 0.0, 1e-3):
        return "0"
    return f"{'+' if offset > 0 else ''}{fmt.duration(offset)}"


def _hbm(host: HostView) -> str:
    return fmt.UNKNOWN if host.hbm_used_share is None else fmt.percent(100 * host.hbm_used_share)


# In the order of their importance.
_COLUMNS = (
    _Column("step", 8, lambda host: f"{host.step:,}" if host.step else fmt.UNKNOWN),
    _Column("lag", 6, lambda host: f"{host.lag_steps:,}" if host.step else fmt.UNKNOWN),
    _Column("loss", 10, lambda host: fmt.number(host.loss), lambda host: "bad" if _is_bad(host.loss) else "plain"),
    _Column("data", 9, lambda host: _seconds(host.data_s), is_usual=False),
    _Column("compute", 9, lambda host: _seconds(host.compute_s), is_usual=False),
    _Column("wait", 9, lambda host: _seconds(host.wait_s), is_usual=False),
    _Column("CPU", 7, lambda host: fmt.percent(host.cpu_percent)),
    _Column("memory", 8, _memory),
    _Column("HBM", 6, _hbm, is_usual=False),
    _Column("clock", 10, clock, is_usual=False),
    _Column("gen", 5, lambda host: str(host.generation), is_usual=False),
)


def _is_bad(loss: float | None) -> bool:
    return loss is not None and not math.isfinite(loss)


def state_of(host: HostView, problem: HostProblem | None, slow: SlowHostView | None) -> tuple[str, Tone]:
    """The state of a host in a few words, and its tone."""
    if slow is not None and slow.index == host.index and host.condition == "running":
        return f"{SIGNS['slow'].mark} {fmt.slower(slow.share)}", "warn"
    mark, tone = _CONDITIONS[host.condition]
    if problem is not None and problem.kind in ("nan", "link"):
        mark, tone = problem.mark, problem.tone
        return f"{mark} {'NaN or inf' if problem.kind == 'nan' else 'not connected'}", tone
    if host.condition == "stalled" and host.silent_s is not None:
        return f"{mark} silent {status_text.age(host.silent_s)}", tone
    if host.condition in ("starting", "running", "stalled"):
        return f"{mark} {status_text.phase_in_short(host.phase, host.phase_s) or host.condition}", tone
    return f"{mark} {host.condition}", tone


def table_lines(
    hosts: Sequence[HostView],
    found: Iterable[HostProblem],
    slow: SlowHostView | None,
    width: int,
    chosen: int | None,
) -> tuple[Line, list[Line], int]:
    """Head and rows of the table, and the number of columns without room."""
    problems: Mapping[int, HostProblem] = {one.host: one for one in found}
    digits = max(4, len(str(hosts[-1].index)) + 1 if hosts else 0)
    longest = max((len(clean(host.name)) for host in hosts), default=0)
    name = min(max(longest, _NAME[0]), _NAME[1], max(width // 4, _NAME[0]))
    room = width - digits - name - 2 - _STATE - 2
    steps = max((len(_COLUMNS[0].text(host)) for host in hosts), default=0) + 2
    of_step = _COLUMNS[0]._replace(width=max(_COLUMNS[0].width, steps))
    columns = [
        one for one in (of_step, *_COLUMNS[1:]) if one.is_usual or any(_is_worth(one.text(host)) for host in hosts)
    ]
    shown: list[_Column] = []
    for column in columns:
        if column.width <= room:
            shown.append(column)
            room -= column.width
    links = any(host.link is not None for host in hosts) and room >= 14
    titles = f"{'host':>{digits}} {'name':<{name}} {'state':<{_STATE}}" + "".join(
        f"{c.title:>{c.width}}" for c in shown
    )
    head: Line = [Span(titles, "label"), *([Span("  link", "label")] if links else [])]
    rows: list[Line] = []
    for host in hosts:
        state, tone = state_of(host, problems.get(host.index), slow)
        is_chosen = host.index == chosen
        mark = f"\u276f{host.index:>{digits - 1}}" if is_chosen else f"{host.index:>{digits}}"
        line: Line = [
            Span(mark, "strong"),
            Span(f" {crop(clean(host.name), name):<{name}}", "chosen" if is_chosen else "plain"),
            Span(f" {crop(state, _STATE):<{_STATE}}", tone),
            *(Span(f"{column.text(host):>{column.width}}", column.tone(host)) for column in shown),
        ]
        rows.append([*line, Span(f"  {clean(host.link or fmt.UNKNOWN)}", "label")] if links else line)
    return head, rows, len(columns) - len(shown)


def _is_worth(text: str) -> bool:
    return text not in (fmt.UNKNOWN, "0")


def summary_of(host: HostView, problem: HostProblem | None, width: int) -> Line:
    """One line about a host, of whole parts: `host 37 tpu-vm-37  ● executing  step 1,200  loss 2.3104  data 1.2 ms`."""
    line: Line = []
    for part in summary_parts(host, problem):
        longer: Line = [*line, Span("  "), *part] if line else part
        if line and width_of(longer) > width:
            break
        line = longer
    return line


def summary_parts(host: HostView, problem: HostProblem | None) -> list[Line]:
    """The parts of the line about a host, without the gaps between them."""
    state, tone = state_of(host, None, None)
    name = crop(clean(host.name), _NAME[1])
    parts: list[Line] = [
        [Span(f"host {host.index}", "strong"), *([Span(f" {name}")] if name else [])],
    ]
    mark, _, words = state.partition(" ")
    if problem is not None and problem.text.startswith(words):
        parts.append([Span(f"{mark} {problem.text}", problem.tone)])
    else:
        parts.append([Span(state, tone)])
        parts += [[Span(problem.text, problem.tone)]] if problem is not None else []
    pairs = [
        ("step", f"{host.step:,}" if host.step else fmt.UNKNOWN),
        ("lag", f"{host.lag_steps:,}"),
        ("loss", fmt.number(host.loss)),
        ("data", _seconds(host.data_s)),
        ("compute", _seconds(host.compute_s)),
        ("wait", _seconds(host.wait_s)),
        ("memory", _memory(host)),
        ("HBM", _hbm(host)),
    ]
    parts += [[Span(f"{name} ", "label"), Span(text)] for name, text in pairs if _is_worth(text)]
    return parts
