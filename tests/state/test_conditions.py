"""Conditions on a run in words."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ui import made, measured
from tputui.state import conditions
from tputui.state.conditions import InvalidCondition, parse


def holds(text: str, **changes: object) -> bool:
    return parse(text).holds(made.changed(measured.running(), **changes))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("running", True),
        ("ended", False),
        ("not ended", True),
        ("ended or RUNNING", True),
        ("running and ended", False),
        ("ended and ended or running", True),
        ("ended and (ended or running)", False),
        ("not (ended or stalled)", True),
        ("valid.accuracy > 0.99 or valid.accuracy <= 0.99", True),
        ("nothing > 0", False),
        ("not nothing > 0", True),
        ("step >= 1", True),
        ("epoch=0", False),
        ("elapsed > 0.5s and elapsed < 10d", True),
    ],
)
def test_condition_holds_for_a_running_run(text: str, *, expected: bool) -> None:
    assert holds(text) is expected


def test_values_are_those_of_the_metric_curves() -> None:
    run = measured.running()
    last = run.epochs[-1]
    assert conditions.value("valid.auc", run) == last.scores["auc"]
    assert conditions.value("auc", run) == last.scores["auc"]
    assert conditions.value("train.loss", run) == run.newest_loss
    assert conditions.value("loss", run) == run.newest_loss
    assert conditions.value("valid.accuracy", run) == last.valid["accuracy"].avg
    assert conditions.value("step", run) == run.steps


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("valid.accuracy > 0.5 or step > 3 or elapsed > 1s or failed", ""),
        ("los > 3", "no metric los yet (did you mean loss?); there are "),
        ("valid.acuracy > 3", "no metric valid.acuracy yet (did you mean valid.accuracy?); there are "),
        ("bleu > 3 and not chrf < 1", "no metric bleu yet, no metric chrf yet; there are "),
        ("valid.throughput > 3", "no value of valid.throughput yet; there are "),
        ("train.auc > 3", "no value of train.auc yet; there are "),
    ],
)
def test_metrics_that_a_run_does_not_have_are_named(text: str, phrase: str) -> None:
    run = measured.running()
    found = conditions.missing_metrics(parse(text), run)
    assert found.startswith(phrase)
    assert bool(found) == bool(phrase)
    ended = conditions.missing_metrics(parse(text), made.changed(run, condition="done"))
    assert ended == found.replace(" yet", "")


def test_a_metric_that_may_come_with_the_first_epoch_is_not_named() -> None:
    first = made.changed(measured.running(), epochs=[], started=0.0, now=30.0)
    assert conditions.missing_metrics(parse("valid.bleu > 3"), first) == ""
    assert conditions.missing_metrics(parse("los > 3"), first).startswith("no metric los yet (did you mean loss?)")
    later = made.changed(first, now=120.0)
    assert conditions.missing_metrics(parse("valid.bleu > 3"), later).startswith("no metric valid.bleu yet; there are")


def test_nan_and_missing_values_fulfil_no_comparison() -> None:
    run = measured.running()
    last = run.epochs[-1]
    broken = msgspec.structs.replace(last, scores={"auc": math.nan})
    changed = made.changed(run, epochs=[*run.epochs[:-1], broken])
    assert not parse("auc < 1 or auc >= 1 or auc != 1").holds(changed)
    assert not parse("eta < 1h or eta >= 1h").holds(made.changed(run, eta_s=None))


def test_no_improvement_counts_epochs_since_the_best() -> None:
    run = measured.running()
    since = run.epochs[-1].epoch - measured.BEST
    assert since > 0
    assert parse(f"no improvement for {since} epochs").holds(run)
    assert not parse(f"no improvement for {since + 1} epochs").holds(run)
    assert not parse("no improvement for 1 epoch").holds(made.changed(run, epochs=[]))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the condition is empty"),
        ("finished", '"finished" is neither a state nor followed by a comparison'),
        ("loss < low", '"loss" is compared with "low", which is not a number'),
        ("loss <", "the condition ends where a number is expected"),
        ("loss < 1h", '"1h" is a duration, but "loss" is not'),
        ("!ended", '"!" is neither a state nor followed by a comparison'),
        ("ended!", 'unexpected "!" in "ended!"'),
        ("done failed", 'unexpected "failed" in "done failed"'),
        ("(done", 'a "(" is not closed'),
        ("no improvement for five epochs", 'needs a whole number of epochs, not "five"'),
        ("no idea", '"no" must be followed by "improvement for N epochs", not by "idea"'),
        ("not " * 50 + "done", "nested more than 32 deep"),
        ("done or " * 500 + "done", "longer than 1,000 characters"),
    ],
)
def test_invalid_condition_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(InvalidCondition, match=r".") as error:
        parse(text)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


@given(st.text(alphabet="()<>=! andornotloss.5hdone", max_size=60))
def test_any_text_is_a_condition_or_refused(text: str) -> None:
    try:
        condition = parse(text)
    except InvalidCondition:
        return
    assert condition.holds(measured.running()) in (True, False)
