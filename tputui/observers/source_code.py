"""The text of the user's lines, as the training process reads it, with the comments by which rules ignore them."""

from __future__ import annotations

import ast
import linecache
import re
from functools import lru_cache

CODE_CHARS_MAX = 200
_COMMENT = re.compile(r"#\s{0,8}tputui:\s{0,8}ignore\b[\w ,\-]{0,100}")


@lru_cache(maxsize=4096)
def source_code(file: str, line: int) -> str:
    """A line without its indentation, and behind it each `# tputui: ignore` on other lines of its statement; empty if
    the file cannot be read. Of a statement with a body, only its head counts."""
    lines = linecache.getlines(file)
    if not 0 < line <= len(lines):
        return ""
    first, last = _statement_at(file, line)
    found = [match.group().strip() for text in lines[first - 1 : last] for match in _COMMENT.finditer(text)]
    code = lines[line - 1].strip()[:CODE_CHARS_MAX]
    return "  ".join([code, *(comment for comment in found if comment not in code)])


def _statement_at(file: str, line: int) -> tuple[int, int]:
    """First and last line of the innermost statement at a line, in a file that has such comments."""
    around = [statement for statement in _statements(file) if statement[0] <= line <= statement[1]]
    return min(around, key=lambda statement: statement[1] - statement[0], default=(line, line))


@lru_cache(maxsize=64)
def _statements(file: str) -> list[tuple[int, int]]:
    text = "".join(linecache.getlines(file))
    if not _COMMENT.search(text):
        return []
    try:
        nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
    except (SyntaxError, ValueError, RecursionError):
        return []
    return [(node.lineno, _end_of(node)) for node in nodes]


def _end_of(node: ast.stmt) -> int:
    body = getattr(node, "body", None)
    return max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno
