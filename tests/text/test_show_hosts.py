"""The page of `tputui show` for a run on several hosts."""

from __future__ import annotations

import math

from tests.ui import made, pods
from tputui.state.chart_data import NonFinite
from tputui.state.snapshot import Snapshot
from tputui.text.show_page import show_text


def rows(snapshot: Snapshot, name: str) -> list[str]:
    """The rows of the page with a name, without it."""
    found = [line for line in show_text(snapshot).splitlines() if line.startswith(f"{name} ")]
    return [line.removeprefix(name).strip() for line in found]


def test_processes_have_their_host() -> None:
    few = rows(pods.pod(4), "worker")
    assert [line.partition("  ")[0] for line in few] == ["host 0", "host 1", "host 2", "host 3"]
    assert len(rows(pods.pod(256), "worker")) == 16
    assert "host" not in rows(made.running(), "worker")[0]


def test_cores_are_named_with_their_host() -> None:
    bad = NonFinite(metric="loss", value=math.nan, core=19, step=301)
    run = made.changed(pods.troubled(256), non_finite=[bad])
    assert rows(run, "non-finite")[0] == "loss NaN  core 19 (host 2)  step 301"
    assert rows(run, "train loss")[-1].count("(host ") == 2


def test_clocks_are_compared_with_that_of_the_first_host() -> None:
    run = pods.with_hosts(
        pods.pod(4),
        {
            0: {"clock_offset_s": 0.0, "clock_error_s": 0.0},
            1: {"clock_offset_s": 0.001, "clock_error_s": 0.002},
            2: {"clock_offset_s": -90.0, "clock_error_s": 0.002},
        },
    )
    assert "clock" not in rows(run, "host 0")[0]
    assert rows(run, "host 1")[0].endswith("clock as host 0 (+-2.0 ms)")
    assert rows(run, "host 2")[0].endswith("clock 1 min 30 s behind (+-2.0 ms), corrected")
