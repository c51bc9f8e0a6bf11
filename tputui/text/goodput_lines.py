"""Goodput as text: where the wall time of a run and its family went, and what it cost."""

from __future__ import annotations

from collections.abc import Iterator

from tputui import formatting as fmt
from tputui.diagnosis.goodput import PARTS, PRODUCTIVE, Goodput

_INDENT = 16
_SHOWN_FROM_S = 0.05
"""Seconds from which a part is shown."""


def line(found: Goodput) -> str:
    """`84 % of 3 h 12 min over 4 runs in training that was kept; lost 10 min, downtime 7 min`; or why not known."""
    others = [
        f"{part} {fmt.duration(found.parts_s[part])}"
        for part in sorted(PARTS, key=lambda part: -found.parts_s.get(part, 0.0))
        if part not in PRODUCTIVE and found.parts_s.get(part, 0.0) >= _SHOWN_FROM_S
    ]
    return "; ".join(filter(None, (_head(found), ", ".join(others))))


def blocks(found: Goodput, price_per_hour: float | None) -> Iterator[str]:
    """A line per part with its share, and the cost if the price of an hour is given."""
    yield f"{'goodput':<{_INDENT}}{_head(found)}"
    for part in sorted(PARTS, key=lambda part: -found.parts_s.get(part, 0.0)):
        seconds = found.parts_s.get(part, 0.0)
        if seconds >= _SHOWN_FROM_S:
            steps = f": {fmt.counted(found.lost_steps, 'step')}" if part == "lost" and found.lost_steps else ""
            share = f"{seconds / found.wall_s * 100:5.1f} %" if found.wall_s else ""
            price = f"  {price_per_hour * seconds / 3600:10,.2f}" if price_per_hour is not None else ""
            yield f"{'':<{_INDENT}}{part:<11}{share}  {fmt.duration(seconds):>10}{price}  {PARTS[part]}{steps}"
    if price_per_hour is not None:
        total = price_per_hour * found.wall_s / 3600
        rate = f"cost {total:,.2f} at {price_per_hour:,.2f} an hour"
        outside = f"; {total * (1 - found.share):,.2f} of it outside of training" if found.share is not None else ""
        yield f"{'':<{_INDENT}}{rate}{outside}"


def _head(found: Goodput) -> str:
    if found.share is None:
        return f"not available: {found.reason}"
    over = f" over {len(found.runs)} runs" if len(found.runs) > 1 else ""
    return f"{found.share * 100:.0f} % of {fmt.duration(found.wall_s)}{over} in training that was kept"
