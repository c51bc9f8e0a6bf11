"""Errors that parsers of command lines print before they end a program: argparse, click, typer, tyro, absl, fire,
hydra, and Python itself. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tputui.supervise.failure_found import PrintedFailure

USAGE_LINES_MAX = 300
"""Lines of a usage message, after which the error may come."""
PLACES_MAX = 50
"""Lines at the end of an output that may belong to such an error."""
_HINT = re.compile(r"sage: |USAGE: |\u256d\u2500 |FATAL Flags|HYDRA_FULL_ERROR|python[\d.]*: ")
_USAGE = re.compile(r"(?:^|(?<=[:\])|>])|(?<=[:\])|>] )) ?[Uu](?:sage|SAGE): (?!\d)")
"""At the begin of a line, or behind what a launcher puts there."""
_AFTER_USAGE = re.compile(r"^ ?(?:\S[^:]{0,200}: )?(error|Error): (\S.*)$")
"""`train.py: error: unrecognized arguments: --x` of argparse, `Error: No such option: --x` of click."""
_BEFORE_USAGE = re.compile(r"^ ?(ERROR): (\S.*)$")
"""Of fire."""
_CORNER = "\u256d\u2500 "
_BOX = re.compile(r"^\u256d\u2500 (.*?) \u2500{2,}\u256e$")
_BOX_TITLE = re.compile(r"[Ee]rror|^(?:Unrecognized|Required|Invalid|Missing) ")
"""Titles of the boxes in which typer and tyro report an error."""
_BOX_LINE = re.compile(r"^\u2502 (.*?)\s*\u2502$")
_HYDRA = re.compile(r"Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace")
"""Below the errors of hydra, also below the traceback of an exception in the function that it calls."""
_HYDRA_FIRST = re.compile(
    r"Could not |Error |Primary config |Cannot find primary |In '|You must specify |Ambiguous |Multiple "
)
_HYDRA_TRACEBACK = ("Error executing job with overrides", "Traceback (most recent call last)")
_HYDRA_LINES_MAX = 40
_ABSL = re.compile(r"FATAL (Flags parsing error):\s?(.*)")
_PYTHON = re.compile(
    r"(?:^|[\s/])(python[\d.]*): ((?:can't open file|No module named|Error while finding module specification for) .+)$"
)


def last_usage_error(lines: Sequence[str]) -> PrintedFailure | None:
    """The last error of a command line in an output."""
    places = [place for place, line in enumerate(lines) if _HINT.search(line)]
    errors = (error for place in places[-PLACES_MAX:] for error in _usage_errors(lines, place, lines[place]))
    return max(errors, key=lambda error: error.first_line, default=None)


def _usage_errors(lines: Sequence[str], place: int, line: str) -> Iterator[PrintedFailure]:
    if (usage := _USAGE.search(line)) is not None:
        yield from _beside_usage(lines, place, line[: usage.start()])
    elif (at := line.find(_CORNER)) >= 0:
        yield from _in_box(lines, place, at)
    elif (flags := _ABSL.search(line)) is not None:
        message = flags.group(2) or "".join(lines[place + 1 : place + 2])[flags.start() :].strip()
        yield _made(flags.group(1), message, place)
    elif (hydra := _HYDRA.search(line)) is not None:
        yield from _of_hydra(lines, place, line[: hydra.start()])
    elif (python := _PYTHON.search(line)) is not None:
        yield _made(python.group(1), python.group(2), place)


def _beside_usage(lines: Sequence[str], place: int, prefix: str) -> Iterator[PrintedFailure]:
    """The error before or after the usage message at `place`; `prefix` is what a launcher puts before each line."""
    for index in range(max(0, place - 2), min(len(lines), place + USAGE_LINES_MAX)):
        pattern = _BEFORE_USAGE if index < place else _AFTER_USAGE
        line = lines[index]
        match = pattern.match(line[len(prefix) :]) if line.startswith(prefix) else None
        if match is not None:
            yield _made(match.group(1), match.group(2), index)
            return


def _of_hydra(lines: Sequence[str], place: int, prefix: str) -> Iterator[PrintedFailure]:
    """The error above the hint at `place`."""
    places = reversed(range(max(0, place - _HYDRA_LINES_MAX), place))
    above = [(at, lines[at].removeprefix(prefix).strip()) for at in places]
    if any(mark in text for _, text in above for mark in _HYDRA_TRACEBACK):
        return
    first = next((numbered_line for numbered_line in above if _HYDRA_FIRST.match(numbered_line[1])), None)
    first = first or next((numbered_line for numbered_line in above if numbered_line[1]), None)
    if first is not None:
        yield _made("hydra", first[1], first[0])


def _in_box(lines: Sequence[str], place: int, start: int) -> Iterator[PrintedFailure]:
    title = _BOX.match(lines[place][start:])
    if title is None or not _BOX_TITLE.search(title.group(1)):
        return
    message_lines: list[str] = []
    for line in lines[place + 1 : place + 20]:
        inner = _BOX_LINE.match(line[start:])
        if inner is None or not inner.group(1).strip("\u2500 "):
            break
        message_lines.append(inner.group(1).strip())
    if message_lines:
        yield _made(title.group(1), " ".join(message_lines), place)


def _made(error: str, message: str, place: int) -> PrintedFailure:
    """`error` stands before the message: `error`, `Error`, `python3`, or the title of its box."""
    return PrintedFailure(error, message, "refused", [], "", place)
