"""Reads the checkpoint that a run continues from, once for all processes: its file need only be on the first host."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import msgspec
import torch

from engine.checkpoint import checkpoint_store
from engine.checkpoint.resume import Checkpoint, Position
from engine.errors import Problem, Refused
from engine.parallel.base import Strategy
from engine.task import Plan


def load(path: Path | None, plan: Plan, cores: Strategy) -> tuple[Checkpoint, Path] | None:
    """The checkpoint at the `path` of the first process, which reads it and sends it to the others, and that path; None
    without one. Raises `Refused` in every process. Collective."""
    if cores.is_only:
        return None if path is None else (checkpoint_store.load(path, plan), path)
    sent = b""
    if cores.is_first and path is not None:
        sent = _encoded(path, plan)
    sent = cores.broadcast(sent)
    if not sent:
        return None
    content: dict[str, Any] = torch.load(io.BytesIO(sent), map_location="cpu", weights_only=True)
    if content["problems"]:
        raise Refused(msgspec.json.decode(content["problems"], type=list[Problem]))
    fields = content["checkpoint"]
    checkpoint = Checkpoint(
        **{
            **fields,
            "position": Position(**fields["position"]),
            "losses": tuple((train, valid) for train, valid in fields["losses"]),
            "buffers": frozenset(fields["buffers"]),
            "notes": tuple(fields["notes"]),
        }
    )
    return checkpoint, Path(content["path"])


def _encoded(path: Path, plan: Plan) -> bytes:
    content: dict[str, Any] = {"problems": "", "checkpoint": None, "path": str(path)}
    try:
        checkpoint = checkpoint_store.load(path, plan)
    except Refused as refused:
        content["problems"] = msgspec.json.encode(refused.problems).decode()
    else:
        content["checkpoint"] = {
            **checkpoint._asdict(),
            "position": checkpoint.position._asdict(),
            "losses": [list(pair) for pair in checkpoint.losses],
            "buffers": sorted(checkpoint.buffers),
            "identity": dict(checkpoint.identity),
            "notes": list(checkpoint.notes),
        }
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()
