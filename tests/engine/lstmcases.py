"""What the scan LSTM is compared in. Without the runtime, so that the tests can import it."""

from __future__ import annotations

from typing import Any

FEATURES, HIDDEN = 5, 6
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "both directions, two layers": {"num_layers": 2, "bidirectional": True, "batch_first": True},
    "without bias": {"bias": False, "batch_first": True},
}
SHORT, LONG = 12, 240
