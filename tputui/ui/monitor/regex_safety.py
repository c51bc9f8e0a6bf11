"""Which regular expressions are too slow to be tried on every line while one types. Pure; never runs one.

The matcher cannot be interrupted, and it holds the interpreter: one expression that tries every way to part a line
would stop the screen. All of those repeat a group that itself repeats or chooses, which can be read off the text.
"""

from __future__ import annotations

import re

_REPEAT = re.compile(r"[*+]|\{\d*,\d*\}|\{\d+\}")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)

WHY_NOT = "a repeated group that repeats or chooses itself may take for ever"


def may_take_for_ever(expression: str) -> bool:
    """Whether a sound expression repeats a group that has a repeat or a choice in it: `(a+)+`, `(a|b)*`."""
    inner = [False]
    """For each group that is open, whether a repeat or a choice stands in it."""
    closed = False
    """Whether the piece just before is a group that had one."""
    at = 0
    while at < len(expression):
        char = expression[at]
        token = _CLASS.match(expression, at) if char == "[" else _REPEAT.match(expression, at)
        length = 2 if char == "\\" else token.end() - at if token is not None else 1
        if token is not None and char != "[":
            if closed:
                return True
            inner[-1] = True
        closed = False
        if char == "(":
            inner.append(False)
        elif char == ")" and len(inner) > 1:
            closed = inner.pop()
            inner[-1] |= closed
        elif char == "|":
            inner[-1] = True
        at += length
    return False
