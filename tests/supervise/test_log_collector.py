"""The collector of logs, without a supervisor."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests import recorded
from tests.deadline import DEADLINE_S
from tests.supervise.harness import events_in, wait_for
from tputui.logs.formats import open_log
from tputui.logs.rows import LoggedValue, LogReader
from tputui.logs.value_events import LossRow, steps_recorded
from tputui.supervise import log_collector, log_files
from tputui.supervise.log_collector import LogCollector
from tputui.supervise.log_tail import Printed
from tputui.supervise.training_positions import TrainingPositions
from tputui.telemetry import events as ev
from tputui.telemetry import rundir
from tputui.telemetry.events import Split
from tputui.telemetry.logged_values import LoggedColumns, unpack, values_logged
from tputui.telemetry.reporter import Reporter

NUM_LOGS = 20
NUM_ROWS = 100


def collected(
    folder: Path, printed: Sequence[str] = (), is_stop_requested: Callable[[], bool] = lambda: False
) -> list[ev.Event]:
    """What a collector reports of the logs in a folder and of output, of a command that has just ended."""
    run_dir = rundir.create(folder / "runs", recorded.manifest())
    collected_in(run_dir, folder, [Printed(line) for line in printed], is_stop_requested)
    return events_in(run_dir, "logs-0", ev.Event)


def collected_in(
    run_dir: Path, folder: Path, printed: Sequence[Printed] = (), is_stop_requested: Callable[[], bool] = lambda: False
) -> LogCollector:
    """The same, in a run whose processes may have reported. Returns the collector, which is closed."""
    reporter = Reporter(run_dir, "logs")
    collector = LogCollector(run_dir, os.getpid(), reporter, {"cwd": str(folder), "logs": ["*.csv"]})
    collector.take_console(printed)
    collector.close(is_stop_requested)
    reporter.close()
    return collector


def printed_in_order(lines: Sequence[str]) -> list[Printed]:
    """The lines of a whole log file, each with the byte at which it ends."""
    return [Printed(line, len("\n".join(lines[:number]))) for number, line in enumerate(lines, 1)]


class SlowDisk:
    """Opens logs whose reads wait until the test lets them go on, one at a time."""

    def __init__(self) -> None:
        self._asked, self._let_go = threading.Semaphore(0), threading.Semaphore(0)
        self._is_closed = False

    def open(self, path: Path) -> LogReader:
        """Opens a log of this disk."""
        reader = open_log(path)
        read, close = reader.read, reader.close

        def read_slowly() -> list[LoggedValue]:
            self._asked.release()
            assert self._let_go.acquire(timeout=DEADLINE_S)
            return read()

        def close_after_all_reads() -> None:
            self._is_closed = True
            self._asked.release()
            close()

        reader.read, reader.close = read_slowly, close_after_all_reads  # type: ignore[method-assign]
        return reader

    def is_read_within(self, seconds: float) -> bool:
        """Whether a read waits by then, which was not answered before."""
        return self._asked.acquire(timeout=seconds)

    def answer_from_now_on(self) -> None:
        """Lets all reads go on."""
        self._let_go.release(1_000)

    def answer_all(self) -> None:
        """Lets all reads go on, and waits for the end of the thread."""
        self.answer_from_now_on()
        self._wait_for_thread()

    def answer(self) -> None:
        """Lets one read go on; returns when the next one waits, or when no more is read and the thread has ended."""
        self._let_go.release()
        assert self._asked.acquire(timeout=DEADLINE_S)
        if self._is_closed:
            self._wait_for_thread()

    def _wait_for_thread(self) -> None:
        for thread in threading.enumerate():
            if thread.name == "tputui-logs":
                thread.join(DEADLINE_S)


def write_logs(folder: Path, num_logs: int) -> None:
    """Logs of `NUM_ROWS` values each."""
    for number in range(num_logs):
        rows = "".join(f"{step},0.5\n" for step in range(NUM_ROWS))
        (folder / f"{number}.csv").write_text(f"step,m{number}\n{rows}")


def test_logs_are_read_to_their_end_after_the_command_however_slow_the_disk_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_logs(tmp_path, NUM_LOGS)
    disk = SlowDisk()
    monkeypatch.setattr(log_collector, "open_log", disk.open)
    # Reading is given up after two polls without progress, and one read ends in any two.
    monkeypatch.setattr(log_collector, "CLOSE_POLL_S", 0.01)
    monkeypatch.setattr(log_collector, "CLOSE_S", 0.02)

    def poll() -> bool:
        disk.answer()
        return False

    events = collected(tmp_path, is_stop_requested=poll)

    assert sum(event.n for event in events if isinstance(event, ev.ValuesLogged)) == NUM_LOGS * NUM_ROWS
    assert not [event for event in events if isinstance(event, ev.WarningRaised)]


def test_a_disk_that_no_longer_answers_is_given_up_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_logs(tmp_path, NUM_LOGS)
    disk = SlowDisk()
    monkeypatch.setattr(log_collector, "open_log", disk.open)
    monkeypatch.setattr(log_collector, "CLOSE_POLL_S", 0.01)
    monkeypatch.setattr(log_collector, "CLOSE_S", 0.02)
    monkeypatch.setattr(log_collector, "GIVE_UP_S", 0.0)
    polls = 0

    def poll() -> bool:
        nonlocal polls
        polls += 1
        if polls < 4:
            disk.answer()
        return False

    events = collected(tmp_path, is_stop_requested=poll)
    disk.answer_all()

    (warning,) = [event.text for event in events if isinstance(event, ev.WarningRaised)]
    assert "because it took too long after the command had ended" in warning


def test_output_is_parsed_to_its_end_and_left_out_lines_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_collector, "LINES_PER_LOOK", 10)
    events = collected(tmp_path, [f"step {step} loss {1 / step:.4f}" for step in range(1, 101)])
    assert sum(event.n for event in events if isinstance(event, ev.ValuesLogged)) == 100
    assert not [event for event in events if isinstance(event, ev.WarningRaised)]

    monkeypatch.setattr(log_collector, "LINES_MAX", 50)
    (tmp_path / "more").mkdir()
    events = collected(tmp_path / "more", [f"step {step} loss {1 / step:.4f}" for step in range(1, 101)])
    assert sum(event.n for event in events if isinstance(event, ev.ValuesLogged)) == 50
    (warning,) = [event for event in events if isinstance(event, ev.WarningRaised)]
    assert "some of those printed are left out" in warning.text


def test_a_file_that_is_found_late_does_not_replace_what_was_printed(tmp_path: Path) -> None:
    run_dir = rundir.create(tmp_path / "runs", recorded.manifest())
    reporter = Reporter(run_dir, "logs")
    collector = LogCollector(run_dir, os.getpid(), reporter, {"cwd": str(tmp_path), "logs": ["*.csv"]})
    collector.take_console([Printed(f"epoch 1 step {step} loss {1 / step:.3f}") for step in (1, 2, 3)])
    wait_for(lambda: collector.num_values == 3, "the printed losses")
    (tmp_path / "loss.csv").write_text("epoch,step,loss,aux_loss\n0,1,1.0,7\n0,2,0.5,8\n0,3,0.33333,9\n")
    (tmp_path / "mean.csv").write_text("epoch,loss\n0,0.61\n")
    collector.close()
    reporter.close()

    found = {(event.name, event.source): event.step for event in events_in(run_dir, "logs-0", ev.ValuesLogged)}
    assert found == {("loss", "console"): 3, ("aux_loss", "loss.csv"): 3, ("loss (mean.csv)", "mean.csv"): 3}
    assert [event.first + event.n - 1 for event in events_in(run_dir, "logs-0", ev.StepsRecorded)] == [3]
    assert [event.epoch for event in events_in(run_dir, "logs-0", ev.EpochStarted)] == [1]


def test_the_file_of_a_checkpoint_is_read_after_all_that_was_printed_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = rundir.create(tmp_path / "runs", recorded.manifest())
    worker, reporter = Reporter(run_dir, "worker"), Reporter(run_dir, "logs")
    worker.emit(ev.EpochStarted(t=1.0, epoch=1, first_step=1))
    worker.emit(ev.EvaluationStarted(t=2.0, step=20, epoch=1))
    worker.flush(DEADLINE_S)
    state = tmp_path / "out" / "checkpoint-20" / "trainer_state.json"
    state.parent.mkdir(parents=True)
    state.write_text(json.dumps({"log_history": [{"epoch": 1.0, "eval_loss": 0.625, "step": 20}]}))
    disk = SlowDisk()
    monkeypatch.setattr(log_collector, "open_log", disk.open)
    collector = LogCollector(run_dir, os.getpid(), reporter, {"cwd": str(tmp_path), "logs": ["out/*/*.json"]})
    try:
        assert not disk.is_read_within(0.5)
        disk.answer_from_now_on()
        # The line waits for its place: the journal of the training has no event of that time yet.
        collector.take_console([Printed("{'eval_loss': '0.625', 'epoch': '1'}")])
        collector.take_console([])
        wait_for(lambda: collector.num_values == 2, "the printed value and that of the file")
    finally:
        disk.answer_from_now_on()
        collector.close()
        reporter.close()
        worker.close()
    assert [event.source for event in events_in(run_dir, "logs-0", ev.ValuesLogged)] == ["console"]


def test_results_belong_to_the_evaluation_during_which_they_were_printed_however_late_they_are_read(
    tmp_path: Path,
) -> None:
    run_dir = rundir.create(tmp_path / "runs", recorded.manifest())
    lines = ["Test set: Average loss: 0.5", "Test set: Average loss: 0.25", "Test set: Average loss: 0.125"]
    ends = [len("\n".join(lines[:number])) for number in (1, 2, 3)]
    worker = Reporter(run_dir, "worker")
    for epoch, printed in ((1, 0), (2, ends[0] + 1), (3, ends[1] + 1)):
        t = 100.0 + epoch / 1e3
        worker.emit(ev.EpochStarted(t=t, epoch=epoch, first_step=10 * epoch - 9, printed_bytes=printed))
        worker.emit(ev.EvaluationStarted(t=t, epoch=epoch, step=10 * epoch, printed_bytes=printed))
    worker.close()
    collected_in(run_dir, tmp_path, printed_in_order(lines))
    logged = [unpack(event) for event in events_in(run_dir, "logs-0", ev.ValuesLogged) if event.split == "valid"]
    placed = [value for one in logged for value in zip(one.steps, one.epochs or (), one.values, strict=True)]
    assert placed == [(10, 1.0, 0.5), (20, 2.0, 0.25), (30, 3.0, 0.125)]


def test_lines_that_name_no_split_are_of_the_evaluation_in_which_they_were_printed(tmp_path: Path) -> None:
    run_dir = rundir.create(tmp_path / "runs", recorded.manifest())
    lines = [
        "Epoch: 0",
        "[====>] Step: 3s12ms | Loss: 2.5 | Acc: 10.5% (2/19)",
        "[====>] Step: 9ms | Loss: 2.0 | Acc: 20.5% (4/19)",
        "=> Avg. PSNR: 13.5 dB",
        "Epoch 1: loss 2.25",
        "lr 0.001",
        "epoch 0: {'recall': 0.5, 'f1': 0.25}",
        "Accuracy of the model on the 19 test images: 30.0 %",
        "Of fold: 2 Validation set: average loss: 0.5",
        "[====>] Step: 1s4ms | Loss: 1.5 | Acc: 40.5% (8/19)",
    ]
    ends = [len("\n".join(lines[: number + 1])) for number in range(len(lines))]
    worker = Reporter(run_dir, "worker")
    worker.emit(ev.EpochStarted(t=1.0, epoch=1, first_step=1, printed_bytes=0))
    worker.emit(ev.EvaluationStarted(t=2.0, epoch=1, step=3, printed_bytes=ends[1]))
    worker.emit(ev.EvaluationEnded(t=3.0, printed_bytes=ends[8]))
    worker.close()
    collected_in(run_dir, tmp_path, printed_in_order(lines))
    found: dict[str, list[float]] = {}
    for event in events_in(run_dir, "logs-0", ev.ValuesLogged):
        found.setdefault(f"{event.split} {event.name}", []).extend(unpack(event).values)
    assert found.pop("valid loss") == [2.0]
    assert (found.pop("valid acc"), found.pop("valid avg._psnr")) == ([20.5], [13.5])
    assert found.pop("valid test_accuracy") == [30.0]
    assert (found.pop("valid recall"), found.pop("valid f1"), found.pop("valid average_loss")) == ([0.5], [0.25], [0.5])
    assert found == {"train loss": [2.5, 1.5], "train acc": [10.5, 40.5], "train epoch_loss": [2.25]}


def test_printed_positions_are_no_steps_of_a_process_that_reports_its_own(tmp_path: Path) -> None:
    run_dir = rundir.create(tmp_path / "runs", recorded.manifest())
    worker = Reporter(run_dir, "worker")
    worker.emit(ev.EpochStarted(t=1.0, epoch=1, first_step=1, printed_bytes=0))
    worker.close()
    collector = collected_in(run_dir, tmp_path, [Printed("Train Epoch: 1 [640/1200 (53%)]  Loss: 0.5")])
    assert (collector.num_values, collector.newest_step) == (1, 0)


def test_printed_losses_are_shown_unless_they_are_those_that_the_process_reports(tmp_path: Path) -> None:
    run_dir = rundir.create(tmp_path / "runs", recorded.manifest())
    losses = [(100 - step) / 128 for step in range(1, 41)]
    means = [sum(losses[:step]) / step for step in range(1, 41)]
    worker = Reporter(run_dir, "worker")
    worker.emit(ev.EpochStarted(t=1.0, epoch=1, first_step=1, printed_bytes=0))
    for event in steps_recorded([LossRow(step, [loss]) for step, loss in enumerate(losses, 1)], 2.0):
        worker.emit(event)
    worker.close()
    steps = range(0, 40, 10)
    rows = "".join(f"{step},{loss}\n" for step, loss in enumerate(losses, 1))
    (tmp_path / "log.csv").write_text(f"step,train_loss\n{rows}")
    lines = [f"step {step} loss {losses[step]:.4f} avg_loss {means[step]:.4f}" for step in steps]
    collected_in(run_dir, tmp_path, printed_in_order(lines))
    logged = {event.name: unpack(event) for event in events_in(run_dir, "logs-0", ev.ValuesLogged)}
    # What the script logs to a file stays beside it, as the user wants it.
    assert {name: [*one.steps] for name, one in logged.items()} == {"avg_loss": [*steps], "train_loss": [*range(1, 41)]}


def test_printed_means_of_epochs_are_those_that_the_process_reports(tmp_path: Path) -> None:
    run_dir = rundir.create(tmp_path / "runs", recorded.manifest())
    ended = next(event for event in recorded.worker_events() if isinstance(event, ev.EpochEnded))
    losses = [(0.75, 0.5), (0.375, 0.25), (0.125, 0.0625)]
    means = [(first + second) / 2 for first, second in losses]
    lines = [
        f"Epoch: {epoch} train loss: {mean:.4f} train error: {mean / 2:.4f}" for epoch, mean in enumerate(means, 1)
    ]
    worker = Reporter(run_dir, "worker")
    for before, (pair, mean) in enumerate(zip(losses, means, strict=True)):
        t, step, printed = float(before + 1), 2 * before + 2, len("\n".join([*lines[:before], ""]))
        worker.emit(ev.EpochStarted(t=t, epoch=before + 1, first_step=step - 1, printed_bytes=printed))
        for event in steps_recorded([LossRow(step - 1 + place, [loss]) for place, loss in enumerate(pair)], t + 0.25):
            worker.emit(event)
        worker.emit(ev.EvaluationStarted(t=t + 0.5, epoch=before + 1, step=step, printed_bytes=printed))
        meter = ev.MeterReading(val=pair[1], avg=mean, sum=2 * mean, count=2)
        worker.emit(replace(ended, t=t + 0.75, epoch=before + 1, step=step, train={"loss": meter}, valid={}))
    worker.close()
    collected_in(run_dir, tmp_path, printed_in_order(lines))
    assert {event.name for event in events_in(run_dir, "logs-0", ev.ValuesLogged)} == {"error"}


def test_printed_losses_near_zero_are_those_that_the_process_reports(tmp_path: Path) -> None:
    run_dir = rundir.create(tmp_path / "runs", recorded.manifest())
    losses = [0.031, 0.00414, 0.00004864]
    worker = Reporter(run_dir, "worker")
    worker.emit(ev.EpochStarted(t=1.0, epoch=1, first_step=1, printed_bytes=0))
    for event in steps_recorded([LossRow(step, [loss]) for step, loss in enumerate(losses, 1)], 2.0):
        worker.emit(event)
    worker.close()
    lines = [f"step {step} loss {loss:.4f} avg_loss {3 * loss:.4f}" for step, loss in enumerate(losses, 1)]
    collected_in(run_dir, tmp_path, printed_in_order(lines))
    assert {event.name for event in events_in(run_dir, "logs-0", ev.ValuesLogged)} == {"avg_loss"}


@pytest.mark.parametrize("first", [0, 1])
def test_losses_of_epochs_of_a_step_are_those_that_the_process_reports_however_they_are_called(
    tmp_path: Path, first: int
) -> None:
    run_dir = rundir.create(tmp_path / "runs", recorded.manifest())
    plan = next(event for event in recorded.worker_events() if isinstance(event, ev.TrainingPlanned))
    losses = [1 / step for step in range(1, 101)]
    worker = Reporter(run_dir, "worker")
    worker.emit(replace(plan, num_epochs=100, steps_per_epoch=1, first_step=1))
    for event in steps_recorded([LossRow(step, [loss]) for step, loss in enumerate(losses, 1)], 1.0):
        worker.emit(event)
    worker.close()
    epochs = range(10, 101, 10)
    lines = [f"Epoch: {epoch - 1 + first} cost = {losses[epoch - 1]:.6f} norm = {epoch / 8}" for epoch in epochs]
    if first == 0:
        lines.insert(0, "Epoch: 0 cost = 1.000000 norm = 0.5")
    collected_in(run_dir, tmp_path, printed_in_order(lines))
    logged = {event.name: unpack(event) for event in events_in(run_dir, "logs-0", ev.ValuesLogged)}
    assert {name: [*one.steps][-10:] for name, one in logged.items()} == {"norm": [*epochs]}


def test_printed_values_are_shown_unless_the_process_reports_the_same(tmp_path: Path) -> None:
    run_dir = rundir.create(tmp_path / "runs", recorded.manifest())
    lines = [
        "Epoch 1/2",
        "10/10 \u2501\u2501 0s 4ms/step - accuracy: 0.1250 - loss: 2.5000 - val_accuracy: 0.2500 - val_loss: 2.2500",
        "4/4 \u2501\u2501 0s 4ms/step - accuracy: 0.3750 - f1: 0.7500 - loss: 2.0000",
        "Test loss: 2.0",
    ]
    ends = [len("\n".join(lines[: number + 1])) for number in range(len(lines))]
    worker = Reporter(run_dir, "worker")
    worker.emit(ev.EpochStarted(t=1.0, epoch=1, first_step=1, printed_bytes=0))
    for event in steps_recorded([LossRow(10, [2.5])], 2.0):
        worker.emit(event)
    logged: list[tuple[Split, str, float]] = [
        ("train", "accuracy", 0.125),
        ("valid", "test_accuracy", 0.375),
        ("valid", "test_loss", 2.0),
    ]
    for split, tag, value in logged:
        columns = LoggedColumns([value], [10], [2.5], None)
        worker.emit(values_logged(2.5, tag, split, tag, "Model.fit", columns))
    worker.emit(ev.EvaluationStarted(t=2.6, epoch=1, step=10, printed_bytes=ends[0]))
    worker.emit(ev.EvaluationEnded(t=2.7, printed_bytes=ends[0]))
    results = {
        name: ev.MeterReading(val=value, avg=value, sum=value, count=1)
        for name, value in (("loss", 2.25), ("accuracy", 0.25))
    }
    worker.emit(
        ev.EpochEnded(
            t=3.0, epoch=1, step=10, train={}, valid=results, train_s=1.0, valid_s=1.0, sections_s={}, lr=0.1, best=True
        )
    )
    worker.emit(ev.EvaluationStarted(t=4.0, epoch=1, step=10, printed_bytes=ends[1]))
    worker.emit(ev.EvaluationEnded(t=5.0, printed_bytes=ends[2]))
    worker.close()
    collected_in(run_dir, tmp_path, printed_in_order(lines))
    shown = [
        (event.split, event.name, unpack(event).values[-1]) for event in events_in(run_dir, "logs-0", ev.ValuesLogged)
    ]
    assert shown == [("valid", "test_f1", 0.75)]


@pytest.mark.parametrize(
    ("lines", "steps"),
    [
        (["Epoch 1", "loss: 0.5 [ 320/ 640]", "Epoch 2", "loss: 0.25 [ 384/ 640]"], [5, 16]),
        (["Epoch 1", "loss: 0.5 [ 0/ 640]", "Epoch 2", "loss: 0.25 [ 0/ 640]", "loss: 0.2 [ 64/ 640]"], [1, 11, 12]),
        (["Epoch 1 batch 4/20 loss 0.5", "Epoch 1 batch 0/20 loss 0.5", "Epoch 1 batch 9/20 loss 0.25"], [2, 16, 16]),
        (["Epoch 1 batch 4/20 loss 0.5", "Epoch 2 batch 7/20 loss 0.25"], [2, 14]),
        (["step 5/30 loss 0.5", "step 16/30 loss 0.25"], [5, 16]),
        (["[1/3] loss 0.5", "[2/3] loss 0.25"], [16, 16]),
    ],
    ids=["examples", "examples from 0", "parts of an epoch", "batches", "steps", "epochs"],
)
def test_printed_positions_are_shown_in_steps(tmp_path: Path, lines: list[str], steps: list[int]) -> None:
    run_dir = rundir.create(tmp_path / "runs", recorded.manifest())
    plan, progress = (
        next(event for event in recorded.worker_events() if isinstance(event, kind))
        for kind in (ev.TrainingPlanned, ev.ProgressReported)
    )
    worker = Reporter(run_dir, "worker")
    worker.emit(replace(plan, num_epochs=3, steps_per_epoch=10, first_step=1))
    worker.emit(replace(progress, t=1.0, step=16))
    worker.close()
    collected_in(run_dir, tmp_path, [Printed(line) for line in lines])
    logged = [unpack(event) for event in events_in(run_dir, "logs-0", ev.ValuesLogged) if event.name == "loss"]
    assert [step for one in logged for step in one.steps] == steps


@pytest.mark.parametrize("has_plan", [True, False])
def test_printed_positions_wait_for_the_plan_of_the_process(tmp_path: Path, has_plan: bool) -> None:
    run_dir = rundir.create(tmp_path / "runs", recorded.manifest())
    plan, progress = (
        next(event for event in recorded.worker_events() if isinstance(event, kind))
        for kind in (ev.TrainingPlanned, ev.ProgressReported)
    )
    worker, positions = Reporter(run_dir, "worker"), TrainingPositions(run_dir, 0)
    opened_t = time.time()
    worker.emit(replace(progress, t=opened_t + 0.5, step=3))
    worker.flush(DEADLINE_S)
    positions.read()
    assert positions.awaits_plan, "`[64/256]` may be examples or steps"
    worker.emit(replace(plan, t=opened_t + 0.75) if has_plan else replace(progress, t=opened_t + 9.0, step=30))
    worker.close()
    positions.read()
    assert not positions.awaits_plan
    positions.close()


def test_results_of_an_epoch_that_was_too_short_to_be_told_belong_to_it(tmp_path: Path) -> None:
    run_dir = rundir.create(tmp_path / "runs", recorded.manifest())
    plan = next(event for event in recorded.worker_events() if isinstance(event, ev.TrainingPlanned))
    worker = Reporter(run_dir, "worker")
    worker.emit(replace(plan, num_epochs=9, steps_per_epoch=1, first_step=1))
    for epoch in (1, 2, 5):
        worker.emit(ev.EpochStarted(t=1.0, epoch=epoch, first_step=epoch, printed_bytes=0))
    worker.emit(ev.EvaluationStarted(t=2.0, epoch=5, step=7, printed_bytes=0))
    worker.close()
    collected_in(run_dir, tmp_path, [Printed("epoch 7: validation loss 0.5")])
    [logged] = [unpack(event) for event in events_in(run_dir, "logs-0", ev.ValuesLogged)]
    assert ([*logged.steps], [*(logged.epochs or ())]) == ([7], [7.0])


def test_printed_results_of_another_training_that_counts_from_1_again_belong_to_its_epochs(tmp_path: Path) -> None:
    run_dir = rundir.create(tmp_path / "runs", recorded.manifest())
    lines = ["fold 0 epoch 1: val_loss 0.5", "fold 0 epoch 2: val_loss 0.25", "fold 1 epoch 1: val_loss 0.75"]
    lines += ["fold 1 epoch 2: val_loss 0.125"]
    worker = Reporter(run_dir, "worker")
    for number in range(4):
        printed = len("\n".join([*lines[:number], ""]))
        worker.emit(ev.EpochStarted(t=1.0 + number, epoch=number + 1, first_step=number + 1, printed_bytes=printed))
        worker.emit(ev.EvaluationStarted(t=1.5 + number, epoch=number + 1, step=number + 1, printed_bytes=printed))
    worker.close()
    collected_in(run_dir, tmp_path, printed_in_order(lines))
    logged = [unpack(event) for event in events_in(run_dir, "logs-0", ev.ValuesLogged) if event.split == "valid"]
    placed = [value for one in logged for value in zip(one.epochs or (), one.values, strict=True)]
    assert placed == [(1.0, 0.5), (2.0, 0.25), (3.0, 0.75), (4.0, 0.125)]


def test_values_of_a_file_that_is_read_late_belong_to_their_own_epochs(tmp_path: Path) -> None:
    run_dir = rundir.create(tmp_path / "runs", recorded.manifest())
    plan = next(event for event in recorded.worker_events() if isinstance(event, ev.TrainingPlanned))
    ended = next(event for event in recorded.worker_events() if isinstance(event, ev.EpochEnded))
    trained = Reporter(run_dir, "worker")
    for before in (0, 3):
        # Two trainings of three epochs, each of two steps.
        trained.emit(replace(plan, num_epochs=before + 3, steps_per_epoch=2, first_step=2 * before + 1))
        for epoch in range(before + 1, before + 4):
            trained.emit(ev.EpochStarted(t=1.0, epoch=epoch, first_step=2 * epoch - 1))
            trained.emit(ev.EvaluationStarted(t=1.0, step=2 * epoch, epoch=epoch))
            trained.emit(replace(ended, epoch=epoch, step=2 * epoch))
    trained.close()
    rows = "0,1,0.5,\n1,3,0.4,\n2,5,0.3,\n3,6,,0.9\n"
    (tmp_path / "second.csv").write_text(f"epoch,step,val_loss,test_loss\n{rows}")

    collected_in(run_dir, tmp_path)
    epochs = events_in(run_dir, "logs-0", ev.EpochEnded)
    assert [(event.epoch, event.valid["loss"].val) for event in epochs] == [(4, 0.5), (5, 0.4), (6, 0.3)]
    # `Trainer.test` of Lightning logs the epoch after the last one.
    assert [event.valid.keys() for event in epochs] == [{"loss"}, {"loss"}, {"loss", "test_loss"}]


def test_what_is_printed_of_an_epoch_is_told_when_the_next_one_runs(tmp_path: Path) -> None:
    run_dir = rundir.create(tmp_path / "runs", recorded.manifest())
    trained, reporter = Reporter(run_dir, "worker"), Reporter(run_dir, "logs")
    trained.emit(ev.EpochStarted(t=1.0, epoch=1, first_step=1))
    trained.emit(ev.EvaluationStarted(t=2.0, step=2, epoch=1))
    trained.emit(ev.EpochStarted(t=3.0, epoch=2, first_step=3))
    # All is known of the time at which the lines are printed.
    trained.emit(ev.WarningRaised(t=4e9, text=""))
    trained.flush(DEADLINE_S)
    collector = LogCollector(run_dir, os.getpid(), reporter, {"cwd": str(tmp_path)})

    def told() -> list[tuple[int, dict[str, float]]]:
        ended = events_in(run_dir, "logs-0", ev.EpochEnded)
        return [(event.epoch, {name: one.val for name, one in event.valid.items()}) for event in ended]

    try:
        collector.take_console([Printed("validation loss 0.5")])
        wait_for(lambda: told() == [(1, {"loss": 0.5})], "the validation loss")
        collector.take_console([Printed("validation accuracy 0.7")])
        wait_for(lambda: told()[1:] == [(1, {"loss": 0.5, "accuracy": 0.7})], "the accuracy, which is read late")
    finally:
        collector.close()
        reporter.close()
        trained.close()
    assert len(told()) == 2, "the end of the command tells nothing new"


def test_a_value_of_a_file_waits_until_its_epoch_is_known(tmp_path: Path) -> None:
    run_dir = rundir.create(tmp_path / "runs", recorded.manifest())
    trained, reporter = Reporter(run_dir, "worker"), Reporter(run_dir, "logs")
    now = time.time()
    trained.emit(ev.EpochStarted(t=now - 5.0, epoch=1, first_step=1))
    trained.emit(ev.EvaluationStarted(t=now - 3.0, step=2, epoch=1))
    trained.emit(ev.EpochStarted(t=now - 2.0, epoch=2, first_step=3))
    trained.flush(DEADLINE_S)
    collector = LogCollector(run_dir, os.getpid(), reporter, {"cwd": str(tmp_path)})
    rows = f"{now - 2.5},0.5\n{now + 4.0},0.25\n"
    (tmp_path / "log.csv").write_text(f"timestamp,val_loss\n{rows}")

    def valid_losses() -> dict[int, float]:
        return {event.epoch: event.valid["loss"].val for event in events_in(run_dir, "logs-0", ev.EpochEnded)}

    try:
        wait_for(lambda: valid_losses() == {1: 0.5}, "the first value; the second one was read, too")
        trained.emit(ev.EvaluationStarted(t=now + 3.0, step=4, epoch=2))
        trained.emit(ev.EpochStarted(t=now + 5.0, epoch=3, first_step=5))
        wait_for(lambda: valid_losses() == {1: 0.5, 2: 0.25}, "the second value")
    finally:
        collector.close()
        reporter.close()
        trained.close()


def test_a_request_to_stop_ends_the_reading_of_long_logs_and_keeps_what_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_rows = 500_000
    (tmp_path / "long.csv").write_text("step,loss\n" + "".join(f"{step},0.5\n" for step in range(1, num_rows + 1)))
    monkeypatch.setattr(log_collector, "VALUES_PER_LOOK", 10_000)
    monkeypatch.setattr(log_collector, "GIVE_UP_S", 30.0)

    def has_values() -> bool:
        (journal,) = (tmp_path / "runs").glob("*/logs-0.jsonl")
        return journal.stat().st_size > 10_000

    events = collected(tmp_path, is_stop_requested=has_values)

    steps = [event.first + event.n - 1 for event in events if isinstance(event, ev.StepsRecorded)]
    (warning,) = [event.text for event in events if isinstance(event, ev.WarningRaised)]
    assert 0 < steps[-1] < num_rows
    assert f"read only to step {steps[-1]:,}, because a stop was requested" in warning
    assert sum(event.n for event in events if isinstance(event, ev.ValuesLogged)) == steps[-1]


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("history", "step,loss\n1,0.5\n2,0.25\n"),
        ("metrics.json", '{"step":1,"loss":0.5}\n{"step":2,"loss":0.25}\n'),
    ],
)
def test_a_log_that_is_empty_for_long_after_it_was_opened_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, written: str
) -> None:
    monkeypatch.setattr(log_collector, "TRIES_MAX", 5)
    monkeypatch.setattr(log_collector, "LOOK_INTERVAL_S", 0.01)
    monkeypatch.setattr(log_files, "TREE_INTERVAL_S", 0.01)
    run_dir = rundir.create(tmp_path / "runs", recorded.manifest())
    reporter = Reporter(run_dir, "logs")
    with open(tmp_path / name, "w") as file:
        collector = LogCollector(run_dir, os.getpid(), reporter, {"cwd": str(tmp_path)})
        wait_for(lambda: collector._finder.num_searches > 10, "searches")
        file.write(written)
        file.flush()
        wait_for(lambda: collector.num_values == 2, "the values")
    collector.close()
    reporter.close()
    (logged,) = events_in(run_dir, "logs-0", ev.ValuesLogged)
    assert (logged.name, logged.last_step) == ("loss", 2)


def test_damaged_records_cost_themselves_and_are_one_warning(tmp_path: Path) -> None:
    rows = "".join(f"{step},{step / 3}\n" if step % 2 else f"{step}\n" for step in range(1, 101))
    (tmp_path / "a.csv").write_text("step,loss\n" + rows)
    (tmp_path / "b.csv").write_text("step,acc\n1,0.5\n" + "\0" * 4_096)
    events = collected(tmp_path)
    assert sum(event.n for event in events if isinstance(event, ev.ValuesLogged)) == 51
    warnings = sorted(event.text for event in events if isinstance(event, ev.WarningRaised))
    assert warnings == [
        f"{tmp_path}/a.csv:3: 1 cells in a table of 2 columns (49 more like this)",
        f"{tmp_path}/b.csv: the last 4,096 bytes are zeros, as if they were not written yet, and were not read",
    ]
