"""Who waits where, and stacks with the user's own code first."""

from __future__ import annotations

import msgspec
import pytest

from tests.recorded import T0, opened
from tputui.model import xray
from tputui.model.state import RunState
from tputui.telemetry import events as ev


def topology(core: int, num_cores: int, strategy: str = "replica") -> ev.TopologyDeclared:
    cores = list(range(num_cores)) if core == 0 else [core]
    return ev.TopologyDeclared(
        t=T0, strategy=strategy, device="CPU", num_cores=num_cores, num_hosts=1, host_index=0, cores=cores
    )


def beat(phase: ev.Phase, phase_s: float, step: int, waits_for: str | None = None) -> ev.HeartbeatSent:
    return ev.HeartbeatSent(t=T0 + 100, phase=phase, phase_s=phase_s, step=step, epoch=1, waits_for=waits_for)


def ranks(num_cores: int, odd: dict[int, ev.HeartbeatSent], rest: ev.HeartbeatSent) -> RunState:
    """A run of a process a core."""
    state = RunState()
    for core in range(num_cores):
        name = f"rank-{core}" if core else "worker-0"
        head = msgspec.structs.replace(opened(T0, "rank" if core else "worker", core, pid=100 + core), writer=name)
        for seq, event in enumerate([head, topology(core, num_cores), odd.get(core, rest)]):
            state.apply(name, seq, event)
    return state


WAITS = beat("executing", 90, 812, "all-reduce")


@pytest.mark.parametrize(
    ("odd", "rest", "words"),
    [
        (
            {5: beat("data", 94, 811)},
            WAITS,
            "core 5 waiting for data for 1 min 34 s, 7 others in all-reduce at step 812",
        ),
        (
            {5: beat("data", 94, 811), 2: beat("compiling", 20, 811)},
            WAITS,
            "core 2 compiling for 20 s, core 5 waiting for data for 1 min 34 s, 6 others in all-reduce at step 812",
        ),
        ({}, beat("data", 94, 812), "cores 0-7 waiting for data for 1 min 34 s at step 812"),
        ({0: beat("saving", 40, 812)}, WAITS, "core 0 saving for 40 s, 7 others in all-reduce at step 812"),
    ],
)
def test_who_waits_where_names_those_that_hold_the_others_up_first(
    odd: dict[int, ev.HeartbeatSent], rest: ev.HeartbeatSent, words: str
) -> None:
    state = ranks(8, odd, rest)
    assert xray.waiting(state, state.writers, T0 + 100) == words


def test_one_process_has_nobody_to_wait_for() -> None:
    state = ranks(1, {}, WAITS)
    assert xray.waiting(state, state.writers, T0 + 100) == ""


def frame(owner: ev.FrameOwner, file: str, line: int = 1) -> ev.CodeFrame:
    return ev.CodeFrame(file=file, line=line, function="f", owner=owner)


def test_the_users_code_is_told_first_and_calls_of_others_are_folded() -> None:
    frames = [
        frame("library", "threading.py", 5),
        frame("library", "queue.py"),
        frame("user", "reader.py", 31),
        frame("tputui", "feed.py"),
        frame("tputui", "trainer.py"),
        frame("library", "threading.py"),
    ]
    assert list(xray.folded(frames)) == [
        "in your code: reader.py:31 in f",
        "threading.py:5 in f",
        "... 1 call of libraries",
        "reader.py:31 in f",
        "... 2 calls of tputui",
        "... 1 call of libraries",
    ]


def test_the_newest_request_counts_and_a_process_own_word_more_than_a_signals() -> None:
    state = ranks(2, {}, WAITS)
    threads = [ev.ThreadStack(name="tputui-train", frames=[frame("user", "reader.py")])]

    def taken(request: str, process: str, *, by_signal: bool = False) -> ev.StacksTaken:
        return ev.StacksTaken(t=T0 + 100, request=request, process=process, pid=7, threads=threads, by_signal=by_signal)

    state.apply("supervisor-0", 0, opened(T0, "supervisor"))
    for writer, seq, event in (
        ("worker-0", 3, taken("1", "worker-0")),
        ("worker-0", 4, taken("2", "worker-0")),
        ("supervisor-0", 1, taken("2", "worker-0", by_signal=True)),
        ("supervisor-0", 2, taken("2", "rank-1", by_signal=True)),
    ):
        state.apply(writer, seq, event)
    view = xray.stacks(state)
    assert view is not None
    assert [(p.process, p.by_signal, p.cores) for p in view.processes] == [
        ("rank-1", True, [1]),
        ("worker-0", False, [0]),
    ]
    page = xray.page(view)
    assert page[0].startswith("rank-1 (core 1, pid 7): executing for 1 min 30 s at step 812, in all-reduce; it holds")
    assert xray.stacks(RunState()) is None
