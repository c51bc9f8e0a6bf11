"""Writes the maps of the code from the docstrings of the modules, so that page and code cannot differ: of folders in
docs/ARCHITECTURE.md, of files in docs/files.md."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
ARCHITECTURE = Path(__file__).with_name("ARCHITECTURE.md")
FILES = Path(__file__).with_name("files.md")
PACKAGES = ("tputui", "engine")
BLOCK = re.compile(r"(?<=\n\n```\n).*?(?=```\n)", re.S)
TEXT_AT = 26


def architecture() -> str:
    """The page with the folders as they are now."""
    head, title, rest = ARCHITECTURE.read_text().partition("## The map\n")
    lines = [line for package in PACKAGES for line in _folder(ROOT / package, 0, files=False)]
    return head + title + BLOCK.sub(lambda _: _text(lines), rest, count=1)


def files() -> str:
    """The page with the modules as they are now."""
    lines = [line for package in PACKAGES for line in _folder(ROOT / package, 0, files=True)]
    return BLOCK.sub(lambda _: _text(lines), FILES.read_text(), count=1)


def _folder(folder: Path, depth: int, *, files: bool) -> Iterator[str]:
    indent = "  " * depth
    yield _line(f"{indent}{folder.name}/", _summary(folder / "__init__.py"))
    if files:
        for path in sorted(folder.glob("*.py")):
            if not path.stem.startswith("__"):
                yield _line(f"{indent}  {path.name}", _summary(path))
    for path in sorted(folder.iterdir()):
        if path.is_dir() and (path / "__init__.py").exists():
            yield from _folder(path, depth + 1, files=files)


def _text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _line(name: str, summary: str) -> str:
    return f"{name:<{TEXT_AT - 1}} {summary}"


def _summary(path: Path) -> str:
    """The first sentence of the docstring of a module."""
    doc = ast.get_docstring(ast.parse(path.read_text())) or ""
    return re.split(r"\.(?:\s|$)", doc.replace("\n", " "), maxsplit=1)[0]


if __name__ == "__main__":
    for page, text in ((ARCHITECTURE, architecture()), (FILES, files())):
        page.write_text(text)
        sys.stdout.write(f"wrote {page}\n")
