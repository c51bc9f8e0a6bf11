"""Exports weights for use without tputui: `python -P -m engine.commands.export --weights FILE --to FILE`.

Started by `tputui export`. Writes a state dict (`.pt`, `.safetensors`), reads it back and compares, and writes a
description beside it. Must import neither the runtime nor code that the run names. Exits with 0 if written, 2 refused,
3 failed.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import torch

from engine.checkpoint import weights
from engine.checkpoint.weights import DESCRIPTION_FORMAT, SAFETENSORS, Description, Origin, State, Weights
from engine.commands.protocol import ProgressWriter, run_command
from engine.errors import Refused
from tputui import config
from tputui.engine_api import write_atomically
from tputui.reporting import becoming, open_new


def export(source: Path, run_dir: Path | None, to: Path) -> dict[str, Any]:
    """Writes the weights in `source` to `to`, and their description beside it. Raises `Refused`."""
    target = to.absolute()
    _check_free(target)
    learned = weights.read(source)
    origin = weights.origin(learned, run_dir)
    weights.check_fit(origin, learned)
    # Each with its own memory: shared memory is saved once, and cannot be saved as safetensors at all.
    state = {name: value.clone().contiguous() for name, value in learned.state.items()}
    try:
        size = _write(target, state)
        described = msgspec.json.format(msgspec.json.encode(_description(learned, origin, source)))
        write_atomically(weights.description_of(target), described)
    except OSError as error:
        raise Refused.of("", f"{target}: cannot be written: {error.strerror}; choose another --to") from error
    return {
        "path": str(target),
        "description": str(weights.description_of(target)),
        "bytes": size,
        "tensors": len(state),
        "values": sum(value.numel() for value in state.values()),
        "weights": str(source),
        "step": learned.step,
    }


def _check_free(target: Path) -> None:
    """Raises `Refused` if the description would overwrite another file."""
    beside = weights.description_of(target)
    if beside == target:
        raise Refused.of("", f"{target}: weights are .pt or {SAFETENSORS}; .json is their description")
    try:
        described = weights.read_description(target)
    except Refused as error:
        message = f"{beside}: is not a description of weights and would be overwritten; choose another --to"
        raise Refused.of("", message) from error
    if target.exists() and described is None:
        message = f"{target}: exists and was not written by export ({beside.name} is missing); choose another --to"
        raise Refused.of("", message)


def _write(target: Path, state: State) -> int:
    """Writes the file whole or not at all, after verifying that it reads back as written."""
    with becoming(target, suffix=target.suffix) as temporary:
        os.close(open_new(temporary, os.O_WRONLY))
        if target.suffix == SAFETENSORS:
            weights.safetensors_torch().save_file(state, temporary)
        else:
            torch.save(state, temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        _compare(weights.read(temporary).state, state, target)
        return temporary.stat().st_size


def _compare(read_back: State, wanted: State, target: Path) -> None:
    """Raises if a file differs from what was written; a bad disk or a full quota may cause that."""
    differing = [name for name in wanted if name not in read_back or not _same(read_back[name], wanted[name])]
    if differing or len(read_back) != len(wanted):
        raise RuntimeError(f"{target}: differs from what was written when read back: {', '.join(differing[:3])}")


def _same(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether all bits are equal, including those of NaN."""
    alike = left.dtype == right.dtype and left.shape == right.shape
    return alike and torch.equal(left.reshape(-1).view(torch.uint8), right.reshape(-1).view(torch.uint8))


def _description(learned: Weights, origin: Origin, source: Path) -> Description:
    return Description(
        format=DESCRIPTION_FORMAT,
        config=config.to_builtins(origin.config),
        cwd=origin.cwd or os.getcwd(),
        weights=str(source),
        step=learned.step,
        monitor=origin.config.checkpoint.monitor if learned.figure is not None else None,
        figure=learned.figure,
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -P -m engine.commands.export", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--weights", type=Path, required=True, metavar="FILE")
    parser.add_argument("--run-dir", type=Path, metavar="DIR", help="the run with the configuration")
    parser.add_argument("--to", type=Path, required=True, metavar="FILE", help="file to write")
    parser.add_argument("--report-fd", type=int, default=2, metavar="FD")
    args = parser.parse_args(argv)
    return run_command(ProgressWriter(args.report_fd), lambda: export(args.weights, args.run_dir, args.to))


if __name__ == "__main__":
    sys.exit(main())
