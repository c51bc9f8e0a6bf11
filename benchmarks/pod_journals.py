"""The journals of a simulated pod: everything that its hosts write, from their first event to the end.

`Pod.write_until` writes everything up to a moment with the real journal writer: a caller with a clock makes a live run
of it, and one without writes a recorded run as fast as it can.
"""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.pod_model import CORES_PER_HOST, EXCHANGE_S, Faults, Partition, PodModel, Restart, Steps
from tests import recorded
from tputui import __version__
from tputui.telemetry import events as ev
from tputui.telemetry import float_blocks, rundir
from tputui.telemetry.journal import SUFFIX, JournalWriter
from tputui.telemetry.step_log import RawSteps

REPORT_S = 0.1
BEAT_S = 1.0
HOST_SAMPLE_S = 2.0
CLOCK_S = 15.0
CHECKPOINT_S = 4.0
START_S = 2.0
"""Time from the first event to the first step."""
JOIN_S = 0.5
STEPS_PER_EPOCH = 500
BATCH_PER_CORE = 64
HBM_BYTES = 16 << 30
HBM_SHARE = 0.62
ENDS = "the time of the simulation is over"
"""Why a run ends."""
CONFIG = {**recorded.CONFIG, "task": "pod"}
AWAITED_S = 60.0
"""After this time, and then as often, the hosts that wait report which are missing."""


class HostJournals:
    """The journals of one host: those of its training process and of its supervisor."""

    def __init__(self, run_dir: Path, host: int, ahead_s: float, partition: Partition | None) -> None:
        """`ahead_s`: what its clock adds to unix time. While `partition` lasts, nothing is written."""
        self.host = host
        self.reported = 0
        """Newest step reported."""
        self.report_at = self.beat_at = self.sample_at = self.clock_at = 0.0
        """When these events are due."""
        self.num_events = 0
        self._ahead_s = ahead_s
        self._partition = partition
        self._queues: dict[str, list[ev.Event]] = {"worker": [], "supervisor": []}
        self._writers = {role: JournalWriter(run_dir / f"{role}-{host}{SUFFIX}") for role in self._queues}

    @property
    def cores(self) -> list[int]:
        return list(range(self.host * CORES_PER_HOST, (self.host + 1) * CORES_PER_HOST))

    def worker(self, event: ev.Event) -> None:
        """Queues an event of the training process; its time is in seconds since the start."""
        self._put("worker", event)

    def supervisor(self, event: ev.Event) -> None:
        """Queues an event of the supervisor."""
        self._put("supervisor", event)

    def flush(self, now: float) -> None:
        """Writes the queued events, unless the host is cut off."""
        partition = self._partition
        if partition is not None and partition.begin_s <= now < partition.end_s:
            return
        for role, queue in self._queues.items():
            if queue:
                self._writers[role].append(queue)
                queue.clear()

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()

    def _put(self, role: str, event: ev.Event) -> None:
        self._queues[role].append(msgspec.structs.replace(event, t=event.t + self._ahead_s))
        self.num_events += 1


class Pod:
    """A run of a pod as it is written."""

    def __init__(self, run_dir: Path, model: PodModel, t0: float, seed: int = 0, report_s: float = REPORT_S) -> None:
        """`t0`: unix time of the start, on the clock of the first host. `report_s`: seconds between two reports."""
        self.model = model
        self._run = run_dir.name
        self._report_s = report_s
        self._random = np.random.default_rng([seed, 3])
        self._now = 0.0
        self._generation = 0
        self._first_step = 1
        self._begin_s = 0.0
        """When the training processes of this generation started."""
        self._steps: list[Steps] = []
        """The newest two blocks."""
        self._checkpoint_step = 0
        self._checkpoint_at = CHECKPOINT_S
        self._restart = model.faults.restart
        self._epoch = 0
        self.hosts: list[HostJournals] = []
        for host in range(model.num_hosts):
            if host != model.faults.missing:
                partition = model.faults.partition
                held = partition if partition is not None and partition.host == host else None
                self.hosts.append(HostJournals(run_dir, host, t0 + float(model.skews_s[host]), held))
        for journals in self.hosts:
            journals.report_at = float(self._random.uniform(0.0, report_s))
            self._start(journals)

    @property
    def num_events(self) -> int:
        """Events so far."""
        return sum(host.num_events for host in self.hosts)

    @property
    def step(self) -> int:
        """Newest step that the first host reported."""
        return self.hosts[0].reported

    def write_until(self, until_s: float) -> None:
        """Writes all events up to a time, in seconds since the start."""
        while self._now < until_s:
            self._now = min(self._now + REPORT_S, until_s)
            if self._restart is not None and self._restart.t <= self._now:
                self._fail(self._restart)
            self._tick(self._now)
            for host in self.hosts:
                host.flush(self._now)

    def close(self, *, ended: bool = True) -> None:
        """Closes the journals; with `ended` the run ends before."""
        t = self._now
        for host in self.hosts:
            if ended:
                reason = "" if host.host else ENDS
                host.worker(ev.TrainingEnded(t=t, outcome="done", step=host.reported, reason=reason))
                host.supervisor(ev.WorkerExited(t=t, pid=_pid("worker", self._generation), exit_code=0))
                host.supervisor(ev.RunEnded(t=t, outcome="done", exit_code=0, reason=ENDS))
                host.flush(math.inf)
            host.close()

    def _start(self, host: HostJournals) -> None:
        """The start of a host."""
        host.supervisor(self._head("supervisor", host.host, 0, 0.0))
        host.supervisor(ev.RunStarted(t=0.0, run=self._run, config=CONFIG, argv=["tputui", "run", "pod.toml"]))
        host.supervisor(ev.WorkerStarted(t=0.0, pid=_pid("worker", 0), argv=["engine.worker"]))
        self._start_worker(host)

    def _start_worker(self, host: HostJournals) -> None:
        """The start of a training process."""
        t, num_hosts = self._begin_s, self.model.num_hosts
        host.worker(self._head("worker", host.host, self._generation, t))
        host.worker(ev.HeartbeatSent(t=t, phase="starting", phase_s=0.0, step=0, epoch=0))
        host.beat_at, host.sample_at = (t + float(due) for due in self._random.uniform(0.0, HOST_SAMPLE_S, 2))
        if self.model.faults.missing is not None:
            return
        waited_s = JOIN_S + float(self._random.uniform(0.0, 0.2))
        joined = t + waited_s
        address = f"10.164.{host.host // 250}.{host.host % 250 + 2}"
        host.worker(
            ev.HostJoined(t=joined, host_index=host.host, num_hosts=num_hosts, waited_s=waited_s, address=address)
        )
        self._measure_clock(host, joined)
        host.worker(
            ev.TopologyDeclared(
                t=joined, strategy="replica", device="CPU", device_reason="a simulated pod",
                num_cores=self.model.num_cores, num_hosts=num_hosts, host_index=host.host, cores=host.cores,
            )
        )  # fmt: skip
        if not host.host:
            host.worker(self._plan(joined))
            self._begin_epoch(joined, (self._first_step - 1) // STEPS_PER_EPOCH + 1, self._first_step)

    def _head(self, role: str, host: int, generation: int, t: float) -> ev.JournalOpened:
        return ev.JournalOpened(
            t=t, format=ev.FORMAT_VERSION, writer=f"{role}-{host}", role=role, host=f"tpu-vm-{host}",
            host_id=f"simulated-{host}", pid=_pid(role, generation), pid_started=1, run=self._run,
            version=__version__, blocks=float_blocks.ENCODING, host_index=host, generation=generation,
        )  # fmt: skip

    def _plan(self, t: float) -> ev.TrainingPlanned:
        batch = BATCH_PER_CORE * self.model.num_cores
        return ev.TrainingPlanned(
            t=t, task="pod", num_epochs=90, steps_per_epoch=STEPS_PER_EPOCH, valid_steps=20,
            first_step=self._first_step, batch_per_core=BATCH_PER_CORE, global_batch=batch,
            train_examples=batch * STEPS_PER_EPOCH, valid_examples=batch * 20, num_parameters=25_557_032,
            precision="bf16", lr=0.1, lr_rule="0.1 for all cores",
        )  # fmt: skip

    def _begin_epoch(self, t: float, epoch: int, first_step: int) -> None:
        self._epoch = epoch
        self.hosts[0].worker(ev.EpochStarted(t=t, epoch=epoch, first_step=first_step))

    def _tick(self, now: float) -> None:
        trains = self.model.faults.missing is None and now >= self._begin_s + START_S
        for host in self.hosts:
            if trains and now >= host.report_at:
                host.report_at = max(host.report_at, now - self._report_s) + self._report_s
                self._report(host, now)
            if now >= self._begin_s:
                self._sample(host, now, trains=trains)
        if trains and now >= self._checkpoint_at:
            self._save(now)
        if self.model.faults.missing is not None and now % AWAITED_S < REPORT_S <= now:
            self._await_missing(now, self.model.faults.missing)

    def _await_missing(self, now: float, missing: int) -> None:
        joined = [host.host for host in self.hosts]
        for host in self.hosts:
            host.supervisor(
                ev.HostsAwaited(t=now, num_hosts=self.model.num_hosts, joined=joined, missing=[missing], waited_s=now)
            )

    def _sample(self, host: HostJournals, now: float, *, trains: bool) -> None:
        """What a host writes once a second or less, whatever training does."""
        if now >= host.beat_at:
            host.beat_at = now + BEAT_S
            epoch = (host.reported - 1) // STEPS_PER_EPOCH + 1 if host.reported else 0
            phase_s = 0.02 if trains else now - self._begin_s
            phase: ev.Phase = "executing" if trains else "starting"
            host.worker(ev.HeartbeatSent(t=now, phase=phase, phase_s=phase_s, step=host.reported, epoch=epoch))
        if now >= host.sample_at:
            host.sample_at = now + max(HOST_SAMPLE_S, 5 * self._report_s)
            self._sample_memory(host, now)
        if now >= host.clock_at and self.model.faults.missing is None:
            self._measure_clock(host, now)

    def _sample_memory(self, host: HostJournals, now: float) -> None:
        pid = _pid("worker", self._generation)
        worker = ev.ProcessSample(pid=pid, role="worker", rss_bytes=48 << 30, cpu_percent=870.0)
        cpu_percent = 22.0 + float(self._random.uniform(-2.0, 2.0))
        host.supervisor(
            ev.HostSampled(
                t=now, cpu_percent=cpu_percent, memory_used_bytes=60 << 30, memory_total_bytes=340 << 30,
                processes=[worker],
            )
        )  # fmt: skip
        used = int((HBM_SHARE + 0.02 * float(self._random.random())) * HBM_BYTES)
        hbm = [ev.HbmReading(core=core, used_bytes=used, limit_bytes=HBM_BYTES, peak_bytes=used) for core in host.cores]
        host.worker(ev.MemorySampled(t=now, hbm=hbm))

    def _measure_clock(self, host: HostJournals, now: float) -> None:
        host.clock_at = now + CLOCK_S
        error_s = float(self._random.uniform(0.0005, 0.003)) if host.host else 0.0
        offset_s = float(self.model.skews_s[host.host]) + float(self._random.uniform(-error_s, error_s))
        host.supervisor(ev.ClockMeasured(t=now, offset_s=offset_s, error_s=error_s, reference="tpu-vm-0"))

    def _report(self, host: HostJournals, now: float) -> None:
        """The steps that ended since the last report of a host."""
        before = host.reported
        for steps in self._blocks_until(now):
            begin = max(before + 1 - steps.first, 0)
            end = int(np.searchsorted(steps.ends, now, side="right"))
            if begin < end:
                self._report_steps(host, steps, begin, end, now)
        if not host.host and host.reported > before:
            self._report_progress(host, now)

    def _report_steps(self, host: HostJournals, steps: Steps, begin: int, end: int, now: float) -> None:
        first, host.reported = steps.first + begin, steps.first + end - 1
        rows = steps.losses[begin:end, host.host * CORES_PER_HOST : (host.host + 1) * CORES_PER_HOST]
        host.worker(RawSteps(now, first, CORES_PER_HOST, "loss", rows.tobytes()).to_event())
        compute_s = float(steps.compute_s[begin:end, host.host].mean())
        data_s = float(steps.data_s[begin:end, host.host].mean())
        wait_s = float(steps.wait_s[begin:end, host.host].mean())
        host.worker(
            ev.HostPaceMeasured(
                t=now, step=host.reported, steps=end - begin, step_s=compute_s + data_s + wait_s + EXCHANGE_S,
                data_s=data_s, compute_s=compute_s, wait_s=wait_s,
            )
        )  # fmt: skip

    def _report_progress(self, host: HostJournals, now: float) -> None:
        """What the first host reports for all."""
        step = host.reported
        epoch, epoch_step = (step - 1) // STEPS_PER_EPOCH + 1, (step - 1) % STEPS_PER_EPOCH + 1
        if epoch > self._epoch:
            self._begin_epoch(now, epoch, (epoch - 1) * STEPS_PER_EPOCH + 1)
        batch, step_s = BATCH_PER_CORE * self.model.num_cores, 1.1 * self.model.step_s
        host.worker(
            ev.ProgressReported(
                t=now, epoch=epoch, epoch_step=epoch_step, step=step, step_s=step_s, examples_per_s=batch / step_s,
                lr=0.1, report_steps=max(round(self._report_s / step_s), 1),
            )
        )  # fmt: skip
        count, mean = batch * epoch_step, self.model.loss_at(step)
        reading = ev.MeterReading(val=mean, avg=mean, sum=mean * count, count=count)
        reduced = f"mean over examples, {self.model.num_cores:,} cores"
        host.worker(
            ev.MetersReported(
                t=now, epoch=epoch, step=step, split="train", meters={"loss": reading}, reduced=reduced
            )
        )  # fmt: skip

    def _blocks_until(self, t: float) -> list[Steps]:
        """The newest blocks of steps, of which the last one ends after a time."""
        if not self._steps:
            self._steps.append(self.model.block(self._first_step, self._begin_s + START_S))
        while self._steps[-1].ends[-1] <= t:
            newest = self._steps[-1]
            following = self.model.block(newest.first + len(newest.ends), float(newest.ends[-1]))
            self._steps = [newest, following]
        return self._steps

    def _save(self, now: float) -> None:
        self._checkpoint_at = now + CHECKPOINT_S
        step = self._checkpoint_step = self.step
        self.hosts[0].worker(
            ev.CheckpointSaved(
                t=now, path=f"checkpoints/step-{step:08d}.pt", step=step, epoch=(step - 1) // STEPS_PER_EPOCH + 1,
                bytes=204_456_256, seconds=0.6, reason="epoch",
            )
        )  # fmt: skip

    def _fail(self, restart: Restart) -> None:
        """A host fails; the launcher ends the others and starts all again."""
        self._restart = None
        failing = self.hosts[restart.host]
        words = "the device was lost"
        failing.worker(
            ev.FailureRaised(
                t=restart.t, error="RuntimeError", message=words, traceback=f"RuntimeError: {words}",
                phase="executing", step=failing.reported,
            )
        )  # fmt: skip
        self._generation += 1
        self._first_step, self._begin_s = self._checkpoint_step + 1, restart.t + restart.takes_s
        self._steps = []
        for host in self.hosts:
            host.reported = self._checkpoint_step
            self._start_worker(host)


def create(parent: Path, hosts: int, seed: int, faults: Faults, t0: float) -> tuple[Path, Pod]:
    """Starts the run of a pod. `t0`: unix time of its start."""
    manifest = msgspec.structs.replace(recorded.manifest(f"pod-{hosts}-{seed}-{int(t0)}"), config=CONFIG, created=t0)
    run_dir = rundir.create(parent, manifest)
    return run_dir, Pod(run_dir, PodModel(seed, hosts, faults), t0, seed)


def _pid(role: str, generation: int) -> int:
    return 4242 if role == "supervisor" else 4243 + generation
