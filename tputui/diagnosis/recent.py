"""`RecentVerdicts`: the verdicts on a run that is watched, found at most once a second without new evidence."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tputui.state.snapshot import ENDED, Snapshot

if TYPE_CHECKING:
    from tputui.diagnosis.verdict import Verdict


class RecentVerdicts:
    """The verdicts on the newest snapshot of one run. A live screen asks ten times a second, and shows them as they
    were, so that figures that grow all the time do not change with every frame."""

    def __init__(self) -> None:
        self._key: object = None
        self._evidence: object = None
        self._verdicts: tuple[Verdict, ...] = ()

    def of(self, snapshot: Snapshot) -> tuple[Verdict, ...]:
        """The verdicts on a snapshot, or those on one of the same second with the same evidence."""
        second = math.floor(snapshot.now) if math.isfinite(snapshot.now) else None
        newest = (snapshot.steps, snapshot.newest_fact, snapshot.is_behind) if snapshot.condition in ENDED else None
        key = (second, snapshot.condition, len(snapshot.epochs), newest)
        if key != self._key or snapshot.evidence is not self._evidence:
            # Imported here so that the monitor opens faster.
            from tputui.diagnosis.diagnose import diagnose

            self._key, self._evidence = key, snapshot.evidence
            self._verdicts = diagnose(snapshot)
        return self._verdicts
