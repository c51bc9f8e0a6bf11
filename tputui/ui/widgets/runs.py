"""The table of runs: how each is, how far, and its newest loss."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from textual import events
from textual.message import Message

from tputui.model import format as fmt
from tputui.model.snapshot import ENDED, Snapshot
from tputui.ui import table, words
from tputui.ui.lines import Line, Span, clean, width_of, wrap
from tputui.ui.table import Cell
from tputui.ui.widgets.base import Drawn

_TITLES = ("run", "state", "task", "epoch", "step", "loss", "cores", "newest fact")


class RunsTable(Drawn):
    """Runs, newest first, one of them chosen."""

    can_focus = True

    class Opened(Message):
        """The chosen run was clicked again."""

    def __init__(self, runs_dir: Path, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._runs_dir = runs_dir
        self._paths: list[Path] | None = None
        self._snapshots: Mapping[Path, Snapshot] = {}
        self._chosen: Path | None = None
        self._top = 0

    @property
    def chosen(self) -> Path | None:
        """The run under the cursor."""
        return self._chosen

    def show(self, paths: list[Path], snapshots: Mapping[Path, Snapshot]) -> None:
        """Takes newer rows; the cursor stays on its run."""
        self._paths, self._snapshots = paths, snapshots
        if self._chosen not in paths:
            self._chosen = paths[0] if paths else None
        self.redraw()

    def move(self, by: int) -> None:
        """Moves the cursor."""
        if self._paths and self._chosen is not None:
            index = self._paths.index(self._chosen) + by
            self._chosen = self._paths[min(max(index, 0), len(self._paths) - 1)]
            self.redraw()

    def paint(self, width: int, height: int) -> list[Line]:
        """Head and rows, or why there are none."""
        if self._paths is None:
            return [[Span(f" looking for runs in {clean(str(self._runs_dir))} ...", "dim")]]
        if not self._paths:
            hint = f"no run in {clean(str(self._runs_dir))} yet: `tputui run CONFIG.toml` starts one"
            return [[Span(f" {piece}", "dim")] for piece in wrap(hint, width - 2)]
        drawn = table.align(_TITLES, [self._row(path) for path in self._paths], width - 2, left=frozenset({0, 1, 2}))
        chosen = self._paths.index(self._chosen) if self._chosen in self._paths else 0
        rows = max(height - 1, 1)
        self._top = min(max(self._top, chosen - rows + 1), chosen)
        lines: list[Line] = [[Span("  "), *drawn.head]]
        for index in range(self._top, min(self._top + rows, len(drawn.rows))):
            here = index == chosen
            line: Line = [Span("\u276f " if here else "  ", "accent"), *drawn.rows[index]]
            lines.append([*line, Span(" " * (width - width_of(line)))])
        return lines

    def on_click(self, event: events.Click) -> None:
        """Chooses a run; the chosen one opens."""
        row = self._top + event.y - 1
        if self._paths is None or event.y < 1 or row >= len(self._paths):
            return
        if self._paths[row] == self._chosen:
            self.post_message(self.Opened())
        else:
            self._chosen = self._paths[row]
            self.redraw()

    def on_mouse_scroll_down(self) -> None:
        """Moves with the wheel."""
        self.move(3)

    def on_mouse_scroll_up(self) -> None:
        """Moves with the wheel."""
        self.move(-3)

    def _row(self, path: Path) -> list[Cell]:
        snapshot = self._snapshots.get(path)
        name = Cell(clean(path.name), "strong" if path == self._chosen else "plain")
        if snapshot is None:
            return [name, Cell("\u2026 reading", "dim"), *(Cell("") for _ in _TITLES[2:])]
        return [name, *_figures(snapshot)]


def _figures(snapshot: Snapshot) -> list[Cell]:
    sign, plan = words.CONDITIONS[snapshot.condition], snapshot.plan
    loss = snapshot.loss[-1].mean if snapshot.loss else None
    bad = bool(snapshot.num_non_finite)
    return [
        Cell(f"{sign.mark} {sign.word.lower()}", sign.tone),
        Cell(clean(str(snapshot.config.get("task", fmt.UNKNOWN))), "label"),
        Cell(f"{snapshot.epoch}/{plan.num_epochs}" if plan else fmt.UNKNOWN),
        Cell(f"{snapshot.steps:,}/{plan.total_steps:,}" if plan else fmt.UNKNOWN),
        Cell(fmt.number(loss) + (" \u2716" if bad else ""), "bad" if bad else "accent"),
        Cell(f"{snapshot.topology.num_cores:,}" if snapshot.topology else fmt.UNKNOWN),
        Cell(_age(snapshot), "dim"),
    ]


def _age(snapshot: Snapshot) -> str:
    if snapshot.newest_fact is None:
        return fmt.UNKNOWN
    age = max(snapshot.now - snapshot.newest_fact, 0.0)
    return f"{words.seconds(age)} ago" if snapshot.condition in ENDED or age >= 1 else "now"
