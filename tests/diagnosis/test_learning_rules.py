"""Verdicts on learning: none on healthy curves, and the right one on curves of trainings with a fault."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from tests.diagnosis import curves, learning_corpus
from tests.diagnosis.curves import Training
from tests.diagnosis.runs import by_rule
from tests.diagnosis.smallest_curves import SMALLEST
from tputui.compare.compare import compare
from tputui.diagnosis.curve import Curve
from tputui.diagnosis.diagnose import RecentVerdicts, diagnose, verdict_tests
from tputui.diagnosis.learning_rules import learning_verdicts
from tputui.diagnosis.verdict import LearningRule, Verdict, found
from tputui.state import conditions
from tputui.state.snapshot import PlanView
from tputui.text import verdict_lines

SEEDS = range(3)


def verdicts_on(run: Training) -> tuple[Verdict, ...]:
    return found(learning_verdicts(curves.snapshot(run)))


def alarms(runs: Sequence[Training]) -> list[tuple[str, str]]:
    return [(run.name, verdict.text) for run in runs for verdict in verdicts_on(run)]


def missed(runs: Sequence[Training]) -> list[str]:
    return [
        run.name
        for run in runs
        if not any({*verdict.rules} & {*run.fault.split()} for verdict in verdicts_on(run))
    ]  # fmt: skip


def test_healthy_trainings_raise_no_alarm() -> None:
    healthy = [run for run in curves.recorded() if not run.fault]
    healthy += learning_corpus.made(learning_corpus.HEALTHY, SEEDS)
    assert len(healthy) >= 40
    assert alarms(healthy) == []


def test_nineteen_of_twenty_faults_are_found() -> None:
    real = [run for run in curves.recorded() if run.fault]
    faulty = real + learning_corpus.made(learning_corpus.FAULTY, SEEDS)
    assert len(faulty) >= 60
    assert len(real) >= len(faulty) / 3
    assert len(missed(faulty)) <= 0.05 * len(faulty), missed(faulty)


@pytest.mark.parametrize("factor", [1e-4, 1e4])
def test_the_unit_of_the_loss_changes_no_verdict(factor: float) -> None:
    def in_unit(kinds: Sequence[object]) -> list[Training]:
        made = learning_corpus.made(tuple(kinds), range(1))  # type: ignore[arg-type]
        return [learning_corpus.scaled(run, factor) for run in made if run.fault != "guessing"]

    assert alarms(in_unit(learning_corpus.HEALTHY)) == []
    assert missed(in_unit(learning_corpus.FAULTY)) == []


@pytest.mark.parametrize("count", [20, 100, 100_000])
def test_a_falling_loss_raises_no_alarm_at_any_length(count: int) -> None:
    rng = random.Random(count)
    loss = [0.3 + 2 * math.exp(-5 * at / count) + rng.gauss(0, 0.1) for at in range(count)]
    assert alarms([Training("falls", "", loss, lr=[1e-3])]) == []


def test_noise_is_that_of_the_curve_without_its_trend_and_jumps() -> None:
    rng = random.Random(0)
    values = [5 - 0.01 * at + (3 if at > 500 else 0) + rng.gauss(0, 0.2) for at in range(1000)]
    assert Curve(range(1000), values).noise == pytest.approx(0.2, rel=0.15)


def test_cores_that_have_learned_all_are_not_apart_however_their_losses_near_zero_compare() -> None:
    # Each core trains weights of its own; those of the second end a little further from zero.
    rows = [
        [math.exp(-at / 8) + 1e-5 * ((at + core) % 3) + 3e-4 * (core == 1) for core in range(4)] for at in range(120)
    ]
    rules = [verdict.rule for verdict in verdicts_on(Training("zero", "", [], cores=rows, lr=[0.1]))]
    assert "core_loss" not in rules


def test_overfitting_says_since_when_by_how_much_and_what_to_keep() -> None:
    loss = [2.0 * 0.995**at + 0.01 * (at % 2) for at in range(1200)]
    valid = [1.5, 1.1, 0.8, 0.85, 0.95, 1.05, 1.15, 1.2, 1.3, 1.38, 1.45, 1.5]
    run = Training("overfits", "overfitting", loss, epoch_steps=100, valid=valid, lr=[1e-3])
    (verdict,) = verdicts_on(run)
    assert (verdict.rule, verdict.since_epoch, verdict.since_step) == ("overfitting", 3, 300)
    assert verdict.text == "validation gets worse since epoch 3 while training gets better"
    printed = "\n".join(verdict_lines.blocks([verdict]))
    assert printed.startswith("overfitting     since epoch 3")
    assert "valid loss 0.8000 at epoch 3, now" in printed
    assert "keep the best checkpoint" in printed


def test_a_loss_at_the_entropy_of_the_labels_is_that_of_guessing() -> None:
    rng = random.Random(2)
    rare = curves.snapshot(Training("rare", "guessing", [0.1985 + rng.gauss(0, 0.01) for _ in range(400)], lr=[0.1]))
    assert found(learning_verdicts(rare)) == (), "the value means nothing by itself"
    plan = PlanView(
        t=0.0, task="tabular", num_epochs=1, steps_per_epoch=400, valid_steps=1, first_step=1, batch_per_core=8,
        global_batch=8, train_examples=3200, valid_examples=8, num_parameters=9, precision="fp32", lr=0.1, lr_rule="",
        total_steps=400, guess_loss=-0.95 * math.log(0.95) - 0.05 * math.log(0.05),
    )  # fmt: skip
    (verdict,) = found(learning_verdicts(replace(rare, plan=plan)))
    assert verdict.text == "the train loss stays at 0.1985, that of guessing (the entropy of the label frequencies)"


def test_a_short_run_has_no_answer_yet() -> None:
    run = Training("short", "", [2.0, 1.9, 1.8], lr=[1e-3], epoch_steps=1, valid=[2.0])
    (verdict,) = by_rule(diagnose(curves.snapshot(run)), "plateau", "not enough data yet")
    assert verdict.text == "3 of the 20 values of the training loss that it needs"


@pytest.mark.parametrize("rule", SMALLEST)
def test_the_curve_on_the_page_shows_its_rule_and_no_other(rule: LearningRule) -> None:
    assert [verdict.rule for verdict in verdicts_on(SMALLEST[rule])] == [rule]


def test_one_cause_has_one_verdict() -> None:
    run = learning_corpus.frozen(random.Random(1))
    (verdict,) = verdicts_on(run)
    assert verdict.rule == "learning_rate"
    assert "constant_metric" in verdict.joined


def test_a_verdict_is_a_condition_of_alerts() -> None:
    snapshot = curves.snapshot(learning_corpus.overfits(random.Random(1)))
    assert conditions.parse("overfitting", verdict_tests()).holds(snapshot)
    assert not conditions.parse("divergence or plateau", verdict_tests()).holds(snapshot)
    with pytest.raises(conditions.InvalidCondition, match="neither a state"):
        conditions.parse("overfit", verdict_tests())


def test_curves_are_judged_again_only_after_a_new_value() -> None:
    recent, run = RecentVerdicts(), learning_corpus.jumped(random.Random(1))
    before = curves.snapshot(run._replace(loss=run.loss[:500]))
    first, now = recent.learning(before), curves.snapshot(run)
    assert found(first) == ()
    assert recent.learning(replace(before, now=before.now + 60, troubles=["a host is gone"])) is first
    assert [verdict.rule for verdict in found(recent.learning(now))] == ["divergence"]
    compared = compare([before, now], recent=[RecentVerdicts(), recent])
    assert compared == compare([before, now])
    assert "the loss diverges" in compared.runs[1].learning[0]


def test_a_training_that_is_in_vain_is_named_at_the_end() -> None:
    run = learning_corpus.no_rate(random.Random(1))
    (line,) = verdict_lines.worst(diagnose(curves.snapshot(run)))
    assert line == "learning: learning rate: the learning rate is 0 from the first step on, so nothing is learned"
