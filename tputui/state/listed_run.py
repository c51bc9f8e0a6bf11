"""A run in a list: `tputui runs`, its JSON, the list of another machine, and the list on the screen have this record.

Imports neither Textual nor the file system.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tputui import formatting as fmt
from tputui.state import facts
from tputui.state.snapshot import Snapshot


class ListedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run, or a log of another program; the fields are those of `tputui runs --json`. None means unknown."""

    run: str
    dir: str
    created: float
    pinned: bool | None = None
    archived: bool | None = None
    tags: list[str] | None = None
    note: str | None = None
    state: str
    why: str = ""
    """Why the run cannot be read."""
    format: str = ""
    """The format of a log of another program; empty for a run."""
    epoch: int | None = None
    num_epochs: int | None = None
    step: int | None = None
    loss: float | None = None
    num_cores: int | None = None
    config: str | None = None
    """Path of the configuration; of a log its files."""

    @property
    def epoch_text(self) -> str:
        """`3/10`; empty if no epoch is known."""
        return fmt.epoch_of(self.epoch or 0, self.num_epochs or 0) if self.epoch or self.num_epochs else ""

    @property
    def loss_text(self) -> str:
        return "" if self.loss is None else facts.LOSS.format(self.loss)

    def to_json(self) -> dict[str, Any]:
        """The object of `tputui runs --json`, without `why` and `format` if they are empty."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return {name: value for name, value in fields.items() if value or name not in ("why", "format")}


def with_progress(listed: ListedRun, snapshot: Snapshot) -> ListedRun:
    """The run with what its snapshot says: state, epoch, step, loss and cores."""
    plan, topology = snapshot.plan, snapshot.topology
    return msgspec.structs.replace(
        listed,
        state=facts.STATE.of(snapshot) or "",
        epoch=snapshot.epoch,
        num_epochs=plan.num_epochs if plan else None,
        step=snapshot.steps,
        loss=facts.listed_loss(snapshot).of(snapshot),
        num_cores=topology.num_cores if topology else None,
    )
