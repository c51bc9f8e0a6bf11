"""The lines of the log: stored, folded into entries by core, and drawn as rows. Only `older_lines` reads files.

A line belongs to a core if its prefix names one, as `[rank3]:` or `core 3:`; else to the process that printed it. In a
run of several hosts it belongs to the host of that process too.
"""

from __future__ import annotations

import functools
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple, TypeVar

from tputui.state import timeline
from tputui.state.process_state import ProcessState
from tputui.state.reducer import RunState
from tputui.state.snapshot import LogLine
from tputui.telemetry.merge import Merge
from tputui.ui.base import status_text
from tputui.ui.render.lines import DrawnLate, Line, Span, Tone, cells_of, clean, crop, printed, wrap

# The lines.

LINES_MAX = 10_000
"""Maximum number of lines stored; the oldest are dropped."""


class LogStore:
    """The lines seen so far, oldest first. A snapshot has only the newest; those before stay. A replay that goes back
    removes lines. Lines never change their order, so that nothing on the screen jumps."""

    def __init__(self) -> None:
        self.lines: list[LogLine] = []
        self.num_cut = 0
        """Number of lines dropped at the front since the beginning."""
        self.generation = 0
        """Changes when lines before the newest ones have moved."""
        self.has_hosts = False
        """Whether lines belong to hosts, because the run has several."""

    def take(self, newest: Sequence[LogLine]) -> None:
        """Add the newest lines, as a snapshot has them."""
        place = self._place_of(newest[0]) if newest else None
        if place is None or place + len(newest) < len(self.lines):
            self.generation += 1
        if place is None:
            self.lines = list(newest)
            return
        del self.lines[place:]
        self.lines.extend(newest)
        self._cut()

    def take_older(self, older: Sequence[LogLine]) -> int:
        """Insert lines before the first one; returns the number inserted."""
        first = self.lines[0] if self.lines else None
        before = list(older)
        if first in before:
            before = before[: before.index(first)]
        elif first is not None:
            before = [line for line in before if line.t < first.t]
        before = before[-max(LINES_MAX - len(self.lines), 0) :] if len(self.lines) < LINES_MAX else []
        self.lines[:0] = before
        self.generation += 1
        return len(before)

    def _place_of(self, line: LogLine) -> int | None:
        for place in range(len(self.lines) - 1, -1, -1):
            if self.lines[place] == line:
                return place
        return None

    def _cut(self) -> None:
        over = len(self.lines) - LINES_MAX
        if over > 0:
            del self.lines[:over]
            self.num_cut += over


class OlderLines(NamedTuple):
    """The newest `LINES_MAX` lines of the log as the journals have it, oldest first."""

    lines: list[LogLine]
    where: str
    """The files with all lines, or why they could not be read."""


def older_lines(run_dir: Path, until: float = math.inf, is_stopped: Callable[[], bool] = lambda: False) -> OlderLines:
    """Read the log up to the unix time `until` from the journals; gives up once `is_stopped`.

    Takes as long as opening the run; call it in a thread.
    """
    state, merge = RunState(), Merge(run_dir)
    try:
        done = False
        while not done and not is_stopped():
            events, done = merge.poll(until)
            for event in events:
                if event.writer not in state.processes:
                    state.adopt({event.writer: _process_with_long_log(event.writer)})
                state.apply(*event)
    except OSError as error:
        return OlderLines([], f"the journals cannot be read: {error.strerror or error}")
    finally:
        merge.close()
    return OlderLines(timeline.logs(state, LINES_MAX), f"all lines: {_files(run_dir)}")


def _process_with_long_log(name: str) -> ProcessState:
    process = ProcessState(name)
    process.log.lines_max = LINES_MAX
    return process


def _files(run_dir: Path) -> str:
    """The files with the output of training."""
    names = sorted(path.name for path in run_dir.glob("worker-*.log"))
    listed = ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")
    return f"{run_dir}/{listed}" if names else f"the journals in {run_dir}"


# Folding.

FOLD_S = 2.0
"""Seconds within which equal lines are folded into the first one."""
NAMED_MAX = 2
"""Maximum number of missing cores that are named."""

_CORE = re.compile(
    r"(?:\[(?:(default|rank|core|ordinal|replica|process|worker)[ _:=#-]*)?(\d{1,5})\]"
    r"|(rank|core|ordinal|replica|process)[ _:=#-]*(\d{1,5})(?=\s*[:|>\]]))"
    r"\s*[:|>-]?\s*",
    re.IGNORECASE,
)


class Entry(NamedTuple):
    """One or more lines with the same text."""

    line: LogLine
    """The first of them."""
    text: str
    """Their text without the core, safe for a terminal."""
    num_lines: int
    lanes: tuple[str, ...]
    """The cores that printed it, in order of their first line; empty if no line names a core."""
    missing: tuple[str, ...]
    """The few cores that did not print what all others printed."""
    odd: bool
    """Whether a core printed it that lacked in an entry of the others at about the same time."""
    hosts: tuple[int, ...] = ()
    """The hosts that printed it, in order of their first line; empty if the run has one host."""


@functools.lru_cache(maxsize=1 << 15)
def split_core(line: LogLine) -> tuple[str, str]:
    """The core that a line names, such as `rank 3` or empty if it names none, and the rest of its text."""
    text = printed(line.text)
    match = _CORE.match(text)
    if match is None:
        return "", text
    kind = (match.group(1) or match.group(3) or "rank").lower()
    number = match.group(2) or match.group(4)
    message = text[match.end() :]
    return (f"{'rank' if kind == 'default' else kind} {int(number)}", message) if message else ("", text)


_SOURCE = re.compile(r"(?:worker|supervisor|logs)-(\d{1,6})")


@functools.lru_cache(maxsize=1 << 12)
def host_of_source(source: str) -> int | None:
    """The host of the process that printed a line, in a run of several hosts; None for lines of tputui."""
    match = _SOURCE.fullmatch(source)
    return int(match.group(1)) if match is not None else None


def folded(lines: Iterable[LogLine], *, has_hosts: bool = False) -> list[Entry]:
    """Fold lines into entries, in order of their first lines. `has_hosts`: the run has several hosts."""
    groups: list[list[tuple[LogLine, str, str]]] = []
    """Lines with their lanes and texts."""
    open_groups: dict[tuple[str, str], int] = {}
    all_lanes: dict[str, None] = {}
    all_hosts: dict[int, None] = {}
    for line in lines:
        lane, text = split_core(line)
        if has_hosts and (host := host_of_source(line.source)) is not None:
            all_hosts[host] = None
        if lane:
            all_lanes[lane] = None
        key = (line.level, text)
        index = open_groups.get(key)
        if index is not None and 0 <= line.t - groups[index][0][0].t <= FOLD_S:
            groups[index].append((line, lane, text))
            continue
        open_groups[key] = len(groups)
        groups.append([(line, lane, text)])
    return _marked([_entry(group, all_lanes, all_hosts) for group in groups])


def _entry(group: Sequence[tuple[LogLine, str, str]], all_lanes: Collection[str], all_hosts: Collection[int]) -> Entry:
    lanes = dict.fromkeys(lane for _, lane, _ in group if lane)
    hosts: dict[int, None] = {}
    if all_hosts:
        indices = (host_of_source(line.source) for line, *_ in group)
        hosts = dict.fromkeys(host for host in indices if host is not None)
    # Of an entry of several hosts the missing hosts are of interest, not the missing cores.
    missing = _missing(lanes, all_lanes) if len(hosts) < 2 else tuple(map(host_lane, _missing(hosts, all_hosts)))
    line, _, text = group[0]
    return Entry(line, text, len(group), tuple(lanes), missing, False, tuple(hosts))


KeyT = TypeVar("KeyT")


def _missing(present: Collection[KeyT], every: Collection[KeyT]) -> tuple[KeyT, ...]:
    """The few that did not print what all others printed."""
    if not 0 < len(every) - len(present) <= min(NAMED_MAX, len(present) - 1):
        return ()
    return tuple(key for key in every if key not in present)


def host_lane(host: int) -> str:
    """The name of a host: `host 3`."""
    return f"host {host}"


def _marked(entries: list[Entry]) -> list[Entry]:
    """Mark the entries of a single core that lacked in an entry of the others at about the same time."""
    lacking = [(entry.line.t, lane) for entry in entries for lane in entry.missing]
    if not lacking:
        return entries
    return [entry._replace(odd=True) if _is_odd(entry, lacking) else entry for entry in entries]


def _is_odd(entry: Entry, lacking: Sequence[tuple[float, str]]) -> bool:
    alone = set(entry.lanes) if len(entry.lanes) == 1 else set[str]()
    if len(entry.hosts) == 1:
        alone.add(host_lane(entry.hosts[0]))
    return any(lane in alone and abs(entry.line.t - t) <= FOLD_S for t, lane in lacking)


def lanes_of(lines: Iterable[LogLine], *, has_hosts: bool = False) -> list[str]:
    """The hosts or else processes with lines, sorted, then the cores that lines name, by number."""
    sources: dict[str, None] = {}
    lanes: set[str] = set()
    hosts: set[int] = set()
    for line in lines:
        host = host_of_source(line.source) if has_hosts else None
        if host is not None:
            hosts.add(host)
        else:
            sources[clean(line.source)] = None
        if lane := split_core(line)[0]:
            lanes.add(lane)
    of_cores = sorted(lanes, key=lambda lane: (lane.split()[0], int(lane.split()[1])))
    return [*map(host_lane, sorted(hosts)), *sorted(sources), *of_cores]


# Drawing.

SIGNS = {"info": "", "warning": "\u25b2 warning: ", "error": "\u2716 error: "}
"""Prefix of a line by its level."""

_TONES: dict[str, Tone] = {"info": "plain", "warning": "warn", "error": "bad"}
_SOURCE_FROM_WIDTH = 60


class LogRows(DrawnLate):
    """The rows of entries, each drawn on request, so that a long log costs no more than its visible part."""

    def __init__(
        self,
        entries: Sequence[Entry],
        width: int,
        *,
        wrapped: bool,
        with_source: bool,
        pattern: re.Pattern[str] | None = None,
        chosen: int | None = None,
    ) -> None:
        self._entries = entries
        self._width = width
        self._wrapped = wrapped
        self._with_source = with_source and width >= _SOURCE_FROM_WIDTH
        self._pattern = pattern
        self._chosen = chosen
        self._ends: Sequence[int] = range(1, len(entries) + 1)
        """For each entry, the number of rows up to its end."""
        if wrapped:
            self._ends = list(accumulate(self._rows_of(entry) for entry in entries))

    def __len__(self) -> int:
        return self._ends[-1] if self._entries else 0

    def entry_at(self, row: int) -> int:
        """The entry of a row."""
        return min(bisect_right(self._ends, row), len(self._entries) - 1)

    def first_row(self, entry: int) -> int:
        """The first row of an entry."""
        return self._ends[entry - 1] if entry > 0 else 0

    def _rows_of(self, entry: Entry) -> int:
        room = self._room(entry)
        text = _text(entry)
        return 1 if len(text) <= room and text.isascii() else len(wrap(text, room))

    def _room(self, entry: Entry) -> int:
        source = entry.line.source if self._with_source else None
        num_hosts = len(entry.hosts)
        first = entry.hosts[0] if num_hosts == 1 else -1
        return max(self._width - _head_width(source, entry.num_lines, entry.missing, entry.lanes, num_hosts, first), 8)

    def line_at(self, row: int) -> Line:
        """A row of an entry: a piece of its wrapped text, or as much of it as fits."""
        index = self.entry_at(row)
        entry, part = self._entries[index], row - self.first_row(index)
        head = self._head(entry)
        room = self._room(entry)
        pieces = wrap(_text(entry), room) if self._wrapped else [crop(_text(entry), room)]
        body = _highlighted(pieces[min(part, len(pieces) - 1)], self._pattern, _TONES[entry.line.level])
        indent = sum(cells_of(span.text) for span in head)
        line: Line = [*head, *body] if part == 0 else [Span(" " * indent), *body]
        return self._as_chosen(line) if index == self._chosen else line

    def _as_chosen(self, line: Line) -> Line:
        width = sum(cells_of(span.text) for span in line)
        marked = [Span("\u276f" + line[0].text[1:], "chosen"), *line[1:]]
        kept = [span if span.tone == "hit" else Span(span.text, "chosen") for span in marked]
        return [*kept, Span(" " * max(self._width - width, 0), "chosen")]

    def _head(self, entry: Entry) -> Line:
        return _head(entry, self._with_source)


_clock = functools.lru_cache(maxsize=1 << 14)(status_text.time_of_day)


def _head(entry: Entry, with_source: bool) -> Line:
    source = f"{clean(entry.line.source)} " if with_source and not entry.hosts else ""
    head: Line = [Span(f" {_clock(int(entry.line.t))} ", "dim"), Span(source, "label")]
    if len(entry.hosts) == 1:
        head.append(Span(f"{host_lane(entry.hosts[0])} ", "warn" if entry.odd else "label"))
    if entry.num_lines > 1:
        hosts = f"{len(entry.hosts)} hosts" if len(entry.hosts) > 1 else str(entry.num_lines)
        head.append(Span(f"x{hosts} ", "accent"))
    if entry.missing:
        head.append(Span(f"not {', '.join(entry.missing)} ", "warn"))
    elif len(entry.lanes) == 1:
        head.append(Span(f"{entry.lanes[0]} ", "warn" if entry.odd else "label"))
    return head


@functools.lru_cache(maxsize=1 << 12)
def _head_width(
    source: str | None, count: int, missing: tuple[str, ...], lanes: tuple[str, ...], num_hosts: int, host: int
) -> int:
    """The width in cells of the part before the text; without the source if that is None. `host` is a single host."""
    line = LogLine(t=0.0, source=source or "", level="info", text="")
    hosts = (host,) if num_hosts == 1 else tuple(range(num_hosts))
    head = _head(Entry(line, "", count, lanes, missing, False, hosts), source is not None)
    return sum(cells_of(span.text) for span in head)


def _text(entry: Entry) -> str:
    return SIGNS[entry.line.level] + entry.text


def _highlighted(text: str, pattern: re.Pattern[str] | None, tone: Tone) -> Line:
    """The text with the matches of the search highlighted."""
    if pattern is None:
        return [Span(text, tone)]
    line: Line = []
    at = 0
    for match in pattern.finditer(text):
        if match.end() > match.start():
            line += [Span(text[at : match.start()], tone), Span(match.group(), "hit")]
            at = match.end()
    return [span for span in [*line, Span(text[at:], tone)] if span.text] or [Span("", tone)]
