"""Checkpoints: writing, pruning, reading and resuming."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

from engine import run_plan
from engine.checkpoint import checkpoint_files, checkpoint_store, resume
from engine.checkpoint.checkpoint_store import CheckpointStore, SaveFailed
from engine.checkpoint.continued import retain_earlier
from engine.checkpoint.resume import Checkpoint, Position
from engine.errors import Refused
from engine.process import hardware
from engine.task import Plan
from tests import forked
from tests.deadline import DEADLINE_S
from tests.engine import no_checkpoints
from tests.engine.workers import DIGITS
from tputui import config
from tputui.telemetry import events as ev
from tputui.telemetry.reporter import Reporter

CPU = hardware.Machine("CPU", 0, 0, "a test")


def planned(*overrides: str) -> Plan:
    return run_plan.make(config.load(DIGITS, list(overrides)), CPU, "digits.toml")


def at_step(step: int) -> Checkpoint:
    position = Position(epoch=2, batch=3, step=step, evaluating=False)
    training_state = {"model": {"w": torch.full((4,), float(step))}}
    return Checkpoint(position, training_state, {"loss": [1.0, 2.0, 3.0]}, 0.5)


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    (tmp_path / "checkpoints").mkdir()
    return CheckpointStore(tmp_path, planned())


def names(tmp_path: Path) -> set[str]:
    return {path.name for path in (tmp_path / "checkpoints").iterdir()} - {checkpoint_files.DIGESTS_NAME}


def test_checkpoint_round_trips(store: CheckpointStore, tmp_path: Path) -> None:
    saved = store.save(at_step(25), periodic=False, best=False)
    assert saved.path == "checkpoints/step-00000025.pt"
    assert saved.bytes == (tmp_path / saved.path).stat().st_size
    loaded = checkpoint_store.load(tmp_path / saved.path, planned())
    assert loaded.position == at_step(25).position
    assert loaded.training_state["model"]["w"].tolist() == [25.0] * 4
    assert (loaded.meters, loaded.best) == ({"loss": [1.0, 2.0, 3.0]}, 0.5)


def test_retention_keeps_newest_best_last_and_requested(store: CheckpointStore, tmp_path: Path) -> None:
    store.save(at_step(1), periodic=True, best=True)
    store.save(at_step(2), periodic=False, best=False)
    for step in (3, 4, 5, 6):
        store.save(at_step(step), periodic=True, best=False)
    kept = {f"step-{step:08d}.pt" for step in (1, 2, 5, 6)}
    assert names(tmp_path) == kept | {"last.pt", "best.pt"}
    directory = tmp_path / "checkpoints"
    assert (directory / "best.pt").samefile(directory / "step-00000001.pt")
    assert (directory / "last.pt").samefile(directory / "step-00000006.pt")
    store.save(at_step(7), periodic=True, best=True)
    assert "step-00000001.pt" not in names(tmp_path)
    assert (directory / "best.pt").samefile(directory / "step-00000007.pt")


@pytest.mark.parametrize("unrecorded", [None, 3], ids=["recorded", "killed before it was recorded"])
def test_retention_counts_the_checkpoints_before_a_restart(tmp_path: Path, unrecorded: int | None) -> None:
    (tmp_path / "checkpoints").mkdir()
    reporter = Reporter(tmp_path, "worker")
    for step in range(1, 6):
        periodic = step != 2
        # A store for each process; the last one is killed after its save.
        store = CheckpointStore(tmp_path, planned("checkpoint.keep=2"))
        retain_earlier(store, reporter.path)
        saved = store.save(at_step(step), periodic=periodic, best=False)
        reason = "epoch" if periodic else "request"
        written = ev.CheckpointSaved(
            t=0.0, path=saved.path, step=step, epoch=1, bytes=saved.bytes, seconds=0.0, reason=reason
        )
        if step != unrecorded:
            reporter.emit(written)
        reporter.flush()
    reporter.close()
    assert names(tmp_path) == {f"step-{step:08d}.pt" for step in (2, 4, 5)} | {"last.pt"}


def test_save_returns_removed_checkpoints(store: CheckpointStore, tmp_path: Path) -> None:
    saves = [store.save(at_step(step), periodic=True, best=step == 1) for step in range(1, 7)]
    gone = {path for saved in saves for path in saved.dropped}
    assert gone == {saved.path for saved in saves if not (tmp_path / saved.path).exists()} != set()


def test_saving_the_same_step_again_leaves_one_file(store: CheckpointStore, tmp_path: Path) -> None:
    store.save(at_step(1), periodic=True, best=True)
    store.save(at_step(1), periodic=True, best=True)
    assert names(tmp_path) == {"step-00000001.pt", "last.pt", "best.pt"}


def test_resumed_run_takes_over_best_weights(store: CheckpointStore, tmp_path: Path) -> None:
    store.save(at_step(1), periodic=True, best=True)
    saved = store.save(at_step(2), periodic=True, best=False)
    new = tmp_path / "new"
    (new / "checkpoints").mkdir(parents=True)
    CheckpointStore(new, planned()).adopt_best(at_step(2), tmp_path / saved.path)
    assert names(new) == {"best.pt"}
    assert checkpoint_store.load(new / "checkpoints" / "best.pt", planned()).position.step == 1


def test_run_killed_before_naming_best_resumes_with_it(store: CheckpointStore, tmp_path: Path) -> None:
    store.save(at_step(1), periodic=True, best=True)
    ended = at_step(2)._replace(position=Position(epoch=3, batch=0, step=2, evaluating=False), best=0.25, best_epoch=2)
    store.save(ended, periodic=True, best=False)
    new = tmp_path / "new"
    (new / "checkpoints").mkdir(parents=True)
    CheckpointStore(new, planned()).adopt_best(ended, tmp_path / "checkpoints" / "last.pt")
    assert checkpoint_store.load(new / "checkpoints" / "best.pt", planned()).position.step == 2


def test_best_weights_are_copied_without_hard_links(tmp_path: Path) -> None:
    elsewhere = Path("/dev/shm")
    if not elsewhere.is_dir() or elsewhere.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system")
    path = tmp_path / "best.pt"
    path.write_bytes(b"weights")
    with tempfile.TemporaryDirectory(dir=elsewhere) as there:
        checkpoint_files.duplicate(path, Path(there) / "best.pt")
        assert (Path(there) / "best.pt").read_bytes() == b"weights"
        assert [name.name for name in Path(there).iterdir()] == ["best.pt"]


def test_checkpoints_work_without_hard_links(
    store: CheckpointStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*names: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    for step in range(1, 6):
        store.save(at_step(step), periodic=True, best=step == 2)
    kept = planned().config.checkpoint.keep
    assert names(tmp_path) == {f"step-{step:08d}.pt" for step in range(6 - kept, 6)} | {"last.pt", "best.pt"}
    held = (checkpoint_store.load(tmp_path / "checkpoints" / f"{name}.pt", planned()) for name in ("last", "best"))
    assert [one.position.step for one in held] == [5, 2]


def test_other_or_missing_weights_are_not_adopted_as_best(store: CheckpointStore, tmp_path: Path) -> None:
    saved = store.save(at_step(2), periodic=True, best=False)
    new = tmp_path / "new"
    (new / "checkpoints").mkdir(parents=True)
    adopting = CheckpointStore(new, planned())
    with pytest.raises(SaveFailed, match="there is no"):
        adopting.adopt_best(at_step(2), tmp_path / saved.path)
    store.save(at_step(3)._replace(best=0.25), periodic=True, best=True)
    with pytest.raises(SaveFailed, match=r"with the value 0\.5"):
        adopting.adopt_best(at_step(2), tmp_path / saved.path)
    (tmp_path / "checkpoints" / "best.pt").write_bytes(b"cut short")
    with pytest.raises(SaveFailed, match="cannot be read"):
        adopting.adopt_best(at_step(2), tmp_path / saved.path)
    assert names(new) == set()


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
import torch
from engine.checkpoint.checkpoint_store import CheckpointStore, SaveFailed
from tests.engine.test_checkpoint import at_step, planned
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = CheckpointStore(Path(sys.argv[1]), planned())
store.save(at_step(1), periodic=True, best=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
try:
    store.save(at_step(2), periodic=True, best=True)
except SaveFailed as error:
    print(error)
else:
    sys.exit("the disk was full, and nobody noticed")
"""


def test_full_disk_keeps_old_checkpoint_and_reports(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert "checkpoints/step-00000002.pt could not be written" in done.stdout
    assert names(tmp_path) == {"step-00000001.pt", "last.pt", "best.pt"}
    assert checkpoint_store.load(tmp_path / "checkpoints" / "last.pt", planned()).position.step == 1


def test_old_checkpoint_takes_default_of_new_task_key(store: CheckpointStore, tmp_path: Path) -> None:
    path = tmp_path / store.save(at_step(25), periodic=False, best=False).path
    content = torch.load(path, weights_only=True)
    del content["fingerprint"]["model.dropout"]
    older = tmp_path / "older.pt"
    torch.save(content, older)
    default = planned().task.model_options().dropout  # type: ignore[attr-defined]
    assert checkpoint_store.load(older, planned(f"model.dropout={default}")).position.step == 25
    with pytest.raises(Refused, match=r"model\.dropout"):
        checkpoint_store.load(older, planned("model.dropout=0.77"))


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("seed=1", "seed"),
        ("data.valid_fraction=0.1", "data.valid_fraction"),
        ("model.channels=8", "model.channels"),
        ("optim.name=sgd", "optim.name"),
        ("device.precision=bf16", "device.precision"),
        ("epochs=1", "epochs"),
    ],
)
def test_incompatible_checkpoint_is_rejected_with_key(
    store: CheckpointStore, tmp_path: Path, override: str, key: str
) -> None:
    saved = store.save(at_step(1), periodic=True, best=False)
    with pytest.raises(Refused) as refused:
        checkpoint_store.load(tmp_path / saved.path, planned(override))
    assert [problem.key for problem in refused.value.problems] == [key]


def tabular(folder: Path, num_rows: int) -> str:
    """A configuration over files with this many rows."""
    np.save(folder / "x.npy", np.arange(4.0 * num_rows).reshape(num_rows, 4))
    np.save(folder / "y.npy", np.arange(num_rows) % 2)
    named = f"[data]\nbatch_per_core=2\nsource='{folder}/x.npy'\nlabels_file='{folder}/y.npy'\n"
    return f"task='tabular'\nepochs=9\n{named}[device]\ncores=1\n"


def test_resume_with_other_cores_continues_by_examples(store: CheckpointStore, tmp_path: Path) -> None:
    # 22 steps of 64 per epoch: epoch 3 has 10 of them done, 640 examples.
    at = at_step(54)._replace(position=Position(epoch=3, batch=10, step=54, evaluating=False))
    path = tmp_path / store.save(at, periodic=True, best=False).path
    half = checkpoint_store.load(path, planned("device.cores=4", "optim.lr=0.01"))
    assert half.position == Position(epoch=3, batch=20, step=2 * 44 + 20, evaluating=False)
    assert half.new_settings
    settings, moved = half.notes
    assert "device.cores 8 -> 4" in settings
    assert "optim.lr 0.0005 -> 0.01" in settings
    assert "epoch 3 continues after 20 of its 44 steps" in moved
    assert "step 54 counts as step 108" in moved
    odd = checkpoint_store.load(path, planned("data.batch_per_core=12"))
    assert odd.position == Position(epoch=3, batch=6, step=2 * 14 + 6, evaluating=False)
    assert not odd.new_settings
    same_batch = checkpoint_store.load(path, planned("device.cores=4", "data.batch_per_core=16"))
    assert same_batch.position == at.position
    unchanged = checkpoint_store.load(path, planned())
    assert (unchanged.position, unchanged.new_settings, unchanged.notes) == (at.position, False, ())


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (Position(epoch=3, batch=0, step=44, evaluating=False), Position(3, 0, 88, False)),
        (Position(epoch=3, batch=22, step=66, evaluating=True), Position(3, 44, 132, True)),
        (Position(epoch=1, batch=0, step=0, evaluating=False), Position(1, 0, 0, False)),
    ],
)
def test_epoch_boundary_is_preserved_under_other_batch_size(
    store: CheckpointStore, tmp_path: Path, at: Position, expected: Position
) -> None:
    path = tmp_path / store.save(at_step(1)._replace(position=at), periodic=True, best=False).path
    assert checkpoint_store.load(path, planned("device.cores=4")).position == expected


def test_other_optimizer_is_rejected_with_a_fix(store: CheckpointStore, tmp_path: Path) -> None:
    path = tmp_path / store.save(at_step(1), periodic=True, best=False).path
    with pytest.raises(Refused, match=r'optim\.name: .* set optim\.name = "adam"'):
        checkpoint_store.load(path, planned("optim.name=sgd"))


@pytest.mark.parametrize("override", ["checkpoint.monitor=accuracy", "checkpoint.mode=max"])
def test_changed_monitor_or_mode_resets_the_best(store: CheckpointStore, tmp_path: Path, override: str) -> None:
    path = tmp_path / store.save(at_step(1)._replace(best_epoch=1), periodic=True, best=True).path
    loaded = checkpoint_store.load(path, planned(override))
    assert (loaded.best, loaded.best_epoch) == (None, 0)
    (note,) = loaded.notes
    assert "checkpoint.monitor was loss (min)" in note
    assert "the best epoch is determined again" in note
    assert checkpoint_store.load(path, planned()).best == 0.5


def test_best_value_without_its_metric_name_is_ignored(store: CheckpointStore, tmp_path: Path) -> None:
    path = tmp_path / store.save(at_step(1), periodic=True, best=True).path
    content = torch.load(path, weights_only=True)
    del content["monitor"], content["data"]
    older = tmp_path / "older.pt"
    torch.save(content, older)
    assert checkpoint_store.load(older, planned()).best is None


def test_more_data_is_accepted_only_at_an_epoch_boundary(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    text = tabular(tmp_path, 20)
    store = CheckpointStore(tmp_path, run_plan.make(config.parse(text, "t.toml"), CPU, "t.toml"))
    end = at_step(16)._replace(position=Position(epoch=3, batch=0, step=16, evaluating=False))
    boundary = tmp_path / store.save(end, periodic=True, best=False).path
    middle = tmp_path / store.save(at_step(11), periodic=True, best=False).path
    tabular(tmp_path, 40)
    more = run_plan.make(config.parse(text, "t.toml"), CPU, "t.toml")
    loaded = checkpoint_store.load(boundary, more)
    assert loaded.position == Position(epoch=3, batch=0, step=2 * more.steps_per_epoch, evaluating=False)
    assert "16 training and 4 validation examples then, 32 and 8 now" in loaded.notes[0]
    with pytest.raises(Refused, match=r"data: .* in the middle of epoch 2 of 16 training examples, and there are 32"):
        checkpoint_store.load(middle, more)


def test_changed_data_of_equal_size_is_named(tmp_path: Path) -> None:
    from engine.data import arrays

    def identity() -> dict[str, str]:
        options = run_plan.make(config.parse(text, "t.toml"), CPU, "t.toml").data
        return dict(arrays.load(options, 0).identity)  # type: ignore[arg-type]

    text = tabular(tmp_path, 20)
    before = identity()
    assert resume.data_note(before, identity()) is None
    np.save(tmp_path / "y.npy", np.arange(20) // 2 % 2)
    note = resume.data_note(before, identity())
    assert note is not None
    assert "as many examples as before: " in note
    assert "labels" in note
    with pytest.raises(Refused, match="the weights belong to other words"):
        resume.data_note({"vocabulary": "a"}, {"vocabulary": "b"})


def test_flipped_bit_never_loads_other_weights(store: CheckpointStore, tmp_path: Path) -> None:
    weights = {"w": torch.arange(64.0), "b": torch.ones(16)}
    whole = at_step(3)._replace(training_state={"model": weights})
    path = tmp_path / store.save(whole, periodic=True, best=False).path
    content, flipped = path.read_bytes(), tmp_path / "flipped.pt"
    refused = 0
    # Every byte of the weights and a sample of the others.
    for place in sorted(
        {*range(0, len(content), 37), *range(content.find(bytes(weights["w"].numpy())), len(content), 5)}
    ):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        flipped.write_bytes(damaged)
        try:
            loaded = checkpoint_store.load(flipped, planned())
        except Refused:
            refused += 1
            continue
        assert loaded.position == whole.position, place
        assert all(torch.equal(loaded.training_state["model"][name], weights[name]) for name in weights), place
    assert refused > 10
    assert checkpoint_store.load(path.rename(tmp_path / "alone.pt"), planned()).position.step == 3


@pytest.mark.parametrize("has_links", [True, False])
def test_checkpoint_is_private_under_any_umask(
    store: CheckpointStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    def refuse(*names: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    if not has_links:
        monkeypatch.setattr(os, "link", refuse)
    before = os.umask(0o777)
    try:
        store.save(at_step(1), periodic=True, best=True)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "checkpoints").iterdir()}
    assert modes == dict.fromkeys(("step-00000001.pt", "last.pt", "best.pt", checkpoint_files.DIGESTS_NAME), 0o600)


def test_reading_options_may_change_on_resume(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    text = tabular(tmp_path, 20)

    def of(*overrides: str) -> Plan:
        return run_plan.make(config.parse(text, "t.toml", list(overrides)), CPU, "t.toml")

    saved = CheckpointStore(tmp_path, of()).save(at_step(1), periodic=True, best=False)
    assert checkpoint_store.load(tmp_path / saved.path, of("data.max_bad_rows=3")).position.step == 1
    with pytest.raises(Refused) as refused:
        checkpoint_store.load(tmp_path / saved.path, of("data.max_bad_rows=3", "data.valid_fraction=0.5"))
    assert [problem.key for problem in refused.value.problems] == ["data.valid_fraction"]


@pytest.mark.parametrize("kind", no_checkpoints.FILES)
def test_non_checkpoint_file_is_rejected_in_one_sentence(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.pt"
    path.write_bytes(no_checkpoints.FILES[kind])
    with pytest.raises(Refused) as refused:
        checkpoint_store.load(path, planned())
    (problem,) = refused.value.problems
    assert problem.message.startswith(f"{path}: ")
    assert "weights_only" not in problem.message
    assert "\n" not in problem.message


def test_missing_checkpoint_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="no such checkpoint"):
        checkpoint_store.load(tmp_path / "none.pt", planned())


def test_file_of_another_program_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save({"model": {}}, path)
    with pytest.raises(Refused, match="not a checkpoint of this version"):
        checkpoint_store.load(path, planned())


def test_strict_check_reads_checkpoint_before_start(store: CheckpointStore, tmp_path: Path) -> None:
    saved = store.save(at_step(1), periodic=True, best=False)
    for override, expected in (("epochs=9", []), ("model.channels=8", ["model.channels"])):
        tables = json.dumps(config.to_builtins(config.load(DIGITS, [override])))
        words = ["digits", "--check", "--resume", str(tmp_path / saved.path)]
        done = forked.run("engine.commands.describe", *words, stdin=tables)
        assert done.returncode == 0, done.stderr
        assert [problem["key"] for problem in json.loads(done.stdout)["problems"]] == expected


OLD_OPTIM = {"name": "adam", "lr": 0.0005, "lr_scaling": "linear", "momentum": 0.9, "weight_decay": 0.0}
"""The `[optim]` fingerprint of the first versions, with a momentum that Adam ignored."""


@pytest.mark.parametrize(
    ("changes", "notes"),
    [
        ([], ""),
        (["optim.schedule=step"], ""),
        (["optim.clip_norm=1"], "optim.clip_norm none -> 1.0;"),
    ],
)
def test_old_checkpoint_takes_default_of_new_key(tmp_path: Path, changes: list[str], notes: str) -> None:
    new = resume.fingerprint(planned())
    old = {key: value for key, value in new.items() if not key.startswith("optim.")}
    old |= {f"optim.{key}": value for key, value in {**OLD_OPTIM, "step_size": 5, "gamma": 0.5}.items()}
    going = resume.resumed(at_step(25), old, None, planned(*changes), tmp_path)
    assert (going.position, going.new_settings) == (at_step(25).position, bool(notes))
    assert notes in "".join(going.notes)
    assert bool(going.notes) == bool(notes)


def test_an_accumulating_run_continues_after_a_whole_update(tmp_path: Path) -> None:
    saved = resume.fingerprint(planned())
    going = resume.resumed(at_step(25), saved, None, planned("optim.accumulate=2"), tmp_path)
    assert (going.position.batch, going.position.step) == (2, 24)
