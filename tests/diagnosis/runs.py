"""Made-up runs for the rules: events of one process with 100 steps of 100 ms in 20 s, plus what a test observes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.recorded import T0, opened
from tputui.diagnosis.diagnose import diagnose
from tputui.diagnosis.verdict import RuleName, Verdict
from tputui.state.reducer import RunState
from tputui.state.snapshot import RunDetails, Snapshot
from tputui.state.snapshot_builder import ViewerContext, build_snapshot
from tputui.telemetry import events as ev

STEPS = 100
STEP_S = 0.1
WALL_S = 20.0


def topology(device: str = "CPU", strategy: str = "spmd") -> ev.TopologyDeclared:
    return ev.TopologyDeclared(
        t=T0, strategy=strategy, device=device, num_cores=8, num_hosts=1, host_index=0, cores=list(range(8))
    )


def plan(batch_per_core: int = 8, precision: str = "bf16", valid_examples: int = 640) -> ev.TrainingPlanned:
    batch = 8 * batch_per_core
    return ev.TrainingPlanned(
        t=T0, task="digits", num_epochs=2, steps_per_epoch=50, valid_steps=-(-valid_examples // batch), first_step=1,
        batch_per_core=batch_per_core, global_batch=batch, train_examples=50 * batch, valid_examples=valid_examples,
        num_parameters=1000, precision=precision, lr=0.1, lr_rule="0.1",
    )  # fmt: skip


def progress(steps: int = STEPS, t: float = WALL_S) -> ev.ProgressReported:
    return ev.ProgressReported(
        t=T0 + t, epoch=2, epoch_step=50, step=steps, step_s=STEP_S, examples_per_s=640.0, lr=0.1, report_steps=10
    )


def reports(steps: int = STEPS) -> list[ev.Event]:
    return [progress(done, WALL_S * done / STEPS) for done in range(10, steps + 1, 10)] or [progress(steps, 1.0)]


def frame(line: int = 41, file: str = "/home/me/train.py") -> ev.CodeFrame:
    return ev.CodeFrame(file=file, line=line, function="train", owner="user")


def compiled(step: int, seconds: float | None = 0.5, **fields: Any) -> ev.CompileObserved:
    given: dict[str, Any] = {
        "t": T0 + 1 + step / STEPS, "runtime": "torch_xla", "program": "step", "cause": "sync", "warm_up": False,
        "seconds": seconds, "step": step, "user_frame": frame(), "changed_inputs": None,
    }  # fmt: skip
    return ev.CompileObserved(**{**given, **fields})


def recompiled(step: int, seconds: float = 0.5, **fields: Any) -> list[ev.CompileObserved]:
    """A program that compiles again and again from a step on: four times, for the same inputs if they are given."""
    return [compiled(step + 10 * number, seconds / 4, **fields) for number in range(4)]


def change(before: str, now: str, name: str = "x") -> list[ev.ChangedInput]:
    return [ev.ChangedInput(name=name, before=before, now=now)]


def synced(count: int = 10, waited_s: float = 0.5, steps: int = 10, **fields: Any) -> ev.SyncObserved:
    given: dict[str, Any] = {
        "t": T0 + 5, "runtime": "torch_xla", "operation": ".item()", "user_frame": frame(57), "count": count,
        "waited_s": waited_s, "steps": steps, "window_s": steps * STEP_S,
    }  # fmt: skip
    return ev.SyncObserved(**{**given, **fields})


def fell_back(count: int = 10, seconds: float | None = 0.2, steps: int = 10, **fields: Any) -> ev.FallbackObserved:
    given: dict[str, Any] = {
        "t": T0 + 5, "runtime": "torch_xla", "operator": "aten::nonzero", "user_frame": frame(63), "count": count,
        "transfers": 2 * count, "seconds": seconds, "steps": steps, "window_s": steps * STEP_S,
    }  # fmt: skip
    return ev.FallbackObserved(**{**given, **fields})


def window(steps: int = 10, steady_step_s: float | None = STEP_S) -> ev.ObservationEnded:
    return ev.ObservationEnded(
        t=T0 + 5, runtime="torch_xla", why="reads", steps=steps, window_s=steps * STEP_S, steady_step_s=steady_step_s
    )


def counters(recompiles: int = 0, reads: int = 0, executes: int = STEPS, **fields: Any) -> ev.XlaMetricsRead:
    given: dict[str, Any] = {
        "t": T0 + WALL_S, "compiles": 2 + recompiles, "compile_s": 2.0 + recompiles, "recompiles": recompiles,
        "executes": executes, "execute_s": 5.0, "transfers_to_device": 1, "transfers_from_device": 1,
        "bytes_to_device": 1, "bytes_from_device": 1, "fallbacks": {}, "scalar_reads": reads,
        "steps": ev.StepPrograms(steps=STEPS, executes=executes, expected_executes=STEPS, scalar_reads=reads),
    }  # fmt: skip
    return ev.XlaMetricsRead(**{**given, **fields})


def epoch_ended(epoch: int, **sections_s: float) -> ev.EpochEnded:
    given = {"execute": 4.0, **sections_s}
    return ev.EpochEnded(
        t=T0 + 10 * epoch, epoch=epoch, step=50 * epoch, train={}, valid={}, train_s=sum(given.values()), valid_s=0.0,
        sections_s=given, lr=0.1, best=False,
    )  # fmt: skip


def snapshot_of(processes: dict[str, Iterable[ev.Event]], now: float = WALL_S) -> Snapshot:
    state = RunState()
    for name, events in processes.items():
        role, _, index = name.partition("-")
        for seq, event in enumerate([opened(T0, role, int(index)), *events]):
            state.apply(name, seq, event)
    details = RunDetails(cwd="/home/me")
    alive = dict.fromkeys(processes, True)
    context = ViewerContext(now=T0 + now, run="run", dir="/runs/run", alive=alive, details=details)
    return build_snapshot(state, context)


def verdicts(*events: ev.Event, device: str = "CPU", steps: int = STEPS, now: float = WALL_S) -> tuple[Verdict, ...]:
    """The verdicts on a healthy run with further events, found or not."""
    kinds = {type(event) for event in events}
    usual = [] if ev.TrainingPlanned in kinds else [plan()]
    return diagnose(snapshot_of({"worker-0": [topology(device), *usual, *reports(steps), *events]}, now))


def by_rule(verdicts: Iterable[Verdict], rule: RuleName, status: str = "found") -> list[Verdict]:
    return [verdict for verdict in verdicts if verdict.rule == rule and verdict.status == status]
