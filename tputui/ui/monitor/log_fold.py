"""Lines of a log as entries: what N cores say alike stands once, and the core that says something else is named. Pure.

A line belongs to a core where it says so in front, as `[rank3]:` or `core 3:`; else to the process that printed it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tputui.state.snapshot import LogLine
from tputui.ui.render.lines import clean, printed

FOLD_S = 2.0
"""Seconds within which the same line, said again, is folded into the first one."""
NAMED_MAX = 2
"""Cores that are named where they lack in what all others say."""

_CORE = re.compile(
    r"(?:\[(?:(default|rank|core|ordinal|replica|process|worker)[ _:=#-]*)?(\d{1,5})\]"
    r"|(rank|core|ordinal|replica|process)[ _:=#-]*(\d{1,5})(?=\s*[:|>\]]))"
    r"\s*[:|>-]?\s*",
    re.IGNORECASE,
)


class Entry(NamedTuple):
    """One or more lines that say the same."""

    line: LogLine
    """The first of them."""
    text: str
    """What they say, without the core, safe for a terminal."""
    num_lines: int
    lanes: tuple[str, ...]
    """Which cores said it, in order of their first line; empty where no line says of which core it is."""
    missing: tuple[str, ...]
    """The few cores that did not say what all others said."""
    odd: bool
    """Said by a core that did not say what the others said around then."""


class LogEntryCore(NamedTuple):
    """A line taken apart."""

    lane: str
    """`rank 3`, or nothing."""
    text: str


@functools.lru_cache(maxsize=1 << 15)
def taken_apart(line: LogLine) -> LogEntryCore:
    """The core that a line names in front, and the rest."""
    text = printed(line.text)
    found = _CORE.match(text)
    if found is None:
        return LogEntryCore("", text)
    kind = (found.group(1) or found.group(3) or "rank").lower()
    number = found.group(2) or found.group(4)
    rest = text[found.end() :]
    return (
        LogEntryCore(f"{'rank' if kind == 'default' else kind} {int(number)}", rest) if rest else LogEntryCore("", text)
    )


def folded(lines: Iterable[LogLine]) -> list[Entry]:
    """The entries, in order of their first lines."""
    groups: list[list[tuple[LogLine, LogEntryCore]]] = []
    open_groups: dict[tuple[str, str], int] = {}
    everyone: dict[str, None] = {}
    for line in lines:
        said = taken_apart(line)
        if said.lane:
            everyone[said.lane] = None
        key = (line.level, said.text)
        index = open_groups.get(key)
        if index is not None and 0 <= line.t - groups[index][0][0].t <= FOLD_S:
            groups[index].append((line, said))
            continue
        open_groups[key] = len(groups)
        groups.append([(line, said)])
    return _named([_entry(group, tuple(everyone)) for group in groups])


def _entry(group: Sequence[tuple[LogLine, LogEntryCore]], everyone: tuple[str, ...]) -> Entry:
    lanes = tuple(dict.fromkeys(said.lane for _, said in group if said.lane))
    absent = [lane for lane in everyone if lane not in lanes] if len(lanes) > 1 else []
    missing = tuple(absent) if 0 < len(absent) <= min(NAMED_MAX, len(lanes) - 1) else ()
    line, said = group[0]
    return Entry(line, said.text, len(group), lanes, missing, False)


def _named(entries: list[Entry]) -> list[Entry]:
    """With the entries marked that a core said alone while the others said something else without it."""
    lacking = [(entry.line.t, lane) for entry in entries for lane in entry.missing]
    if not lacking:
        return entries
    return [entry._replace(odd=True) if _is_odd(entry, lacking) else entry for entry in entries]


def _is_odd(entry: Entry, lacking: Sequence[tuple[float, str]]) -> bool:
    alone = entry.lanes[0] if len(entry.lanes) == 1 else None
    return any(lane == alone and abs(entry.line.t - t) <= FOLD_S for t, lane in lacking)


def lanes_of(lines: Iterable[LogLine]) -> list[str]:
    """Whose lines there are: processes, then the cores that they name, by number."""
    sources: dict[str, None] = {}
    lanes: set[str] = set()
    for line in lines:
        sources[clean(line.source)] = None
        said = taken_apart(line)
        if said.lane:
            lanes.add(said.lane)
    return [*sorted(sources), *sorted(lanes, key=lambda lane: (lane.split()[0], int(lane.split()[1])))]
