"""Values of logs as events: the loss per core, epochs, pace, and what the console may add."""

from __future__ import annotations

import math

import pytest

from tputui.logs import value_events
from tputui.logs.rows import LoggedValue
from tputui.logs.tags import TagRule
from tputui.logs.value_events import ValueEvents
from tputui.telemetry import events as ev
from tputui.telemetry import float_blocks
from tputui.telemetry.logged_values import CONSOLE, unpack

T0 = 1_790_000_000.0


def value(tag: str, step: int | None, number: float, epoch: float | None = None, t: float | None = None) -> LoggedValue:
    return LoggedValue(tag, step, t, number, epoch)


def events_of(values: list[LoggedValue], source: str = "a.csv", rule: TagRule | None = None) -> list[ev.Event]:
    gathered = ValueEvents(rule)
    gathered.take(source, values, T0)
    return gathered.events(T0, final=True)


def rows(events: list[ev.Event]) -> list[tuple[int, list[float]]]:
    """Every recorded step: its number, and the loss of each core."""
    found = []
    for event in events:
        if isinstance(event, ev.StepsRecorded):
            values = float_blocks.unpack(event.block, event.n * event.cores).tolist()
            found += [
                (event.first + row, values[row * event.cores :][: event.cores]) for row in range(event.n)
            ]  # fmt: skip
    return found


def logged(events: list[ev.Event]) -> list[ev.ValuesLogged]:
    return [event for event in events if isinstance(event, ev.ValuesLogged)]


def test_loss_of_cores_in_any_order_becomes_steps_of_all_cores() -> None:
    values = [value(f"loss_rank{core}", step, step + core / 8) for step in (1, 2, 3) for core in (2, 0, 1)]
    events = events_of(values)
    (declared,) = [event for event in events if isinstance(event, ev.TopologyDeclared)]
    assert (declared.num_cores, declared.cores) == (3, [0, 1, 2])
    assert rows(events) == [(step, [step, step + 1 / 8, step + 2 / 8]) for step in (1, 2, 3)]
    assert not logged(events)


def test_cores_may_log_to_files_that_are_read_one_after_the_other() -> None:
    steps = range(1, 50_001)
    gathered = ValueEvents()
    found = []
    for core in range(3):
        gathered.take(f"rank{core}.csv", [value(f"loss/core{core}", step, core) for step in steps], T0)
        found += gathered.events(T0 + core / 4)
    assert rows(found) == []
    found += gathered.events(T0 + 1.5)
    assert rows(found) == [(step, [0.0, 1.0, 2.0]) for step in steps]


def declared(events: list[ev.Event]) -> list[list[int]]:
    return [event.cores for event in events if isinstance(event, ev.TopologyDeclared)]


def test_cores_that_log_late_are_waited_for_until_all_that_are_known_have_a_value_or_for_five_seconds() -> None:
    gathered = ValueEvents()
    gathered.expect_cores(8)
    gathered.take("a", [value(f"loss/core{core}", 1, core) for core in range(3)], T0)
    early = [*gathered.events(T0), *gathered.events(T0 + 4.5)]
    gathered.take("a", [value(f"loss/core{core}", 1, core) for core in range(3, 8)], T0 + 4.6)
    whole = gathered.events(T0 + 4.6)
    assert declared(early) == []
    assert rows(early) == []
    assert declared(whole) == [list(range(8))]
    assert rows(whole) == [(1, [float(core) for core in range(8)])]

    # A gap in the numbers shows that a core is missing, too.
    for num_expected, cores in ((8, [0, 1, 2]), (0, [0, 1, 3])):
        gathered = ValueEvents()
        gathered.expect_cores(num_expected)
        gathered.take("a", [value(f"loss/core{core}", 1, core) for core in cores], T0)
        assert declared([*gathered.events(T0), *gathered.events(T0 + 4.9)]) == []
        assert declared(gathered.events(T0 + 5.1)) == [cores]


def test_steps_that_not_every_core_logs_are_warned_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_events, "WAITING_MAX", 3)
    gathered = ValueEvents()
    found = []
    for number, first in enumerate((1, 10, 20)):
        gathered.take("a", [value(f"loss/core{core}", first, 1.0) for core in (0, 1)], T0)
        gathered.take("a", [value("loss/core0", first + step, 1.0) for step in range(1, 6)], T0)
        found += gathered.events(T0 + number)
    assert [event.text for event in found if isinstance(event, ev.WarningRaised)] == [
        "some steps of the loss are left out, because not every core logged a value for them"
    ]


def test_steps_beyond_64_bits_are_left_out() -> None:
    events = events_of([value("loss", step, 0.5) for step in (-(2**63), 1, 2**63, 2**70, 2)])
    assert [step for step, _ in rows(events)] == [1, 2]
    assert [event.n for event in logged(events)] == [2]


def test_core_that_appears_later_is_declared_anew() -> None:
    gathered = ValueEvents()
    gathered.take("a", [value("loss/core0", step, 1.0) for step in (1, 2)], T0)
    first = [*gathered.events(T0), *gathered.events(T0 + 1)]
    gathered.take("a", [value(f"loss/core{core}", 3, 0.5) for core in (0, 1)], T0 + 1)
    second = [*gathered.events(T0 + 2), *gathered.events(T0 + 3)]
    assert rows(first) == [(1, [1.0]), (2, [1.0])]
    assert rows(second) == [(3, [0.5, 0.5])]
    assert [event.num_cores for event in (*first, *second) if isinstance(event, ev.TopologyDeclared)] == [1, 2]


def test_single_loss_is_recorded_exactly_and_as_steps() -> None:
    events = events_of([value("train/loss", step, 1 / step) for step in (10, 20, 21)])
    (event,) = logged(events)
    assert (event.name, event.split, event.tag) == ("loss", "train", "train/loss")
    assert list(unpack(event).values) == [1 / 10, 1 / 20, 1 / 21]
    assert [step for step, _ in rows(events)] == [10, 20, 21]


def test_values_without_steps_are_counted() -> None:
    events = events_of([value("loss", None, 1.0, epoch) for epoch in (0, 1, 2)])
    assert [step for step, _ in rows(events)] == [1, 2, 3]


def test_nan_loss_is_recorded_as_it_is() -> None:
    ((step, (loss,)),) = rows(events_of([value("loss", 1, math.nan)]))
    assert step == 1
    assert math.isnan(loss)


def test_an_epoch_that_is_logged_without_a_step_ends_at_the_step_before_it() -> None:
    values = []
    for epoch in (1, 2, 3):
        values += [value("loss", step, 1.0) for step in range(10 * epoch - 9, 10 * epoch + 1)]
        values.append(value("valid/loss", None, 1 / epoch, epoch))
    ended = [event for event in events_of(values) if isinstance(event, ev.EpochEnded)]
    assert [event.epoch for event in ended] == [1, 2, 3]
    assert ended[-1].step == 30, "not the number of the epoch"


@pytest.mark.parametrize(("last_step", "epochs"), [(30, [1, 2, 3]), (29, [1, 2])])
def test_last_epoch_of_a_log_is_listed_if_it_has_all_steps(last_step: int, epochs: list[int]) -> None:
    values = [value("loss", step, 1.0, (step - 1) // 10 + 1) for step in range(1, last_step + 1)]
    ended = [event for event in events_of(values) if isinstance(event, ev.EpochEnded)]
    assert [event.epoch for event in ended] == epochs
    assert ended[-1].step == 10 * len(epochs)


def test_epochs_counted_from_zero_and_fractions_become_epochs_from_one() -> None:
    whole = events_of([value("loss", 5, 1.0, 0), value("val_loss", 5, 0.9, 0), value("loss", 10, 0.5, 1)])
    halves = [value("loss", 5 * half, 1.0, half / 2) for half in (1, 2, 3)]
    parts = events_of([*halves[:2], value("eval_loss", 10, 0.9, 1.0), halves[2]])
    for events, last in ((whole, 5), (parts, 10)):
        assert [event.epoch for event in events if isinstance(event, ev.EpochStarted)] == [1, 2]
        (ended,) = [event for event in events if isinstance(event, ev.EpochEnded)]
        assert (ended.epoch, ended.step, ended.figure("loss"), ended.best) == (1, last, 0.9, True)


def test_evaluation_before_training_is_no_epoch() -> None:
    values = [value("eval_loss", 0, 2.0, 0)]
    for epoch in range(1, 31):
        values += [value("loss", 10 * epoch, 1.0, epoch), value("eval_loss", 10 * epoch, 1 / epoch, epoch)]
    ended = [event for event in events_of(values) if isinstance(event, ev.EpochEnded)]
    assert [event.epoch for event in ended] == list(range(1, 31))
    assert ended[0].figure("loss") == 1.0
    both = [value("val_loss", 0, 0.9, 0), value("loss", 0, 1.0, 0), value("val_loss", 1, 0.8, 1)]
    (first, second) = [event for event in events_of(both) if isinstance(event, ev.EpochEnded)]
    assert (first.epoch, first.figure("loss"), second.epoch, second.figure("loss")) == (1, 0.9, 2, 0.8)


def test_step_time_comes_from_wall_times() -> None:
    gathered = ValueEvents()
    for step in range(1, 5):
        gathered.take("a", [value("loss", step, 1.0, t=T0 + 0.5 * step), value("lr", step, 0.125)], T0 + 9)
        events = gathered.events(T0 + 9)
        progress = [event for event in events if isinstance(event, ev.ProgressReported)]
        assert [(each.step, each.step_s, each.lr) for each in progress] == ([(3, 0.5, 0.125)] if step == 3 else [])


def test_console_adds_only_metrics_that_no_file_has() -> None:
    gathered = ValueEvents()
    gathered.take("a.csv", [value("loss", 1, 0.123456)], T0)
    gathered.take(CONSOLE, [value("loss", 1, 0.12), value("accuracy", 1, 0.5)], T0)
    assert [(event.name, event.source) for event in logged(gathered.events(T0))] == [
        ("loss", "a.csv"),
        ("accuracy", CONSOLE),
    ]


def test_printed_number_with_the_name_of_a_secret_is_no_metric() -> None:
    printed = [
        value("loss", 1, 0.5),
        value("db_password", 1, 73510284.0),
        value("key", 1, 2.0),
        value("tokens", 1, 64.0),
    ]
    found = logged(events_of(printed, CONSOLE))
    assert sorted(event.name for event in found) == ["key", "loss", "tokens"]


def test_file_that_appears_after_the_console_is_shown_beside_it_and_not_spliced() -> None:
    gathered = ValueEvents()
    gathered.take(CONSOLE, [value("loss", step, 1 / step) for step in range(1, 11)], T0)
    first = gathered.events(T0)
    gathered.take("a.csv", [value("loss", 5, 0.5), value("loss", 10, 0.25)], T0)
    gathered.take(CONSOLE, [value("loss", 11, 1 / 11)], T0)
    second = gathered.events(T0, final=True)
    assert [step for step, _ in (*rows(first), *rows(second))] == [*range(1, 12)]
    assert [(event.name, event.source, event.n) for event in logged(second)] == [
        ("loss", CONSOLE, 1),
        ("loss (a.csv)", "a.csv", 2),
    ]


def test_the_loss_is_that_of_the_file_if_it_has_at_least_as_many_values() -> None:
    gathered = ValueEvents()
    gathered.take(CONSOLE, [value("loss", 10, 0.5)], T0)
    gathered.take("a.csv", [value("loss", step, 1 / step) for step in (5, 10)], T0)
    events = gathered.events(T0, final=True)
    assert [step for step, _ in rows(events)] == [5, 10]
    assert {(event.name, event.source) for event in logged(events)} == {("loss (a.csv)", "a.csv"), ("loss", CONSOLE)}


def test_values_that_are_printed_and_logged_are_shown_once_whatever_their_names() -> None:
    gathered = ValueEvents()
    for epoch in (1, 2, 3):
        printed = [value("loss", step, 1 / step, epoch) for step in range(10 * epoch - 9, 10 * epoch + 1)]
        printed.append(value("valid/acc@1", 10 * epoch, round(0.512345 + epoch / 10, 3), epoch))
        gathered.take(CONSOLE, printed, T0)
        row = {"train_loss": 1 / epoch - 0.1, "eval_top1": 0.512345 + epoch / 10, "lr": epoch / 8}
        gathered.take("summary.csv", [value(tag, None, number, epoch - 1) for tag, number in row.items()], T0)
    events = gathered.events(T0, final=True)
    found = {(event.split, event.name): list(unpack(event).steps) for event in logged(events)}
    ends = [10, 20, 30]
    assert found == {
        ("train", "loss"): [*range(1, 31)],
        ("valid", "acc@1"): ends,
        ("train", "train_loss"): ends,
        ("train", "lr"): ends,
    }
    assert [event.epoch for event in events if isinstance(event, ev.EpochEnded)] == [1, 2, 3]


def test_results_that_are_printed_at_steps_and_logged_by_epochs_are_shown_once() -> None:
    gathered = ValueEvents()
    gathered.place_by(lambda t, evaluates: (4 * int(t - T0), int(t - T0), range(1, 4)))
    events = []
    for epoch in (1, 2, 3):
        accuracy = 0.512345 + epoch / 10
        t = T0 + epoch
        gathered.take(CONSOLE, [value("valid/accuracy", None, round(accuracy, 4), epoch, t)], t)
        gathered.take("events", [value("Test/Accuracy", epoch, accuracy, None, t)], t)
        events += gathered.events(t)
    events += gathered.events(T0 + 4, final=True)
    assert {event.name for event in logged(events)} == {"Test/Accuracy"}
    ended = {(event.epoch, *event.valid) for event in events if isinstance(event, ev.EpochEnded)}
    assert ended == {(1, "Test/Accuracy"), (2, "Test/Accuracy"), (3, "Test/Accuracy")}


@pytest.mark.parametrize("is_printed_first", [True, False])
def test_rewards_that_are_logged_by_steps_of_the_environment_are_shown_once_and_exactly(is_printed_first: bool) -> None:
    gathered = ValueEvents()
    gathered.place_by(lambda t, evaluates: (80 * int(t - T0), 0, range(0)))
    events = []
    for number, reward in enumerate((112.0, 171.4, 468.6), 1):
        t, step = T0 + number, 2000 * number
        sources = [
            (CONSOLE, [value("eval/mean_reward", step, float(round(reward)), None, t)]),
            ("events", [value("eval/mean_reward", step, reward, None, t)]),
        ]
        for source, values in sources if is_printed_first else reversed(sources):
            gathered.take(source, values, t)
        events += gathered.events(t)
    events += gathered.events(T0 + 10, final=True)
    columns = map(unpack, logged(events))
    rows_shown = [row for column in columns for row in zip(column.steps, column.values, strict=True)]
    assert rows_shown == [(2000, 112.0), (4000, 171.4), (6000, 468.6)]
    assert {event.source for event in logged(events)} == {"events"}


def test_results_that_are_printed_together_are_those_of_their_epochs() -> None:
    gathered = ValueEvents()
    gathered.place_by(lambda t, evaluates: (4 * int(t - T0), int(t - T0), range(1, 4)))
    for epoch in (1, 2, 3):
        t = T0 + epoch
        printed = {"valid/loss": 1 / epoch, "valid/accuracy": epoch / 4}
        gathered.take(CONSOLE, [value(tag, None, number, epoch, t) for tag, number in printed.items()], t)
    events = gathered.events(T0 + 4, final=True)
    ended = {event.epoch: {*event.valid} for event in events if isinstance(event, ev.EpochEnded)}
    assert ended == {epoch: {"loss", "accuracy"} for epoch in (1, 2, 3)}


def test_losses_are_read_however_many_metrics_come_first_and_the_others_are_counted() -> None:
    names = [f"layer{number}/grad_norm" for number in range(9_000)]
    later = ["loss", "valid_loss", "valid/acc", "loss/core0", "loss/core1", "actor/loss"]
    events = events_of([value(name, 1, 0.5) for name in [*names, *later, *names]])
    known = {event.tag for event in logged(events)}
    assert {"valid_loss", "valid/acc", "actor/loss"} <= known
    assert rows(events) == [(1, [0.5, 0.5])]
    (warning,) = [event.text for event in events if isinstance(event, ev.WarningRaised)]
    assert warning == "a.csv: too many metrics; 808 are left out: layer8192/grad_norm and others"
    mine = events_of([value(name, 1, 0.5) for name in [*names, "objective"]], rule=TagRule(loss="objective"))
    assert rows(mine) == [(1, [0.5])]


def test_loss_beyond_float32_stays_finite_and_exact() -> None:
    losses = [0.5, 1e308, -1e308, 3.5e38, 0.25]
    events = events_of([value("loss", step, loss) for step, loss in enumerate(losses, 1)])
    steps = [event for event in events if isinstance(event, ev.StepsRecorded)]
    assert [(event.first, event.n, event.mean, event.min, event.max, event.bad) for event in steps] == [
        (step, 1, loss, loss, loss, 0) for step, loss in enumerate(losses, 1)
    ]
    assert not any(isinstance(event, ev.WarningRaised) for event in events)
    events = events_of([value(f"loss/core{core}", 1, loss) for core, loss in enumerate(losses)])
    (step,) = [event for event in events if isinstance(event, ev.StepsRecorded)]
    assert (step.min, step.max, step.bad) == (-1e308, 1e308, 0)
    assert all(map(math.isfinite, rows(events)[0][1]))
    (warning,) = [event.text for event in events if isinstance(event, ev.WarningRaised)]
    assert "a loss of a core is beyond float32" in warning


def test_loss_has_every_step_of_a_log_also_negative_ones() -> None:
    steps = [2**31 - 2, 2**31 - 1, -(2**31), 1 - 2**31]
    assert rows(events_of([value("loss", step, 0.5) for step in steps])) == [(step, [0.5]) for step in steps]


def test_user_names_the_loss() -> None:
    events = events_of([value("loss", 1, 1.0), value("objective", 1, 2.0)], rule=TagRule(loss="objective"))
    assert rows(events) == [(1, [2.0])]
    assert {event.name for event in logged(events)} == {"loss", "objective"}


def test_log_that_is_written_with_checkpoints_adds_only_metrics_that_are_not_printed() -> None:
    gathered = ValueEvents()
    gathered.take(CONSOLE, [value("loss", 5, 0.693)], T0)
    gathered.take("out/trainer_state.json", [value("loss", 5, 0.69314), value("lr", 5, 0.1)], T0, is_late=True)
    gathered.take(CONSOLE, [value("loss", 10, 0.5)], T0)

    events = gathered.events(T0, final=True)
    found = [(event.tag, event.source, list(unpack(event).values)) for event in logged(events)]
    assert found == [("loss", CONSOLE, [0.693, 0.5]), ("lr", "out/trainer_state.json", [0.1])]
    assert [step for step, _ in rows(events)] == [5, 10]


def test_a_metric_that_was_first_read_from_such_a_log_is_not_taken_from_the_console_too() -> None:
    gathered = ValueEvents()
    late = "out/trainer_state.json"
    gathered.take(late, [value("eval_loss", 20, 0.5)], T0, is_late=True)
    gathered.take(CONSOLE, [value("eval_loss", 20, 0.5), value("eval_loss", 40, 0.4)], T0)
    gathered.take(late, [value("eval_loss", 40, 0.4)], T0, is_late=True)

    found = [(event.source, list(unpack(event).values)) for event in logged(gathered.events(T0, final=True))]
    assert found == [(late, [0.5, 0.4])]


def ended(values: list[LoggedValue]) -> list[ev.EpochEnded]:
    return [event for event in events_of(values) if isinstance(event, ev.EpochEnded)]


def test_every_epoch_has_its_own_learning_rate_though_all_are_read_at_once() -> None:
    rates = {1: 0.1, 2: 0.05, 3: 0.025}
    values = [
        LoggedValue(tag, epoch * 10, None, value, float(epoch))
        for epoch, rate in rates.items()
        for tag, value in (("loss", 1.0), ("lr", rate), ("val_loss", 2.0))
    ]
    assert {event.epoch: event.lr for event in ended(values)} == rates


def test_a_scalar_named_epoch_gives_epochs_and_is_no_metric() -> None:
    values = []
    for epoch in range(3):
        for step in range(10 * epoch, 10 * epoch + 10):
            values += [value("train_loss", step, 1 / (step + 1)), value("epoch", step, epoch)]
        values += [value("val_loss", 10 * epoch + 9, 1.5 / (epoch + 1)), value("epoch", 10 * epoch + 9, epoch)]
    assert [(event.epoch, event.step, event.figure("loss"), event.best) for event in ended(values)] == [
        (1, 9, 1.5, True),
        (2, 19, 0.75, True),
        (3, 29, 0.5, True),
    ]
    assert {event.name for event in logged(events_of(values))} == {"loss"}


def test_the_row_of_a_test_after_training_begins_no_epoch() -> None:
    values = []
    for epoch in range(3):
        values += [value("train_loss", 10 * epoch + 9, 1.0, epoch), value("val_loss", 10 * epoch + 9, 0.5, epoch)]
    values.append(value("test_loss", 30, 0.6, 3))
    assert [event.epoch for event in ended(values)] == [1, 2, 3]
    of_each = [value(tag, None, 1.0, epoch) for epoch in range(3) for tag in ("test_loss", "train_loss")]
    assert [(event.epoch, event.figure("test_loss")) for event in ended(of_each)] == [(1, 1.0), (2, 1.0), (3, 1.0)]


def test_a_log_that_begins_in_its_second_epoch_has_the_true_numbers() -> None:
    from_0 = [value("loss", step, 1.0, step // 32) for step in range(49, 320, 50)]
    from_1 = [value("loss", step, 1.0, (step - 1) // 32 + 1) for step in range(50, 320, 50)]
    for values in (from_0, from_1):
        started = [event.epoch for event in events_of(values) if isinstance(event, ev.EpochStarted)]
        assert started == [2, 4, 5, 7, 8, 10]


def test_the_table_of_epochs_has_the_means_of_training_and_the_best_by_the_main_result() -> None:
    values = []
    for epoch, result in ((1, 0.2), (2, 0.4), (3, 0.3)):
        values += [value("train/box_loss", 10 * epoch - half, epoch + half, epoch) for half in (1, 0)]
        values += [value("lr", 10 * epoch, 0.1, epoch), value("val/box_loss", 10 * epoch, epoch, epoch)]
        values += [value("metrics/mAP50(B)", 10 * epoch, 1 - result, epoch)]
        values += [value("metrics/mAP50-95(B)", 10 * epoch, result, epoch)]
    epochs = ended(values)
    assert [{name: reading.avg for name, reading in event.train.items()} for event in epochs] == [
        {"box_loss": epoch + 0.5} for epoch in (1, 2, 3)
    ]
    assert [(event.best, event.monitor) for event in epochs] == [
        (True, "metrics/mAP50-95(B)"),
        (True, "metrics/mAP50-95(B)"),
        (False, "metrics/mAP50-95(B)"),
    ]


def test_totals_and_shares_are_no_metrics() -> None:
    values = [value("loss", 20, 0.5), value("total_steps", 20, 200), value("percentage", 20, 10)]
    events = events_of(values)
    (plan,) = [event for event in events if isinstance(event, ev.TrainingPlanned)]
    assert (plan.num_steps, plan.num_epochs) == (200, 0)
    assert {event.name for event in logged(events)} == {"loss"}
    gathered = ValueEvents()
    gathered.take_config({"max_steps": 61, "num_train_epochs": 3, "batch_size": 8})
    (plan,) = [event for event in gathered.events(T0) if isinstance(event, ev.TrainingPlanned)]
    assert (plan.num_steps, plan.num_epochs) == (61, 3)


def test_losses_of_parts_are_not_the_loss_of_training() -> None:
    values = [value(tag, 1, 1.0) for tag in ("losses/value_loss", "losses/policy_loss", "loss/approxkl")]
    assert rows(events_of(values)) == []
    assert rows(events_of([value("losses/value_loss", 1, 1.0)])) == [(1, [1.0])]


def test_values_of_a_log_without_steps_are_only_counted() -> None:
    stepless = [value("loss", None, 1.0, epoch) for epoch in (1, 2)]
    assert [event.counted for event in logged(events_of(stepless))] == [True]
    assert [event.counted for event in logged(events_of([*stepless, value("acc", 3, 1.0)]))] == [False, False]


def placed_by_steps(gathered: ValueEvents) -> None:
    """A process reports, which knows of no epochs; its step is the time."""
    gathered.place_by(lambda t, evaluates: (int(t - T0), 0, range(1, 1)))


def test_losses_that_are_printed_before_the_process_reports_its_first_one_are_shown_once() -> None:
    gathered = ValueEvents()
    placed_by_steps(gathered)
    gathered.take(CONSOLE, [value("loss/core0", 0, 2.3063)], T0)
    # The second step compiles.
    events = gathered.events(T0) + gathered.events(T0 + 60)
    gathered.take_reported("loss", 1, [2.306258, 2.295215])
    events += gathered.events(T0 + 61, final=True)
    assert logged(events) == []


def test_value_of_few_digits_is_that_of_the_same_name_only() -> None:
    gathered = ValueEvents()
    placed_by_steps(gathered)
    gathered.take_reported("valid/loss", 8, [0.042756])
    gathered.take(CONSOLE, [value("val_loss", None, 0.043), value("val_error", None, 0.043)], T0 + 8)
    assert [event.name for event in logged(gathered.events(T0 + 8, final=True))] == ["error"]


def test_mean_loss_of_an_epoch_that_is_printed_is_that_of_the_process() -> None:
    gathered = ValueEvents()
    placed_by_steps(gathered)
    gathered.take_reported("loss", 1, [1.0, 0.5])
    gathered.take_reported("loss", 2, [0.75])
    gathered.take_reported("valid/loss", 2, [0.6])
    gathered.take(CONSOLE, [value("train_loss", None, 0.75), value("test_loss", None, 0.6)], T0 + 2)
    assert logged(gathered.events(T0 + 2, final=True)) == []


def test_log_that_is_written_with_checkpoints_adds_nothing_that_the_process_reports() -> None:
    gathered = ValueEvents()
    placed_by_steps(gathered)
    gathered.take_reported("train_runtime", 20, [1.5])
    rows_of_log = [value("train_runtime", 20, 1.5), value("total_flos", 20, 3.0)]
    gathered.take("out/trainer_state.json", rows_of_log, T0 + 20, is_late=True)
    assert [event.name for event in logged(gathered.events(T0 + 20, final=True))] == ["total_flos"]


def test_epochs_are_those_that_are_printed_if_the_process_knows_of_none() -> None:
    gathered = ValueEvents()
    placed_by_steps(gathered)
    for epoch in (0, 1, 2):
        gathered.take(CONSOLE, [value("valid_loss", None, 1 / (epoch + 1), epoch)], T0 + 10 * (epoch + 1))
    events = gathered.events(T0 + 30, final=True)
    ended = [(event.epoch, event.step) for event in events if isinstance(event, ev.EpochEnded)]
    assert ended == [(1, 10), (2, 20), (3, 30)]


def test_error_of_catboost_in_its_file_of_the_evaluation_is_no_training_loss() -> None:
    gathered = ValueEvents()
    for name in ("learn", "test"):
        gathered.take(f"catboost_info/{name}_error.tsv", [value("Logloss", step, 0.5) for step in range(3)], T0)
    splits = {event.source: event.split for event in logged(gathered.events(T0, final=True))}
    assert splits == {"catboost_info/learn_error.tsv": "train", "catboost_info/test_error.tsv": "valid"}
