"""Which process waits where, and stacks with the user's own code first."""

from __future__ import annotations

import msgspec
import pytest

from tests.recorded import T0, opened
from tputui.state import process_stacks
from tputui.state.reducer import RunState
from tputui.state.snapshot import RequestState, RequestView
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
def test_blocking_processes_are_named_first(
    odd: dict[int, ev.HeartbeatSent], rest: ev.HeartbeatSent, words: str
) -> None:
    state = ranks(8, odd, rest)
    assert process_stacks.waiting(state, state.processes, T0 + 100) == words


def test_single_process_waits_for_none() -> None:
    state = ranks(1, {}, WAITS)
    assert process_stacks.waiting(state, state.processes, T0 + 100) == ""


def frame(owner: ev.FrameOwner, file: str, line: int = 1) -> ev.CodeFrame:
    return ev.CodeFrame(file=file, line=line, function="f", owner=owner)


def test_user_code_comes_first_and_other_calls_are_folded() -> None:
    frames = [
        frame("library", "threading.py", 5),
        frame("library", "queue.py"),
        frame("user", "reader.py", 31),
        frame("tputui", "feed.py"),
        frame("tputui", "trainer.py"),
        frame("library", "threading.py"),
    ]
    assert list(process_stacks.folded(frames)) == [
        "in your code: reader.py:31 in f",
        "threading.py:5 in f",
        "... 1 call of libraries",
        "reader.py:31 in f",
        "... 2 calls of tputui",
        "... 1 call of libraries",
    ]


def test_newest_answer_wins_and_own_stacks_over_signal() -> None:
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
    view = process_stacks.stacks(state)
    assert view is not None
    assert [(p.process, p.by_signal, p.cores) for p in view.processes] == [
        ("rank-1", True, [1]),
        ("worker-0", False, [0]),
    ]
    page = process_stacks.page(view)
    assert page[0].startswith("rank-1 (core 1, pid 7): executing for 1 min 30 s at step 812, in all-reduce; it holds")
    assert process_stacks.stacks(RunState()) is None


def taken_at(t: float, request: str = "1", process: str = "worker-0", *, by_signal: bool = False) -> ev.StacksTaken:
    return ev.StacksTaken(t=t, request=request, process=process, pid=7, threads=[], by_signal=by_signal)


def beat_at(t: float, phase: ev.Phase, phase_s: float, step: int) -> ev.HeartbeatSent:
    return ev.HeartbeatSent(t=t, phase=phase, phase_s=phase_s, step=step, epoch=1)


def one(*more: ev.Event) -> RunState:
    """A run of one process with these events."""
    state = RunState()
    for seq, event in enumerate([opened(T0, "worker"), topology(0, 1, "single"), *more]):
        state.apply("worker-0", seq, event)
    return state


def head_of(state: RunState) -> str:
    view = process_stacks.stacks(state)
    assert view is not None
    return process_stacks.page(view)[0]


LATER = [beat_at(T0 + second, "saving", 3, 63 + 10 * second) for second in range(20, 40)]


def test_stacks_keep_phase_and_step_of_their_time() -> None:
    before = beat_at(T0 + 10, "data", 2.0, 63)
    assert "waiting for data for 4 s at step 63" in head_of(one(before, taken_at(T0 + 12), *LATER))


def test_stacks_agree_with_the_receipt_of_their_request() -> None:
    seen = ev.RequestSeen(t=T0 + 12, request="1", kind="stacks", phase="executing", step=65)
    applied = ev.RequestApplied(t=T0 + 12.1, request="1", kind="stacks", step=65)
    before = beat_at(T0 + 11.8, "data", 0.1, 63)
    assert head_of(one(before, seen, taken_at(T0 + 12), applied, *LATER)).endswith("executing at step 65")


def test_signal_stacks_take_the_last_phase_before_them() -> None:
    held, later = beat_at(T0 + 10, "executing", 1.0, 63), beat_at(T0 + 40, "data", 0.0, 900)

    def described(*beats: ev.HeartbeatSent) -> str:
        state = one(*beats)
        state.apply("supervisor-0", 0, opened(T0, "supervisor"))
        state.apply("supervisor-0", 1, taken_at(T0 + 14, by_signal=True))
        return head_of(state)

    assert "executing for 5 s at step 63; it holds" in described(held)
    assert "phase unknown; it holds" in described(held, later)


@pytest.mark.parametrize(("states", "again"), [(("requested",), T0 + 30), (("seen",), T0 + 30), (("refused",), None)])
def test_pending_request_is_shown_until_answered(states: tuple[RequestState], again: float | None) -> None:
    state = one(beat_at(T0 + 10, "data", 2.0, 63), taken_at(T0 + 12))
    requested = [request("1", T0 + 11, "applied"), request("2", T0 + 30, *states)]
    view = process_stacks.stacks(state, requested)
    assert view is not None
    assert (view.request, view.t, view.again_t) == ("1", T0 + 12, again)
    state.apply("worker-0", 5, taken_at(T0 + 31, "2"))
    answered = process_stacks.stacks(state, requested)
    assert answered is not None
    assert (answered.request, answered.again_t) == ("2", None)


def request(id: str, t: float, state: RequestState) -> RequestView:
    return RequestView(
        id=id, kind="stacks", state=state, t=t, by=None, seen_phase=None, applied_step=None, path=None, why=None
    )
