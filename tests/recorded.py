"""Recorded runs for tests, written by the real journal writer from real events.

Times start at `T0` and nothing is random beyond a seeded generator, so a snapshot of them is the same everywhere.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tputui.session.player import spans
from tputui.session.session import Session
from tputui.telemetry import events as ev
from tputui.telemetry import float_blocks, rundir
from tputui.telemetry.journal import JournalWriter

T0 = 1_760_000_000.0
NUM_CORES = 8
STEPS_PER_EPOCH = 22
REPORT_STEPS = 11
STEP_S = 0.05
EPOCH_S = 2.0
CONFIG: dict[str, Any] = {
    "task": "digits",
    "epochs": 3,
    "seed": 0,
    "data": {"batch_per_core": 8, "global_batch": None, "prefetch_batches": 4, "valid_fraction": 0.2},
    "model": {"channels": 32, "dropout": 0.1},
    "optim": {"name": "adam", "lr": 0.0005, "lr_scaling": "linear", "step_size": 5, "gamma": 0.5},
    "device": {"cores": 8, "strategy": "spmd", "precision": "fp32", "virtual_cores": 8},
    "checkpoint": {"every_epochs": 1, "keep": 2, "monitor": "loss", "mode": "min"},
    "report": {"interval_s": 1.0, "seal": False},
}


def manifest(run: str = "digits-1") -> rundir.Manifest:
    """The configuration of the recorded runs."""
    return rundir.Manifest(
        run=run,
        created=T0,
        version="0.1.0",
        config_path="digits.toml",
        config=CONFIG,
        argv=["tputui", "run", "digits.toml"],
        cwd="/home/user",
    )


def losses(step: int, num_cores: int = NUM_CORES) -> list[float]:
    """Per-core losses of a step: falling, noisy, a little different on each core; exact in float32."""
    noise = random.Random(step)
    level = 2.3 * math.exp(-step / 20) + 0.05
    values = [level * (1 + 0.15 * noise.uniform(-1, 1)) for _ in range(num_cores)]
    return list(struct.unpack(f"<{num_cores}f", struct.pack(f"<{num_cores}f", *values)))


def steps_recorded(t: float, first: int, rows: list[list[float]]) -> ev.StepsRecorded:
    """The record of consecutive steps."""
    flat = [value for row in rows for value in row]
    mean, least, greatest, bad = float_blocks.summarise(flat)
    return ev.StepsRecorded(
        t=t,
        first=first,
        n=len(rows),
        cores=len(rows[0]),
        mean=mean,
        min=least,
        max=greatest,
        bad=bad,
        block=float_blocks.pack(struct.pack(f"<{len(flat)}f", *flat)),
    )


def opened(t: float, role: str, host_index: int = 0, pid: int = 4242) -> ev.JournalOpened:
    """The head of a journal of a process that is not on this host."""
    return ev.JournalOpened(
        t=t,
        format=ev.FORMAT_VERSION,
        writer=f"{role}-{host_index}",
        role=role,
        host=f"tpu-vm-{host_index}",
        host_id="elsewhere",
        pid=pid,
        pid_started=1,
        version="0.1.0",
        blocks=float_blocks.ENCODING,
        host_index=host_index,
    )


def reading(values: list[float]) -> ev.MeterReading:
    """A meter over values of 8 examples each."""
    count = 8 * len(values)
    total = 8 * math.fsum(values)
    return ev.MeterReading(val=math.fsum(values[-8:]) / 8, avg=total / count, sum=total, count=count)


def worker_events(num_epochs: int = 3, num_cores: int = NUM_CORES) -> list[ev.Event]:
    """A whole training: warm-up with two compiles, `num_epochs` epochs, a checkpoint each."""
    t = T0 + 0.5
    events: list[ev.Event] = [
        opened(t, "worker", pid=4243),
        ev.HeartbeatSent(t=t + 0.1, phase="starting", phase_s=0.1, step=0, epoch=0),
        ev.TopologyDeclared(
            t=t + 4,
            strategy="spmd",
            device="CPU",
            device_reason="no TPU on this host",
            num_cores=num_cores,
            num_hosts=1,
            host_index=0,
            cores=list(range(num_cores)),
        ),
        ev.TrainingPlanned(
            t=t + 4,
            task="digits",
            num_epochs=num_epochs,
            steps_per_epoch=STEPS_PER_EPOCH,
            valid_steps=6,
            first_step=1,
            batch_per_core=8,
            global_batch=8 * num_cores,
            train_examples=1437,
            valid_examples=360,
            num_parameters=29_194,
            precision="fp32",
            lr=0.004,
            lr_rule="0.0005 x 8 cores",
        ),
        ev.MemorySampled(t=t + 4.1, hbm=None, hbm_reason="the CPU device does not tell its memory"),
    ]
    t += 4.2
    for epoch in range(1, num_epochs + 1):
        events += _epoch_events(t, epoch, num_cores)
        t += EPOCH_S
    last = num_epochs * STEPS_PER_EPOCH
    events.append(ev.TrainingEnded(t=t, outcome="done", step=last, reason=f"{num_epochs} epochs trained"))
    return events


def _epoch_events(start: float, epoch: int, num_cores: int) -> Iterable[ev.Event]:
    first = (epoch - 1) * STEPS_PER_EPOCH + 1
    yield ev.EpochStarted(t=start, epoch=epoch, first_step=first)
    seen: list[float] = []
    t = start
    for begin in range(first, first + STEPS_PER_EPOCH, REPORT_STEPS):
        rows = [losses(step, num_cores) for step in range(begin, begin + REPORT_STEPS)]
        seen += [value for row in rows for value in row]
        step = begin + REPORT_STEPS - 1
        t += REPORT_STEPS * STEP_S
        yield ev.HeartbeatSent(t=t - 0.01, phase="executing", phase_s=0.02, step=step, epoch=epoch)
        yield steps_recorded(t, begin, rows)
        yield ev.MetersReported(
            t=t,
            epoch=epoch,
            step=step,
            split="train",
            meters={"loss": reading(seen)},
            reduced=f"mean over examples, {num_cores} cores",
        )
        yield ev.ProgressReported(
            t=t,
            epoch=epoch,
            epoch_step=step - first + 1,
            step=step,
            step_s=STEP_S,
            examples_per_s=8 * num_cores / STEP_S,
            lr=0.004,
            report_steps=REPORT_STEPS,
        )
        yield ev.XlaMetricsRead(
            t=t,
            compiles=4,
            compile_s=3.5,
            recompiles=0,
            executes=step + step // REPORT_STEPS,
            execute_s=step * 0.03,
            transfers_to_device=2 * step,
            transfers_from_device=step // REPORT_STEPS,
            bytes_to_device=2 * step * 16_384,
            bytes_from_device=step // REPORT_STEPS * 16_384,
            fallbacks={},
            engine_reads=step // REPORT_STEPS,
            steps=ev.StepPrograms(
                steps=max(0, step - 2), executes=max(0, step - 2), expected_executes=max(0, step - 2), scalar_reads=0
            ),
        )
    yield ev.EpochEnded(
        t=t + 0.4,
        epoch=epoch,
        step=first + STEPS_PER_EPOCH - 1,
        train={"loss": reading(seen)},
        valid={"loss": reading([0.4 / epoch] * 45), "accuracy": reading([1 - 0.1 / epoch] * 45)},
        train_s=STEPS_PER_EPOCH * STEP_S,
        valid_s=0.4,
        sections_s={"data": 0.05, "trace": 0.2, "compile": 0.0, "execute": 0.7, "report": 0.1, "evaluate": 0.4,
                    "save": 0.05, "other": 0.05},
        lr=0.004,
        best=True,
    )  # fmt: skip
    yield ev.CheckpointSaved(
        t=t + 0.45,
        path=f"checkpoints/step-{first + STEPS_PER_EPOCH - 1:08d}.pt",
        step=first + STEPS_PER_EPOCH - 1,
        epoch=epoch,
        bytes=361_472,
        seconds=0.05,
        reason="epoch",
        best=True,
    )


def supervisor_events(end: float | None, config: dict[str, Any] = CONFIG) -> list[ev.Event]:
    """The supervisor's side; without `end` it has not ended the run."""
    events: list[ev.Event] = [
        opened(T0, "supervisor", pid=4242),
        ev.RunStarted(t=T0, run="digits-1", config=config, argv=["tputui", "run", "digits.toml"]),
        ev.WorkerStarted(t=T0 + 0.4, pid=4243, argv=["python", "-m", "engine.worker"]),
        ev.HostSampled(
            t=T0 + 5,
            cpu_percent=87.5,
            memory_used_bytes=3 << 30,
            memory_total_bytes=24 << 30,
            processes=[
                ev.ProcessSample(pid=4243, role="worker", rss_bytes=950 << 20, cpu_percent=171.0),
                ev.ProcessSample(pid=4242, role="supervisor", rss_bytes=31 << 20, cpu_percent=0.7),
            ],
        ),
        ev.LogWritten(t=T0 + 5.2, line="digits: 1437 images to train on, 360 to validate"),
    ]
    if end is not None:
        events.append(ev.WorkerExited(t=end, pid=4243, exit_code=0))
        events.append(ev.RunEnded(t=end + 0.1, outcome="done", exit_code=0, reason="3 epochs trained"))
    return events


def observer_events() -> list[ev.Event]:
    """An event of each kind that observers of a process and of the devices write."""
    t, frame = T0 + 8, ev.CodeFrame(file="/home/user/train.py", line=41, function="train", owner="user")
    changed = [ev.ChangedInput(name="batch", before="f32[16,8]", now="f32[5,8]")]
    matmul = ev.MatmulObserved(dtype="f32", batch=1, m=16, k=8, n=4, count=2, user_frame=frame)
    return [
        opened(T0 + 1, "observer"),
        ev.ProgramObserved(
            t=t, runtime="torch_xla", program="step", inputs=[ev.TensorSpec(dtype="f32", shape=[16, 8])],
            matmuls=[matmul], num_operations=40, flops=1e9,
        ),
        ev.CompileObserved(
            t=t, runtime="torch_xla", program="step", cause="sync", warm_up=False, seconds=1.5, step=30,
            user_frame=frame, changed_inputs=changed,
        ),
        ev.GraphBroken(t=t, runtime="torch_compile", program="step", reason="a print", user_frame=frame),
        ev.CompileLimitReached(
            t=t, runtime="torch_compile", program="step", limit=8, user_frame=frame, changed_inputs=changed
        ),
        ev.SyncObserved(
            t=t, runtime="jax", operation=".item()", user_frame=frame, count=10, waited_s=0.5, steps=10, window_s=1.0
        ),
        ev.FallbackObserved(
            t=t, runtime="torch_xla", operator="aten::nonzero", user_frame=frame, count=10, transfers=20, seconds=0.2,
            steps=10, window_s=1.0,
        ),
        ev.ObservationEnded(
            t=t, runtime="torch_xla", why="reads", steps=10, window_s=1.0, steady_step_s=0.1
        ),
        ev.ObservationFailed(
            t=t, runtime="torch_compile", package="torch", version="3.0", missing=["compilations", "graph breaks"],
            reason="torch._dynamo.utils has no log_compilation_event",
        ),
        ev.InputStagesMeasured(t=t, stages_s={"read": 1.0, "decode": 2.0}, batches=90, threads=2, waited_s=0.5),
        ev.DeviceSampled(t=t, cores=[ev.CoreSample(core=0, duty_cycle_percent=90.0, throttle_score=1)]),
        ev.CoreStatesRead(t=t, request="1-1", cores=[ev.CoreState(core=0, program="step", hlo_location="train.py:41")]),
    ]  # fmt: skip


def write_journal(path: Path, events: Iterable[ev.Event]) -> None:
    """Writes a journal with the real writer."""
    writer = JournalWriter(path)
    writer.append(events)
    writer.close()


def write_run(parent: Path, *, run: str = "digits-1", ended: bool = True) -> Path:
    """A recorded run in `parent`: whole, or (`ended=False`) as it was found with every process gone."""
    run_dir = rundir.create(parent, manifest(run))
    worker = worker_events()
    write_journal(run_dir / "worker-0.jsonl", worker if ended else worker[:-1])
    write_journal(run_dir / "supervisor-0.jsonl", supervisor_events(worker[-1].t + 0.2 if ended else None))
    return run_dir


class ManualClock:
    """A clock that is moved by hand."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Growing:
    """The recorded run while it is written: a session, and a clock that follows the written events."""

    def __init__(self, parent: Path) -> None:
        self.run_dir = write_run(parent)
        self.clock = ManualClock(T0)
        self._waiting = {"worker-0": worker_events(), "supervisor-0": supervisor_events(T0 + 11)}
        self._writers: dict[str, JournalWriter] = {}
        for name in self._waiting:
            (self.run_dir / f"{name}.jsonl").unlink()
            self._writers[name] = JournalWriter(self.run_dir / f"{name}.jsonl")
        self.session = Session.live(self.run_dir, self.clock)

    def go_on(self, seconds: float) -> None:
        """Advances the clock, and writes the events up to then."""
        self.clock.now += seconds
        for name, events in self._waiting.items():
            self._writers[name].append([event for event in events if event.t <= self.clock.now])
            self._waiting[name] = [event for event in events if event.t > self.clock.now]

    @property
    def known_until(self) -> float:
        """Until when every process is known to have lived."""
        return min(span.end for span in spans(self.run_dir))

    def close(self) -> None:
        self.session.close()
        for writer in self._writers.values():
            writer.close()
