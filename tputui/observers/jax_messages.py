"""Parses JAX's explanations of cache misses: which function was traced again, and which of its inputs differ.

Their words change between versions of JAX, so every part is optional. Opens no files.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tputui.telemetry.events import ChangedInput

PREFIX = "TRACING CACHE MISS"
"""Begins every explanation."""
TEXT_CHARS_MAX = 20_000
CHANGES_MAX = 16
VALUE_CHARS_MAX = 200
_FOR = re.compile(r"^\s*for (\S+)", re.MULTILINE)
_NEVER_SEEN = re.compile(r"never seen function:\s+(\S+)")
_CHANGE = re.compile(r"\* at (?P<name>.{1,300}?), now (?P<now>.*?) and before (?P<before>.*)$", re.MULTILINE)
_CHANGE_BEFORE_0_5 = re.compile(
    r"\* at (?P<name>.{1,300}?), seen (?P<before>.*?), but now given (?P<now>.*)$", re.MULTILINE
)
_CONTEXT = re.compile(r"\* (?P<name>.{1,300}?) differs: now (?P<now>.*?) and before (?P<before>.*)$", re.MULTILINE)
_PATH = re.compile(r"^input path \[([01])\](.*)$")
_REASON = re.compile(r", so (?:the|that) .*$")
_LINK = re.compile(r"https?://\S*$")
_STATIC = re.compile(r"^.*\bStatic\(val=(.*)\)$")
_CLASS = re.compile(r"<class '(?:[\w.]*\.)?(\w+)'>")


class Explanation(NamedTuple):
    """Why JAX traced a function."""

    function: str
    """Name of the function; empty if unknown."""
    is_new: bool
    """Whether JAX sees this function object for the first time."""
    changed: list[ChangedInput]
    """Inputs that differ from the most similar earlier call; empty if none are named."""


def parse(text: str) -> Explanation | None:
    """The content of an explanation; None if the text is something else."""
    text = text[:TEXT_CHARS_MAX]
    if not text.startswith(PREFIX):
        return None
    new, seen = _NEVER_SEEN.search(text), _FOR.search(text)
    found = new or seen
    changed: list[ChangedInput] = []
    for pattern in (_CHANGE, _CHANGE_BEFORE_0_5, _CONTEXT):
        for match in pattern.finditer(text):
            if len(changed) < CHANGES_MAX:
                changed.append(_changed(match["name"], match["before"], match["now"]))
    return Explanation(found.group(1) if found else "", new is not None, changed)


def _changed(name: str, before: str, now: str) -> ChangedInput:
    path = _PATH.match(name)
    if path:
        name = ("kwargs" if path.group(1) == "1" else "args") + path.group(2)
    return ChangedInput(name=name[:VALUE_CHARS_MAX], before=_value(before), now=_value(now))


def _value(text: str) -> str:
    """A value without the words around it: `Static(val=3)` is 3."""
    text = _LINK.sub("", _REASON.sub("", text)).strip()
    static = _STATIC.match(text)
    return (static.group(1) if static else _CLASS.sub(r"\1", text))[:VALUE_CHARS_MAX]
