"""The condition of a run, and which conditions are ends. Imported before the first frame, so it imports nothing."""

from __future__ import annotations

from typing import Literal

RunCondition = Literal["starting", "running", "stalled", "done", "stopped", "failed", "lost"]
"""`starting`: alive, no step yet. `stalled`: alive, but silent or without progress for longer than its phase allows.
`lost`: no end event and no living process."""

ENDED: frozenset[RunCondition] = frozenset({"done", "stopped", "failed", "lost"})
