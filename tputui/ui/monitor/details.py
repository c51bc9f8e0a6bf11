"""The run details over the monitor: where the run comes from, and its configuration."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from textual.binding import Binding, BindingType

from tputui import formatting as fmt
from tputui.config_diff import ConfigLine, config_lines
from tputui.state.snapshot import RunDetails, Snapshot
from tputui.telemetry.events import TopologyDeclared
from tputui.text import phrases
from tputui.ui.base.export import Figures
from tputui.ui.render.lines import Line, Span, Tone, clean, wrap
from tputui.ui.widgets.panel import Drawing, RunOverlay, RunPanel

_NAME_WIDTH = 14
_MARK = "\u2022"
_TEXT_MAX, _VALUES_MAX = 2_000, 2_000
"""Maximum number of characters of a text and of values drawn: a run from an untrusted source may contain more."""


class DetailsPart(NamedTuple):
    """The content of the panel."""

    run: str
    dir: str
    details: RunDetails
    topology: TopologyDeclared | None
    precision: str
    created: float | None
    started: float | None
    ended: float | None
    config: Mapping[str, Any]


class DetailsPanel(RunPanel[DetailsPart]):
    """Command, host, versions, git commit, times and configuration of the run."""

    key = "r"
    name_shown = "run details"
    what = "command, host, versions, git commit and configuration of the run"

    @staticmethod
    def pick(snapshot: Snapshot) -> DetailsPart:
        """The parts of the snapshot that rarely change."""
        precision = snapshot.plan.precision if snapshot.plan is not None else ""
        return DetailsPart(
            snapshot.run,
            snapshot.dir,
            snapshot.details,
            snapshot.topology,
            precision,
            snapshot.created,
            snapshot.started,
            snapshot.ended,
            snapshot.config,
        )

    def draw(self, part: DetailsPart, width: int, height: int) -> Drawing:
        """Where the run comes from, then its configuration."""
        rows = [row for name, text in facts(part) for row in _fact(name, text, width)]
        lines = config_lines(part.config)
        rows += [
            [],
            *_config_head(part, lines, width),
            *(row for line in lines[:_VALUES_MAX] for row in _config_row(line, width)),
        ]
        return Drawing(rows, note="y copy  e export  esc close")

    def figures(self) -> Figures | None:
        """Every fact and every value of the configuration."""
        if self._part is None:
            return None
        rows = [("run", name, text, None) for name, text in facts(self._part)]
        values = [("config", line.key, line.value, line.is_set) for line in config_lines(self._part.config)]
        return Figures(("of", "key", "value", "differs_from_default"), [*rows, *values])


class DetailsScreen(RunOverlay):
    """The run details."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,r", "dismiss", show=False),
        Binding("g", "scroll(-1000000)", show=False),
        Binding("G,shift+g", "scroll(1000000)", show=False),
    ]

    def __init__(self, snapshot: Snapshot | None) -> None:
        super().__init__(DetailsPanel(id="details"), snapshot)


def facts(part: DetailsPart) -> list[tuple[str, str]]:
    """Where the run comes from and when it ran, as pairs of a name and a text."""
    return [
        ("run", part.run),
        ("stored in", part.dir),
        *phrases.details(part.details),
        ("device", _device(part)),
        ("created", _local_time(part.created)),
        ("started", _local_time(part.started)),
        ("ended", _ended(part)),
    ]


def _device(part: DetailsPart) -> str:
    topology = part.topology
    if topology is None:
        return "not known yet"
    cores = fmt.device_cores(topology.num_cores, topology.device)
    strategy = fmt.strategy(topology.strategy)
    hosts = f"{topology.num_hosts} hosts" if topology.num_hosts > 1 else ""
    why = topology.device_reason or ""
    return ", ".join(text for text in (cores, strategy, part.precision, hosts, why) if text)


def _ended(part: DetailsPart) -> str:
    if part.ended is None:
        return "not yet"
    duration = f" (after {fmt.duration(part.ended - part.started)})" if part.started is not None else ""
    return _local_time(part.ended) + duration


def _local_time(t: float | None) -> str:
    """A unix time in local time; a run from an untrusted source may contain an invalid one."""
    try:
        return fmt.UNKNOWN if t is None else time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(t))
    except (OverflowError, ValueError, OSError):
        return fmt.UNKNOWN


def _fact(name: str, text: str, width: int) -> list[Line]:
    first, *continued = wrap(_clipped(text), max(width - _NAME_WIDTH - 2, 8)) or [""]
    rows: list[Line] = [[Span(f" {name:<{_NAME_WIDTH}}", "label"), Span(first)]]
    return rows + [[Span(" " * (_NAME_WIDTH + 1)), Span(piece)] for piece in continued]


def _clipped(text: str) -> str:
    return clean(text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}\u2026")


def _config_head(part: DetailsPart, lines: Sequence[ConfigLine], width: int) -> list[Line]:
    """The file of the configuration and the meaning of the mark."""
    source = f" {part.details.config_path}" if part.details.config_path else ""
    num_set = sum(line.is_set for line in lines)
    legend = f"{_MARK} {num_set} of {len(lines)} values are not the default"
    head: list[Line] = [[Span(" configuration", "title"), Span(clean(source), "label")]]
    return head + [[Span(f" {piece}", "label")] for piece in wrap(legend, max(width - 2, 8))]


def _config_row(line: ConfigLine, width: int) -> list[Line]:
    mark = _MARK if line.is_set else " "
    pieces = wrap(_clipped(f"{line.key} = {line.value}"), max(width - 5, 8)) or [""]
    tone: Tone = "plain" if line.is_set else "label"
    return [
        [Span(f" {mark if index == 0 else ' '} ", "accent"), Span(piece if index == 0 else f"  {piece}", tone)]
        for index, piece in enumerate(pieces)
    ]
