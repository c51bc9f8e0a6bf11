"""Kills processes while they save, then checks the files: `python -m tests.engine.killed FOLDER KILLS`.

Each process resumes from the checkpoints of the one before, in a new run directory, as a resumed run does, and
is killed at a random moment of its saving. The invariants of checkpoints are checked each time. Prints the number
of saves, and the number of kills that left a partial file.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import threading
import traceback
from pathlib import Path

import torch

from engine.checkpoint import checkpoint_store, continued
from engine.checkpoint.checkpoint_store import CheckpointStore
from engine.checkpoint.resume import Checkpoint, Position
from engine.task import Plan
from tests import recorded
from tests.engine.test_checkpoint import planned
from tputui.telemetry import rundir
from tputui.telemetry.reporter import Reporter

KEEP = 2
LONGEST_S = 0.15
VALUES = 1 << 17
"""Float32s of a checkpoint: 512 KiB, which takes a while to write and to read back."""


def planned_for_ever() -> Plan:
    """A plan with more steps than will ever be saved."""
    return planned(f"checkpoint.keep={KEEP}", "epochs=1000000")


def at_step(step: int, best: float) -> Checkpoint:
    """A checkpoint at the end of an epoch of one step, all of whose values are that step."""
    training_state = {"model": {"w": torch.full((VALUES,), float(step))}}
    position = Position(epoch=step + 1, batch=0, step=step, evaluating=False)
    return Checkpoint(position, training_state, {}, best, best_epoch=step // 3 * 3)


def save_for_ever(run_dir: Path, source: Path | None, pipe: int) -> None:
    """Saves like a training process; every third save is the best so far."""
    reporter = Reporter(run_dir, "worker")
    reporter.flush()
    store, step, best = CheckpointStore(run_dir, planned_for_ever()), 0, 1.0
    if source is not None:
        continued.remove_partial_writes(source)
        resumed = continued.adopt_best(store, checkpoint_store.load(source, planned_for_ever()), source, sys.exit)
        step, best = resumed.position.step, resumed.best or 1.0
    while True:
        step += 1
        is_best = step % 3 == 0
        best = best / 2 if is_best else best
        store.save(at_step(step, best), periodic=True, best=is_best)
        os.write(pipe, b".")


def killed_in_a_save(run_dir: Path, source: Path | None, chance: random.Random) -> int:
    """Lets a process save, kills it, and returns how many saves it completed."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            save_for_ever(run_dir, source, writing)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(writing)
    # The first three saves make a best one.
    done = sum(len(os.read(reading, 1)) for _ in range(4))
    threading.Event().wait(chance.uniform(0, LONGEST_S))
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), f"it ended by itself: {status}"
    while more := os.read(reading, 4096):
        done += len(more)
    os.close(reading)
    return done


def check(run_dir: Path, first: int, done: int) -> Path:
    """Checks the remaining checkpoints, and returns the last one."""
    folder = run_dir / rundir.CHECKPOINTS
    for name in (checkpoint_store.LAST, checkpoint_store.BEST):
        # `load` refuses a damaged file; this one is also equal to the saved state.
        step, best = read(folder / name)
        assert step in (first + done, first + done + 1) or name == checkpoint_store.BEST, (name, step, first, done)
        assert best == 0.5 ** (step // 3), "the best figure is that of its step"
    assert len(list(folder.glob("step-*.pt"))) <= KEEP + 2, (
        "those that are kept, the best one, and the one in the making"
    )
    return folder / checkpoint_store.LAST


def read(path: Path) -> tuple[int, float | None]:
    """Step and best value of a checkpoint, after a check of all its values."""
    saved = checkpoint_store.load(path, planned_for_ever())
    assert bool((saved.training_state["model"]["w"] == saved.position.step).all())
    return saved.position.step, saved.best


def main(folder: Path, kills: int) -> None:
    """Kills that often, and until a kill fell into a save."""
    # A child has none of the threads that its parent would compute with.
    torch.set_num_threads(1)
    chance, source, total, halves = random.Random(7), None, 0, 0
    for number in itertools.count():
        if number >= kills and halves:
            break
        run_dir = rundir.create(folder, recorded.manifest(f"run-{number}"))
        first = read(source)[0] if source else 0
        done = killed_in_a_save(run_dir, source, chance)
        if source is not None:
            assert not list(source.parent.glob(".*")), "the next start tidies up"
        source = check(run_dir, first, done)
        halves += bool(list(source.parent.glob(".*.tmp")))
        total += done
    sys.stdout.write(f"{total} saves, {halves} halves\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
