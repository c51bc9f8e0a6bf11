"""Whether lower or higher values of a metric are better."""

from __future__ import annotations

from tputui.logs.tags import is_falling
from tputui.state.snapshot import Snapshot


def less_is_better(name: str, snapshot: Snapshot) -> bool:
    """Whether lower values are better: by the configuration for the monitored meter, else by its name."""
    checkpoint = snapshot.config.get("checkpoint")
    if isinstance(checkpoint, dict) and checkpoint.get("monitor") == name and checkpoint.get("mode") in ("min", "max"):
        return bool(checkpoint["mode"] == "min")
    return is_falling(name)
