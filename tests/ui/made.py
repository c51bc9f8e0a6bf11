"""Snapshots made by hand, and a source that serves them: what the screens are tested with."""

from __future__ import annotations

import functools
import math
import random
from array import array
from pathlib import Path
from typing import Any

import msgspec

from tputui.state.chart_data import (
    CoreColumn,
    Mark,
    MarkKind,
    MemoryPoint,
    MeterPoint,
    NonFinite,
    OutlierView,
    Segment,
    SlowCoreView,
    ThroughputPoint,
    ThroughputView,
    XlaPoint,
)
from tputui.state.snapshot import (
    CoreView,
    DamageView,
    Failure,
    LogLine,
    MemoryView,
    MeterView,
    PlanView,
    RequestView,
    SkippedView,
    Snapshot,
)
from tputui.state.xla_view import XlaView
from tputui.telemetry import events as ev
from tputui.telemetry.codec import Damage
from tputui.telemetry.events import EpochEnded, HbmReading, MeterReading, ProcessSample, StepPrograms, TopologyDeclared
from tputui.ui.base.reader_thread import PlayerControls

NOW = 1_760_000_100.0
STEPS = 330


@functools.cache
def loss_at(step: int, core: int) -> float:
    """A loss that falls, with noise of its own on every core."""
    return (2.3 * math.exp(-step / 60) + 0.08) * (1 + 0.12 * random.Random(step * 4096 + core).uniform(-1, 1))


def segments(steps: int = STEPS, num_cores: int = 8) -> list[Segment]:
    """A segment a step."""
    made = []
    for step in range(1, steps + 1):
        values = [loss_at(step, core) for core in range(min(num_cores, 8))]
        made.append(segment(step, values))
    return made


def segment(step: int, values: list[float]) -> Segment:
    """The segment of one step with these values."""
    finite = [value for value in values if math.isfinite(value)]
    return Segment(
        first_step=step,
        last_step=step,
        mean=math.fsum(finite) / len(finite) if finite else math.nan,
        min=min(finite, default=math.nan),
        max=max(finite, default=math.nan),
        num_values=len(finite),
        num_bad=len(values) - len(finite),
        t=step_t(step),
    )


def step_t(step: int) -> float:
    """When a step was reported: they take 0.15 s each, and compiling 10 s before the first."""
    return NOW - 60 + 10 + 0.15 * step


def core_columns(num_cores: int, steps: int = STEPS, columns: int = 165) -> list[CoreColumn]:
    """What each core's loss was, in columns of as many steps each."""
    steps_per_column = -(-steps // columns)
    return [
        core_column(first, min(first + steps_per_column - 1, steps), num_cores)
        for first in range(1, steps + 1, steps_per_column)
    ]


@functools.cache
def _losses_at(step: int, num_cores: int) -> array[float]:
    return array("f", [loss_at(step, core % 64) for core in range(num_cores)])


def core_column(first: int, last: int, num_cores: int, changed: dict[int, float] | None = None) -> CoreColumn:
    """A column with the losses of its first step, but for some cores."""
    means = _losses_at(first, num_cores)[:]
    for core, value in (changed or {}).items():
        means[core] = value
    bad = tuple(core for core, value in sorted((changed or {}).items()) if not math.isfinite(value))
    num_steps, middle = last - first + 1, (first + last) / 2
    return CoreColumn(first_step=first, last_step=last, means=means, bad_cores=bad, num_steps=num_steps, middle=middle)


def mark(kind: MarkKind, step: int, text: str, core: int | None = None) -> Mark:
    """Something that happened at a step."""
    return Mark(t=step_t(step), step=step, kind=kind, text=text, core=core)


def marks() -> list[Mark]:
    """What happened in two epochs and a half."""
    return [
        mark("epoch", 1, "epoch 1 began"),
        mark("compile", 1, "4 programs compiled in 3.52 s"),
        mark("best", 110, "epoch 1: best so far, loss 0.9000"),
        mark("checkpoint", 110, "saved 353 KiB in 50.0 ms: checkpoints/step-00000110.pt"),
        mark("epoch", 111, "epoch 2 began"),
        mark("warning", 150, "the host has 2 cores for 8 virtual devices"),
        mark("request", 218, "request to save a checkpoint"),
        mark("best", 220, "epoch 2: best so far, loss 0.4500"),
        mark("checkpoint", 220, "saved 353 KiB in 50.0 ms: checkpoints/step-00000220.pt"),
        mark("epoch", 221, "epoch 3 began"),
    ]


def throughput() -> ThroughputView:
    """How fast it went: a slow start, a hiccup."""
    history = []
    for step in range(10, STEPS + 1, 10):
        step_s = 0.031 if step < 40 else 0.022 if step == 200 else 0.0131 + 0.0004 * math.sin(step)
        history.append(ThroughputPoint(t=step_t(step), step=step, step_s=step_s, examples_per_s=64 / step_s))
    return ThroughputView(
        examples_per_s=64 / 0.0131,
        steady_step_s=0.0130,
        steady_examples_per_s=64 / 0.0130,
        step_p50_s=0.0130,
        step_p95_s=0.0218,
        num_reports=33,
        history=history,
        eta_epoch_s=0.6,
    )


def memory_history() -> list[MemoryPoint]:
    """Memory that grows a little at first."""
    return [
        MemoryPoint(
            t=NOW - 60 + second,
            hbm_used_bytes=(9 << 30) + min(second, 20) * (40 << 20),
            host_used_bytes=(2 << 30) + min(second, 30) * (34 << 20),
            rss_bytes=(900 + second) << 20,
            cpu_percent=60 + 30 * math.sin(second / 5),
            disk_read_bytes_per_s=max(40 - second, 0) << 20,
            disk_written_bytes_per_s=(30 << 20) if second % 20 == 19 else 4096,
            network_received_bytes_per_s=1500 + 100 * (second % 7),
            network_sent_bytes_per_s=900,
        )
        for second in range(60)
    ]


def xla_history() -> list[XlaPoint]:
    """Counters of a run that compiled at its start, and once for the first evaluation."""
    return [
        XlaPoint(
            t=step_t(step),
            step=step,
            compiles=3 if step < 110 else 4,
            compile_s=3.0 if step < 110 else 3.52,
            executes=step + 6 * (step // 110),
            execute_s=0.0124 * step,
        )
        for step in range(10, STEPS + 1, 10)
    ]


def meter_history() -> list[MeterPoint]:
    """Averages while the epochs went on."""
    return [
        MeterPoint(epoch=1 + step // 111, split="train", step=step, avg={"loss": loss_at(step, 0)})
        for step in range(10, STEPS + 1, 10)
    ]


def cores(num_cores: int, **changes: Any) -> list[CoreView]:
    """Running cores."""
    return [
        CoreView(
            core=core,
            host=f"tpu-vm-{core // 8}",
            loss=loss_at(STEPS, core),
            step=STEPS,
            condition="running",
            phase="executing",
            phase_s=0.3,
        )
        for core in range(num_cores)
    ]


def reading(avg: float, count: int) -> MeterReading:
    """A reading."""
    return MeterReading(val=avg * 0.98, avg=avg, sum=avg * count, count=count)


def epochs(number: int) -> list[EpochEnded]:
    """Epochs that ended, the last one the best."""
    return [
        EpochEnded(
            epoch=epoch,
            step=110 * epoch,
            t=step_t(110 * epoch) + 0.5,
            train={"loss": reading(1.2 / epoch, 1437)},
            valid={"loss": reading(0.9 / epoch, 360), "accuracy": reading(1 - 0.2 / epoch, 360)},
            train_s=1.62 + 0.01 * epoch,
            valid_s=0.41,
            sections_s={
                "data": 0.05,
                "trace": 0.22,
                "compile": 3.1 if epoch == 1 else 0.0,
                "execute": 1.1,
                "report": 0.1,
                "evaluate": 0.41,
                "save": 0.05,
                "other": 0.1,
            },
            lr=0.004,
            best=epoch == number,
            scores={},
            trace_s={},
        )
        for epoch in range(1, number + 1)
    ]


def running(num_cores: int = 8) -> Snapshot:
    """A run in its third epoch of four."""
    return Snapshot(
        now=NOW,
        run="digits-20251009-100000",
        dir="/home/user/runs/digits-20251009-100000",
        created=NOW - 60,
        condition="running",
        condition_reason="training",
        config={"task": "digits"},
        topology=TopologyDeclared(
            t=NOW,
            strategy="spmd",
            device="TPU",
            num_cores=num_cores,
            num_hosts=1,
            host_index=0,
            cores=list(range(num_cores)),
        ),
        plan=PlanView(
            t=NOW,
            valid_steps=45,
            task="digits",
            num_epochs=4,
            steps_per_epoch=110,
            total_steps=440,
            first_step=1,
            batch_per_core=8,
            global_batch=8 * num_cores,
            train_examples=1437,
            valid_examples=360,
            num_parameters=29_194,
            precision="bf16",
            lr=0.004,
            lr_rule="0.0005 x 8 cores",
        ),
        phase="executing",
        phase_s=0.3,
        newest_fact=NOW - 0.4,
        started=NOW - 60,
        ended=None,
        epoch=3,
        epoch_step=110,
        steps=STEPS,
        step_s=0.0131,
        examples_per_s=64 / 0.0131,
        lr=0.004,
        report_steps=76,
        eta_s=3.4,
        cores=cores(num_cores),
        meters=[
            MeterView(name="loss", split="train", epoch=3, reading=reading(0.4132, 880), reduced=REDUCED),
            MeterView(name="loss", split="valid", epoch=2, reading=reading(0.4501, 360), reduced=REDUCED),
            MeterView(name="accuracy", split="valid", epoch=2, reading=reading(0.9012, 360), reduced=REDUCED),
        ],
        epochs=epochs(2),
        xla=XlaView(
            t=NOW,
            compiles=4,
            compile_s=3.52,
            recompiles=0,
            executes=342,
            execute_s=4.1,
            transfers_to_device=660,
            transfers_from_device=12,
            bytes_to_device=43_253_760,
            bytes_from_device=196_608,
            fallbacks={},
            engine_reads=12,
            steps=StepPrograms(steps=328, executes=328, expected_executes=328, scalar_reads=0),
        ),
        memory=MemoryView(
            hbm=[
                HbmReading(
                    core=core, used_bytes=(9 << 30) + core * (100 << 20), limit_bytes=16 << 30, peak_bytes=11 << 30
                )
                for core in range(num_cores)
            ],
            hbm_reason=None,
            host_cpu_percent=87.5,
            host_used_bytes=3 << 30,
            host_total_bytes=24 << 30,
            disk_read_bytes_per_s=0,
            disk_written_bytes_per_s=30 << 20,
            network_received_bytes_per_s=1700,
            network_sent_bytes_per_s=900,
            processes=[
                ProcessSample(pid=4243, role="worker", rss_bytes=950 << 20, cpu_percent=171.0),
                ProcessSample(pid=4242, role="supervisor", rss_bytes=31 << 20, cpu_percent=0.7),
            ],
        ),
        checkpoints=[
            ev.CheckpointSaved(
                t=NOW - 3,
                path="checkpoints/step-00000220.pt",
                step=220,
                epoch=2,
                bytes=361_472,
                seconds=0.05,
                reason="request",
                best=True,
            )
        ],
        requests=[
            RequestView(
                id="1",
                kind="checkpoint",
                state="applied",
                t=NOW - 4,
                by="screen",
                seen_phase="evaluating",
                applied_step=220,
                path="checkpoints/step-00000220.pt",
                why=None,
                answered_t=NOW - 3,
            )
        ],
        non_finite=[],
        num_non_finite=0,
        dropped_steps=0,
        skipped=SkippedView(count=0, limit=0, examples=[]),
        pictures=None,
        warnings=[],
        failure=None,
        exit_code=None,
        logs=[
            LogLine(
                t=NOW - 50, source="worker-0", level="info", text="digits: 1437 images to train on, 360 to validate"
            ),
            LogLine(t=NOW - 49, source="tputui", level="info", text="4 programs compiled in 3.52 s"),
            LogLine(t=NOW - 3, source="tputui", level="warning", text="the host has 2 cores for 8 virtual devices"),
        ],
        loss=segments(),
        damage=DamageView(regions=[], lost_records=0),
        newer_format=None,
        core_columns=core_columns(num_cores),
        marks=marks(),
        num_marks=len(marks()),
        epoch_starts=[
            ev.EpochStarted(t=step_t(110 * epoch - 110), epoch=epoch, first_step=110 * epoch - 109)
            for epoch in (1, 2, 3)
        ],
        throughput=throughput(),
        memory_history=memory_history(),
        xla_history=xla_history(),
        meter_history=meter_history(),
    )


REDUCED = "mean over examples, 8 cores"


def starting() -> Snapshot:
    """A run whose worker imports."""
    return changed(
        running(),
        condition="starting",
        condition_reason="no step yet: starting",
        topology=None,
        plan=None,
        phase="starting",
        phase_s=4.2,
        epoch=0,
        epoch_step=0,
        steps=0,
        step_s=None,
        examples_per_s=None,
        lr=None,
        report_steps=None,
        eta_s=None,
        cores=[],
        meters=[],
        epochs=[],
        xla=None,
        memory=nothing_measured(),
        checkpoints=[],
        requests=[],
        logs=[],
        loss=[],
        core_columns=[],
        marks=[],
        num_marks=0,
        epoch_starts=[],
        throughput=None,
        memory_history=[],
        xla_history=[],
        meter_history=[],
    )


def empty() -> Snapshot:
    """A directory in which nothing was said."""
    return changed(
        starting(),
        created=None,
        config={},
        phase=None,
        phase_s=0.0,
        newest_fact=None,
        started=None,
        condition_reason="",
    )


def nothing_measured() -> MemoryView:
    """No memory reading of any kind."""
    return MemoryView(
        hbm=None, hbm_reason=None, host_cpu_percent=None, host_used_bytes=None, host_total_bytes=None, processes=[]
    )


def finished() -> Snapshot:
    """A run that trained every epoch, on a CPU host."""
    done = running()
    return changed(
        done,
        condition="done",
        condition_reason="4 epochs trained",
        topology=msgspec.structs.replace(done.topology, device="CPU") if done.topology else None,
        epoch=4,
        steps=440,
        ended=NOW - 1,
        eta_s=None,
        exit_code=0,
        epochs=epochs(4),
        cores=[msgspec.structs.replace(core, condition="ended", step=440) for core in done.cores],
        memory=msgspec.structs.replace(done.memory, hbm=None, hbm_reason="the CPU device does not tell its memory"),
    )


def failed() -> Snapshot:
    """A run that broke."""
    return changed(
        running(),
        condition="failed",
        condition_reason="ValueError in worker-0 at step 331",
        ended=NOW - 1,
        exit_code=3,
        eta_s=None,
        cores=[msgspec.structs.replace(core, condition="ended") for core in running().cores],
        failure=Failure(
            t=0.0,
            writer="worker-0",
            error="ValueError",
            message="expected 64 labels, got [bold red]63[/]\x1b[31m",
            traceback=(
                "Traceback (most recent call last):\n"
                '  File "/home/user/engine/trainer.py", line 188, in train\n'
                "    self._step(batch)\n"
                '  File "/home/user/engine/tasks/digits.py", line 77, in loss\n'
                '    raise ValueError(f"expected {n} labels, got {m}")\n'
                "ValueError: expected 64 labels, got 63\n"
            ),
            phase="tracing",
            step=331,
        ),
    )


def diverged() -> Snapshot:
    """A run whose core 3 went NaN at step 301, with a spike at 120 before, damage, drops, recompiles and fallbacks."""
    run = running()
    loss = [*run.loss]
    loss[119] = segment(120, [*(loss_at(120, core) for core in range(7)), 3.9])
    for step in range(301, 331):
        loss[step - 1] = segment(step, [loss_at(step, core) if core != 3 else math.nan for core in range(8)])
    assert run.xla is not None
    return changed(
        run,
        loss=loss,
        cores=[msgspec.structs.replace(c, loss=math.nan) if c.core == 3 else c for c in run.cores],
        non_finite=[NonFinite(core=3, step=301, metric="loss", value=math.nan)],
        num_non_finite=30,
        requests=[],
        core_columns=[
            core_column(c.first_step, c.last_step, 8, {3: math.nan} if c.first_step >= 301 else {})
            for c in run.core_columns
        ],
        marks=[*run.marks, mark("non_finite", 301, "loss of core 3 is NaN", 3)],
        num_marks=len(run.marks) + 1,
        dropped_steps=12,
        damage=DamageView(
            regions=[Damage(journal="worker-0", start=10, end=99, reason="checksum", lost_records=2)],
            lost_records=2,
        ),
        xla=msgspec.structs.replace(run.xla, recompiles=7, fallbacks={"aten::nonzero": 31, "aten::im2col": 4}),
    )


def outlying() -> Snapshot:
    """Core 5 learns nothing, core 6 hangs in data."""
    run = running()
    cores = [*run.cores]
    cores[5] = msgspec.structs.replace(cores[5], loss=1.9)
    cores[6] = msgspec.structs.replace(cores[6], condition="stalled", phase="data", phase_s=94.0)
    columns = [
        core_column(c.first_step, c.last_step, 8, {5: 1.9} if c.first_step >= 120 else {}) for c in run.core_columns
    ]
    why = "core 6 is in data for 94 s"
    odd = OutlierView(core=5, by=1.812, first_step=121, last_step=STEPS)
    return changed(
        run, cores=cores, core_columns=columns, outlier=odd, condition="stalled", condition_reason=why, requests=[]
    )


def with_slow_core(num_cores: int = 8) -> Snapshot:
    """Core 5 takes a third longer than the others."""
    run = running(num_cores)
    cores = [
        msgspec.structs.replace(core, compute_s=0.0266 if core.core == 5 else 0.02 + core.core * 1e-6)
        for core in run.cores
    ]
    slow = SlowCoreView(core=5, share=0.33, first_step=121, num_steps=180)
    return changed(run, cores=cores, slow_core=slow)


def changed(base: Snapshot, **changes: Any) -> Snapshot:
    """A snapshot that differs from another one in some fields."""
    return msgspec.structs.replace(base, **changes)


class HandPlayer:
    """A player that moves only when a test moves it."""

    def __init__(self) -> None:
        self.start, self.end, self.position, self.speed, self.playing = NOW, NOW + 100, NOW + 40, 1.0, True
        self.live = False
        self.follows = False

    def play(self) -> None:
        self.playing = True

    def pause(self) -> None:
        self.playing = False

    def seek(self, t: float) -> None:
        self.position = t

    def follow(self) -> None:
        self.position = self.end

    def set_speed(self, speed: float) -> None:
        self.speed = speed


class LivePlayer(HandPlayer):
    """A player of a run that goes on: it follows now until it is moved."""

    def __init__(self) -> None:
        super().__init__()
        self.position, self.live = self.end, True
        self.follows = True

    def pause(self) -> None:
        self.playing, self.live = False, False

    def seek(self, t: float) -> None:
        self.position, self.live = t, False

    def follow(self) -> None:
        self.position, self.live, self.playing = self.end, True, True


class HandSource:
    """A source that serves what it is given."""

    def __init__(self, served: Snapshot, player: HandPlayer | None = None) -> None:
        self.served = served
        self.newest_served: Snapshot | None = None
        """What is true now, where the past is served."""
        self.hand_player = player
        self.caught_up = True
        self.closed = False
        self._polled: list[object] = []

    @property
    def player(self) -> PlayerControls | None:
        return self.hand_player

    def poll(self, budget_s: float) -> list[object]:
        """Something if what is served has changed."""
        player, before = self.hand_player, self._polled
        moment = (player.position, player.playing, player.live) if player is not None else None
        self._polled = [self.served, self.newest_served, moment]
        return [] if before == self._polled else self._polled

    def fingerprint(self) -> object:
        return None

    def snapshot(self, *, may_defer: bool = False) -> Snapshot:
        return self.served

    def newest(self, *, may_defer: bool = False) -> Snapshot:
        return self.newest_served or self.served

    def close(self) -> None:
        self.closed = True


RUN_DIR = Path("runs/digits-20251009-100000")
