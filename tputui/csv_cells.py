"""Text in the cells of CSV files that spreadsheets open: none of it is a formula.

A program that opens a CSV file takes a cell that begins with `=`, `+`, `-` or `@` for a formula, which may run commands
and fetch addresses. Such a text gets an apostrophe in front, as the user would type it. Pure.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import Any

_FORMULA = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
"""The start of a formula, also in full width. With apostrophes in front, so that `plain_text` is unambiguous."""


def cells(values: Iterable[Any]) -> list[Any]:
    """The cells of a row, with an apostrophe before each text that would be a formula. Numbers stay as they are."""
    return [cell(value) if isinstance(value, str) else value for value in values]


@functools.lru_cache(maxsize=1 << 10)
def cell(text: str) -> str:
    return f"'{text}" if _FORMULA.match(text) and not _is_number(text) else text


def plain_text(content: str) -> str:
    """The text that `cell` wrote."""
    return content[1:] if content[:1] == "'" and _FORMULA.match(content) else content


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    # Python also accepts blanks around a number, and `1_000`.
    return text.strip() == text and "_" not in text
