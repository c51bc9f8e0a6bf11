"""Seals the journals of training processes that have ended, if the configuration asks for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tputui.cache.cache_writer import CacheWriter, SealedFrame
from tputui.telemetry.compressed import CompressionError, seal
from tputui.telemetry.journal import SUFFIX


def seal_journals(
    paths: list[Path], config: Mapping[str, Any], cache_writer: CacheWriter, log: Callable[[str], None]
) -> None:
    """Seals the journals if `config` says so; one that cannot be sealed stays as it is."""
    report = config.get("report")
    if not (isinstance(report, dict) and report.get("seal")):
        return
    for path in paths:
        _seal(path, cache_writer, log)


def _seal(path: Path, cache_writer: CacheWriter, log: Callable[[str], None]) -> None:
    frames: list[SealedFrame] = []
    try:
        target = seal(path, lambda offset, first_seq: frames.append(SealedFrame(offset, first_seq)))
    except (CompressionError, OSError) as error:
        log(f"{path.name} was not sealed and is unchanged: {error}")
    else:
        cache_writer.retarget_to_sealed(path.name.removesuffix(SUFFIX), target.name, frames)
