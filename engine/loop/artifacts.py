"""Files for the user in the run directory: losses of each epoch, pictures, and the table of layers.

Each file is written completely or not at all. Also chooses the examples that pictures are drawn of. Must not touch a
device.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from engine.data.batch_reader import one_example
from engine.errors import BadExample
from engine.memory.layer_table import Recorder
from engine.task import Dataset, Picture, Plan, Task
from tputui.engine_api import LAYER_TABLE_FILE, encode_layers
from tputui.reporting import events as ev
from tputui.reporting import masked_text, write_file

TRAIN_LOSSES = "trn_losses.npy"
VALID_LOSSES = "val_losses.npy"
PICTURES = "pictures"
MAX_POSITIONS = 8
"""Positions in the split that pictures are taken from: each keeps a batch on the device until the next report."""


_CANDIDATES = 4
"""Examples that are read at most for each training example of which a picture is drawn."""


class RunArtifacts:
    """The files of one run. Methods raise `OSError`, except `layers`."""

    def __init__(self, run_dir: Path, *, are_written: bool = True) -> None:
        """Of several processes, the first one writes the files; without `are_written`, this one writes none."""
        self._run_dir = run_dir
        self._are_written = are_written

    def layers(self, recorder: Recorder, batch: int, warn: Callable[[str], None]) -> None:
        """Writes the table of the network's layers as JSON, after its first step, of `batch` examples, was traced.
        Training does not depend on it: an error is a warning."""
        recorder.close()
        if not self._are_written:
            return
        content = encode_layers(recorder.table(batch))
        try:
            write_file(self._run_dir / LAYER_TABLE_FILE, lambda file: file.write(content))
        except OSError as error:
            warn(f"the table of layers could not be written: {error.strerror}")

    def losses(self, losses: list[tuple[float, float]]) -> None:
        """Writes the mean training and validation losses, given by epoch, as two float64 arrays [epochs]."""
        if not self._are_written:
            return
        columns = np.array(losses, dtype=np.float64).reshape(-1, 2).T
        for name, column in zip((TRAIN_LOSSES, VALID_LOSSES), columns, strict=True):
            write_file(self._run_dir / name, partial(np.save, arr=column, allow_pickle=False))

    def pictures(self, epoch: int, pictures: list[Picture]) -> list[ev.PictureKept]:
        """Writes the pictures of an epoch as PNG files and returns their paths."""
        if not pictures or not self._are_written:
            return []
        folder = self._run_dir / PICTURES / f"epoch-{epoch:04d}"
        for part in (folder.parent, folder):
            if not part.is_dir():
                part.mkdir()
                # The user's code may have set any umask.
                part.chmod(0o700)
        # Numbered, since two names may become equal when they are made safe for a path.
        numbers = {example: number for number, example in enumerate(dict.fromkeys(p.example for p in pictures))}
        return [self._write_picture(folder, numbers[picture.example], picture) for picture in pictures]

    def _write_picture(self, folder: Path, number: int, picture: Picture) -> ev.PictureKept:
        from PIL import Image

        path = folder / f"{number:02d}-{_safe(picture.example)}-{_safe(picture.name)}.png"
        image = Image.fromarray(np.ascontiguousarray(picture.pixels, dtype=np.uint8))
        write_file(path, partial(image.save, format="PNG"))
        return ev.PictureKept(
            example=picture.example, name=picture.name, path=path.relative_to(self._run_dir).as_posix()
        )


def training_examples(plan: Plan, dataset: Dataset) -> list[Picture]:
    """Pictures of `report.pictures` examples spread over the training split, augmented as a step augments them; with
    different labels if a few times as many examples have them.

    Empty if the task draws none. Raises what the task raises.
    """
    if type(plan.task).examples is Task.examples:
        return []
    rows = _differing_rows(dataset, plan.config.report.pictures)
    if not rows:
        return []
    batch = {name: torch.cat([row[name] for row in rows]) for name in rows[0]}
    # Forked, so that training draws the same random numbers whether pictures are drawn or not.
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(plan.config.seed)
        batch = plan.task.augment(batch)
    return plan.task.examples({name: tensor.numpy() for name, tensor in batch.items()})


def _differing_rows(dataset: Dataset, count: int) -> list[dict[str, torch.Tensor]]:
    """At most `count` examples as batches of one; those with the label of an earlier one only if there are no others
    among `_CANDIDATES` times as many."""
    stride = max(len(dataset) // max(_CANDIDATES * count, 1), 1)
    candidates = dict.fromkeys([*spread_examples(count, len(dataset)), *range(0, len(dataset), stride)])
    different: dict[bytes, dict[str, torch.Tensor]] = {}
    alike: list[dict[str, torch.Tensor]] = []
    for index in candidates:
        if len(different) == count:
            break
        try:
            row = one_example(dataset, index)
        except BadExample:
            continue  # Training reports it.
        label = next((row[name] for name in ("label", "labels") if name in row), torch.tensor(len(different)))
        if different.setdefault(label.numpy().tobytes(), row) is not row:
            alike.append(row)
    return [*different.values(), *alike][:count]


def spread_examples(count: int, total: int) -> list[int]:
    """`count` indices of `total` examples, spread evenly since neighbours are often alike. If there are more than
    `MAX_POSITIONS`, the examples right behind those positions follow."""
    positions = min(count, MAX_POSITIONS)
    chosen: dict[int, None] = {}
    offset = 0
    while len(chosen) < min(count, total):
        for position in range(positions):
            if len(chosen) < count:
                chosen[((2 * position + 1) * total // (2 * positions) + offset) % total] = None
        offset += 1
    return sorted(chosen)


def rows_by_batch(examples: list[int], size: int) -> dict[int, list[int]]:
    """The rows of these examples in each batch of `size` examples, by the number of the batch."""
    rows: dict[int, list[int]] = {}
    for example in examples:
        rows.setdefault(example // size, []).append(example % size)
    return rows


def present_rows(rows: list[int], present: npt.NDArray[np.bool_] | None) -> list[int]:
    """The rows of a batch, each without an example replaced by the next free row that has one, else by the last one.

    `present` [rows of the batch] is the mask of rows with an example; None if all do.
    """
    if present is None:
        return rows
    free = [row for row in range(len(present)) if present[row]]
    chosen: list[int] = []
    for row in rows:
        if free:
            chosen.append(next((other for other in free if other >= row), free[-1]))
            free.remove(chosen[-1])
    return sorted(chosen)


def _safe(text: str) -> str:
    """The text as a part of a file name, with secrets masked."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", masked_text(text))[-80:] or "_"
