"""Scores and pictures of evaluations, and examples that are left out, in real workers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine.loop.artifacts import MAX_POSITIONS, RunArtifacts, present_rows, rows_by_batch, spread_examples
from engine.task import Picture
from tests.engine.skipped_rows_task import NUM_VALID
from tests.engine.workers import Run, make, runs_to_end
from tputui.telemetry import events as ev

pytestmark = pytest.mark.xla

BRIGHT = """
task = "skipped_rows_task:Bright"
epochs = 3
[data]
batch_per_core = 2
batches_per_epoch = 3
max_bad_rows = 2
bad = [4, 20]
[optim]
lr = 0.1
[device]
cores = 4
[checkpoint]
monitor = "hits"
mode = "max"
[report]
pictures = 3
every_batches = 2
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return runs_to_end(make(tmp_path_factory.mktemp("runs"), "bright", text=BRIGHT))


def test_scores_use_each_valid_example_once(run: Run) -> None:
    epochs = run.all(ev.EpochEnded)
    assert [epoch.scores["seen"] for epoch in epochs] == [NUM_VALID - 2] * 3
    assert [epoch.valid["loss"].count for epoch in epochs] == [NUM_VALID - 2] * 3


def test_score_can_select_the_best_epoch(run: Run) -> None:
    epochs = run.all(ev.EpochEnded)
    hits = [epoch.scores["hits"] for epoch in epochs]
    assert [epoch.best for epoch in epochs] == [hit > max(hits[:place], default=-1) for place, hit in enumerate(hits)]
    best = max(hits)
    reason = f"3 epochs trained; best validation hits: {best:g} (epoch {hits.index(best) + 1})"
    assert run.one(ev.TrainingEnded).reason == reason


def test_skipped_rows_are_reported_once_with_row_and_column(run: Run) -> None:
    skipped = [(event.split, event.where, event.skipped, event.limit) for event in run.all(ev.ExampleSkipped)]
    assert skipped == [
        ("valid", 'shades.csv row 6, column "shade"', 1, 2),
        ("valid", 'shades.csv row 22, column "shade"', 2, 2),
    ]


def test_each_epoch_writes_pictures_from_all_over_the_split(run: Run) -> None:
    kept = run.all(ev.PicturesKept)
    assert [event.epoch for event in kept] == [1, 2, 3]
    assert [picture.example for picture in kept[-1].pictures] == ["shade 0", "shade 1", "shade 2"]
    assert grays(run.dir, kept[-1]) == [(int(127 * 2 * index / NUM_VALID),) * 3 for index in (3, 10, 17)]


def grays(run_dir: Path, kept: ev.PicturesKept) -> list[object]:
    """The colour of each picture."""
    found: list[object] = []
    for picture in kept.pictures:
        with Image.open(run_dir / picture.path) as image:
            found.append(image.getpixel((0, 0)))
    return found


@pytest.mark.parametrize(
    ("count", "total", "examples"),
    [
        (0, 9, []),
        (1, 9, [4]),
        (4, 100, [12, 37, 62, 87]),
        (3, 3, [0, 1, 2]),
        (9, 9, list(range(9))),
        (10, 80, [5, 6, 15, 16, 25, 35, 45, 55, 65, 75]),
    ],
)
def test_pictured_examples_are_spread_over_the_split(count: int, total: int, examples: list[int]) -> None:
    assert spread_examples(count, total) == examples


def test_pictured_batches_are_bounded() -> None:
    assert len(rows_by_batch(spread_examples(64, 50_000), 128)) == MAX_POSITIONS
    assert rows_by_batch([3, 10, 11, 17], 8) == {0: [3], 1: [2, 3], 2: [1]}


def test_bad_example_is_replaced_by_the_next_good_one() -> None:
    present = np.array([True, False, True, True, False, False])
    assert present_rows([1, 2], None) == [1, 2]
    assert present_rows([1], present) == [2]
    assert present_rows([1, 2], present) == [2, 3]
    assert present_rows([3, 5], present) == [2, 3]
    assert present_rows([0, 1, 2, 3], present) == [0, 2, 3]


def test_pictures_with_colliding_names_get_separate_files(tmp_path: Path) -> None:
    names = ["a b", "a_b", f"{'deep/' * 30}1.png", f"{'deep/' * 30}2.png"]
    pictures = [Picture(kind, name, np.full((1, 1, 3), 50)) for name in names for kind in ("input", "mask")]
    kept = RunArtifacts(tmp_path).pictures(3, pictures)
    assert [(picture.example, picture.name) for picture in kept] == [(one.example, one.name) for one in pictures]
    assert len({picture.path for picture in kept}) == len(list(tmp_path.glob("pictures/epoch-0003/*.png"))) == 8


def test_secrets_in_names_of_pictures_are_not_in_their_paths(tmp_path: Path) -> None:
    key = f"hf_{'a1' * 12}"
    (kept,) = RunArtifacts(tmp_path).pictures(3, [Picture("input", key, np.full((1, 1, 3), 50))])
    assert key not in kept.path
    assert (tmp_path / kept.path).is_file()


def test_epoch_losses_are_saved_as_arrays(run: Run) -> None:
    epochs = run.all(ev.EpochEnded)
    assert np.load(run.dir / "trn_losses.npy").tolist() == [epoch.train["loss"].avg for epoch in epochs]
    assert np.load(run.dir / "val_losses.npy").tolist() == [epoch.valid["loss"].avg for epoch in epochs]


def test_batches_per_epoch_and_report_every_are_honoured(run: Run) -> None:
    assert run.one(ev.TrainingPlanned).steps_per_epoch == 3
    assert run.all(ev.ProgressReported)[-1].step == 9
    assert {event.report_steps for event in run.all(ev.ProgressReported)} == {2}
    assert [event.n for event in run.all(ev.StepsRecorded)][-2:] == [2, 1]


def test_trace_is_timed_by_part_without_recompiling(run: Run) -> None:
    for epoch in run.all(ev.EpochEnded):
        assert set(epoch.trace_s) == {"forward", "loss", "backward", "optimizer"}
        assert 0 < sum(epoch.trace_s.values()) <= epoch.sections_s["trace"]
    assert run.all(ev.XlaMetricsRead)[-1].recompiles == 0


def test_pictured_batch_runs_the_same_program(tmp_path: Path) -> None:
    keys = ["data.bad=[]", "data.batch_per_core=1", "epochs=2", "report.pictures=1"]
    run = runs_to_end(make(tmp_path, "one", keys, text=BRIGHT))
    assert grays(run.dir, run.all(ev.PicturesKept)[0]) == [(int(127 * 2 * 10 / NUM_VALID),) * 3]
    assert run.all(ev.XlaMetricsRead)[-1].recompiles == 0


def test_replaced_bad_example_is_not_pictured(tmp_path: Path) -> None:
    keys = ["data.bad=[10]", "epochs=1", "device.cores=1", "data.batch_per_core=8"]
    kept = runs_to_end(make(tmp_path, "first", keys, text=BRIGHT)).one(ev.PicturesKept)
    shown = grays(tmp_path / "first", kept)
    assert shown == [(int(127 * 2 * index / NUM_VALID),) * 3 for index in (3, 11, 17)]


def test_one_bad_row_too_many_ends_training(tmp_path: Path) -> None:
    failed = runs_to_end(make(tmp_path, "bad", ["data.max_bad_rows=1", "device.cores=1"], text=BRIGHT), exit_code=3)
    message = failed.one(ev.FailureRaised).message
    assert message.startswith('shades.csv row 22, column "shade": it is empty; 1 may be left out (data.max_bad_rows)')
    assert "Traceback" not in failed.log.read_text(), "the sentence is all there is to say"


@pytest.mark.slow
def test_resumed_loss_files_continue(run: Run, tmp_path: Path) -> None:
    first = runs_to_end(make(tmp_path, "first", ["epochs=1"], text=BRIGHT))
    last = first.dir / "checkpoints" / "last.pt"
    again = runs_to_end(make(tmp_path, "again", text=BRIGHT, resume_from=last))
    assert np.array_equal(np.load(again.dir / "trn_losses.npy"), np.load(run.dir / "trn_losses.npy"))
    assert np.array_equal(np.load(again.dir / "val_losses.npy"), np.load(run.dir / "val_losses.npy"))
    assert again.one(ev.TrainingEnded).reason == run.one(ev.TrainingEnded).reason
