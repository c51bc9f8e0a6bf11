"""The xla panel: counters of the runtime. Recompiles and other problems are highlighted."""

from __future__ import annotations

from typing import NamedTuple

from tputui import formatting as fmt
from tputui.state.snapshot import Snapshot, XlaView
from tputui.text import phrases
from tputui.ui.base import status_text
from tputui.ui.render.lines import Line, Span, Tone, clean, paragraph
from tputui.ui.widgets.panel import Drawing, RunPanel

_LABEL = 12


class XlaPart(NamedTuple):
    """The content of the panel."""

    xla: XlaView | None
    why_none: str


class XlaPanel(RunPanel[XlaPart]):
    """Compiles, executions, transfers, fallbacks."""

    key = "5"
    name_shown = "xla"
    what = (
        "compiles, executions and transfers of the XLA runtime; recompiles, extra executions per step, scalar reads of "
        "the task and CPU fallbacks are highlighted"
    )

    @staticmethod
    def pick(snapshot: Snapshot) -> XlaPart:
        return XlaPart(snapshot.xla, "" if snapshot.xla else status_text.nothing_yet(snapshot, "XLA counter"))

    def draw(self, part: XlaPart, width: int, height: int) -> Drawing:
        """One line per counter."""
        xla = part.xla
        if xla is None:
            return Drawing(paragraph(part.why_none, width, height))
        rows = [
            _row("compiles", f"{fmt.count(xla.compiles)} in {fmt.duration(xla.compile_s)}"),
            _recompiles(xla),
            _executes(xla, width - _LABEL - 1),
            _row("to device", f"{fmt.count(xla.transfers_to_device)}  {fmt.size(xla.bytes_to_device)}"),
            _row("from device", f"{fmt.count(xla.transfers_from_device)}  {fmt.size(xla.bytes_from_device)}"),
            *_task_reads(xla),
            *_fallbacks(xla.fallbacks),
        ]
        return Drawing(rows)


def _row(label: str, text: str, tone: Tone = "plain") -> Line:
    return [Span(f" {label:<{_LABEL}}", "label"), Span(text, tone)]


def _recompiles(xla: XlaView) -> Line:
    if xla.recompiles:
        return _row("recompiles", f"\u25b2 {phrases.recompiles(xla)}", "warn")
    return _row("recompiles", phrases.recompiles(xla), "good" if xla.is_never_recompiled else "plain")


def _executes(xla: XlaView, width: int) -> Line:
    """The executions, with those per step once there are steps after warm-up; without their time if too long."""
    each = phrases.executes_a_step(xla)
    if xla.has_extra_executes:
        return _row("executes", f"\u25b2 {each}; {fmt.count(xla.executes)} in all", "warn")
    in_all, beside = f"{fmt.count(xla.executes)} in {fmt.duration(xla.execute_s)}", f", {each}" if each else ""
    fits = len(in_all + beside) <= width
    return _row("executes", in_all + beside if fits else fmt.count(xla.executes) + beside)


def _task_reads(xla: XlaView) -> list[Line]:
    reads = phrases.reads_a_step(xla)
    if not xla.reads_a_step:
        return [_row("task reads", reads, "good")] if reads else []
    return [_row("task reads", f"\u25b2 {reads}", "warn")]


def _fallbacks(fallbacks: dict[str, int]) -> list[Line]:
    if not fallbacks:
        return [_row("fallbacks", "0 to the CPU", "good")]
    rows = [_row("fallbacks", f"\u25b2 {fmt.count(sum(fallbacks.values()))} to the CPU", "warn")]
    ranked = sorted(fallbacks.items(), key=lambda item: (-item[1], item[0]))
    return rows + [_row("", f"{clean(name)}  {fmt.count(times)}", "warn") for name, times in ranked]
