"""Zeros in place of bytes that are not written yet, as NFS shows them: read once they are written, and only once."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

from tests.logs.test_text_logs import all_values
from tests.logs.test_tfevents import EVENTS, HEAD
from tests.logs.test_wandb_log import CONTENT
from tputui.logs.formats import open_log
from tputui.logs.rows import LoggedValue

ROWS = [{"step": step, "loss": step / 3} for step in range(1, 40)]
FILES = {
    "events.out.tfevents.1.host": HEAD + b"".join(EVENTS),
    "run-a.wandb": CONTENT,
    "a.jsonl": b"".join(json.dumps(row).encode() + b"\n" for row in ROWS),
    "a.csv": b"step,loss\n" + b"".join(f"{row['step']},{row['loss']!r}\n".encode() for row in ROWS),
}
KEPT = {"events.out.tfevents.1.host": 0, "run-a.wandb": 7, "a.jsonl": 0, "a.csv": 10}
"""Bytes at the beginning that are there when a file is opened: the format is known by them."""


@pytest.fixture(autouse=True)
def every_change_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """No look is put off because the last one took long, as if garbage was collected meanwhile."""
    monkeypatch.setattr("tputui.logs.growing._LOOK_S", math.inf)


def in_order(values: list[LoggedValue]) -> list[tuple[str, int | None, float]]:
    return sorted((value.tag, value.step or 0, value.value) for value in values)


def whole(folder: Path, name: str) -> list[tuple[str, int | None, float]]:
    path = folder / "whole" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(FILES[name])
    return in_order(all_values(open_log(path)))


def with_zeros(content: bytes, parts: list[tuple[int, int]], kept: int) -> bytes:
    found = bytearray(content)
    for start, size in parts:
        start = max(start, kept)
        found[start : start + size] = bytes(len(found[start : start + size]))
    return bytes(found)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("block_bytes", [512, 4_096])
def test_end_of_zeros_is_read_once_it_is_written(tmp_path: Path, name: str, block_bytes: int) -> None:
    path, content = tmp_path / name, FILES[name]
    written = random.Random(7).sample(range(len(content)), 12)
    path.write_bytes(content[: KEPT[name]] + bytes(len(content) - KEPT[name]))
    reader = open_log(path)
    found = all_values(reader)
    for end in [*sorted(written), len(content)]:
        zeros = bytes(-end % block_bytes)
        path.write_bytes(content[:end] + zeros)
        found += all_values(reader)
        assert reader.damage == []
        if zeros and end < len(content):
            assert reader.incomplete
    path.write_bytes(content)
    found += all_values(reader)
    assert (in_order(found), reader.damage, reader.incomplete) == (whole(tmp_path, name), [], "")


@pytest.mark.parametrize("chunk_bytes", [64, 1 << 20])
@pytest.mark.parametrize("name", FILES)
def test_zeros_anywhere_are_read_once_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, chunk_bytes: int
) -> None:
    content, expected, rng = FILES[name], whole(tmp_path, name), random.Random(7)
    if len(content) / chunk_bytes < 100:
        for module in ("growing", "tfevents"):
            monkeypatch.setattr(f"tputui.logs.{module}.CHUNK_BYTES", chunk_bytes)
    for number in range(60):
        path = tmp_path / str(number) / name
        path.parent.mkdir()
        missing = [(rng.randrange(len(content)), rng.choice([1, 3, 8, 100, 700, 1 << 16])) for _ in range(number % 6)]
        path.write_bytes(with_zeros(content, missing, KEPT[name]))
        reader = open_log(path)
        found: list[LoggedValue] = []
        while True:
            found += all_values(reader)
            assert set(in_order(found)) <= set(expected)
            if not missing:
                break
            missing.pop(rng.randrange(len(missing)))
            with path.open("r+b") as file:
                file.write(with_zeros(content, missing, KEPT[name]))
        assert in_order(found) == expected, number
        assert (reader.damage, reader.incomplete) == ([], ""), number
