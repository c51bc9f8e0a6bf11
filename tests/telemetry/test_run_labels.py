"""The labels of a run: pin, archive, tags and note in a small file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests import recorded
from tests.another_user import needs_root, shut_run
from tputui.cli.main import main
from tputui.telemetry import run_labels
from tputui.telemetry.run_labels import LABELS, NO_LABELS, InvalidLabels, RunLabels


def test_labels_are_changed_one_at_a_time_in_a_private_file(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path)
    assert run_labels.read(run_dir) == NO_LABELS
    run_labels.change(run_dir, pinned=True)
    run_labels.change(run_dir, tags=("paper",), note="best so far")
    assert run_labels.read(run_dir) == RunLabels(pinned=True, tags=("paper",), note="best so far")
    assert stat.S_IMODE((run_dir / LABELS).stat().st_mode) == 0o600
    assert [path.name for path in run_dir.iterdir() if "labels" in path.name] == [LABELS]

    run_labels.change(run_dir, pinned=False, tags=(), note="")
    assert not (run_dir / LABELS).exists()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "Input data was truncated"),
        (b"[1]", "Expected `object`"),
        (b'{"pinned": "yes"}', "Expected `bool`"),
        (b'{"later": 1}', "unknown field `later`"),
        (b'{"tags": ["two words"]}', "'two words' is not a tag"),
        (b'{"tags": ["\\u001b[2J"]}', "is not a tag"),
        (b'{"note": "%s"}' % (b"a" * 1_001), "the note has 1,001 characters"),
        (b'{"tags": %s}' % str([f"t{n}" for n in range(17)]).replace("'", '"').encode(), "more than 16 tags"),
        (b" " * (run_labels.LABELS_BYTES_MAX + 1), "it is longer than 65536 bytes"),
        (b"[" * 60_000, ""),
    ],
)
def test_invalid_file_is_one_sentence_and_never_replaced(tmp_path: Path, content: bytes, why: str) -> None:
    run_dir = recorded.write_run(tmp_path)
    (run_dir / LABELS).write_bytes(content)
    with pytest.raises(InvalidLabels) as invalid:
        run_labels.change(run_dir, pinned=True)
    assert why in str(invalid.value)
    assert str(invalid.value).startswith("labels.json cannot be read: ")
    assert str(invalid.value).endswith("; delete it to label the run again")
    assert (run_dir / LABELS).read_bytes() == content


def test_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / LABELS)
    with pytest.raises(InvalidLabels, match="not a regular file"):
        run_labels.read(tmp_path)


def test_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    run_dir, outside = recorded.write_run(tmp_path), tmp_path / "outside.json"
    outside.write_text("{}")
    (run_dir / LABELS).symlink_to(outside)
    run_labels.change(run_dir, pinned=True)
    assert outside.read_text() == "{}"
    assert not (run_dir / LABELS).is_symlink()


@needs_root
def test_labels_of_another_user_are_a_sentence(tmp_path: Path) -> None:
    with shut_run(tmp_path, owned=False) as run_dir, pytest.raises(InvalidLabels, match="Permission denied"):
        run_labels.read(run_dir)


def test_secret_in_a_note_is_masked(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path)
    assert run_labels.change(run_dir, note="password=hunter2").note == "password=[redacted]"
    assert b"hunter2" not in (run_dir / LABELS).read_bytes()


def test_a_tag_that_is_a_secret_is_refused(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path)
    tags = ("lr:0.1", "hf_AbCdEfGhIjKlMnOpQrSt")
    with pytest.raises(ValueError, match="tag 2 looks like a secret"):
        run_labels.parse_tags(" ".join(tags))
    with pytest.raises(ValueError, match="tag 2 looks like a secret"):
        run_labels.change(run_dir, tags=tags)
    assert not (run_dir / LABELS).exists()


@pytest.mark.parametrize(
    ("text", "tags"),
    [("", ()), (" a, b  a ", ("a", "b")), ("lr:0.1 v2/x", ("lr:0.1", "v2/x")), ("\u0434\u0430", ("\u0434\u0430",))],
)
def test_tags_are_words(text: str, tags: tuple[str, ...]) -> None:
    assert run_labels.parse_tags(text) == tags


@pytest.mark.parametrize("text", ["-a", "a=b", "a\x1b", "a" * 33])
def test_other_tags_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a tag: up to 32 letters"):
        run_labels.parse_tags(text)


def test_labels_are_no_damage_and_repair_copies_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = recorded.write_run(tmp_path)
    run_labels.change(run_dir, tags=("paper",))
    assert main(["check", str(run_dir)]) == 0
    assert "no damage" in capsys.readouterr().out

    journal = run_dir / "worker-0.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b"EpochEnded", b"EpochEnd\xffd", 1))
    assert main(["repair", str(run_dir)]) == 0
    assert run_labels.read(tmp_path / "digits-1-repaired").tags == ("paper",)
