"""Trains, attaches, detaches, saves, kills and resumes at random, and counts what was lost and what was left behind.

    python -m benchmarks.soak [--seconds 600] [--seed 0]

A run trains on the real engine, 8 virtual cores, until something ends it: a request, a SIGTERM, a kill -9 of training,
of its supervisor or of both. The next goes on from its last checkpoint. After each: every journal is read record by
record; every step from the first on must be there once, also every step that a report told a viewer; a requested
checkpoint must load; and no process may be left. Exits with 1 where anything is missing.
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
from tests.faults.harness import PATIENCE_S, Run, kept_step
from tests.live import processes_of
from tests.supervise.harness import facts, is_running, wait_for
from tputui.telemetry import events as ev
from tputui.telemetry.journal import Tail

MEANWHILE_MAX = 4
"""Things done to a run that it bears, at most, before it is ended."""


class Soak:
    """What was done, and what went wrong."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.num_records = 0
        self.num_steps = 0
        self._folder = folder
        self._random = random.Random(seed)
        self._first_step = 1
        self._resume = ""
        self.num_runs = 0

    def round(self) -> None:
        """One run, from its start or resumption to its end."""
        self.num_runs += 1
        run = Run(self._folder, "train", name=f"run-{self.num_runs}", resume=self._resume)
        try:
            self._reach(run)
            viewer = self._attach(run)
            for _ in range(self._random.randint(0, MEANWHILE_MAX)):
                name = self._random.choice(list(BORNE))
                self.done[name] += 1
                BORNE[name](run)
            before = run.step()
            name = self._random.choice(list(ENDS))
            self.done[name] += 1
            ENDS[name](run)
            run.left()
            viewer.wait(PATIENCE_S)
            self._read(run, name, before)
        finally:
            run.clean_up()

    def _reach(self, run: Run) -> None:
        wait_for(lambda: run.step() >= self._first_step + 4 or run.viewer.poll() is not None, "training", PATIENCE_S)
        if run.viewer.poll() is not None:
            self.wrong.append(f"{run.dir.name} did not start: {run.left()}")

    def _attach(self, run: Run) -> subprocess.Popen[bytes]:
        """A viewer that writes all it is told to a file, until the run has ended."""
        with self._told(run).open("wb") as out:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "tputui", "attach", "--json", str(run.dir)],
                stdout=out,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def _told(self, run: Run) -> Path:
        return self._folder / f"{run.dir.name}.told"

    def _read(self, run: Run, ended_by: str, before: int) -> None:
        """Counts what the journals hold, and compares it with what must be there."""
        name = f"{run.dir.name}, ended by {ended_by}"
        with contextlib.suppress(AssertionError):
            wait_for(lambda: not processes_of(run.dir), "no process", 30.0)
        if left := processes_of(run.dir):
            self.wrong.append(f"{name}: processes {left} are left")
        if tputui("check", run.dir).code != 0:
            self.wrong.append(f"{name}: a journal is damaged")
        steps = [fact.first + row for fact in facts(run.dir, "worker-0", ev.StepsRecorded) for row in range(fact.n)]
        if steps != list(range(self._first_step, self._first_step + len(steps))) or not steps or steps[-1] < before:
            self.wrong.append(f"{name}: steps {steps[:1]} to {steps[-1:]} are not each there once")
        self.num_steps += len(steps)
        self._compare(run, name)
        kept = kept_step(run.dir)
        if kept is not None:
            self._resume, self._first_step = run.dir.name, kept + 1

    def _compare(self, run: Run, name: str) -> None:
        """What a viewer printed must be what the journals hold."""
        written = Counter[tuple[str, int]]()
        for path in run.dir.glob("*.jsonl"):
            tail = Tail(path)
            while records := tail.read():
                written.update((path.stem, record.seq) for record in records)
            tail.close()
        self.num_records += written.total()
        told = Counter[tuple[str, int]]()
        for line in self._told(run).read_bytes().splitlines():
            record = msgspec.json.decode(line)
            told[record["writer"], record["q"]] += 1
        missed, doubled = (written - told).total(), (told - written).total()
        if missed or doubled:
            self.wrong.append(f"{name}: of {written.total()} records a viewer missed {missed} and saw {doubled} again")


def kill(*names: str) -> Callable[[Run], None]:
    """Kills those of `supervisor` and `worker`, and lets nobody train on unwatched."""

    def end(run: Run) -> None:
        pids = {"supervisor": run.supervisor_pid, "worker": run.worker_pid}
        for name in names:
            os.kill(pids[name], signal.SIGKILL)
        if names == ("supervisor",):
            wait_for(lambda: not is_running(pids["supervisor"]), "the end of the supervisor")
            run.trains_on()
            tputui("stop", run.dir, "--wait", f"{PATIENCE_S:g}", deadline_s=PATIENCE_S)

    return end


def save(run: Run) -> None:
    """Asks for a checkpoint and loads it."""
    before = run.step()
    assert tputui("checkpoint", run.dir, "--wait", f"{PATIENCE_S:g}", deadline_s=PATIENCE_S).code == 0
    assert (kept_step(run.dir) or 0) >= before


def stop(*words: str) -> Callable[[Run], None]:
    """Asks for the end and waits for the receipts."""

    def end(run: Run) -> None:
        tputui("stop", run.dir, *words, "--wait", f"{PATIENCE_S:g}", deadline_s=PATIENCE_S)

    return end


def ask_for_stacks(run: Run) -> None:
    """Asks where it is."""
    assert tputui("stacks", run.dir, "--wait", f"{PATIENCE_S:g}", deadline_s=PATIENCE_S).code == 0


def look_in(run: Run) -> None:
    """Attaches and is killed."""
    words = [sys.executable, "-P", "-m", "tputui", "attach", "--no-ui", str(run.dir)]
    viewer = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
    assert viewer.stdout is not None
    viewer.stdout.readline()
    viewer.kill()
    viewer.communicate()
    run.trains_on()


BORNE: dict[str, Callable[[Run], None]] = {
    "attached and detached": look_in,
    "saved on request": save,
    "asked for its stacks": ask_for_stacks,
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
    """Goes on until the time is over, then prints what was done and what went wrong."""
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
    print(f"steps recorded {soak.num_steps:,}, records {soak.num_records:,}, each told to a viewer once")
    print(f"lost or left behind: {len(soak.wrong)}")
    for line in soak.wrong:
        print(f"  {line}")
    sys.exit(1 if soak.wrong else 0)


if __name__ == "__main__":
    main()
