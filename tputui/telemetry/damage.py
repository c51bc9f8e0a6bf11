"""What of a journal is not what its writer wrote: regions, bounded in number however much is damaged. Pure."""

from __future__ import annotations

import msgspec

REGIONS_MAX = 1_000
"""Damaged regions of a journal that are told one by one; what lies beyond is told as one."""
TOO_MANY = "more damage follows, which is not told one by one"
_REPEATED = "stand again"


class Damage(msgspec.Struct, frozen=True):
    """A region of a journal that is not what its writer wrote."""

    journal: str
    """File name of the journal."""
    start: int
    """Offset of its first byte."""
    end: int
    """Offset after its last byte; `start` where records are missing between two sound ones."""
    reason: str
    """How it is known."""
    lost_records: int | None
    """Records it cost, told by the sequence numbers around it; null until the next sound record is read."""


def repeated(journal: str, start: int, end: int, first: int, last: int) -> Damage:
    """A region of records that were read before."""
    which = f"record {first} stands again" if first == last else f"records {first} to {last} {_REPEATED}"
    return Damage(journal, start, end, which, 0)


def add_damage(regions: list[Damage], damage: Damage) -> None:
    """Adds a region to those of a journal: the last one goes on where it is of the same kind, or there are too many."""
    last = regions[-1] if regions else None
    if last is not None and last.end == damage.start and (joined := _joined(last, damage)) is not None:
        regions[-1] = joined
    elif last is None or len(regions) < REGIONS_MAX:
        regions.append(damage)
    else:
        lost = None if damage.lost_records is None else (last.lost_records or 0) + damage.lost_records
        regions[-1] = Damage(damage.journal, last.start, max(last.end, damage.end), TOO_MANY, lost)


def _joined(last: Damage, damage: Damage) -> Damage | None:
    """Two neighbouring regions as one, where both are records that were read before."""
    before, after = _numbers(last.reason), _numbers(damage.reason)
    if before is None or after is None or before[1] + 1 != after[0]:
        return None
    return repeated(damage.journal, last.start, damage.end, before[0], after[1])


def _numbers(reason: str) -> tuple[int, int] | None:
    """First and last number of the records that a region of repeated ones is about."""
    words = reason.split()
    if words[0] == "record" and reason.endswith("stands again"):
        return int(words[1]), int(words[1])
    return (int(words[1]), int(words[3])) if reason.endswith(_REPEATED) else None
