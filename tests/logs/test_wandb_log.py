"""W&B's offline files, written by W&B itself and read with W&B's own message classes for comparison."""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import sys
import warnings
import zlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.logs.test_text_logs import all_values
from tputui.logs.formats import open_log
from tputui.logs.rows import LogReader, UnknownLog
from tputui.logs.wandb_log import BLOCK_BYTES, HEADER_BYTES

pytestmark = pytest.mark.skipif(find_spec("wandb") is None, reason="needs wandb")

NUM_LOGS = 300
WRITE = f"""
import wandb
run = wandb.init(project="p", config={{"lr": 0.1, "net": {{"depth": 3}}}}, settings=wandb.Settings(silent=True))
for step in range({NUM_LOGS}):
    run.log({{"loss": 1 / (step + 3), "train": {{"acc": step / 7, "deep": {{"x": step}}}}, "nan": float("nan"),
             "loss/core3": -1e-300 / (step + 3), "text": "words", "big": 2**53 + step, "inf": float("inf")}})
run.log({{"long text": "x" * 100_000, "after": 1.5}})
run.log({{"loss": 0.5, "trainer/global_step": 7000, "epoch": 2}})
run.finish()
"""


DEFINE = """
import wandb
run = wandb.init(project="p", settings=wandb.Settings(silent=True))
run.define_metric("train/*", step_metric="tokens")
run.define_metric("train/lr", step_metric="trainer/global_step")
run.define_metric("valid/*", step_metric="epoch")
run.define_metric("cpu", step_metric="_runtime")
for step in range(3):
    run.log({"train/loss": 1.0, "train/lr": 0.1, "tokens": 512 * step, "cpu": 0.5, "other": 1, "valid/loss": 2.0,
             "epoch": step, "trainer/global_step": 10 * step})
run.finish()
"""


def written_by(script: str, folder: Path) -> Path:
    """The folder of an offline run of the real library."""
    env = os.environ | {"WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false", "HOME": str(folder)}
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (run_dir,) = (folder / "wandb").glob("offline-run-*")
    return run_dir


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with every kind of value."""
    return written_by(WRITE, tmp_path_factory.mktemp("wandb"))


def records(content: bytes) -> list[bytes]:
    """The records of a sound file."""
    found, parts, position = [], b"", HEADER_BYTES
    while position + 7 <= len(content):
        left = BLOCK_BYTES - position % BLOCK_BYTES
        if left < 7:
            position += left
            continue
        _, length, kind = struct.unpack_from("<IHB", content, position)
        parts += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):
            found.append(parts)
            parts = b""
    return found


def items_of(content: bytes) -> dict[tuple[str, int], str]:
    """Every logged number, by key and W&B's step, as W&B's own classes read it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from wandb.proto import wandb_internal_pb2

    found: dict[tuple[str, int], str] = {}
    for data in records(content):
        record: Any = wandb_internal_pb2.Record.FromString(data)  # type: ignore[attr-defined]
        for item in record.history.item:
            key = "/".join(item.nested_key) or item.key
            value = json.loads(item.value_json)
            if isinstance(value, int | float) and not key.startswith("_"):
                found[key, record.history.step.num] = float(value).hex()
    return found


def test_values_equal_those_of_wandb_bit_for_bit(written: Path) -> None:
    reader = open_log(written)
    found = {(value.tag, value.step): value.value.hex() for value in all_values(reader) if value.step != 7000}
    (path,) = written.glob("*.wandb")
    expected = items_of(path.read_bytes())
    assert found == {key: value for key, value in expected.items() if key[1] != NUM_LOGS + 1}
    assert found["loss", 0] == (1 / 3).hex()
    assert found["train/deep/x", 5] == (5.0).hex()
    assert found["after", NUM_LOGS] == (1.5).hex()
    assert len(found) == 7 * NUM_LOGS + 1
    assert reader.damage == []
    assert reader.config == {"lr": 0.1, "net": {"depth": 3}}


def test_step_of_the_framework_replaces_the_count_of_calls(written: Path) -> None:
    (last,) = (value for value in all_values(open_log(written)) if value.step == 7000)
    assert (last.tag, last.value, last.epoch) == ("loss", 0.5, 2.0)
    assert last.t is not None


def test_axes_are_those_that_define_metric_chose(tmp_path: Path) -> None:
    values = all_values(open_log(written_by(DEFINE, tmp_path)))
    assert {value.tag: value.x for value in values} == {
        "train/loss": "tokens",
        "train/lr": "",
        "tokens": "",
        "valid/loss": "epoch",
        "cpu": "time",
        "other": "",
    }
    assert {value.step for value in values} == {0, 10, 20}


def test_folder_of_one_run_opens_and_of_several_asks_for_one(written: Path, tmp_path: Path) -> None:
    assert open_log(written.parents[1]).form == "W&B offline file"
    content = next(written.glob("*.wandb")).read_bytes()
    for name in ("offline-run-1-a", "offline-run-2-b"):
        (tmp_path / "wandb" / name).mkdir(parents=True)
        (tmp_path / "wandb" / name / "run-x.wandb").write_bytes(content)
    with pytest.raises(UnknownLog, match=r"contains 2 W&B runs; name one of them, such as .*offline-run-2-b"):
        open_log(tmp_path)


def test_other_content_with_the_name_of_wandb_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run-x.wandb").write_bytes(b"\0" * 100)
    with pytest.raises(UnknownLog, match=r"run-x\.wandb"):
        open_log(tmp_path / "run-x.wandb")


def history(step: int) -> bytes:
    item = b"\x12\x04loss\x82\x01" + bytes([len(str(step))]) + str(step).encode()
    inner = b"\x0a" + bytes([len(item)]) + item + b"\x12\x02\x08" + bytes([step])
    return b"\x12" + bytes([len(inner)]) + inner


def framed(payloads: list[bytes]) -> bytes:
    """A file with these records, each split where a block ends."""
    content = b":W&B" + struct.pack("<HB", 0xBEE1, 0)
    for payload in payloads:
        first = True
        while True:
            left = BLOCK_BYTES - len(content) % BLOCK_BYTES
            if left < 7:
                content += bytes(left)
                left = BLOCK_BYTES
            part, payload = payload[: left - 7], payload[left - 7 :]
            kind = (1 if first else 4) if not payload else (2 if first else 3)
            content += struct.pack("<IHB", zlib.crc32(bytes([kind]) + part), len(part), kind) + part
            first = False
            if not payload:
                break
    return content


def test_step_that_was_never_logged_is_unknown(tmp_path: Path) -> None:
    item = b"\x12\x04loss\x82\x01\x038.0"
    without_number = b"\x12\x10" + b"\x0a\x0c" + item + b"\x12\x00"
    (tmp_path / "run-s.wandb").write_bytes(framed([history(7), without_number]))
    assert [(value.step, value.value) for value in all_values(open_log(tmp_path / "run-s.wandb"))] == [
        (7, 7),
        (None, 8),
    ]


FILLER = b"\x22" + b"\x80\x80\x02" + bytes(32_768)
CONTENT = framed([history(step) if step % 5 else history(step) + FILLER for step in range(1, 40)])


@given(cuts=st.lists(st.integers(HEADER_BYTES, len(CONTENT)), max_size=4))
def test_every_prefix_reads_as_a_prefix_of_the_values(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    path = tmp_path_factory.getbasetemp() / "run-p.wandb"
    reader: LogReader | None = None
    steps: list[int | None] = []
    for cut in [*sorted(cuts), len(CONTENT)]:
        path.write_bytes(CONTENT[:cut])
        reader = reader or open_log(path)
        steps += [value.step for value in all_values(reader)]
        assert steps == list(range(1, len(steps) + 1))
    assert steps == list(range(1, 40))
    assert reader is not None
    assert reader.damage == []


@given(seed=st.integers(0, 10_000))
def test_random_damage_is_reported_and_invents_nothing(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    path = tmp_path_factory.getbasetemp() / "run-d.wandb"
    content = bytearray(CONTENT)
    rng = random.Random(seed)
    for _ in range(rng.randint(1, 4)):
        content[rng.randrange(HEADER_BYTES, len(content))] ^= rng.randint(1, 255)
    path.write_bytes(content)
    reader = open_log(path)
    found = all_values(reader)
    assert all(value.value == value.step for value in found)
    assert reader.damage or len(found) == 39  # the padding of a block has no checksum
    assert all(str(path) in sentence for sentence in reader.damage)


def test_damaged_value_costs_one_record_and_damaged_length_at_most_its_block(tmp_path: Path) -> None:
    path = tmp_path / "run-d.wandb"
    second = CONTENT.index(history(2))
    for offset, lost in ((second + 10, {2}), (second - 3, {2, 3, 4, 5})):
        content = bytearray(CONTENT)
        content[offset] ^= 1
        path.write_bytes(content)
        reader = open_log(path)
        assert {value.step for value in all_values(reader)} == set(range(1, 40)) - lost
        assert len(reader.damage) == 1
