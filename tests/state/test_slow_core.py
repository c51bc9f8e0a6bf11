"""The core that is named as slower than the others: none in a healthy run, the slow one after 20 slow steps."""

from __future__ import annotations

import random
from array import array
from pathlib import Path

import msgspec
import pytest

from tests.recorded import T0, opened, steps_recorded
from tputui.cache import state_codec
from tputui.state.chart_data import SlowCoreView
from tputui.state.outlier import NAMED
from tputui.state.reducer import RunState
from tputui.state.snapshot import Snapshot
from tputui.state.snapshot_builder import ViewerContext, build_snapshot
from tputui.telemetry import events as ev
from tputui.text.lines import LineWriter

FIXTURES = Path(__file__).parents[1] / "fixtures"
SLOW = 2


def healthy(num_cores: int) -> list[list[float]]:
    """Compute times, [steps][cores], of `sample_configs/digits.toml` under `replica`: as many processes on 2 busy cores
    of a machine that other programs use as well."""
    values = array("f", (FIXTURES / f"replica_{num_cores}_compute_s.f32").read_bytes())
    return [list(values[first : first + num_cores]) for first in range(0, len(values), num_cores)]


def quiet(num_steps: int, scatter: float = 0.02) -> list[list[float]]:
    """Compute times of 8 cores that share nothing."""
    chance = random.Random(7)
    return [[0.05 * chance.gauss(1.0, scatter) for _ in range(8)] for _ in range(num_steps)]


def slowed(rows: list[list[float]], factor: float, first: int, last: int = 1 << 30) -> list[list[float]]:
    """The rows with the slow core in the steps `first` to `last`."""
    return [
        [each * factor if core == SLOW and first <= step <= last else each for core, each in enumerate(row)]
        for step, row in enumerate(rows, start=1)
    ]


def recorded(t: float, first: int, rows: list[list[float]]) -> ev.StepsRecorded:
    return msgspec.structs.replace(steps_recorded(t, first, rows), metric=ev.COMPUTE_METRIC)


def snapshots(rows: list[list[float]], report_steps: int = 1) -> list[Snapshot]:
    """The snapshot after every report."""
    state = RunState()
    state.apply("worker-0", 0, opened(T0, "worker"))
    found = []
    for seq, first in enumerate(range(0, len(rows), report_steps), start=1):
        state.apply("worker-0", seq, recorded(T0 + seq, first + 1, rows[first : first + report_steps]))
        found.append(build_snapshot(state, ViewerContext(now=T0 + seq, run="r", dir="r")))
    return found


def named(rows: list[list[float]], report_steps: int = 1) -> list[SlowCoreView | None]:
    return [snapshot.slow_core for snapshot in snapshots(rows, report_steps)]


def first_named(rows: list[list[float]]) -> int | None:
    """The step after which a core is named."""
    return next((step for step, found in enumerate(named(rows), start=1) if found is not None), None)


@pytest.mark.parametrize("num_cores", [4, 8])
def test_recorded_healthy_runs_name_no_core_at_any_moment(num_cores: int) -> None:
    assert set(named(healthy(num_cores), report_steps=4)) == {None}


@pytest.mark.parametrize("scatter", [0.005, 0.02, 0.05, 0.3])
def test_scatter_alone_names_no_core(scatter: float) -> None:
    rows = [[max(each, 0.001) for each in row] for row in quiet(400, scatter)]
    assert set(named(rows, report_steps=20)) == {None}


@pytest.mark.parametrize("factor", [1.12, 1.3, 3.0])
def test_slow_core_is_named_at_its_20th_slow_step(factor: float) -> None:
    found = named(slowed(quiet(100), factor, first=41))
    due = 40 + NAMED
    assert set(found[: due - 2]) == {None}
    after = found[due - 1 :]
    assert {one.core for one in after if one is not None} == {SLOW}
    assert None not in after, "it stays named as long as it is slow"
    last = after[-1]
    assert last is not None
    assert last.share == pytest.approx(factor - 1.0, abs=0.04)
    assert abs(last.first_step - 41) <= 1
    assert abs(last.num_steps - 60) <= 1


def test_core_that_is_8_percent_slower_is_not_named() -> None:
    assert first_named(slowed(quiet(200, 0.005), 1.08, first=1)) is None


@pytest.mark.parametrize("num_cores", [4, 8])
def test_core_that_takes_three_times_as_long_on_a_busy_machine_is_named_soon(num_cores: int) -> None:
    step = first_named(slowed(healthy(num_cores)[:120], 3.0, first=41))
    assert step is not None
    assert 40 < step <= 40 + NAMED + 5


def test_single_slow_steps_never_name_a_core() -> None:
    rows = quiet(200)
    for step in range(0, 200, 6):
        rows[step][SLOW] = 9.0
    assert set(named(rows)) == {None}


def test_core_that_recovers_is_no_longer_named() -> None:
    found = named(slowed(quiet(200), 1.5, first=41, last=100))
    assert found[99] is not None
    assert set(found[115:]) == {None}


def test_all_cores_slower_together_name_none() -> None:
    rows = [[each * (3.0 if step >= 50 else 1.0) for each in row] for step, row in enumerate(quiet(100))]
    assert set(named(rows)) == {None}


def test_three_cores_are_too_few_to_name_one() -> None:
    assert first_named([row[:3] for row in slowed(quiet(60), 2.0, first=1)]) is None
    assert first_named([row[:4] for row in slowed(quiet(60), 2.0, first=1)]) is not None


def test_invalid_times_are_left_out() -> None:
    rows = slowed(quiet(60), 2.0, first=1)
    for step, bad in ((10, float("nan")), (20, float("inf")), (30, -1.0), (40, 0.0)):
        rows[step][5] = bad
    assert named(rows)[-1] is not None


def test_naming_is_marked_and_printed_once() -> None:
    rows = slowed(quiet(100), 1.5, first=41)
    newest = snapshots(rows)[-1]
    texts = [(mark.kind, mark.text, mark.step) for mark in newest.marks]
    assert texts == [("warning", texts[0][1], 60)]
    assert texts[0][1].startswith(f"core {SLOW} is ")
    assert texts[0][1].endswith(" % slower than the others since step 41")
    printer = LineWriter()
    printed = printer.lines("worker-0", 0, opened(T0, "worker"))
    for first in range(0, 100, 10):
        printed += printer.lines("worker-0", 1 + first, recorded(T0 + first, first + 1, rows[first : first + 10]))
    assert [line for line in printed if "slower" in line] == [f"warning: {texts[0][1]}"]


@pytest.mark.parametrize("cut", [3, 45, 70, 101])
def test_saved_state_continues_like_the_original(cut: int) -> None:
    rows = slowed(quiet(120), 1.5, first=41, last=100)
    straight = RunState()
    straight.apply("worker-0", 0, opened(T0, "worker"))
    for step, row in enumerate(rows, start=1):
        if step == cut:
            content = state_codec.encode(straight.processes["worker-0"].fork())
        straight.apply("worker-0", step, recorded(T0 + step, step, [row]))
    continued = RunState()
    continued.processes["worker-0"] = state_codec.decode("worker-0", content)
    for step in range(cut, 121):
        continued.apply("worker-0", step, recorded(T0 + step, step, [rows[step - 1]]))
    around = ViewerContext(now=T0 + 200, run="r", dir="r")
    assert msgspec.to_builtins(build_snapshot(continued, around), enc_hook=list) == msgspec.to_builtins(
        build_snapshot(straight, around), enc_hook=list
    )
    assert build_snapshot(straight, around).slow_core is None


@pytest.mark.parametrize(
    ("strategy", "device", "optim", "reason"),
    [
        ("spmd", "TPU", {"accumulate": 4}, "not available under spmd"),
        ("replica", "TPU", {"accumulate": 4}, "not available on TPU devices"),
        ("replica", "CPU", {"accumulate": 4}, "not available with optim.accumulate = 4"),
        ("replica", "CPU", {"accumulate": 1}, "not recorded"),
        ("replica", "CPU", "adam", "not recorded"),
        ("unknown", "CUDA", {"accumulate": 4}, "not recorded"),
    ],
)
def test_reason_says_why_no_time_is_known(strategy: str, device: str, optim: object, reason: str) -> None:
    state = RunState()
    state.apply("worker-0", 0, opened(T0, "worker"))
    declared = ev.TopologyDeclared(
        t=T0, strategy=strategy, device=device, num_cores=8, num_hosts=1, host_index=0, cores=list(range(8))
    )
    state.apply("worker-0", 1, declared)
    around = ViewerContext(now=T0 + 2, run="r", dir="r", config={"optim": optim})
    assert build_snapshot(state, around).compute_reason is None, "no step yet"
    state.apply("worker-0", 2, steps_recorded(T0 + 1, 1, [[0.5] * 8]))
    assert build_snapshot(state, around).compute_reason == reason
    state.apply("worker-0", 3, recorded(T0 + 1, 1, [[0.5, *[0.25] * 7]]))
    timed = build_snapshot(state, around)
    assert timed.compute_reason is None
    assert [core.compute_s for core in timed.cores] == [0.5, *[0.25] * 7]
