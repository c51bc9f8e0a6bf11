"""When a process counts as stalled, unless the configuration of its run says otherwise."""

from __future__ import annotations

from tputui.telemetry.events import Phase

STEPPING: frozenset[Phase] = frozenset({"data", "executing", "reporting"})
"""Phases in which steps are expected; any other may take any time."""
SILENT_S = 10.0
"""Seconds without any event that count as a stall; heartbeats are sent every second."""
STUCK_S = 30.0
"""Seconds without a step, in a phase in which steps are expected, that count as a stall ..."""
STUCK_STEPS = 20.0
"""... or this many step times, if that is longer."""
