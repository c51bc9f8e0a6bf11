"""Whether lower or higher values of a metric are better."""

from __future__ import annotations

from tputui.state.snapshot import Snapshot

_FALLING = frozenset({"loss", "error", "err", "mae", "mse", "rmse", "nll", "perplexity"})
"""Words in the names of meters whose lower values are better."""


def less_is_better(name: str, snapshot: Snapshot) -> bool:
    """Whether lower values are better: by the configuration for the monitored meter, else by its name."""
    checkpoint = snapshot.config.get("checkpoint")
    if isinstance(checkpoint, dict) and checkpoint.get("monitor") == name and checkpoint.get("mode") in ("min", "max"):
        return bool(checkpoint["mode"] == "min")
    return bool(_FALLING & set(name.lower().replace("-", "_").replace(" ", "_").split("_")))
