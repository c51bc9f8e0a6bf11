"""Ends training at a loss or a gradient that is NaN or infinite, if `non_finite.policy` says so."""

from __future__ import annotations

from collections.abc import Callable

from engine.checkpoint.checkpoint_store import SaveFailed
from engine.checkpoint.resume import Position
from engine.errors import NotFinite
from engine.loop.checkpoint_manager import CheckpointManager


def enforce_finite(
    policy: str, not_finite: str | None, at: Position, report: Callable[[Position], None], manager: CheckpointManager
) -> None:
    """Raises `NotFinite`, unless no value is, or `policy` is `continue`.

    `not_finite` says which value is not finite. `report` reports every step up to `at` before.
    """
    if not_finite is None or policy == "continue":
        return
    report(at)
    ended = f"{not_finite}; training ended after step {at.step} (non_finite.policy = {policy})"
    if policy != "save-stop":
        raise NotFinite(f"{ended} without a save; {manager.good()}")
    try:
        saved = manager.save_not_finite()
    except SaveFailed as error:
        raise NotFinite(f"{ended}; {error}; {manager.good()}") from error
    raise NotFinite(f"{ended}; {saved}")
