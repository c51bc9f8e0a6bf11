"""Writes, prunes and reads checkpoints.

`step-N.pt` is written under a temporary name, made durable, read back and renamed; `last.pt` and `best.pt` are links to
such a file, or copies if the disk has no links. NaN/inf weights go to `non-finite.pt` and never replace a good
checkpoint. Checkpoints load on any machine with `torch.load(path, weights_only=True)`; their digests are in a file
beside them. Must not touch a device.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from engine import non_finite, torch_file
from engine.checkpoint import checkpoint_files, resume
from engine.checkpoint.resume import Checkpoint, Position
from engine.errors import Refused
from engine.task import Plan
from tputui.reporting import CHECKPOINTS

FORMAT = 1
LAST = "last.pt"
BEST = "best.pt"
NON_FINITE = "non-finite.pt"
"""File of the newest weights with NaN or infinity."""


class SaveFailed(Exception):
    """The checkpoint was not written, and the older ones are unchanged; the text says why."""


class SavedCheckpoint(NamedTuple):
    path: str
    """Relative to the run directory."""
    bytes: int
    seconds: float
    dropped: tuple[str, ...] = ()
    """Older checkpoints that were removed, relative to the run directory."""
    sha256: str = ""
    """Digest of the file, as read back."""
    unfit: str = ""
    """The weights with NaN or infinity, as text; empty if there are none. A run cannot resume from such a file."""


class CheckpointStore:
    unshared: SavedCheckpoint | None = None
    """The newest checkpoint, if another process ended before it could hear of it."""

    def __init__(self, run_dir: Path, plan: Plan, identity: Mapping[str, str] = MappingProxyType({})) -> None:
        """`identity` is `Splits.identity` of the run's data."""
        self._directory = run_dir / CHECKPOINTS
        self._plan = plan
        self._identity = identity
        self._periodic: list[Path] = []
        self._asked_for: set[Path] = set()
        self._sums = checkpoint_files.read_digests(self._directory)
        """Digests of every file here; both digests of a name whose save was interrupted."""

    def save(self, checkpoint: Checkpoint, *, periodic: bool, best: bool) -> SavedCheckpoint:
        """Writes a checkpoint as `last.pt`, and as `best.pt` if it is the best; with NaN/inf weights as neither.

        Raises `SaveFailed`.
        """
        began = time.monotonic()
        content = self.content(checkpoint)
        unfit = non_finite.named(non_finite.unfit(self.weights(content), checkpoint.buffers))
        path = self._directory / (NON_FINITE if unfit else f"step-{checkpoint.position.step:08d}.pt")
        besides = [] if unfit else [LAST, BEST] if best else [LAST]
        try:
            num_bytes, sha256 = checkpoint_files.write_checked(
                path, partial(torch.save, content), partial(self._note_sum, [path.name, *besides])
            )
            for name in besides:
                checkpoint_files.duplicate(path, self._directory / name)
            checkpoint_files.sync_directory(self._directory)
        except (OSError, RuntimeError) as error:
            reason = str(error).strip().splitlines()[0].replace(str(self._directory), CHECKPOINTS)
            raise SaveFailed(f"{CHECKPOINTS}/{path.name} could not be written: {reason}") from error
        dropped = () if unfit else self._retain(path, periodic)
        self._settle_sums([path.name, *besides], sha256)
        seconds = time.monotonic() - began
        return SavedCheckpoint(f"{CHECKPOINTS}/{path.name}", num_bytes, seconds, dropped, sha256, unfit)

    def content(self, checkpoint: Checkpoint) -> dict[str, Any]:
        return _content(checkpoint, self._plan, self._identity)

    def weights(self, content: dict[str, Any]) -> dict[str, torch.Tensor]:
        """The network's weights in the state."""
        state: dict[str, torch.Tensor] = content["learner"]["model"]
        return state

    def _note_sum(self, names: list[str], digest: str) -> None:
        """Records a digest for names that the file is about to get, besides those of the current files."""
        self._sums |= {(name, digest) for name in names}
        checkpoint_files.write_digests(self._directory, self._sums)

    def _settle_sums(self, names: list[str], digest: str) -> None:
        """The names now belong to the file; removes the digests of replaced files."""
        # The longer list written before is not wrong.
        with contextlib.suppress(OSError):
            present = {path.name for path in self._directory.iterdir()}
            stand = {(name, recorded) for name, recorded in self._sums if name in present}
            self._sums = {(name, recorded) for name, recorded in stand if name not in names or recorded == digest}
            checkpoint_files.write_digests(self._directory, self._sums)

    def adopt_best(self, resumed: Checkpoint, source: Path) -> None:
        """Makes the best weights so far this run's own: `best.pt` beside `source`, which `resumed` was read from.

        If `resumed` was saved at the end of the best epoch, its own weights are the best: the run may have been killed
        before it linked them as `best.pt`. Raises `SaveFailed` if the best weights are missing.
        """
        path = source.resolve() if resumed.ends_best_epoch else source.resolve().parent / BEST
        try:
            if not resumed.ends_best_epoch and load_best(path) != resumed.best:
                raise SaveFailed(f"{path} does not contain the weights with the value {resumed.best}")
            if path == (self._directory / BEST).resolve():
                # The run itself was restarted.
                return
            self._note_sum([BEST], checkpoint_files.verified_digest(path))
            checkpoint_files.duplicate(path, self._directory / BEST)
            checkpoint_files.sync_directory(self._directory)
        except checkpoint_files.DamagedFile as error:
            raise SaveFailed(f"{path}: {error}") from error
        except OSError as error:
            raise SaveFailed(f"{path} cannot be taken over: {error.strerror}") from error

    def names(self) -> set[str]:
        """Names of the checkpoints of steps that are there."""
        return {path.name for path in self._directory.glob("step-*.pt")}

    def note_saved(self, name: str, *, periodic: bool) -> None:
        """Notes that a file was saved, at the end of an epoch or on request. Called for files of earlier processes of
        the run in the order of their saves; those that are gone do not count."""
        path = self._directory / name
        if not path.exists():
            return
        if not periodic:
            self._asked_for.add(path)
        elif path not in self._periodic:
            self._periodic.append(path)

    def _retain(self, path: Path, periodic: bool) -> tuple[str, ...]:
        """Removes the oldest periodic checkpoints and returns them; never requested ones, the best or the last."""
        dropped: list[str] = []
        self.note_saved(path.name, periodic=periodic)
        beyond = self._periodic[: -self._plan.config.checkpoint.keep]
        for old in beyond:
            if old in self._asked_for:
                self._periodic.remove(old)
            elif not self._is_named_besides(old):
                self._periodic.remove(old)
                old.unlink(missing_ok=True)
                dropped.append(f"{CHECKPOINTS}/{old.name}")
        return tuple(dropped)

    def _is_named_besides(self, path: Path) -> bool:
        others = (self._directory / name for name in (LAST, BEST))
        return any(other.exists() and path.exists() and other.samefile(path) for other in others)


def load(path: Path, plan: Plan) -> Checkpoint:
    """Reads a checkpoint that can be resumed under the plan. Raises `Refused` with every key that differs."""
    content = checkpoint_files.read_intact(path, "resume", "checkpoint", "a checkpoint")
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        saved_format = content.get("format") if isinstance(content, dict) else None
        saved_format = saved_format if isinstance(saved_format, int | str | None) else type(saved_format).__name__
        message = f"{path}: not a checkpoint of this version (format {saved_format}, expected {FORMAT})"
        raise Refused.of("resume", message)
    try:
        return _checkpoint(content, plan, path)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise Refused.of("resume", f"{path}: is a checkpoint of another version, or damaged") from error


def _checkpoint(content: Mapping[str, Any], plan: Plan, path: Path) -> Checkpoint:
    """The checkpoint with this content. Raises `Refused`, and any error if the content has another form."""
    data = content.get("data")
    saved = Checkpoint(
        Position(**content["position"]),
        content["learner"],
        content["meters"],
        content["best"],
        content.get("best_epoch", 0),
        tuple((train, valid) for train, valid in content.get("losses", ())),
        identity=data["identity"] if data is not None else {},
    )
    checkpoint = resume.resumed(saved, content["fingerprint"], data, plan, path)
    if checkpoint.best is None or content.get("monitor") == _monitor(plan):
        return checkpoint
    note = _new_criterion(content.get("monitor"), plan)
    return checkpoint._replace(best=None, best_epoch=0, notes=(*checkpoint.notes, note))


def load_best(path: Path) -> float | None:
    """The best value recorded in a checkpoint. Raises `SaveFailed` if it cannot be read."""
    try:
        figure: float | None = torch_file.read(path)["best"]
    except FileNotFoundError:
        raise SaveFailed(f"there is no {path}") from None
    except (OSError, torch_file.UnreadableFile, LookupError, TypeError) as error:
        raise SaveFailed(f"{path} cannot be read as a checkpoint") from error
    return figure


def _monitor(plan: Plan) -> list[str]:
    """The meter that the best value belongs to."""
    return [plan.config.checkpoint.monitor, plan.config.checkpoint.mode]


def _new_criterion(saved: list[str] | None, plan: Plan) -> str:
    was = f"was {saved[0]} ({saved[1]})" if saved else "is not known"
    monitor, mode = _monitor(plan)
    return (
        f"checkpoint.monitor {was} in the checkpoint and is {monitor} ({mode}) now: the best epoch is determined again"
    )


def _content(checkpoint: Checkpoint, plan: Plan, identity: Mapping[str, str]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "fingerprint": resume.fingerprint(plan),
        "data": resume.data_of(plan, identity),
        "monitor": _monitor(plan),
        "position": checkpoint.position._asdict(),
        "learner": checkpoint.training_state,
        "meters": checkpoint.meters,
        "best": checkpoint.best,
        "best_epoch": checkpoint.best_epoch,
        "losses": checkpoint.losses,
    }
