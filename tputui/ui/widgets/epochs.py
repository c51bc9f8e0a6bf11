"""Epochs that ended: their averages, and where their time went."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tputui.model import format as fmt
from tputui.model.snapshot import EpochView, Snapshot
from tputui.ui import table, words
from tputui.ui.lines import clean, paragraph
from tputui.ui.table import Cell
from tputui.ui.widgets.panel import Drawing, Panel

SECTIONS = ("data", "trace", "compile", "execute", "report", "evaluate", "save", "other")
"""In the order in which a step goes through them."""


_UNITS = "data to other: s"


class EpochsPart(NamedTuple):
    """What the panel shows."""

    epochs: list[EpochView]
    why_none: str


class EpochsPanel(Panel[EpochsPart]):
    """The table of epochs."""

    key = "4"
    name_shown = "epochs"
    what = "each epoch: averages, time of training and validation, and the sections that time went into"
    follows_end = True

    @staticmethod
    def pick(snapshot: Snapshot) -> EpochsPart:
        """The epochs that ended."""
        why = "" if snapshot.epochs else words.nothing_yet(snapshot, "finished epoch")
        return EpochsPart(snapshot.epochs, why)

    def draw(self, part: EpochsPart, width: int, height: int) -> Drawing:
        """A row an epoch, the best one with a star."""
        if not part.epochs:
            return Drawing(paragraph(part.why_none, width, height))
        train = _names(epoch.train for epoch in part.epochs)
        valid = _names(epoch.valid for epoch in part.epochs)
        sections = _sections(part.epochs)
        titles = [
            "epoch",
            *(f"train {clean(name)}" for name in train),
            *(f"valid {clean(name)}" for name in valid),
            "train s",
            "valid s",
            "lr",
            *(clean(name) for name in sections),
        ]
        best = max((epoch.epoch for epoch in part.epochs if epoch.best), default=0)
        rows = [_row(epoch, train, valid, sections, best=epoch.epoch == best) for epoch in part.epochs]
        drawn = table.stack(titles, rows, width)
        deep = sum(1 + len(each.rows) for each in drawn)
        if len(drawn) == 1 or not (deep <= height or self.has_class("-maximised")):
            hidden = drawn[0].num_hidden
            note = f"{hidden} columns more in full screen" if hidden else _UNITS
            return Drawing(drawn[0].rows, head=(drawn[0].head,), note=note)
        return Drawing([line for each in drawn for line in (each.head, *each.rows)], note=_UNITS)


def _names(readings: Iterable[Mapping[str, object]]) -> list[str]:
    return list(dict.fromkeys(name for reading in readings for name in reading))


def _sections(epochs: list[EpochView]) -> list[str]:
    told = _names(epoch.sections_s for epoch in epochs)
    return [*(name for name in SECTIONS if name in told), *(name for name in told if name not in SECTIONS)]


def _row(epoch: EpochView, train: list[str], valid: list[str], sections: list[str], *, best: bool) -> list[Cell]:
    """`best` where no later epoch was better."""
    averages = [epoch.train[name].avg if name in epoch.train else None for name in train]
    valid_averages = [epoch.valid[name].avg if name in epoch.valid else None for name in valid]
    largest = max(epoch.sections_s.values(), default=0.0)
    return [
        Cell(f"{epoch.epoch} \u2605 best" if best else str(epoch.epoch), "good" if best else "strong"),
        *(Cell(fmt.number(value)) for value in averages),
        *(Cell(fmt.number(value), "good" if best else "accent") for value in valid_averages),
        Cell(fmt.number(epoch.train_s, 2)),
        Cell(fmt.number(epoch.valid_s, 2)),
        Cell(f"{epoch.lr:.3g}", "dim"),
        *(
            Cell(
                fmt.number(epoch.sections_s.get(name), 2),
                "strong" if largest and epoch.sections_s.get(name) == largest else "dim",
            )
            for name in sections
        ),
    ]
