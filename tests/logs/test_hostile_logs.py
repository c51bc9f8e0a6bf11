"""Files of arbitrary content under the names of logs: refused, or read with their damage reported, never an error."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.logs.test_tfevents import EVENTS, HEAD, record
from tests.logs.test_wandb_log import CONTENT
from tputui.logs.formats import open_log
from tputui.logs.rows import LoggedValue, UnknownLog

NAMES = ("a.csv", "a.jsonl", "trainer_state.json", "events.out.tfevents.1.h", "run-a.wandb", "a.parquet", "a.log")
SAMPLES = (
    HEAD + b"".join(EVENTS[:9]),
    CONTENT[:4_000],
    b"step,loss,time\n1,0.5,x\n2,,1e400\n",
    b'{"step": 1, "a\\ud800": {"loss\\uDFFF": 1}, "loss": 1e999, "n": 123456789012345678901234567890}\n'
    b'{"log_history": [{"loss": {}}, 3, "x"]}\n',
    b'{"log_history": [{"loss\\ud800": 1, "step": "x"}, [[[[{"a": 1}]]]]], "max_steps": null}',
)


def mutated(sample: bytes, rng: random.Random) -> bytes:
    """The sample with bytes changed, removed, doubled or added."""
    content = bytearray(sample)
    for _ in range(rng.randint(0, 8)):
        place = rng.randrange(len(content) + 1)
        change = rng.randrange(5)
        if change == 0 and place < len(content):
            content[place] = rng.randrange(256)
        elif change == 1:
            del content[place : place + rng.randint(1, 9)]
        elif change == 2:
            content[place:place] = content[: rng.randint(1, 99)]
        elif change == 3:
            # Numbers that never end, or a block that was not written.
            size = rng.randint(1, 20)
            content[place : place + size] = rng.choice((b"\xff", b"\0", b"\x80")) * size
        else:
            content[place:place] = bytes(rng.choice((0, 34, 44, 91, 123, 255)) for _ in range(rng.randint(1, 30)))
    return bytes(content)


@pytest.mark.parametrize("name", NAMES)
def test_any_content_is_refused_or_read(tmp_path: Path, name: str) -> None:
    rng = random.Random(7)
    path = tmp_path / name
    for _ in range(150):
        path.write_bytes(mutated(rng.choice(SAMPLES), rng))
        try:
            reader = open_log(path)
        except UnknownLog:
            continue
        for _ in range(100):
            if not (values := reader.read()):
                break
            assert all(type(value) is LoggedValue and type(value.value) is float for value in values)
            assert all(value.tag.encode() for value in values), "the name of a metric can be written as UTF-8"
        assert reader.read() == []
        assert all(str(path) in sentence or "more unreadable" in sentence for sentence in reader.damage)
        assert isinstance(reader.config, dict)
        reader.close()


def test_checked_record_with_any_content_is_read_or_reported(tmp_path: Path) -> None:
    rng = random.Random(7)
    path = tmp_path / "events.out.tfevents.1.h"
    bodies = [event[12:-4] for event in EVENTS]
    path.write_bytes(b"".join(record(mutated(rng.choice(bodies), rng)) for _ in range(2_000)) + EVENTS[0])
    reader = open_log(path)
    values: list[LoggedValue] = []
    while found := reader.read():
        values += found
    assert values[-1].step == 1
    assert reader.damage


def test_pipes_and_missing_permissions_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.csv")
    with pytest.raises(UnknownLog, match="not a regular file"):
        open_log(tmp_path / "a.csv")


def test_log_that_disappears_raises_an_os_error(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"loss": 1}\n')
    reader = open_log(path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        reader.read()
