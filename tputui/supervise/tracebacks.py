"""Tracebacks in the output of a command, as Python, loggers and rich print them, wherever they begin on a line. Pure.

Launchers put a prefix before each line, and a progress bar or a prompt leaves a line open. So the heading is searched
within lines, and the lines that follow are those of the same process: with the same text in front, if there is any.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from tputui.telemetry.events import CodeFrame
from tputui.telemetry.stack_frames import FRAMES_MAX, owner_of

LINES_MAX = 400
"""Lines of a traceback."""
CANDIDATES_MAX = 200
"""Headings at the begin of a text that are tried, and as many at its end."""
LONG_LINES_MAX = 8_000
"""Lines of a traceback of functions that call each other without end, which Python does not shorten."""
_LONG_MAX = 3
"""Tracebacks of an output that may be so long."""
_SEARCHED_FACTOR = 4
"""Lines after a heading among which each line of its process is searched; lines of other ranks may be between."""
_FOREIGN_MAX = 40
"""Lines of others within a traceback."""
_MESSAGE_LINES_MAX = 40
"""Lines of a message, after which the heading of a chained exception may come."""
_HEAD = "Traceback (most recent call last):"
_ANY_HEAD = "Traceback (most recent call last)"
_BOX_HINT = "\u2500 Traceback "
"""In the heading of a box, which rich cuts at its width."""
_HEADING = re.compile(r"[ |+]*(?:Original |Exception Group )?Traceback \(most recent call last\):")
_GROUP_HEAD = re.compile(r"  \+ Exception Group $")
_BOX_HEAD = re.compile(r"[\u256d+][\u2500-]+ Traceback \([a-z ]{3,24}\)? ?[\u2500-]+[\u256e+]")
_ORIGINAL = "Original " + _HEAD
"""What `DataLoader` writes above the traceback of its worker, within the message of the exception that it raises."""
_FRAME = re.compile(r'^[ >] File "(.*)", line (\d+)(?:, in (.*)|,)?$')
"""loguru marks one frame by `>`; rich's log handler wraps lines."""
_WRAPPED = re.compile(r"^in (\S+)$")
_FRAME_ANYWHERE = re.compile(r'(?P<bar> *\| )?[ >] File "[^"]*", line \d+')
_GROUP_FRAME = re.compile(r' +\|   File "')
_NAME = r"[A-Za-z_]\w*(?:\.(?:\w+|<locals>))*(?:\(\w+\))?"
_ERROR = re.compile(rf"^({_NAME})(?:: (.*)|:)?$")
_SURE_ERROR = re.compile(r"(?:Error|Exception|Exit|Interrupt|Warning|Timeout|Failed|Group)\)?$")
"""End of a name that certainly is that of an exception."""
_NO_HEAD = ("SyntaxError", "IndentationError", "TabError")
"""Errors of a script that does not compile, whose report begins with a frame."""
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_QUOTE = '"""'
_ASIDE = ("Exception ignored", "Error in atexit", "Exception in thread", "--- Logging error ---", "Task exception was ")
"""Lines before the traceback of an exception that does not end the process."""
_GROUP_LINE = re.compile(r" +[|+]")
_IN_GROUP = re.compile(r"^\s*(?:\| ?|\+ |(?=\+-))")
_MEMBER = re.compile(r"^\+(?:-\+)?-{5,}")
_BOX_LINE = re.compile(r"^[\u2502|] (.*?)\s*[\u2502|]$")
_BOX_FRAME = re.compile(r"^(\S.*):(\d+) ?in ?(\S+)$")
_IN_BOXES = re.compile(r"^(?:[\u2502|\u256d\u2570+] ?)+(.*?)[\u2502|\s]*$")
"""A line within the boxes that rich draws of the members of a group."""


class Traceback(NamedTuple):
    error: str
    """Type of the exception; of a group that of its first exception."""
    message: str
    """First line of its message."""
    frames: list[CodeFrame]
    """Its calls, newest first; of a chain those of the last exception."""
    text: str
    """The whole traceback, of a chain with the exceptions before it."""
    first_line: int = 0
    """Index of its first line in the output."""
    source: str = ""
    """What is in front of each of its lines, such as `[rank3]: `."""
    is_aside: bool = False
    """Whether its exception ends no process."""


class _Parsed(NamedTuple):
    """A traceback and the number of its lines."""

    traceback: Traceback | None
    """None if it has no end."""
    length: int


def tracebacks(lines: Sequence[str]) -> Iterator[Traceback]:
    """The tracebacks in the lines of an output, in the order of their headings. A chain is one traceback."""
    taken: set[int] = set()
    num_long = 0
    for place in _candidates(lines):
        heading = _heading(lines, place, lines[place]) if place not in taken else None
        if heading is None:
            continue
        own_lines = [(place, lines[place][heading.start :]), *heading.following]
        traceback, length = heading.parse([text for _, text in own_lines])
        if traceback is None and len(heading.following) == LINES_MAX and num_long < _LONG_MAX:
            num_long += 1
            heading = _heading(lines, place, lines[place], LONG_LINES_MAX) or heading
            own_lines = [own_lines[0], *heading.following]
            traceback, length = heading.parse([text for _, text in own_lines])
        if traceback is None:
            continue
        taken.update(index for index, text in own_lines[:length] if _HEADING.match(text) or _FRAME_ANYWHERE.match(text))
        before = lines[place - 1] if place else ""
        is_aside = any(aside in before for aside in _ASIDE)
        yield traceback._replace(first_line=place, source=heading.source, is_aside=is_aside)


def _candidates(lines: Sequence[str]) -> list[int]:
    places = [
        place
        for place, line in enumerate(lines)
        if _ANY_HEAD in line
        or _BOX_HINT in line
        or (' File "' in line and any(error in after for after in lines[place + 1 : place + 5] for error in _NO_HEAD))
    ]
    return places if len(places) <= 2 * CANDIDATES_MAX else places[:CANDIDATES_MAX] + places[-CANDIDATES_MAX:]


class _Heading(NamedTuple):
    """The heading of a traceback in a line."""

    start: int
    source: str
    """What is in front of each line of its process."""
    following: list[tuple[int, str]]
    """The later lines of the process with their indices, without that."""
    parse: Callable[[Sequence[str]], _Parsed]


def _heading(lines: Sequence[str], place: int, line: str, most: int = LINES_MAX) -> _Heading | None:
    """The heading in the line at `place`, with `most` lines after it."""
    at = line.find(_HEAD)
    if at >= 0:
        group = _GROUP_HEAD.search(line[:at])
        start = at if group is None else group.start()
        source, following = _following(lines, place, line[:start], most)
        return _Heading(start, source, following, _parse if group is None else _parse_group)
    if (box := _BOX_HEAD.search(line)) is not None:
        prefix = line[: box.start()]
        return _Heading(box.start(), prefix, _with_prefix(lines, place, _exactly(prefix), most), _parse_box)
    if (frame := _FRAME_ANYWHERE.search(line)) is not None:
        prefix = line[: frame.start()]
        following = _with_prefix(lines, place, _exactly(prefix), most)
        if _is_syntax_error([line[frame.start() :], *(text for _, text in following[:4])]):
            return _Heading(frame.start(), prefix, following, _parse)
    return None


_Strip = Callable[[str], str | None]
"""Returns a line without the prefix of a process; None if another process printed it."""


def _exactly(prefix: str) -> _Strip:
    blank = prefix.rstrip()

    def strip(line: str) -> str | None:
        if line.startswith(prefix):
            return line[len(prefix) :]
        # Lines of a log are stripped at their end.
        return "" if prefix and line == blank else None

    return strip


def _with_other_numbers(prefix: str) -> _Strip:
    """For a prefix that contains the time."""
    pattern = re.compile(r"\d+".join(re.escape(part) for part in re.split(r"\d+", prefix)))

    def strip(line: str) -> str | None:
        match = pattern.match(line)
        return None if match is None else line[match.end() :]

    return strip


def _following(lines: Sequence[str], place: int, before: str, most: int) -> tuple[str, list[tuple[int, str]]]:
    """The lines after the heading at `place` that the same process printed, without their prefix, which is returned
    too. `before` is the text in front of the heading: that prefix, perhaps with a bar or the header of a logger after
    it, or only those."""
    candidates = [(before, _exactly(before))]
    if re.search(r"\d", before):
        candidates.append((re.sub(r"\d+", "0", before), _with_other_numbers(before)))
    frames = [(line, _FRAME_ANYWHERE.search(line)) for line in lines[place + 1 : place + 33]]
    prefixes = [line[: frame.start()] for line, frame in frames if frame is not None]
    with_bar = [line[: frame.end("bar")] for line, frame in frames if frame is not None and frame["bar"]]
    own_prefixes = [prefix for prefix in (*with_bar, *prefixes) if prefix and before.startswith(prefix)]
    candidates += [(prefix, _exactly(prefix)) for prefix in (own_prefixes or prefixes)[:1]]
    for prefix, strip in candidates:
        following = _with_prefix(lines, place, strip, most)
        first = [text for _, text in following[:8] if text]
        if any(_FRAME.match(text) or _GROUP_FRAME.match(text) for text in first) or (first and _ERROR.match(first[0])):
            return prefix, following
    return "", []


def _with_prefix(lines: Sequence[str], place: int, strip: _Strip, most: int) -> list[tuple[int, str]]:
    """The lines after `place` of one process with their indices, without their prefix; at most `most`."""
    following: list[tuple[int, str]] = []
    for index in range(place + 1, min(len(lines), place + 1 + _SEARCHED_FACTOR * most)):
        text = strip(lines[index])
        if text is not None:
            following.append((index, text))
            if len(following) == most:
                break
    return following


def _is_syntax_error(lines: Sequence[str]) -> bool:
    """Whether a frame begins the report of a script that does not compile, which has no other heading."""
    if not lines or _FRAME.match(lines[0]) is None:
        return False
    errors = (_ERROR.match(line) for line in lines[1:])
    return any(error is not None and error.group(1) in _NO_HEAD for error in errors)


def _frame(match: re.Match[str]) -> CodeFrame:
    file, number = match.group(1), min(int(match.group(2)[:9]), 2**31)
    return CodeFrame(file=file, line=number, function=match.group(3) or "<module>", owner=owner_of(file))


def _newest_first(frames: Sequence[CodeFrame]) -> list[CodeFrame]:
    return list(frames[: -FRAMES_MAX - 1 : -1])


def _parse(lines: Sequence[str]) -> _Parsed:
    """The traceback that begins with the first line, its heading or the frame of a syntax error."""
    frames: list[CodeFrame] = []
    num_foreign = 0
    for place, line in enumerate(lines):
        call, error = _FRAME.match(line), _ERROR.match(line)
        if call:
            frames.append(_frame(call))
        elif frames and (wrapped := _WRAPPED.match(line)):
            frames[-1] = replace(frames[-1], function=wrapped.group(1))
        elif line in (_HEAD, _ORIGINAL):
            frames = []
        elif not line or line.startswith(" "):
            continue
        elif error is None or _is_foreign(lines, place, error.group(1)):
            num_foreign += 1
            if num_foreign > _FOREIGN_MAX:
                break
        else:
            text = "\n".join(lines[: place + 1])
            traceback = Traceback(error.group(1), error.group(2) or "", _newest_first(frames), text)
            return _with_chained(traceback, lines, place)
    return _Parsed(None, len(lines))


def _is_foreign(lines: Sequence[str], place: int, name: str) -> bool:
    """Whether the line at `place`, with the form of an error called `name`, is none, but what another process or thread
    printed between the lines of a traceback."""
    if _SURE_ERROR.search(name):
        # What Ray quotes of another process goes on with the frames there.
        return "(" in name and _FRAME.match("".join(lines[place + 1 : place + 2])) is not None
    for line in lines[place + 1 : place + 9]:
        if line.endswith(_HEAD) or line in _CHAINED:
            return False
        error = _ERROR.match(line)
        if _FRAME.match(line) or (error is not None and _SURE_ERROR.search(error.group(1))):
            return True
    return False


def _with_chained(traceback: Traceback, lines: Sequence[str], place: int) -> _Parsed:
    """The traceback whose last line is at `place`, together with the exception that follows from it or is quoted."""
    if lines[place + 1 : place + 2] == [_ORIGINAL]:
        original, length = _parse(lines[place + 1 :])
        if original is not None:
            frames = [*original.frames, *traceback.frames][:FRAMES_MAX]
            text = "\n".join(lines[: place + 1 + length])
            return _Parsed(original._replace(frames=frames, text=text), place + 1 + length)
    ahead = range(place + 1, min(place + _MESSAGE_LINES_MAX, len(lines)))
    following = next((at for at in ahead if lines[at] in _CHAINED), None)
    if following is not None:
        heads = range(following + 1, min(following + 3, len(lines)))
        head = next((at for at in heads if lines[at].endswith(_HEAD)), None)
        if head is not None:
            parse = _parse if lines[head] == _HEAD else _parse_group
            rest, length = parse(lines[head:])
            if rest is not None:
                # What a pool quotes of another process: the failure is there, the rest of the chain waited for it.
                is_quoted = lines[place + 1 : place + 2] == [_QUOTE]
                frames = traceback.frames if is_quoted else rest.frames
                text = "\n".join(lines[: head + length])
                return _Parsed(rest._replace(frames=frames, text=text), head + length)
    return _Parsed(traceback, place + 1)


def _parse_group(lines: Sequence[str]) -> _Parsed:
    """The traceback of an exception group: its first exception that is no group, above the calls that raised the
    groups around it."""
    length = next((at for at in range(len(lines)) if not _is_of_group(lines, at)), len(lines))
    plain = [_IN_GROUP.sub("", line) for line in lines[:length]]
    outer: list[CodeFrame] = []
    frames: list[CodeFrame] = []
    for place, line in enumerate(plain):
        call, error = _FRAME.match(line), _ERROR.match(line)
        if call:
            frames.append(_frame(call))
        elif line.endswith(_HEAD):
            frames = []
        elif error and _is_group(plain, place):
            outer, frames = [*_newest_first(frames), *outer], []
        elif error:
            text = "\n".join(lines[:length])
            leaf = Traceback(error.group(1), error.group(2) or "", _newest_first(frames), text)
            leaf = _with_chained(leaf, plain, place).traceback or leaf
            return _with_chained(
                leaf._replace(frames=[*leaf.frames, *outer][:FRAMES_MAX], text=text), lines, length - 1
            )
    return _Parsed(None, length)


def _is_of_group(lines: Sequence[str], place: int) -> bool:
    """Whether the line at `place` belongs to a group that began before it; only the first line of a message has the
    bar in front."""
    if _GROUP_LINE.match(lines[place]):
        return True
    if not lines[place] or lines[place] in _CHAINED:
        return False
    return any(_GROUP_LINE.match(line) for line in lines[place + 1 : place + 4])


def _is_group(plain: Sequence[str], place: int) -> bool:
    """Whether the members of a group follow the error at `place`."""
    for line in plain[place + 1 : place + _MESSAGE_LINES_MAX]:
        if (member := _MEMBER.match(line)) is not None:
            return member.group().startswith("+-+")
        if line.endswith(_HEAD) or line in _CHAINED:
            return False
    return False


def _parse_box(lines: Sequence[str]) -> _Parsed:
    """The traceback that rich draws as a box, with the exception below it."""
    frames: list[CodeFrame] = []
    paragraph = ""
    for place, line in enumerate(lines[1:], start=1):
        inner = _BOX_LINE.match(line)
        if inner is None:
            error = next((match for after in lines[place + 1 : place + 3] if (match := _ERROR.match(after))), None)
            if error is None:
                return _Parsed(None, place + 1)
            length = place + 2
            text = "\n".join(lines[:length])
            traceback = Traceback(error.group(1), error.group(2) or "", _newest_first(frames), text)
            return (
                _with_boxed_member(traceback, lines, length)
                if error.group(1).endswith("Group")
                else _Parsed(traceback, length)
            )
        content = inner.group(1)
        # A long path is folded at the width of the box.
        paragraph = paragraph + content if content else ""
        call = _BOX_FRAME.match(paragraph) or _BOX_FRAME.match(content)
        if call:
            frames.append(_frame(call))
            paragraph = ""
    return _Parsed(None, len(lines))


def _with_boxed_member(group: Traceback, lines: Sequence[str], start: int) -> _Parsed:
    """The first exception of a group that is no group, in the boxes from `start` on, above the calls of the group."""
    frames: list[CodeFrame] = []
    for place in range(start, len(lines)):
        inner = _IN_BOXES.match(lines[place])
        if inner is None and lines[place].strip():
            break
        content = inner.group(1) if inner is not None else ""
        if call := _BOX_FRAME.match(content):
            frames.append(_frame(call))
        elif (error := _ERROR.match(content)) and not error.group(1).endswith("Group"):
            text = "\n".join(lines[: place + 1])
            all_frames = [*_newest_first(frames), *group.frames][:FRAMES_MAX]
            return _Parsed(Traceback(error.group(1), error.group(2) or "", all_frames, text), place + 1)
    return _Parsed(group, start)
