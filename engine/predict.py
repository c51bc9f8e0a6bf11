"""Predictions on the CPU from the weights of a run: `python -P -m engine.predict --weights FILE ... --out FILE`.

`tputui predict` starts it. Must not import the runtime, so that it runs where there is none, with any batch size.
Exits with 0 predicted, 2 refused, 3 failed; what it tells goes to --tell-fd, see `engine.telling`.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from engine import weights
from engine.data.readers import Reader, WrongBatch
from engine.errors import BadExample, Problem, Refused
from engine.table import STDOUT, Arrays, Table, open_table
from engine.tasks import registry
from engine.tasks.base import Dataset, Task
from engine.telling import Teller, serve
from engine.weights import Weights, Workload

INPUT = "input"


class Asked(NamedTuple):
    """What is to be predicted, and where to."""

    weights: Path
    run_dir: Path | None
    source: Path | None
    """A user's file; None where a split of the run is asked for."""
    split: str | None
    out: str
    form: str
    batch: int
    code: Path | None = None
    """Folder that the user's own code is in, if they named one."""


class Judge:
    """What the predictions are worth, where the examples come with their labels."""

    def __init__(self, task: Task, *, must: bool) -> None:
        """`must`: the examples have labels, so that a missing one is a fault."""
        self.why_not: str | None = None
        self._task = task
        self._must = must
        self._count = 0
        self._sums: dict[str, float] = {}
        self._judged: dict[str, list[npt.NDArray[Any]]] = {}

    def add(self, predictions: dict[str, torch.Tensor], batch: dict[str, torch.Tensor]) -> None:
        """Takes a batch in."""
        if self.why_not is not None:
            return
        try:
            outcomes = self._task.outcomes(predictions, batch)
            judged = self._task.judged(predictions, batch)
        except KeyError as error:
            if self._must:
                raise
            self.why_not = f"the input holds no {error}"
            return
        for name in self._task.meters:
            self._sums[name] = self._sums.get(name, 0.0) + float(outcomes[name].double().sum())
        for name, values in to_numpy(judged).items():
            self._judged.setdefault(name, []).append(values)
        self._count += len(next(iter(outcomes.values())))

    def figures(self) -> dict[str, float] | None:
        """Means over the examples by meter, then the task's scores; None where nothing could be judged."""
        if self.why_not is not None or not self._count:
            return None
        means = {name: total / self._count for name, total in self._sums.items()}
        whole = {name: np.concatenate(parts) for name, parts in self._judged.items()}
        return {**means, **(self._task.score(whole) if whole else {})}


class LeftOut:
    """Examples of a split that cannot be used: as many as training may leave out are left out here too."""

    def __init__(self, limit: int, teller: Teller) -> None:
        self._limit = limit
        self._teller = teller
        self._count = 0

    def add(self, bad: BadExample, *, known: bool) -> None:
        """Leaves one more out. Raises `Refused` where it may not be, or is none of those asked for (not `known`)."""
        self._count += 1
        if not known or self._count > self._limit:
            raise Refused([Problem("", f"{bad.where}: {bad.why}")]) from bad
        self._teller.note(f"left out: {bad} ({self._count} of at most {self._limit})")


def predict(asked: Asked, teller: Teller) -> dict[str, Any]:
    """Predicts, writes the table and says what came of it. Raises `Refused`."""
    learned = weights.read(asked.weights)
    work = weights.workload(weights.origin(learned, asked.run_dir), asked.code)
    model, examples = _made(work, learned, asked)
    if "torch_xla" in sys.modules:
        teller.note("the task's modules import torch_xla, which replaces layers of torch: a GRU fails on the CPU then")
    began = time.monotonic()
    judge = Judge(work.task, must=asked.split is not None)
    with open_table(asked.out, asked.form) as table:
        _fill(table, work, model, examples, judge, asked, teller)
    monitor = work.config.checkpoint.monitor
    return {
        "rows": table.rows,
        "columns": table.columns,
        "out": asked.out,
        "seconds": time.monotonic() - began,
        "of": asked.split or str(asked.source),
        "task": work.config.task,
        "weights": str(asked.weights),
        "step": learned.step,
        "batch": asked.batch,
        "precision": "fp32",
        "trained_precision": work.config.device.precision,
        "figures": judge.figures(),
        "figures_reason": judge.why_not,
        "own_figure": {monitor: learned.figure} if learned.figure is not None and asked.split == "valid" else None,
    }


def _made(work: Workload, learned: Weights, asked: Asked) -> tuple[torch.nn.Module, Dataset]:
    """A split comes first, since the task learns from it what its network is to be; a user's file comes last, since
    it may be read by what the weights hold, such as a vocabulary."""
    if asked.split is not None:
        examples = dataset(work, asked)
        return weights.network(work, learned), examples
    return weights.network(work, learned), dataset(work, asked)


def dataset(work: Workload, asked: Asked) -> Dataset:
    """The examples that are asked for. Raises `Refused`."""
    task = work.task
    try:
        if asked.split is not None:
            splits = task.load(work.data, work.config.seed)
            return splits.train if asked.split == "train" else splits.valid
        assert asked.source is not None, "either a file or a split is asked for"
        return task.inputs(work.data, asked.source)
    except NotImplementedError:
        message = f'the task "{work.config.task}" reads no files of yours: it has no inputs(); --split valid works'
        raise Refused([Problem(INPUT, message)]) from None
    except (OSError, ValueError, BadExample) as error:
        what = asked.source or f"the split {asked.split}"
        said = str(error) or type(error).__name__
        raise Refused([Problem("", said if str(what) in said else f"{what}: {said}")]) from error


def to_numpy(tensors: dict[str, torch.Tensor]) -> Arrays:
    """On the host, in a format that numpy knows."""
    return {
        name: (value.float() if value.dtype == torch.bfloat16 else value).detach().numpy()
        for name, value in tensors.items()
    }


def _fill(
    table: Table, work: Workload, model: torch.nn.Module, examples: Dataset, judge: Judge, asked: Asked, teller: Teller
) -> None:
    total = len(examples)
    left_out = LeftOut(getattr(work.data, "max_bad_rows", 0) if asked.split is not None else 0, teller)
    with contextlib.closing(Reader(examples, work.config.data.workers)) as reader:
        for wanted in _batches(total, asked.batch):
            # The mode is a thread's own, and what is made in it cannot be filled by other threads, which decode.
            indices, batch = _fetch(reader, wanted, left_out, asked)
            if not len(indices):
                continue
            with torch.inference_mode():
                predictions = work.task.predict(model, batch)
                judge.add(predictions, batch)
            found = to_numpy(predictions)
            table.add(indices, found if table.raw else work.task.columns(found))
            teller.progress(int(wanted[-1]) + 1, total)


def _batches(total: int, size: int) -> Iterator[npt.NDArray[np.int64]]:
    for first in range(0, total, size):
        yield np.arange(first, min(total, first + size), dtype=np.int64)


def _fetch(
    reader: Reader, indices: npt.NDArray[np.int64], left_out: LeftOut, asked: Asked
) -> tuple[npt.NDArray[np.int64], dict[str, torch.Tensor]]:
    """The examples at `indices`, and at which of them: those that cannot be used are left out as far as they may."""
    try:
        while len(indices):
            try:
                return indices, reader.read(indices)
            except BadExample as bad:
                usable = indices[indices != bad.index]
                left_out.add(bad, known=len(usable) < len(indices))
                indices = usable
        return indices, {}
    except (OSError, ValueError, WrongBatch) as error:
        what = asked.source or f"the split {asked.split}"
        where = f"{what}: examples {indices[0]} to {indices[-1]} cannot be read"
        raise Refused([Problem("", f"{where}: {registry.reason(error)}")]) from error


def main(argv: list[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -P -m engine.predict", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--weights", type=Path, required=True, metavar="FILE")
    parser.add_argument("--run-dir", type=Path, metavar="DIR", help="the run that tells the configuration")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--input", type=Path, metavar="FILE")
    what.add_argument("--split", choices=("train", "valid"))
    parser.add_argument("--out", required=True, metavar="FILE", help="file to write, or - for standard output")
    parser.add_argument("--form", choices=("csv", "jsonl", "npz"), default="csv")
    parser.add_argument("--code", type=Path, metavar="DIR", help="folder to import the user's own code from")
    parser.add_argument("--batch", type=int, default=64, metavar="N")
    parser.add_argument("--tell-fd", type=int, default=2, metavar="FD")
    args = parser.parse_args(argv)
    # Made absolute, since the directory changes to the run's.
    source = args.input.absolute() if args.input is not None else None
    code = args.code.absolute() if args.code is not None else None
    out = args.out if args.out == STDOUT else str(Path(args.out).absolute())
    asked = Asked(args.weights, args.run_dir, source, args.split, out, args.form, args.batch, code)
    teller = Teller(args.tell_fd)
    return serve(teller, lambda: predict(asked, teller))


if __name__ == "__main__":
    sys.exit(main())
