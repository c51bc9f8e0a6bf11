"""Trains, attaches, saves, kills and resumes at random, and counts lost events and processes left behind.

    python -m benchmarks.soak [--seconds 600] [--seed 0]

A run trains on the real engine with 8 virtual cores until something ends it: a request, a SIGTERM, a kill -9 of
training, of its supervisor or of both. The next run resumes from its last checkpoint. After each run every journal is
read: every step must be present exactly once, and so must every event that a viewer printed; a requested checkpoint
must load; no process may be left. Exits with 1 if anything is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from tests.cli.helpers import tputui
from tests.deadline import DEADLINE_S
from tests.faults.harness import Run, last_checkpoint_step
from tests.live import processes_of
from tests.supervise.harness import events_in, is_running, wait_for
from tputui.telemetry import events as ev
from tputui.telemetry.journal import Tail

MEANWHILE_MAX = 4
"""Maximum number of non-fatal actions on a run before it is ended."""


class Soak:
    """Counts of actions, and the errors found."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.done: Counter[str] = Counter()
        self.errors: list[str] = []
        self.num_records = 0
        self.num_steps = 0
        self._folder = folder
        self._random = random.Random(seed)
        self._first_step = 1
        self._resume = ""
        self.num_runs = 0

    def round(self) -> None:
        """Trains one run from its start or resumption to its end."""
        self.num_runs += 1
        run = Run(self._folder, "train", name=f"run-{self.num_runs}", resume=self._resume)
        try:
            self._reach(run)
            viewer = self._attach(run)
            for _ in range(self._random.randint(0, MEANWHILE_MAX)):
                name = self._random.choice(list(SURVIVED))
                self.done[name] += 1
                SURVIVED[name](run)
            before = run.step()
            name = self._random.choice(list(ENDS))
            self.done[name] += 1
            ENDS[name](run)
            run.left()
            viewer.wait(DEADLINE_S)
            self._read(run, name, before)
        finally:
            run.clean_up()

    def _reach(self, run: Run) -> None:
        wait_for(lambda: run.step() >= self._first_step + 4 or run.viewer.poll() is not None, "training")
        if run.viewer.poll() is not None:
            self.errors.append(f"{run.dir.name} did not start: {run.left()}")

    def _attach(self, run: Run) -> subprocess.Popen[bytes]:
        """Starts a viewer that writes all events to a file until the run ends."""
        with self._printed(run).open("wb") as out:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "tputui", "attach", "--json", str(run.dir)],
                stdout=out,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def _printed(self, run: Run) -> Path:
        return self._folder / f"{run.dir.name}.printed"

    def _read(self, run: Run, ended_by: str, before: int) -> None:
        """Reads the journals and checks that every step is present once."""
        name = f"{run.dir.name}, ended by {ended_by}"
        with contextlib.suppress(AssertionError):
            wait_for(lambda: not processes_of(run.dir), "no process", 30.0)
        if left := processes_of(run.dir):
            self.errors.append(f"{name}: processes {left} are left")
        if tputui("check", run.dir).code != 0:
            self.errors.append(f"{name}: a journal is damaged")
        steps = [
            event.first + row
            for event in events_in(run.dir, "worker-0", ev.StepsRecorded)
            if event.metric == "loss"
            for row in range(event.n)
        ]
        if steps != list(range(self._first_step, self._first_step + len(steps))) or not steps or steps[-1] < before:
            self.errors.append(f"{name}: steps {steps[:1]} to {steps[-1:]} are not present exactly once")
        self.num_steps += len(steps)
        self._compare(run, name)
        kept = last_checkpoint_step(run.dir)
        if kept is not None:
            self._resume, self._first_step = run.dir.name, kept + 1

    def _compare(self, run: Run, name: str) -> None:
        """Checks that a viewer printed exactly the events of the journals."""
        written = Counter[tuple[str, int]]()
        for path in run.dir.glob("*.jsonl"):
            tail = Tail(path)
            while records := tail.read():
                written.update((path.stem, record.seq) for record in records)
            tail.close()
        self.num_records += written.total()
        printed = Counter[tuple[str, int]]()
        for line in self._printed(run).read_bytes().splitlines():
            record = msgspec.json.decode(line)
            printed[record["writer"], record["q"]] += 1
        missed, doubled = (written - printed).total(), (printed - written).total()
        if missed or doubled:
            self.errors.append(f"{name}: of {written.total()} events a viewer missed {missed} and repeated {doubled}")


def kill(*names: str) -> Callable[[Run], None]:
    """Returns an action that kills `supervisor`, `worker` or both; training without a supervisor is then stopped."""

    def end(run: Run) -> None:
        pids = {"supervisor": run.supervisor_pid, "worker": run.worker_pid}
        for name in names:
            os.kill(pids[name], signal.SIGKILL)
        if names == ("supervisor",):
            wait_for(lambda: not is_running(pids["supervisor"]), "the end of the supervisor")
            run.trains_on()
            tputui("stop", run.dir, "--wait", f"{DEADLINE_S:g}")

    return end


def save(run: Run) -> None:
    """Requests a checkpoint and loads it."""
    before = run.step()
    assert tputui("checkpoint", run.dir, "--wait", f"{DEADLINE_S:g}").code == 0
    assert (last_checkpoint_step(run.dir) or 0) >= before


def stop(*words: str) -> Callable[[Run], None]:
    """Returns an action that requests a stop and waits for the receipts."""

    def end(run: Run) -> None:
        tputui("stop", run.dir, *words, "--wait", f"{DEADLINE_S:g}")

    return end


def request_stacks(run: Run) -> None:
    """Requests the stacks."""
    assert tputui("stacks", run.dir, "--wait", f"{DEADLINE_S:g}").code == 0


def attach_and_kill(run: Run) -> None:
    """Attaches a viewer and kills it."""
    words = [sys.executable, "-P", "-m", "tputui", "attach", "--no-ui", str(run.dir)]
    viewer = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
    assert viewer.stdout is not None
    viewer.stdout.readline()
    viewer.kill()
    viewer.communicate()
    run.trains_on()


SURVIVED: dict[str, Callable[[Run], None]] = {
    "attached and killed a viewer": attach_and_kill,
    "saved on request": save,
    "requested its stacks": request_stacks,
    "trained on": Run.trains_on,
}
ENDS: dict[str, Callable[[Run], None]] = {
    "kill -9 of training": kill("worker"),
    "kill -9 of the supervisor, then a stop": kill("supervisor"),
    "kill -9 of both": kill("supervisor", "worker"),
    "SIGTERM": lambda run: os.kill(run.supervisor_pid, signal.SIGTERM),
    "a stop": stop(),
    "a stop now": stop("--now"),
}


def main() -> None:
    """Runs until the time is over, then prints counts and errors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(Path(folder), args.seed)
        while time.monotonic() - began < args.seconds:
            soak.round()
    print(f"{soak.num_runs} runs in {time.monotonic() - began:.0f} s, each resumed from the one before")
    for name, times in sorted(soak.done.items()):
        print(f"  {name:42}{times:>5}")
    print(f"steps recorded {soak.num_steps:,}, events {soak.num_records:,}, each printed once by a viewer")
    print(f"lost or left behind: {len(soak.errors)}")
    for line in soak.errors:
        print(f"  {line}")
    sys.exit(1 if soak.errors else 0)


if __name__ == "__main__":
    main()
