"""What leaves the screen: a panel as text or CSV, the screen as SVG, in files that never take another one's place.

A widget that knows its own figures says so with `figures`; those of a run's panels are taken from the snapshot. Must
not know any screen.
"""

from __future__ import annotations

import csv
import io
import re
import time
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from tputui.state.snapshot import Snapshot
from tputui.ui.base import export_figures as figures
from tputui.ui.base.export_figures import Figures
from tputui.ui.base.reader_thread import Frame

Form = Literal["txt", "csv", "svg"]

_NAMES_MAX = 1_000
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")


@runtime_checkable
class HasFigures(Protocol):
    """A widget that tells the figures behind what it draws."""

    def figures(self) -> Figures | None: ...


@runtime_checkable
class HasText(Protocol):
    """A widget that can be told as text."""

    def as_text(self) -> str: ...


@runtime_checkable
class ShowsRun(Protocol):
    """A screen of one run."""

    frame: Frame | None


def figures_of(widget: object, name: str | None, snapshot: Snapshot | None) -> Figures | None:
    """The figures behind a widget; None where it has none."""
    own = widget.figures() if isinstance(widget, HasFigures) else None
    if own is not None:
        return own
    found = figures.BY_PANEL.get(name or "")
    return found(snapshot) if found is not None and snapshot is not None else None


def as_csv(table: Figures) -> str:
    """The table as RFC 4180 has it, lines ended by a newline alone; what is not known is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.head)
    writer.writerows([["" if value is None else value for value in row] for row in table.rows])
    return out.getvalue()


def file_name(run: str, panel: str, form: Form, now: float) -> str:
    """`RUN-PANEL-20251009-100000.csv`, of harmless characters alone; `now` is unix time."""
    stem = "-".join(_UNFIT.sub("_", part).strip("._") or "x" for part in (run[-100:], panel[-40:]))
    return f"{stem}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}.{form}"


def write_new(directory: Path, name: str, content: str) -> Path:
    """Writes a file of this name, or with a number where there is one already. Raises `OSError`."""
    stem, _, form = name.rpartition(".")
    for number in range(1, _NAMES_MAX):
        path = directory / (name if number == 1 else f"{stem}-{number}.{form}")
        try:
            with path.open("x", encoding="utf-8", newline="") as file:
                file.write(content)
        except FileExistsError:
            continue
        return path
    raise FileExistsError(f"{directory / name} and {_NAMES_MAX} more of its name exist")
