"""Work on older steps that is spread over several snapshots: each of them takes a part, and the last one has all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.recorded import T0, manifest, opened, write_journal
from tests.state.pod import reduced, started, trained
from tputui.session.session import Session, load
from tputui.state.aligned import split_work
from tputui.state.reducer import RunState
from tputui.state.snapshot import Snapshot
from tputui.state.snapshot_builder import ViewerContext, build_snapshot
from tputui.telemetry import events as ev
from tputui.telemetry import rundir
from tputui.telemetry.journal import JournalWriter

HOSTS = 64
COMBINED = 32
"""Steps or groups of steps that a frame combines for so many hosts."""
NUM_STEPS = 1_200
SILENT = "worker-3"
RETURNS_AFTER = 240
"""Steps that the silent host had reported; the others have reported all."""


def journal(host: int) -> list[ev.Event]:
    """Host 2 computes longer, and the losses of host 3 are far too high."""
    events = started(host, HOSTS)
    for event in trained(host, T0 + 2, 1, NUM_STEPS, HOSTS):
        if host == 3 and isinstance(event, ev.StepsRecorded):
            event = msgspec.structs.replace(event, mean=9.0, max=10.0)
        events.append(event)
        if isinstance(event, ev.StepsRecorded):
            own = {"compute_s": 0.09 if host == 2 else 0.06, "data_s": 0.0}
            events.append(
                ev.HostPaceMeasured(t=event.t, step=event.first + event.n - 1, steps=event.n, step_s=0.1, **own)
            )
    return events


def part(events: Sequence[ev.Event], *, after: int, until: int) -> list[tuple[int, ev.Event]]:
    """The numbered events about some steps; those before any step belong to step 0."""
    found, step = [], 0
    for seq, event in enumerate(events):
        step = getattr(event, "step", step)
        step = event.first if isinstance(event, ev.StepsRecorded) else step
        if after <= step < until:
            found.append((seq, event))
    return found


def shown(state: RunState, *, may_defer: bool) -> Snapshot:
    alive = dict.fromkeys(state.processes, True)
    return build_snapshot(
        state, ViewerContext(now=state.newest_t or T0, run="r", dir="r", alive=alive), may_defer=may_defer
    )


def apply(state: RunState, journals: Mapping[str, Sequence[ev.Event]], *, after: int, until: int) -> None:
    for writer, events in journals.items():
        for seq, event in part(events, after=after, until=until):
            state.apply(writer, seq, event)


@pytest.fixture(scope="module")
def journals() -> dict[str, list[ev.Event]]:
    return {f"worker-{host}": journal(host) for host in range(HOSTS)}


@pytest.fixture(scope="module")
def others(journals: dict[str, list[ev.Event]]) -> list[list[tuple[str, int, ev.Event]]]:
    """What the other hosts report meanwhile, ten steps at a time: writer, number of the event, and event."""
    return [
        [
            (writer, seq, event)
            for writer, events in journals.items()
            if writer != SILENT
            for seq, event in part(events, after=step, until=step + 10)
        ]
        for step in range(RETURNS_AFTER, NUM_STEPS + 1, 10)
    ]


@pytest.fixture
def returned(journals: dict[str, list[ev.Event]], others: list[list[tuple[str, int, ev.Event]]]) -> RunState:
    """The state of a run that a screen has followed, when a host returns after a long silence."""
    state = RunState()
    apply(state, journals, after=0, until=RETURNS_AFTER)
    for events_of_ten_steps in others:
        for writer, seq, event in events_of_ten_steps:
            state.apply(writer, seq, event)
        shown(state, may_defer=True)
    apply(state, {SILENT: journals[SILENT]}, after=RETURNS_AFTER, until=NUM_STEPS + 1)
    return state


def test_a_returning_host_is_spread_over_several_frames_until_nothing_is_left(
    returned: RunState, journals: dict[str, list[ev.Event]]
) -> None:
    whole = shown(reduced(journals), may_defer=False)
    frames = [shown(returned, may_defer=True)]
    while frames[-1].is_behind:
        frames.append(shown(returned, may_defer=True))
        assert len(frames) < 20
    assert len(frames) > 1
    assert frames[0].loss != whole.loss
    for before, after in pairwise(frames):
        assert sum(old is not new for old, new in zip(before.loss, after.loss, strict=True)) <= COMBINED
    assert [segment.first_step for segment in frames[0].loss] == [segment.first_step for segment in whole.loss]
    assert frames[-1].loss == whole.loss
    assert frames[-1].core_columns == whole.core_columns
    assert frames[-1].slow_host == whole.slow_host is not None
    assert frames[-1].outlier == whole.outlier


def test_a_single_snapshot_has_all_even_if_frames_are_behind(
    returned: RunState, journals: dict[str, list[ev.Event]]
) -> None:
    assert shown(returned, may_defer=True).is_behind
    found, whole = shown(returned, may_defer=False), shown(reduced(journals), may_defer=False)
    assert not found.is_behind
    assert (found.loss, found.core_columns, found.slow_host) == (whole.loss, whole.core_columns, whole.slow_host)


def restarted(host: int) -> list[ev.Event]:
    """A restart from the first step, of which no step is done yet."""
    plan = [event for event in started(0, HOSTS) if isinstance(event, ev.TrainingPlanned)]
    return [*started(host, HOSTS, T0 + 1_000, generation=1), *plan]


def of_one_host(_: int) -> list[ev.Event]:
    """What an invalid run may declare."""
    return [opened(T0 + 1_000, "worker"), *(e for e in started(0, HOSTS) if isinstance(e, ev.TopologyDeclared))]


def without_training(host: int) -> list[ev.Event]:
    """What an invalid run may declare."""
    return [opened(T0 + 1_000, "rank", host)]


@pytest.mark.parametrize("change", [restarted, of_one_host, without_training])
def test_nothing_is_left_once_only_one_host_has_values(
    returned: RunState, change: Callable[[int], Sequence[ev.Event]]
) -> None:
    assert shown(returned, may_defer=True).is_behind
    for host in range(1, HOSTS):
        process = returned.processes[f"worker-{host}"]
        for seq, event in enumerate(change(host), start=process.last_seq + 1):
            returned.apply(process.name, seq, event)
    frames = [shown(returned, may_defer=True) for _ in range(20)]
    assert not frames[-1].is_behind


def test_an_ended_run_is_followed_until_nothing_is_left(tmp_path: Path, journals: dict[str, list[ev.Event]]) -> None:
    run_dir = rundir.create(tmp_path, manifest("pod"))
    first = [event for _, event in part(journals[SILENT], after=0, until=RETURNS_AFTER)]
    for name, events in journals.items():
        if name != SILENT:
            write_journal(run_dir / f"{name}.jsonl", events)
    writer = JournalWriter(run_dir / f"{SILENT}.jsonl")
    writer.append(first)
    session = Session.live(run_dir, clock=lambda: T0 + 3_600)
    session.read_all()
    assert not session.snapshot(may_defer=True).is_behind
    writer.append(journals[SILENT][len(first) :])
    writer.close()
    session.read_all()
    frames = [session.snapshot(may_defer=True)]
    assert frames[0].is_behind
    while frames[-1].is_behind:
        frames.append(session.snapshot(may_defer=True))
        assert len(frames) < 20
    assert frames[-1].loss == load(run_dir, clock=lambda: T0 + 3_600).loss != frames[0].loss
    session.close()


@given(st.integers(0, 60), st.integers(2, 12))
def test_every_change_is_taken_after_a_while_though_new_ones_keep_arriving(num_changed: int, most: int) -> None:
    waiting, taken, calls = list(range(num_changed)), set[int](), 0
    while not taken >= set(range(num_changed)):
        # In each frame as many more steps change as are taken.
        waiting += range(num_changed + calls * most, num_changed + (calls + 1) * most)
        now, later = split_work(waiting, most)
        assert len(now) <= most
        assert sorted([*now, *later]) == waiting
        taken.update(now)
        waiting, calls = list(later), calls + 1
        assert calls <= num_changed + 1
