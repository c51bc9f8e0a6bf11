"""A run on several hosts: a view of each host, also of those that are missing or lost, and of restarts."""

from __future__ import annotations

import math

import msgspec
import pytest

from tests.recorded import T0, losses, opened, steps_recorded
from tests.state.pod import CORES, STEP_S, reduced, saved, shown, started, trained
from tputui.cache import state_codec
from tputui.diagnosis.diagnose import diagnose
from tputui.diagnosis.goodput import goodput, run_time
from tputui.state.snapshot import SlowHostView
from tputui.telemetry import events as ev
from tputui.text.show_page import show_text


def test_each_host_has_a_view_with_its_newest_values() -> None:
    sample = ev.HostSampled(t=T0 + 2, cpu_percent=40.0, memory_used_bytes=3, memory_total_bytes=4, processes=[])
    pace = ev.HostPaceMeasured(t=T0 + 3, step=20, steps=10, step_s=0.1, data_s=0.02, compute_s=0.05, wait_s=0.03)
    clock = ev.ClockMeasured(t=T0 + 1, offset_s=90.0, error_s=0.002, reference="tpu-vm-0")
    state = reduced(
        {
            "worker-0": [*started(0, 2), *trained(0, T0 + 2, 1, 40)],
            "worker-1": [*started(1, 2), *trained(1, T0 + 2, 1, 20), pace],
            "supervisor-0": [opened(T0, "supervisor", 0)],
            "supervisor-1": [opened(T0, "supervisor", 1), clock, sample],
        }
    )
    first, second = shown(state).hosts
    assert (first.index, first.name, first.condition, first.cores) == (0, "tpu-vm-0", "running", [0, 1])
    assert (first.step, first.lag_steps, second.step, second.lag_steps) == (40, 0, 20, 20)
    assert (second.name, second.cores, second.phase) == ("tpu-vm-1", [2, 3], "executing")
    assert (second.compute_s, second.data_s, second.wait_s, second.step_s) == (0.05, 0.02, 0.03, 0.1)
    assert (second.cpu_percent, second.used_bytes, second.total_bytes) == (40.0, 3, 4)
    assert (second.clock_offset_s, second.clock_error_s) == (90.0, 0.002)
    assert first.clock_offset_s is None
    assert second.loss == pytest.approx(math.fsum(core.loss or 0 for core in shown(state).cores[CORES:]) / CORES)
    assert [core.core for core in shown(state).cores] == [0, 1, 2, 3]


def test_long_steps_are_no_stalls_of_the_hosts_that_report_no_progress() -> None:
    step_s, events = 40.0, {host: started(host, 2) for host in (0, 1)}
    for host, own in events.items():
        for step in range(1, 5):
            end = T0 + 1 + step * step_s
            own += [
                ev.HeartbeatSent(t=end - ago, phase="executing", phase_s=0.0, step=step - 1, epoch=1)
                for ago in range(35, 0, -5)
            ]
            own.append(steps_recorded(end, step, [losses(step, CORES)]))
            own.append(ev.HostPaceMeasured(t=end, step=step, steps=1, step_s=step_s, data_s=0, compute_s=40, wait_s=0))
            if host == 0:
                own.append(
                    ev.ProgressReported(
                        t=end, epoch=1, epoch_step=step, step=step, step_s=step_s, examples_per_s=1.0, lr=0.1,
                        report_steps=1,
                    )
                )  # fmt: skip
    snapshot = shown(reduced({f"worker-{host}": own for host, own in events.items()}))
    assert [mark.text for mark in snapshot.marks if mark.kind == "stall"] == []


@pytest.mark.parametrize(("last_heard", "more"), [(1, ", and 1 more host"), (0, ""), (3, ", and 3 more hosts")])
def test_stalled_run_counts_the_silent_hosts(last_heard: int, more: str) -> None:
    journals = {f"worker-{host}": [*started(host, 4), *trained(host, T0 + 2, 1, 40, 4)] for host in range(4)}
    for host in range(last_heard + 1, 4):
        journals[f"worker-{host}"].append(
            ev.HeartbeatSent(t=T0 + 36, phase="executing", phase_s=0.0, step=40, epoch=1)
        )  # fmt: skip
    snapshot = shown(reduced(journals), T0 + 37)
    assert snapshot.condition == "stalled"
    assert snapshot.condition_reason == f"host 0 (tpu-vm-0) is alive, but has sent nothing for 31 s{more}"


def test_hosts_that_have_not_joined_are_missing() -> None:
    waits = ev.HostsAwaited(t=T0 + 60, num_hosts=4, joined=[0, 1], missing=[2, 3], waited_s=60.0)
    state = reduced(
        {"supervisor-0": [opened(T0, "supervisor", 0), waits], "supervisor-1": [opened(T0, "supervisor", 1)]}
    )
    assert [(host.index, host.condition) for host in shown(state).hosts] == [
        (0, "starting"),
        (1, "starting"),
        (2, "missing"),
        (3, "missing"),
    ]


def test_number_of_hosts_in_a_hostile_journal_is_bounded() -> None:
    waits = ev.HostsAwaited(t=T0 + 60, num_hosts=1 << 60, joined=[0], missing=[], waited_s=60.0)
    assert len(shown(reduced({"supervisor-0": [opened(T0, "supervisor", 0), waits]})).hosts) == 1


def test_host_that_fell_silent_is_lost_and_one_that_ended_is_not() -> None:
    ended = ev.TrainingEnded(t=T0 + 4, outcome="done", step=20, reason="")
    state = reduced(
        {
            "worker-0": [*started(0, 2), *trained(0, T0 + 2, 1, 20), ended],
            "worker-1": [*started(1, 2), *trained(1, T0 + 2, 1, 20)],
        }
    )
    first, second = shown(state, now=T0 + 40, alive=["worker-0"]).hosts
    assert (first.condition, second.condition) == ("ended", "lost")
    assert second.reason == "nothing was heard of it for 36 s, and it has no end event"


def test_host_whose_events_do_not_arrive_does_not_stall_the_others() -> None:
    silent = [*started(1, 2), *trained(1, T0 + 2, 1, 20)]
    until = T0 + 2 + 400 * STEP_S
    goes_on = shown(reduced({"worker-0": [*started(0, 2), *trained(0, T0 + 2, 1, 400)], "worker-1": silent}), now=until)
    assert goes_on.condition == "running"
    assert [host.condition for host in goes_on.hosts] == ["running", "stalled"]
    assert "sent nothing for" in (goes_on.hosts[1].reason or "")
    beats = [ev.HeartbeatSent(t=T0 + t, phase="executing", phase_s=0.0, step=20, epoch=1) for t in range(5, 45)]
    waits = [*started(0, 2), *trained(0, T0 + 2, 1, 20), *beats]
    stops = shown(reduced({"worker-0": waits, "worker-1": silent}), now=T0 + 44)
    assert stops.condition == "stalled", "the others wait for it"


def restarted() -> dict[str, list[ev.Event]]:
    """Two hosts that had trained 60 steps, 40 of them saved, when the second one failed; they resumed after 10 s."""
    failed = ev.FailureRaised(
        t=T0 + 8, error="ValueError", message="bad row", traceback="", phase="executing", step=60
    )  # fmt: skip
    again = T0 + 18
    return {
        "worker-0": [
            *started(0, 2), *trained(0, T0 + 2, 1, 40), saved(T0 + 6, 40), *trained(0, T0 + 6, 41, 60),
            *started(0, 2, again, generation=1, first_step=41), *trained(0, again + 2, 41, 50),
        ],
        "worker-1": [
            *started(1, 2), *trained(1, T0 + 2, 1, 60), failed,
            *started(1, 2, again, generation=1, first_step=41), *trained(1, again + 2, 41, 50),
        ],
    }  # fmt: skip


def test_restart_cuts_the_curves_back_and_counts_what_was_lost() -> None:
    snapshot = shown(reduced(restarted()))
    assert (snapshot.steps, snapshot.epoch_step, snapshot.condition) == (50, 50, "running")
    steps = [step for piece in snapshot.loss for step in range(piece.first_step, piece.last_step + 1)]
    assert steps == list(range(1, 51))
    assert [column.last_step for column in snapshot.core_columns][-1] == 50
    assert sum(column.num_steps for column in snapshot.core_columns) == 50
    assert snapshot.throughput is not None
    assert [point.step for point in snapshot.throughput.history] == [10, 20, 30, 40, 50]
    first, second = snapshot.generations
    assert (first.number, first.first_step) == (0, 1)
    assert (second.number, second.first_step, second.lost_steps) == (1, 41, 20)
    assert second.lost_s == pytest.approx(T0 + 21 - (T0 + 6))
    assert second.reason == "host 1 (tpu-vm-1): ValueError: bad row"
    assert snapshot.failure is None
    assert [mark.kind for mark in snapshot.marks if mark.kind in ("restart", "stall")] == ["restart"]
    assert [host.generation for host in snapshot.hosts] == [1, 1]
    assert [core.step for core in snapshot.cores] == [50] * 4


def followed(journals: dict[str, list[ev.Event]], t: float, error: str, message: str) -> None:
    """The first host fails too, before the restart."""
    raised = ev.FailureRaised(t=t, error=error, message=message, traceback="", phase="executing", step=60)
    at = next(at for at, event in enumerate(journals["worker-0"]) if event.t >= T0 + 18)
    journals["worker-0"].insert(at, raised)


def test_restart_names_the_host_that_failed_first() -> None:
    journals = restarted()
    followed(journals, T0 + 8.1, "RuntimeError", "connection closed")
    reason = "host 1 (tpu-vm-1): ValueError: bad row"
    assert shown(reduced(journals)).generations[1].reason == reason
    # The run directory of that host alone.
    assert shown(reduced({"worker-1": journals["worker-1"]})).generations[1].reason == reason


def killed(message: str, other_host: str | None = None) -> ev.FailureReported:
    """What a supervisor reports of a process of host 1 that was killed."""
    return ev.FailureReported(
        t=T0 + 8, process="worker-1", pid=7, kind="killed", error="SIGKILL", message=message, phase="executing",
        step=60, log=[], stack="", silent=True, other_host=other_host,
    )  # fmt: skip


def test_restart_names_the_host_whose_process_was_killed() -> None:
    ended = "the training process ended by signal SIGKILL without an error report"
    journals = restarted()
    journals["worker-1"] = [event for event in journals["worker-1"] if not isinstance(event, ev.FailureRaised)]
    followed(journals, T0 + 7, "PeerLost", "host 1 no longer answers")
    assert shown(reduced(journals)).generations[1].reason == "host 1 no longer answers"

    def started_twice(host: int, report: ev.FailureReported) -> list[ev.Event]:
        first, again = (ev.WorkerStarted(t=t, pid=7, argv=[]) for t in (T0, T0 + 17))
        return [opened(T0, "supervisor", host), first, report, again]

    journals["supervisor-1"] = started_twice(1, killed(ended))
    assert shown(reduced(journals)).generations[1].reason == f"host 1 (tpu-vm-1): {ended}"
    # The first failure of all hosts is what the other supervisors report.
    who = "host 1 (tpu-vm-1), rank 1 (core 1)"
    journals["supervisor-0"] = started_twice(0, killed(ended, who))
    assert shown(reduced(journals)).generations[1].reason == f"{who}: {ended}"
    assert f"{who}: {ended}" in show_text(shown(reduced(journals)))


def test_equal_warnings_of_several_hosts_are_shown_once() -> None:
    full = ev.WarningRaised(t=T0 + 3, text="checkpoints/step-00000040.pt could not be written: No space left on device")
    other = ev.WarningRaised(t=T0 + 4, text="the disk of /runs/pod on host 1 has only 24.0 MiB free")
    journals = {"worker-0": [opened(T0, "worker", 0), full], "worker-1": [opened(T0, "worker", 1), full, other]}
    assert shown(reduced(journals)).warnings == [full.text, other.text]


def test_a_failure_that_follows_from_another_process_says_so() -> None:
    """On a host with a run directory of its own, the cause is in that of another host."""
    lost = [opened(T0, "worker", 0), failed(T0 + 9.0, "PeerLost")]
    assert "because another process of the program had ended before" in show_text(shown(reduced({"worker-0": lost})))
    own = [opened(T0, "worker", 0), failed(T0 + 9.0, "ValueError")]
    assert "because another process" not in show_text(shown(reduced({"worker-0": own})))


def test_restart_of_a_command_names_the_rank_that_was_killed() -> None:
    """The supervisor of a command starts nothing again itself, and may report a failure before each restart."""
    ended = "rank 1 ended by signal SIGKILL without an error report"
    journals = restarted()
    journals["worker-1"] = [event for event in journals["worker-1"] if not isinstance(event, ev.FailureRaised)]
    followed(journals, T0 + 7, "PeerLost", "RuntimeError: connection closed by peer")
    begun = [opened(T0, "supervisor", 1), ev.WorkerStarted(t=T0, pid=7, argv=[])]
    journals["supervisor-1"] = [*begun, killed(ended), msgspec.structs.replace(killed("it failed again"), t=T0 + 30)]
    assert shown(reduced(journals)).generations[1].reason == f"host 1 (tpu-vm-1): {ended}"


def test_time_of_a_restart_and_lost_work_are_parts_of_the_goodput() -> None:
    snapshot = shown(reduced(restarted()))
    spent = snapshot.time_spent
    assert spent is not None
    assert math.fsum(spent.sections_s.values()) == pytest.approx(spent.until - spent.began)
    assert spent.sections_s["lost"] == pytest.approx(3.0, abs=0.2)
    assert spent.sections_s["restart"] == pytest.approx(11.0, abs=0.2)
    run = run_time(snapshot)
    assert run is not None
    found = goodput([run])
    assert (found.lost_steps, found.restarts) == (20, 1)
    assert found.parts_s["lost"] == pytest.approx(3.0, abs=0.2)
    assert found.parts_s["downtime"] == pytest.approx(11.0, abs=0.2)
    assert found.parts_s["steps"] == pytest.approx(50 * STEP_S, abs=0.2)
    assert math.fsum(found.parts_s.values()) == pytest.approx(found.wall_s)


def test_work_that_is_kept_counts_though_its_save_was_not_recorded() -> None:
    """The process was killed when the file was complete, before its events were written."""
    journals = restarted()
    journals["worker-0"] = [each for each in journals["worker-0"] if not isinstance(each, ev.CheckpointSaved)]
    run = run_time(shown(reduced(journals)))
    assert run is not None
    found = goodput([run])
    assert found.parts_s["lost"] == pytest.approx(3.0, abs=0.2)
    assert found.parts_s["steps"] == pytest.approx(50 * STEP_S, abs=0.2)


def test_steps_that_a_restart_trains_again_are_counted_and_no_longer_missing() -> None:
    """The process that failed had 10 steps on its device whose values nobody read."""
    journals = restarted()
    dropped = ev.StepsDropped(t=T0 + 8, num_records=0, num_steps=10, why="not read from the device before the end")
    slow_disk = ev.StepsDropped(t=T0 + 3, num_records=1, num_steps=4)
    at = next(i for i, event in enumerate(journals["worker-0"]) if getattr(event, "generation", 0))
    beat = ev.HeartbeatSent(t=T0 + 8, phase="executing", phase_s=0.0, step=70, epoch=1)
    before = [*journals["worker-0"][:at], slow_disk, beat, dropped]
    assert shown(reduced({**journals, "worker-0": before})).dropped_steps == 14
    snapshot = shown(reduced({**journals, "worker-0": [*before, *journals["worker-0"][at:]]}))
    assert snapshot.generations[1].lost_steps == 30
    assert snapshot.dropped_steps == 4, "those that the disk refused"


def test_restarting_shows_the_old_steps_until_the_first_new_one_is_known() -> None:
    journals = restarted()
    before = {name: [event for event in events if event.t < T0 + 18.5] for name, events in journals.items()}
    snapshot = shown(reduced(before))
    assert (snapshot.steps, snapshot.condition) == (60, "starting")
    assert snapshot.generations[-1].first_step is None
    # The first host has its plan; the other one records its first step only.
    planned = {name: [event for event in events if event.t < T0 + 19.5] for name, events in journals.items()}
    snapshot = shown(reduced(planned))
    assert (snapshot.steps, [host.lag_steps for host in snapshot.hosts]) == (40, [0, 0])


def test_every_prefix_of_a_restarted_journal_can_be_cached_and_continued() -> None:
    for name, events in restarted().items():
        whole = reduced({name: events}).processes[name]
        for cut in range(1, len(events)):
            state = reduced({name: events[:cut]}).processes[name]
            copy = state_codec.decode(name, state_codec.encode(state))
            for seq, event in enumerate(events[cut:], start=cut):
                copy.apply(seq, event)
            assert state_codec.encode(copy) == state_codec.encode(whole.fork()), cut


def test_restart_from_the_beginning_loses_everything() -> None:
    events = [*started(0, 1), *trained(0, T0 + 2, 1, 30, 1), *started(0, 1, T0 + 20, generation=1)]
    snapshot = shown(reduced({"worker-0": events}))
    assert (snapshot.steps, snapshot.loss, snapshot.core_columns) == (0, [], [])
    assert snapshot.generations[-1].lost_steps == 30
    more = [*events, *trained(0, T0 + 22, 1, 10, 1)]
    assert shown(reduced({"worker-0": more})).generations[-1].lost_s == pytest.approx(22.0)


def test_restart_of_a_script_that_reports_no_plan_counts_what_was_lost() -> None:
    events = [*started(0, 1), *trained(0, T0 + 2, 1, 30, 1), *started(0, 1, T0 + 20, generation=1)]
    events = [event for event in (*events, *trained(0, T0 + 22, 1, 10, 1)) if not isinstance(event, ev.TrainingPlanned)]
    snapshot = shown(reduced({"worker-0": events, "worker-1": events}))
    first, second = snapshot.generations
    lines = [line.text for line in snapshot.logs if "were restarted" in line.text]
    assert lines == ["the training processes were restarted (restart 1)"], "the first rank alone logs it"
    assert (first.first_step, second.first_step, second.lost_steps) == (1, 1, 30)
    assert second.lost_s == pytest.approx(23.0, abs=1.0)


def test_ranks_of_a_script_on_one_host_are_one_host() -> None:
    heads: dict[str, list[ev.Event]] = {}
    for rank in range(4):
        heads[f"worker-{rank}"] = [msgspec.structs.replace(opened(T0, "worker", rank), host_index=rank // 2)]
    assert [host.index for host in shown(reduced(heads)).hosts] == [0, 1]


def test_view_that_follows_a_restart_shows_the_same_as_one_that_is_opened_after_it() -> None:
    numbered = [(event.t, name, seq, event) for name, events in restarted().items() for seq, event in enumerate(events)]
    state = reduced({})
    for _, name, seq, event in sorted(numbered, key=lambda each: each[:3]):
        state.apply(name, seq, event)
        followed = shown(state)
    assert followed == shown(reduced(restarted()))


def test_request_names_the_hosts_that_have_not_answered() -> None:
    def seen(t: float, step: int) -> ev.RequestSeen:
        return ev.RequestSeen(t=t, request="r1", kind="stop", phase="executing", step=step)

    applied = ev.RequestApplied(t=T0 + 5, request="r1", kind="stop", step=22)
    state = reduced(
        {
            "worker-0": [*started(0, 3), seen(T0 + 4, 20), applied],
            "worker-1": [*started(1, 3), seen(T0 + 4, 20)],
            "worker-2": started(2, 3),
        }
    )
    (request,) = shown(state).requests
    assert [(each.index, each.state, each.step) for each in request.receipts] == [(0, "applied", 22), (1, "seen", 20)]
    assert request.unanswered == [2]
    assert "no answer from host 2" in show_text(shown(state))


def failed(t: float, error: str, message: str = "gone", step: int = 9) -> ev.FailureRaised:
    return ev.FailureRaised(t=t, error=error, message=message, traceback="", phase="executing", step=step)


def test_first_failure_is_that_of_the_host_that_failed_not_of_those_that_lost_it() -> None:
    state = reduced(
        {
            "worker-0": [*started(0, 3), failed(T0 + 9.0, "PeerLost")],
            "worker-1": [*started(1, 3), failed(T0 + 9.1, "PeerLost")],
            "worker-2": [*started(2, 3), failed(T0 + 9.2, "ValueError", "bad row 7")],
        }
    )
    failure = shown(state).failure
    assert failure is not None
    assert (failure.writer, failure.host, failure.cores, failure.error) == (
        "worker-2",
        "tpu-vm-2",
        [4],
        "ValueError",
    )
    assert len(failure.followers) == 2


def test_report_of_the_host_that_failed_is_shown_whatever_the_first_host_saw() -> None:
    def report(t: float, process: str, error: str, log: list[str]) -> ev.FailureReported:
        return ev.FailureReported(
            t=t, process=process, pid=1, kind="killed", error=error, message="m", phase="executing", step=9, log=log,
            stack="", silent=True,
        )  # fmt: skip

    state = reduced(
        {
            "supervisor-0": [opened(T0, "supervisor", 0), report(T0 + 10, "supervisor-2", "HostLost", [])],
            "supervisor-1": [opened(T0, "supervisor", 1), report(T0 + 11, "worker-1", "SIGKILL", ["last words"])],
            "worker-0": started(0, 3),
            "worker-1": started(1, 3),
        }
    )
    failure = shown(state).failure
    assert failure is not None
    assert (failure.writer, failure.error, failure.log) == ("worker-1", "SIGKILL", ["last words"])


def test_failed_training_that_may_be_restarted_has_not_ended() -> None:
    ended = ev.TrainingEnded(t=T0 + 9, outcome="failed", step=9, reason="")
    run = ev.RunStarted(t=T0, run="r", config={"launch": {"max_restarts": 1}}, argv=[])
    journals: dict[str, list[ev.Event]] = {
        "supervisor-0": [opened(T0, "supervisor", 0), run],
        "worker-0": [*started(0, 1), failed(T0 + 9, "ValueError"), ended],
    }
    snapshot = shown(reduced(journals), alive=["supervisor-0"])
    assert (snapshot.condition, snapshot.condition_reason) == (
        "running",
        "training failed; its processes may be started again",
    )
    assert snapshot.failure is not None
    again = [*started(0, 1, T0 + 12, generation=1), failed(T0 + 20, "ValueError"), ended]
    journals["worker-0"] += again
    assert shown(reduced(journals), alive=["supervisor-0"]).condition == "failed"


def test_page_lists_hosts_restarts_and_the_slow_host() -> None:
    text = show_text(shown(reduced(restarted())))
    assert "host 1" in text
    assert "restart 1" in text
    assert "from step 41, 20 steps again" in text
    snapshot = msgspec.structs.replace(
        shown(reduced(restarted())),
        slow_host=SlowHostView(
            index=1, name="vm-1", part="data", share=0.12, seconds=0.0012, first_step=7, waiting=1
        ),
    )  # fmt: skip
    assert "host 1 (vm-1): 12 % slower than the others in waiting for batches, 1.2 ms per step" in show_text(snapshot)
    (verdict,) = [each for each in diagnose(snapshot) if each.rule == "slow_host"]
    assert verdict.text == "host 1 (vm-1) takes 12 % longer for a step than the other hosts, by waiting for batches"
    assert verdict.speedup == pytest.approx(0.1 / (0.1 - 0.0012))


def test_hosts_that_are_awaited_are_named_in_the_log() -> None:
    waits = ev.HostsAwaited(t=T0 + 60, num_hosts=4, joined=[0, 1, 3], missing=[2], waited_s=60.0)
    state = reduced({"supervisor-0": [opened(T0, "supervisor", 0), waits]})
    assert [line.text for line in shown(state).logs] == ["3 of 4 hosts joined after 1 min 00 s; missing: host 2"]


def test_goodput_is_not_known_if_no_sections_are_reported() -> None:
    journals = {
        name: [
            msgspec.structs.replace(event, sections_s={})
            if isinstance(event, ev.ProgressReported | ev.CheckpointSaved)
            else event
            for event in events
        ]
        for name, events in restarted().items()
    }
    assert shown(reduced(journals)).time_spent is None
