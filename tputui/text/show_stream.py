"""The lines of `tputui show --json --follow`: one JSON object per change of a run, bounded in size and rate."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

from tputui import formatting as fmt
from tputui.session.session import Session
from tputui.state.snapshot import Snapshot
from tputui.telemetry.logged_values import class_of, first_of
from tputui.text.show_page import LOGGED_MAX, to_show

LINE_S = 1.0
"""Least time between two lines."""
WAIT_S = 0.1
"""Seconds between two polls."""
NEWEST_MAX = {
    "epochs": 32,
    "epoch_starts": 32,
    "marks": 64,
    "checkpoints": 32,
    "requests": 32,
    "warnings": 32,
}
"""Lists of which a line has only the newest entries."""
FIRST_ONLY = ("config", "details")
"""Keys of the first line only; their values do not change."""
AGES = ("now", "duration_s", "phase_s", "eta_s", "newest_fact", "memory", "throughput", "verdicts", "time_spent")
"""Keys whose changes alone print no line: ages, samples that are taken every second, and shares of the time so far."""


_HOST_AGES = dict.fromkeys(("phase_s", "silent_s", "cpu_percent", "used_bytes", "hbm_used_share", "reason"))
"""The same for hosts."""


def stream_object(snapshot: Snapshot, *, is_first: bool) -> dict[str, Any]:
    fields = to_show(snapshot)
    for name, most in NEWEST_MAX.items():
        fields[name] = fields[name][-most:]
    logged = fields["logged"]
    if len(logged) > LOGGED_MAX:
        fields["logged"] = first_of(logged, LOGGED_MAX, lambda metric: class_of(metric["name"], metric["split"]))
        left_out = f"{fmt.more(len(logged) - LOGGED_MAX, 'logged metric')} are left out of this line"
        fields["warnings"] = [*fields["warnings"], left_out]
    if not is_first:
        for name in FIRST_ONLY:
            del fields[name]
    return fields


def without_ages(fields: dict[str, Any]) -> dict[str, Any]:
    """The part of an object whose change prints a line."""
    kept = {name: value for name, value in fields.items() if name not in (*AGES, *FIRST_ONLY)}
    cores = [{**core, "phase_s": 0.0} for core in fields["cores"]]
    # The reason of a stall says for how long.
    kept["state_reason"] = re.sub(r"\d+", "", fields["state_reason"])
    return {**kept, "cores": cores, "hosts": [{**host, **_HOST_AGES} for host in fields["hosts"]]}


class IdleTimeout(Exception):
    """The run has not changed for too long."""


def stream(
    session: Session,
    *,
    idle_timeout_s: float | None = None,
    wait: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[dict[str, Any]]:
    """The objects of a run: one at once, then one after each change, at most one in `LINE_S`, and one at the end.

    Ends when the run has ended. Raises `IdleTimeout` after `idle_timeout_s` without a change. `clock` is a monotonic
    time in seconds.
    """
    printed: dict[str, Any] | None = None
    line_t = changed_t = clock()
    while True:
        # Checked before the read, so that events from just before the end are read too.
        settled = session.settled
        events = session.poll()
        if not session.caught_up:
            continue
        is_last = settled and not events
        if printed is None or is_last or clock() - line_t >= LINE_S:
            fields = stream_object(session.snapshot(), is_first=printed is None)
            compared = without_ages(fields)
            line_t = clock()
            if compared != printed:
                printed, changed_t = compared, line_t
                yield fields
        if is_last:
            return
        if idle_timeout_s is not None and clock() - changed_t >= idle_timeout_s:
            raise IdleTimeout
        wait(WAIT_S)
