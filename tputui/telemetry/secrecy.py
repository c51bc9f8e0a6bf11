"""Which texts may contain secrets, as markers in the types of fields.

Every text in a type that is written to a run directory has one of the types below, so that it is decided for each of
them, whoever writes it: `masking.FieldMasker` masks by them and refuses a plain `str`.
"""

from __future__ import annotations

import enum
from typing import Annotated, Any


class Secrecy(enum.Enum):
    """What a field contains, and so how it is masked."""

    TEXT = enum.auto()
    NAME = enum.auto()
    NAMED_VALUE = enum.auto()
    LINE = enum.auto()
    LINES = enum.auto()
    COMMAND = enum.auto()
    VALUES = enum.auto()
    EXACT = enum.auto()


Text = Annotated[str, Secrecy.TEXT]
"""Words of users, programs or libraries; masked."""
Name = Annotated[str, Secrecy.NAME]
"""A name from the user's program; masked, so that different names stay different."""
NamedValue = Annotated[str, Secrecy.NAMED_VALUE]
"""The value of what the field `name` of the same struct names; masked as `name=value` is."""
LogLine = Annotated[str, Secrecy.LINE]
"""The next line of the output of a process; masked. A private key may begin in one line and end in a later one."""
LogLines = Annotated[list[str], Secrecy.LINES]
"""Consecutive lines of output; masked."""
CommandLine = Annotated[list[str], Secrecy.COMMAND]
"""The words of a command; masked."""
Values = Annotated[dict[str, Any], Secrecy.VALUES]
"""Free values by name, such as a configuration; masked by their names and their form."""
Exact = Annotated[str, Secrecy.EXACT]
"""A word of a fixed set, an id, a path, the name of a host, or encoded numbers; written unchanged."""
