"""Predicts on the CPU with the weights of a run: `python -P -m engine.commands.predict --weights FILE --out FILE`.

Started by `tputui predict`. Must not import the runtime, so that it runs on machines without it, with any batch size.
Exits with 0 if predicted, 2 refused, 3 failed; reports on --report-fd, see `engine.commands.protocol`.

Must not import torch.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import torch

from engine.checkpoint import weights
from engine.checkpoint.weights import Origin, Weights
from engine.commands.protocol import ProgressWriter, run_command
from engine.data.batch_reader import Reader, WrongBatch
from engine.errors import BadExample, Refused
from engine.task import Dataset, Identified, Options, Task, Workload
from tputui.config import RunConfig
from tputui.engine_api import csv_cells
from tputui.reporting import becoming, one_line, open_new

STDOUT = "-"
WIDEST = 256
"""Maximum number of values per example in a row."""
EXAMPLE = "example"
"""The first column: the example's index in the input, from 0."""

Arrays = dict[str, npt.NDArray[Any]]


class PredictionWriter:
    """Writes rows of predictions to a file."""

    raw = False
    """Whether it takes raw predictions instead of readable columns."""

    def __init__(self, file: IO[bytes]) -> None:
        self.rows = 0
        self.columns: list[str] = []
        self._file = file

    def add(self, indices: npt.NDArray[np.int64], arrays: Arrays) -> None:
        """Writes the rows of a batch: [n] or [n, values] by name. Raises `Refused`."""
        flat = {EXAMPLE: indices, **_flat(arrays, len(indices))}
        if not self.columns:
            self.columns = list(flat)
            self._head()
        self._body([_cells(values) for values in flat.values()])
        self.rows += len(indices)

    def close(self) -> None:
        """Writes what is buffered."""

    def _head(self) -> None:
        """Writes what precedes the first row."""

    def _body(self, cells: list[list[Any]]) -> None:
        raise NotImplementedError


class CsvWriter(PredictionWriter):
    """A header, then one line per row. No text is a formula."""

    def _head(self) -> None:
        self._lines([self.columns])

    def _body(self, cells: list[list[Any]]) -> None:
        self._lines(list(zip(*cells, strict=True)))

    def _lines(self, rows: list[Any]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(map(csv_cells, rows))
        # A file name may be bytes that are not text.
        self._file.write(text.getvalue().encode("utf-8", "surrogateescape"))


class JsonWriter(PredictionWriter):
    """One JSON object per line; a float that is not finite is "NaN", "Infinity" or "-Infinity"."""

    def _body(self, cells: list[list[Any]]) -> None:
        for row in zip(*cells, strict=True):
            values = {name: _json_value(cell) for name, cell in zip(self.columns, row, strict=True)}
            self._file.write(json.dumps(values, allow_nan=False).encode() + b"\n")


class ArrayWriter(PredictionWriter):
    """Raw predictions by name, [n, ...]; held in memory until the end."""

    raw = True

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file)
        self._parts: dict[str, list[npt.NDArray[Any]]] = {}

    def add(self, indices: npt.NDArray[np.int64], arrays: Arrays) -> None:
        for name, values in {EXAMPLE: indices, **arrays}.items():
            self._parts.setdefault(name, []).append(values)
        self.columns = list(self._parts)
        self.rows += len(indices)

    def close(self) -> None:
        np.savez_compressed(self._file, **{name: np.concatenate(parts) for name, parts in self._parts.items()})  # type: ignore[arg-type]


FORMS: dict[str, type[PredictionWriter]] = {"csv": CsvWriter, "jsonl": JsonWriter, "npz": ArrayWriter}


@contextlib.contextmanager
def open_table(out: str, form: str) -> Iterator[PredictionWriter]:
    """Writes a table to `out`, which appears under its name when it is complete; `-` is standard output.

    Raises `Refused` if it cannot be written.
    """
    if out == STDOUT:
        # The file descriptor: Python's own stdout is redirected to keep prints out of the data.
        with os.fdopen(os.dup(1), "wb") as file:
            table = FORMS[form](file)
            yield table
            table.close()
        return
    path = Path(out)
    made: list[Path] = []
    try:
        with becoming(path) as temporary:
            made.append(temporary)
            with os.fdopen(open_new(temporary, os.O_WRONLY, only_owner=False), "wb") as file:
                table = FORMS[form](file)
                yield table
                table.close()
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        if error.filename is not None and Path(os.fsdecode(error.filename)) not in made:
            raise
        raise Refused.of("", f"{path}: cannot be written: {error.strerror}; choose another --out") from error


def _flat(arrays: Arrays, rows: int) -> Arrays:
    """One column per value; several values per example are numbered."""
    flat: Arrays = {}
    for name, values in arrays.items():
        if values.ndim == 0 or len(values) != rows:
            shape = list(values.shape)
            raise Refused.of("task", f'columns() returned "{name}" of shape {shape} for {rows} examples')
        wide = values.reshape(rows, -1)
        if wide.shape[1] > WIDEST:
            message = f'"{name}" has {wide.shape[1]:,} values per example, too many for a row; use --out FILE.npz'
            raise Refused.of("", message)
        if values.ndim == 1:
            flat[name] = values
        else:
            flat |= {f"{name}_{place}": wide[:, place] for place in range(wide.shape[1])}
    return flat


def _cells(values: npt.NDArray[Any]) -> list[Any]:
    """Values as they are written: a float with the fewest digits that give the same float again."""
    if values.dtype.kind == "f":
        return [float(str(value)) if np.isfinite(value) else value.item() for value in values]
    return list(values.tolist())


def _json_value(cell: Any) -> Any:
    if isinstance(cell, float) and not np.isfinite(cell):
        return "NaN" if np.isnan(cell) else "Infinity" if cell > 0 else "-Infinity"
    return cell


INPUT = "input"


SPLITS = ("train", "valid", "test")
NO_LABELS = "No labels in input: metrics skipped"


class PredictRequest(NamedTuple):
    """The examples to predict, and where to write."""

    weights: Path
    run_dir: Path | None
    source: Path | None
    """The user's file; None if a split of the run is predicted."""
    split: str | None
    out: str | None
    """File to write, or - for standard output; None is `predictions` with the suffix of its format."""
    form: str
    batch: int
    code: Path | None = None
    """Folder of the user's own code, if they gave one."""
    labels: Path | None = None
    """`.npy` file with the labels of `source`."""
    force: bool = False
    """Whether an existing file may be overwritten."""

    @property
    def what(self) -> str:
        """The examples, for messages."""
        return f"the split {self.split}" if self.split is not None else str(self.source)


class PredictionScorer:
    """Meters and scores of the predictions, if the examples have labels."""

    def __init__(self, task: Task, *, must: bool) -> None:
        """`must`: the examples have labels, so a missing label is an error."""
        self.why_not: str | None = None
        self._task = task
        self._must = must
        self._count = 0
        self._sums: dict[str, float] = {}
        self._judged: dict[str, list[npt.NDArray[Any]]] = {}

    def add(self, predictions: dict[str, torch.Tensor], batch: dict[str, torch.Tensor]) -> None:
        if self.why_not is not None:
            return
        try:
            outcomes = self._task.outcomes(predictions, batch)
            judged = self._task.judged(predictions, batch)
        except KeyError as error:
            if self._must:
                raise
            self.why_not = f'{NO_LABELS} (no "{error.args[0]}")'
            return
        for name in self._task.meters:
            self._sums[name] = self._sums.get(name, 0.0) + float(outcomes[name].double().sum())
        for name, values in to_numpy(judged).items():
            self._judged.setdefault(name, []).append(values)
        self._count += len(next(iter(outcomes.values())))

    def figures(self) -> dict[str, float] | None:
        """Means over the examples by meter, then the task's scores; None if no example had labels."""
        if self.why_not is not None or not self._count:
            return None
        means = {name: total / self._count for name, total in self._sums.items()}
        whole = {name: np.concatenate(parts) for name, parts in self._judged.items()}
        return {**means, **(self._task.score(whole) if whole else {})}


class LeftOut:
    """Examples of a split that cannot be used; as many as in training may be left out."""

    def __init__(self, limit: int, writer: ProgressWriter) -> None:
        self._limit = limit
        self._writer = writer
        self._count = 0

    def add(self, bad: BadExample, *, is_requested: bool) -> None:
        """Leaves one more out. Raises `Refused` if the limit is exceeded or the example was not requested (not
        `is_requested`)."""
        self._count += 1
        if not is_requested or self._count > self._limit:
            raise Refused.of("", f"{bad.where}: {bad.why}") from bad
        self._writer.note(f"left out: {bad} ({self._count} of at most {self._limit})")


def predict(request: PredictRequest, writer: ProgressWriter) -> dict[str, Any]:
    """Predicts, writes the table and returns a summary. Raises `Refused`."""
    learned = weights.read(request.weights)
    origin = weights.origin(learned, request.run_dir)
    if origin.config.task == weights.LIGHTNING:
        return _lightning(learned, origin, request)
    out = _free(request)
    work = weights.workload(origin, request.code)
    model, examples = _made(work, learned, request, writer)
    if "torch_xla" in sys.modules:
        writer.note(
            "the task's modules import torch_xla, which replaces layers of torch: GRU layers fail on the CPU then"
        )
    began = time.monotonic()
    scorer = PredictionScorer(work.task, must=request.split in ("train", "valid"))
    with open_table(out, request.form) as table:
        _fill(table, work, model, examples, scorer, request, writer)
    return {
        "rows": table.rows,
        "columns": table.columns,
        "out": out,
        "seconds": time.monotonic() - began,
        "batch": request.batch,
        "figures": scorer.figures(),
        "figures_reason": scorer.why_not,
        **_about(learned, work.config, request),
    }


def _lightning(learned: Weights, origin: Origin, request: PredictRequest) -> dict[str, Any]:
    """The values that a LightningModule logs on a split. No rows are written, because its predictions have no known
    form."""
    how = "--split valid and --split test evaluate its own loaders"
    if request.split is None:
        message = (
            f"predict cannot pass your files to a LightningModule; {how}, and load_from_checkpoint loads it elsewhere"
        )
        raise Refused.of(INPUT, message)
    if request.out is not None:
        raise Refused.of("--out", f"no rows are written for a LightningModule; {how}")
    work = weights.workload(origin, request.code)
    from engine.lightning.evaluation import evaluate
    from engine.lightning.task import LightningData, LightningModel

    assert isinstance(work.data, LightningData)
    assert isinstance(work.model, LightningModel)
    began = time.monotonic()
    evaluation = evaluate(
        work.config, work.data, work.model, partial(weights.load_into, weights=learned), request.split
    )
    return {
        "rows": evaluation.examples,
        "columns": [],
        "out": None,
        "seconds": time.monotonic() - began,
        "batch": work.config.global_batch,
        "figures": evaluation.figures or None,
        "figures_reason": None if evaluation.figures else "the module logs no values on this split",
        **_about(learned, work.config, request),
    }


def _about(learned: Weights, config: RunConfig, request: PredictRequest) -> dict[str, Any]:
    """The weights and the examples used, and the figure that the run itself recorded for the weights."""
    monitor = config.checkpoint.monitor
    return {
        "of": request.split or str(request.source),
        "task": config.task,
        "weights": str(request.weights),
        "step": learned.step,
        "precision": "fp32",
        "trained_precision": config.device.precision,
        "own_figure": {monitor: learned.figure} if learned.figure is not None and request.split == "valid" else None,
    }


def _free(request: PredictRequest) -> str:
    """The output as an absolute path or `-`. Raises `Refused` if it would overwrite something."""
    if request.out == STDOUT:
        return STDOUT
    path = Path(request.out if request.out is not None else f"predictions.{request.form}").absolute()
    if path.exists() and not path.is_file():
        raise Refused.of("", f"{path}: is not a regular file; choose another --out, or - for standard output")
    if path.exists() and not request.force:
        raise Refused.of("", f"{path}: exists; choose another --out, or overwrite it with --force")
    return str(path)


def _made(
    work: Workload, learned: Weights, request: PredictRequest, writer: ProgressWriter
) -> tuple[torch.nn.Module, Dataset]:
    """The network and the examples.

    Training and validation splits are loaded first, because the task configures its network by them; other examples are
    loaded last, because reading them may need the contents of the weights, such as a vocabulary.
    """
    if request.split in ("train", "valid"):
        examples = _split(work, request.split)
        return weights.network(work, learned), examples
    if getattr(work.data, "balanced", False):
        # The validation loss weighs labels by their frequency in the training rows.
        try:
            _split(work, "train")
        except Refused as refused:
            writer.note(
                f"the loss is not balanced as in validation, because the training labels are not available: {refused}"
            )
    model = weights.network(work, learned)
    return model, _unseen(work, request)


def _split(work: Workload, split: str) -> Dataset:
    """A split of the run. Raises `Refused`."""
    try:
        splits = work.task.load(work.data, work.config.seed)
    except (OSError, ValueError, BadExample) as error:
        raise _refusal(f"the split {split}", error) from error
    return splits.train if split == "train" else splits.valid


def _unseen(work: Workload, request: PredictRequest) -> Dataset:
    """The user's file, or the test split. Raises `Refused`."""
    task, name = work.task, work.config.task
    try:
        if request.source is None:
            return task.test_split(work.data)
        return task.inputs(_with_labels(work, request.labels), request.source)
    except NotImplementedError:
        lacking = f'the task "{name}" cannot predict files: it does not define inputs(); --split valid works'
        if request.source is None:
            lacking = (
                f'the task "{name}" has no test split: it does not define test_split(); name a file of examples instead'
            )
        raise Refused.of("--split test" if request.source is None else INPUT, lacking) from None
    except IsADirectoryError:
        raise Refused.of(request.what, f'a folder; the task "{name}" reads a file') from None
    except (OSError, ValueError, BadExample) as error:
        raise _refusal(request.what, error) from error


def _with_labels(work: Workload, labels: Path | None) -> Options:
    """The task's options with the labels file of the input instead of the training one. Raises `Refused`."""
    if hasattr(work.data, "labels_file"):
        return msgspec.structs.replace(work.data, labels_file="" if labels is None else str(labels))
    if labels is not None:
        message = f'the task "{work.config.task}" reads labels from INPUT itself, in the column that training used'
        raise Refused.of("--labels", message)
    return work.data


def _refusal(source: str, error: Exception) -> Refused:
    message = str(error) or type(error).__name__
    return Refused.of("", message if source in message else f"{source}: {message}")


def to_numpy(tensors: dict[str, torch.Tensor]) -> Arrays:
    """A copy on the host, in a dtype that numpy supports."""
    return {
        name: (value.float() if value.dtype == torch.bfloat16 else value).detach().numpy()
        for name, value in tensors.items()
    }


def _fill(
    table: PredictionWriter,
    work: Workload,
    model: torch.nn.Module,
    examples: Dataset,
    scorer: PredictionScorer,
    request: PredictRequest,
    writer: ProgressWriter,
) -> None:
    total = len(examples)
    left_out = LeftOut(getattr(work.data, "max_bad_rows", 0) if request.split is not None else 0, writer)
    with contextlib.closing(Reader(examples, work.config.data.workers)) as reader:
        for wanted in _batches(total, request.batch):
            # Inference mode is per thread, and its tensors cannot be written by the threads that decode.
            indices, batch = _fetch(reader, wanted, left_out, request)
            if not len(indices):
                continue
            with torch.inference_mode():
                predictions = work.task.predict(model, batch)
                scorer.add(predictions, batch)
            values = to_numpy(predictions)
            identities = examples.identities(indices) if isinstance(examples, Identified) else {}
            table.add(indices, {**identities, **(values if table.raw else work.task.columns(values))})
            writer.progress(int(wanted[-1]) + 1, total)


def _batches(total: int, size: int) -> Iterator[npt.NDArray[np.int64]]:
    for first in range(0, total, size):
        yield np.arange(first, min(total, first + size), dtype=np.int64)


def _fetch(
    reader: Reader, indices: npt.NDArray[np.int64], left_out: LeftOut, request: PredictRequest
) -> tuple[npt.NDArray[np.int64], dict[str, torch.Tensor]]:
    """The usable examples at `indices`, and their indices; bad examples are left out up to the limit."""
    try:
        while len(indices):
            try:
                return indices, reader.read(indices)
            except BadExample as bad:
                usable = indices[indices != bad.index]
                left_out.add(bad, is_requested=len(usable) < len(indices))
                indices = usable
        return indices, {}
    except (OSError, ValueError, WrongBatch) as error:
        where = f"{request.what}: examples {indices[0]} to {indices[-1]} cannot be read"
        raise Refused.of("", f"{where}: {one_line(error)}") from error


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -P -m engine.commands.predict", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--weights", type=Path, required=True, metavar="FILE")
    parser.add_argument("--run-dir", type=Path, metavar="DIR", help="the run with the configuration")
    examples = parser.add_mutually_exclusive_group(required=True)
    examples.add_argument("--input", type=Path, metavar="FILE")
    examples.add_argument("--split", choices=SPLITS)
    parser.add_argument("--labels", type=Path, metavar="FILE", help=".npy file with the labels of --input")
    parser.add_argument("--out", metavar="FILE", help="file to write, or - for standard output")
    parser.add_argument("--force", action="store_true", help="overwrite the file")
    parser.add_argument("--form", choices=("csv", "jsonl", "npz"), default="csv")
    parser.add_argument("--code", type=Path, metavar="DIR", help="folder to import the user's own code from")
    parser.add_argument("--batch", type=int, default=64, metavar="N")
    parser.add_argument("--report-fd", type=int, default=2, metavar="FD")
    args = parser.parse_args(argv)
    # Absolute, because the working directory changes to the run's.
    source, labels, code = (given and given.absolute() for given in (args.input, args.labels, args.code))
    request = PredictRequest(
        args.weights, args.run_dir, source, args.split, args.out, args.form, args.batch, code, labels, args.force
    )
    writer = ProgressWriter(args.report_fd)
    return run_command(writer, lambda: predict(request, writer))


if __name__ == "__main__":
    sys.exit(main())
