"""Writes the map of docs/ARCHITECTURE.md from the docstrings of the modules, so that page and code cannot differ."""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = Path(__file__).with_name("ARCHITECTURE.md")
PACKAGES = ("tputui", "engine")
NAMES_ONLY = ("tputui/cli", "tputui/ui")
"""Folders whose modules are listed by name alone: a command, a panel or a screen each."""
BLOCK = re.compile(r"(?<=## The map\n\n```\n).*?(?=```\n)", re.S)
TEXT_AT = 26
WIDTH = 120


def page() -> str:
    """The page with the map as the modules are now."""
    lines = [line for package in PACKAGES for line in _folder(ROOT / package, 0)]
    return BLOCK.sub(lambda _: "".join(f"{line}\n" for line in lines), PAGE.read_text())


def _folder(folder: Path, depth: int) -> Iterator[str]:
    indent = "  " * depth
    yield _line(f"{indent}{folder.name}/", _summary(folder / "__init__.py"))
    modules = sorted(path for path in folder.glob("*.py") if not path.stem.startswith("__"))
    if folder.relative_to(ROOT).as_posix().startswith(NAMES_ONLY):
        names = ", ".join(path.stem for path in modules)
        yield from textwrap.wrap(names, WIDTH, initial_indent=f"{indent}    ", subsequent_indent=f"{indent}    ")
    else:
        yield from (_line(f"{indent}  {path.name}", _summary(path)) for path in modules)
    for path in sorted(folder.iterdir()):
        if path.is_dir() and (path / "__init__.py").exists():
            yield from _folder(path, depth + 1)


def _line(name: str, summary: str) -> str:
    return f"{name:<{TEXT_AT - 1}} {summary}"


def _summary(path: Path) -> str:
    """The first sentence of the docstring of a module."""
    doc = ast.get_docstring(ast.parse(path.read_text())) or ""
    return re.split(r"\.(?:\s|$)", doc.replace("\n", " "), maxsplit=1)[0]


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.stdout.write(f"wrote {PAGE}\n")
