"""TensorBoard event files, as TensorBoard itself writes and reads them."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import forked
from tests.logs.test_text_logs import all_values
from tputui.logs import growing, tfevents
from tputui.logs.formats import open_log
from tputui.logs.rows import LoggedValue, LogReader
from tputui.logs.tfevents import masked_crc

pytest.importorskip("tensorboard")

WRITE = """
import json, math, sys, warnings
warnings.simplefilter("ignore")
import torch
from torch.utils.tensorboard import SummaryWriter
from tensorboard.summary import Writer
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray
from lightning.fabric.loggers.csv_logs import CSVLogger

STEPS = [*range(1, 6), 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, 2**40]
with SummaryWriter("torch") as writer:
    for step in [0, *STEPS]:
        writer.add_scalar("loss", 1 / (step + 3), step)
        writer.add_scalar("loss/core3", torch.tensor(0.1).double() * step, step, walltime=1.7e9 + step % 999)
    for step, value in enumerate([math.nan, math.inf, -math.inf, 1e-45, 3.4e38]):
        writer.add_scalar("odd", value, step)
        writer.add_scalar("new", value, step, new_style=True)
        writer.add_scalar("double", value / 3, step, new_style=True, double_precision=True)
    writer.add_histogram("weights", torch.randn(100), 1)
    writer.add_text("note", "some text", 1)
    writer.add_image("image", torch.rand(3, 8, 8), 1)
    writer.add_scalar("no step", 0.5)
with SummaryWriter("runs/a") as writer:
    writer.add_scalars("both", {"train": 0.25, "valid": 0.5}, 7)
    writer.add_scalar("kept", 0.5, 1)
    writer.add_text("args", "width: 8")
    writer.add_hparams({"lr": 0.1, "net": "resnet", "fused": True}, {"best": 0.75, "kept": 1.0}, run_name="trial")
for purge_step in [None, 6, 4]:
    with SummaryWriter("restarted", purge_step=purge_step, filename_suffix=f".{purge_step}") as writer:
        for step in range(purge_step or 0, 9):
            writer.add_scalar("loss", step + (purge_step or 0) / 16, step)
            writer.add_scalar("acc", step / 9, step)
(whole := __import__("pathlib").Path("joined")).mkdir()
(whole / "events.out.tfevents.1.host").write_bytes(
    b"".join(path.read_bytes() for path in sorted(__import__("pathlib").Path("restarted").iterdir())))
with SummaryWriter("sweep") as writer:
    for trial in range(3):
        writer.add_hparams({"lr": 0.1 * trial}, {"best": trial}, run_name=f"trial{trial}")
writer = Writer("tensors")
for step in STEPS:
    writer.add_scalar("train/loss", 1 / (step + 3), step)
writer.close()

def values(folder):
    events = EventAccumulator(folder, size_guidance={"scalars": 0, "tensors": 0}).Reload()
    found = [[tag, e.step, e.wall_time.hex(), float(e.value).hex()] for tag in events.Tags()["scalars"]
             for e in events.Scalars(tag)]
    found += [[tag, e.step, e.wall_time.hex(), float(make_ndarray(e.tensor_proto).item()).hex()]
              for tag in events.Tags()["tensors"]
              if events.SummaryMetadata(tag).plugin_data.plugin_name == "scalars"
              for e in events.Tensors(tag)]
    return sorted(found)

logger = CSVLogger("csv", flush_logs_every_n_steps=1)
for step in range(3):
    logger.log_metrics({"loss": torch.tensor(1 / (step + 3))}, step)
logger.log_metrics({"valid_loss": 0.1}, 3)
logger.save()
folders = ["torch", "tensors", "restarted", "joined"]
folders += ["runs/a", "runs/a/both_train", "runs/a/both_valid", "runs/a/trial"]
print(json.dumps({folder: values(folder) for folder in folders}))
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Folders of logs of the real writers, and what TensorBoard reads of them."""
    folder = tmp_path_factory.mktemp("written")
    (folder / "write.py").write_text(WRITE)
    done = forked.run("write", cwd=folder, env={"PYTHONPATH": str(folder)})
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout.splitlines()[-1])


def exact(values: list[LoggedValue]) -> list[list[Any]]:
    """Values in an order and a form that compare bit for bit."""
    return sorted([value.tag, value.step, (value.t or 0.0).hex(), value.value.hex()] for value in values)


@pytest.mark.parametrize("name", ["torch", "tensors", "runs/a/trial", "restarted", "joined"])
def test_values_equal_those_of_tensorboard_bit_for_bit(written: tuple[Path, dict[str, Any]], name: str) -> None:
    folder, expected = written
    reader = open_log(folder / name)
    assert exact(all_values(reader)) == expected[name]
    assert reader.damage == []


def test_restart_of_a_writer_that_is_seen_late_is_reported(
    written: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    first, *others = sorted((written[0] / "restarted").iterdir())
    (tmp_path / first.name).write_bytes(first.read_bytes())
    reader = open_log(tmp_path)
    assert len(all_values(reader)) == 18
    assert reader.damage == []
    for other in others:
        (tmp_path / other.name).write_bytes(other.read_bytes())
    assert {value.step for value in all_values(reader)} == {4, 5, 6, 7, 8}
    assert [sentence.partition(": ")[2][:39] for sentence in reader.damage] == [
        "the writer started again at step 4; what"[:39]
    ]


def test_folders_of_a_logdir_prefix_their_tags(written: tuple[Path, dict[str, Any]]) -> None:
    folder, expected = written
    reader = open_log(folder / "runs" / "a")
    found = exact(all_values(reader))
    assert [row for row in found if "/" not in row[0] and row[0] != "best"] == expected["runs/a"]
    assert [[row[0].removeprefix("both_train/"), *row[1:]] for row in found if row[0].startswith("both_train")] == (
        expected["runs/a/both_train"]
    )
    assert {row[0] for row in found} == {"both_train/both", "both_valid/both", "best", "kept"}
    # The session of hyperparameters belongs to the run, whose own values count.
    assert [float.fromhex(row[3]) for row in found if row[0] == "kept"] == [0.5]
    assert reader.config == {"args": "width: 8", "lr": 0.1, "net": "resnet", "fused": True}
    sweep = open_log(folder / "sweep")
    assert {value.tag for value in all_values(sweep)} == {"trial0/best", "trial1/best", "trial2/best"}
    assert sweep.config == {"trial0/lr": 0.0, "trial1/lr": 0.1, "trial2/lr": 0.2}
    only = open_log(folder / "runs" / "a" / "trial")
    assert [value.tag for value in all_values(only)] == ["best", "kept"]
    assert only.config == {"lr": 0.1, "net": "resnet", "fused": True}


def test_only_run_of_a_logdir_keeps_its_tags(written: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    folder, expected = written
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "version_0").symlink_to(folder / "tensors")
    assert exact(all_values(open_log(tmp_path / "logs" / "version_0"))) == expected["tensors"]


def test_csv_of_lightning_is_read_with_its_new_column(written: tuple[Path, dict[str, Any]]) -> None:
    reader = open_log(written[0] / "csv" / "lightning_logs" / "version_0")
    found = {(value.tag, value.step): value.value for value in all_values(reader)}
    assert found == {
        ("loss", 0): struct.unpack("f", struct.pack("f", 1 / 3))[0],
        ("loss", 1): 0.25,
        ("loss", 2): struct.unpack("f", struct.pack("f", 1 / 5))[0],
        ("valid_loss", 3): 0.1,
    }
    assert reader.damage == []


def record(data: bytes) -> bytes:
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", masked_crc(head)) + data + struct.pack("<I", masked_crc(data))


def event(step: int, tag: bytes = b"loss") -> bytes:
    """An event of one scalar, as `SummaryWriter` encodes it; steps below 128."""
    value = b"\x0a" + bytes([len(tag)]) + tag + b"\x15" + struct.pack("<f", step / 3)
    summary = b"\x0a" + bytes([len(value)]) + value
    return record(b"\x09" + struct.pack("<d", 1.7e9 + step) + b"\x10" + bytes([step, 0x2A, len(summary)]) + summary)


EVENTS = [event(step) for step in range(1, 40)]
HEAD = record(b"\x09" + struct.pack("<d", 1.7e9) + b"\x1a\x0dbrain.Event:2")


def test_events_appended_later_are_read_later(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.host"
    path.touch()
    reader = open_log(path)
    assert reader.read() == []
    content = HEAD + b"".join(EVENTS[:3])
    path.write_bytes(content[:-1])
    assert [value.step for value in all_values(reader)] == [1, 2]
    path.write_bytes(content + EVENTS[3])
    assert [value.step for value in all_values(reader)] == [3, 4]
    assert reader.damage == []


def test_files_and_runs_created_later_are_read(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.1.host").write_bytes(HEAD + EVENTS[0])
    reader = open_log(tmp_path)
    assert [value.tag for value in all_values(reader)] == ["loss"]
    (tmp_path / "valid").mkdir()
    (tmp_path / "valid" / "events.out.tfevents.2.host").write_bytes(HEAD + EVENTS[1])
    (tmp_path / "events.out.tfevents.3.host").write_bytes(HEAD + EVENTS[2])
    assert {(value.tag, value.step) for value in all_values(reader)} == {("valid/loss", 2), ("loss", 3)}


def test_removed_file_does_not_end_the_others(tmp_path: Path) -> None:
    for name, event_bytes in (("old", EVENTS[0]), ("new", EVENTS[1])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "events.out.tfevents.1.host").write_bytes(HEAD + event_bytes)
    reader = open_log(tmp_path)
    (tmp_path / "old" / "events.out.tfevents.1.host").unlink()
    assert [value.tag for value in all_values(reader)] == ["new/loss"]


def test_record_with_flipped_bits_is_skipped_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.host"
    content = bytearray(HEAD + b"".join(EVENTS[:5]))
    content[len(HEAD) + 2 * len(EVENTS[0]) + 20] ^= 0x10
    path.write_bytes(content)
    reader = open_log(path)
    assert [value.step for value in all_values(reader)] == [1, 2, 4, 5]
    offset = len(HEAD) + 2 * len(EVENTS[0])
    assert reader.damage == [f"{path}: the record at byte {offset:,} does not match its checksum"]


def test_reading_continues_after_a_damaged_length(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.host"
    content = bytearray(HEAD + b"".join(EVENTS))
    offset = len(HEAD) + 2 * len(EVENTS[0])
    content[offset] ^= 0x10
    path.write_bytes(content)
    reader = open_log(path)
    assert [value.step for value in all_values(reader)] == [1, 2, *range(4, 40)]
    assert reader.damage == [f"{path}: {len(EVENTS[2])} damaged bytes at byte {offset:,} were skipped"]


def test_damage_up_to_the_end_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.host"
    path.write_bytes(HEAD + EVENTS[0] + b"\xff" * (3 * growing.CHUNK_BYTES))
    reader = open_log(path)
    assert [value.step for value in all_values(reader)] == [1]
    assert reader.damage == [f"{path}: damaged from byte {len(HEAD) + len(EVENTS[0])} on"]


def test_long_record_is_skipped_without_reading_it(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.host"
    length = tfevents.RECORD_BYTES_MAX + 1
    head = struct.pack("<Q", length)
    with path.open("wb") as file:
        file.write(EVENTS[0] + head + struct.pack("<I", masked_crc(head)))
        file.seek(length + 4, 1)
        file.write(EVENTS[1])
    reader = open_log(path)
    assert [value.step for value in all_values(reader)] == [1, 2]
    assert reader.damage == [f"{path}: the record at byte {len(EVENTS[0])} of {length:,} bytes was skipped"]


@pytest.mark.parametrize("chunk_bytes", [13, 100, 1 << 20])
def test_chunks_of_any_size_give_the_same_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
) -> None:
    monkeypatch.setattr(tfevents, "CHUNK_BYTES", chunk_bytes)
    path = tmp_path / "events.out.tfevents.1.host"
    content = bytearray(HEAD + b"".join(EVENTS))
    content[len(HEAD) + 5 * len(EVENTS[0])] ^= 0x10
    path.write_bytes(content)
    reader = open_log(path)
    assert [value.step for value in all_values(reader)] == [*range(1, 6), *range(7, 40)]
    assert len(reader.damage) == 1


@given(cuts=st.lists(st.integers(0, len(HEAD) + len(EVENTS[0]) * len(EVENTS)), max_size=4))
def test_every_prefix_reads_as_a_prefix_of_the_values(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    path = tmp_path_factory.getbasetemp() / "events.out.tfevents.1.host"
    content = HEAD + b"".join(EVENTS)
    reader: LogReader | None = None
    steps: list[int | None] = []
    for cut in [*sorted(cuts), len(content)]:
        path.write_bytes(content[:cut])
        reader = reader or open_log(path)
        steps += [value.step for value in all_values(reader)]
        assert steps == list(range(1, len(steps) + 1))
    assert steps == list(range(1, 40))
    assert reader is not None
    assert reader.damage == []


@given(seed=st.integers(0, 10_000))
def test_random_damage_is_reported_and_invents_nothing(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    path = tmp_path_factory.getbasetemp() / "events.out.tfevents.2.host"
    content = bytearray(HEAD + b"".join(EVENTS))
    rng = random.Random(seed)
    for _ in range(rng.randint(1, 4)):
        content[rng.randrange(len(content))] ^= rng.randint(1, 255)
    path.write_bytes(content)
    reader = open_log(path)
    found = all_values(reader)
    assert {(value.step, value.value) for value in found} <= {
        (step, struct.unpack("f", struct.pack("f", step / 3))[0]) for step in range(1, 40)
    }
    assert reader.damage
    assert len(found) >= 39 - 4 * 2 - (39 if reader.damage[-1].endswith(" on") else 0)


def test_valid_record_that_is_not_an_event_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.host"
    path.write_bytes(record(b"\x0a\xff") + record(b"\x09\0") + EVENTS[0])
    reader = open_log(path)
    assert [value.step for value in all_values(reader)] == [1]
    assert len(reader.damage) == 2


def test_steps_of_any_size_are_read_and_a_malformed_one_costs_its_record(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    minus_two = b"\xfe" + b"\xff" * 8 + b"\x01"
    known = EVENTS[0][12:-4]
    damaged, negative = (record(known[:10] + step + known[11:]) for step in (b"\xff" * 12, minus_two))
    damaged_file = tmp_path / "a" / "events.out.tfevents.1.host"
    damaged_file.write_bytes(HEAD + EVENTS[0] + damaged + negative + negative + EVENTS[1])
    (tmp_path / "b" / "events.out.tfevents.1.host").write_bytes(HEAD + EVENTS[2])
    reader = open_log(tmp_path)
    steps = [(value.tag, value.step) for value in all_values(reader)]
    assert steps == [("a/loss", 1), ("a/loss", -2), ("a/loss", -2), ("a/loss", 2), ("b/loss", 3)]
    offset = len(HEAD) + len(EVENTS[0])
    assert reader.damage == [f"{damaged_file}: the record at byte {offset} is not an event: a number is too long"]


def test_checksum_library_is_compiled() -> None:
    assert google_crc32c.implementation == "c"
