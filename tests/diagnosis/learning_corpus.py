"""Curves made by functions with seeds: healthy trainings of many kinds, and faults, at other lengths and scales."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import accumulate
from statistics import fmean

from tests.diagnosis.curves import Training


def cosine(at: float) -> float:
    """Cosine schedule from 1 to 0."""
    return 0.5 * (1 + math.cos(math.pi * at))


def wander(rng: random.Random, count: int, step: float, pull: float = 0.02) -> list[float]:
    """A random walk that is pulled back to 0, such as the balance of two networks."""
    return list(accumulate(range(count), lambda at, _: at * (1 - pull) + rng.gauss(0, step), initial=0.0))[1:]


def over_epochs(loss: list[float], epochs: int, gap: float, rng: random.Random, noise: float) -> list[float]:
    """Validation of each epoch: the loss at its end with a relative gap."""
    width = len(loss) // epochs
    ends = [fmean(loss[max(0, (at + 1) * width - 20) : (at + 1) * width]) for at in range(epochs)]
    return [end * (1 + gap) * (1 + noise * rng.gauss(0, 1)) for end in ends]


def warmup_cosine(rng: random.Random) -> Training:
    count, warm = rng.choice([600, 2000, 6000]), 0.05
    lr = [1e-3 * (at / (warm * count) if at < warm * count else cosine((at - warm * count) / (count * (1 - warm))))
          for at in range(count)]  # fmt: skip
    lr[-1] = 0.0
    done = list(accumulate(lr))
    loss = [(0.25 + 2.05 * math.exp(-6 * sum_ / done[-1])) * math.exp(0.08 * rng.gauss(0, 1)) for sum_ in done]
    return Training(
        "warmup_cosine", "", loss, epoch_steps=count // 10, lr=lr, valid=over_epochs(loss, 10, 0.05, rng, 0.01)
    )


def step_decay(rng: random.Random) -> Training:
    loss, lr, level = [], [], 2.3
    for stage, floor in enumerate((1.0, 0.55, 0.4)):
        for at in range(1500):
            level += (floor - level) * (0.01 if at else 0.05)
            loss.append(level * math.exp(0.1 * rng.gauss(0, 1)))
            lr.append(0.1 * 0.1**stage)
    return Training("step_decay", "", loss, epoch_steps=150, lr=lr, valid=over_epochs(loss, 30, 0.1, rng, 0.02))


def language_model(rng: random.Random) -> Training:
    every, count = 100, 1000
    loss = [2.6 + 8.2 * (1 + at * every / 300) ** -0.45 + rng.gauss(0, 0.03) for at in range(count)]
    valid = [loss[at * 100 + 99] + 0.02 for at in range(10)]
    norm = [0.3 + 1.2 * math.exp(-at / 40) + 0.3 * at / count + abs(rng.gauss(0, 0.05)) for at in range(count)]
    return Training("language_model", "", loss, every=every, valid=valid, lr=[3e-4], metrics={"grad_norm": norm})


def gan(rng: random.Random) -> Training:
    swing = wander(rng, 4000, 0.03)
    loss = [abs(1.386 + one + rng.gauss(0, 0.08)) for one in swing]
    other = [abs(1.0 + 1.4 * (1 - math.exp(-at / 900)) - one + rng.gauss(0, 0.1)) for at, one in enumerate(swing)]
    if rng.random() < 0.5:
        return Training("gan", "", other, lr=[2e-4])
    return Training("gan", "", loss, lr=[2e-4], metrics={"g_loss": other})


def returns(rng: random.Random) -> Training:
    gain = [-150 + 320 / (1 + math.exp(-(at - 600) / 150)) + rng.gauss(0, 25) for at in range(1500)]
    loss = [0.4 + one + rng.gauss(0, 0.2) for one in wander(rng, 1500, 0.05)]
    return Training("returns", "", loss, lr=[3e-4], metrics={"episode_return": gain})


def small_batches(rng: random.Random) -> Training:
    count = rng.choice([800, 4000])
    loss = [(0.4 + 1.9 * math.exp(-8 * at / count)) * math.exp(0.5 * rng.gauss(0, 1)) for at in range(count)]
    return Training(
        "small_batches", "", loss, epoch_steps=count // 8, lr=[0.01], valid=over_epochs(loss, 8, 0.1, rng, 0.1)
    )


def flat_early(rng: random.Random) -> Training:
    loss = [1.386 - 1.0 / (1 + math.exp(-(at - 700) / 60)) + rng.gauss(0, 0.07) for at in range(1200)]
    return Training("flat_early", "", loss, lr=[2e-5], epoch_steps=400, valid=over_epochs(loss, 3, 0.05, rng, 0.02))


def early_stopped(rng: random.Random) -> Training:
    loss = [2.2 * math.exp(-at / 400) + 0.12 + abs(rng.gauss(0, 0.05)) for at in range(2000)]
    valid = [2.1 * math.exp(-at / 3) + 0.42 + (0.004 * max(0, at - 11)) + rng.gauss(0, 0.008) for at in range(20)]
    return Training("early_stopped", "", loss, epoch_steps=100, valid=valid, lr=[1e-3])


def few_epochs(rng: random.Random) -> Training:
    loss = [2.3 * math.exp(-at / 60) + 0.2 + abs(rng.gauss(0, 0.1)) for at in range(180)]
    return Training("few_epochs", "", loss, epoch_steps=60, valid=over_epochs(loss, 3, 0.1, rng, 0.02), lr=[1e-3])


def dropout(rng: random.Random) -> Training:
    loss = [4.6 * math.exp(-at / 500) + 1.1 + rng.gauss(0, 0.15) for at in range(3000)]
    valid = [4.0 * math.exp(-(at + 1) / 2.5) + 0.7 + rng.gauss(0, 0.01) for at in range(15)]
    return Training("dropout", "", loss, epoch_steps=200, valid=valid, lr=[1e-3])


def one_epoch(rng: random.Random) -> Training:
    loss = [0.45 + 0.24 * math.exp(-at / 40) - 0.01 * at / 3000 + rng.gauss(0, 0.02) for at in range(3000)]
    return Training("one_epoch", "", loss, epoch_steps=3000, lr=[1e-3])


def accumulation(rng: random.Random) -> Training:
    levels = [1.8 * math.exp(-(at // 8) / 80) + 0.5 for at in range(2400)]
    loss = [level * math.exp(0.3 * rng.gauss(0, 1)) for level in levels]
    return Training("accumulation", "", loss, lr=[5e-4], logged=True, valid=[2.0, 1.4, 1.0, 0.8, 0.7, 0.65])


def label_smoothing(rng: random.Random) -> Training:
    loss = [0.9 + 1.42 * math.exp(-at / 2500) + rng.gauss(0, 0.05) for at in range(4000)]
    valid = [0.1 + 2.1 * math.exp(-(at + 1) / 4) for at in range(20)]
    return Training("label_smoothing", "", loss, epoch_steps=200, valid=valid, lr=[0.01], config={"classes": 10})


def contrastive(rng: random.Random) -> Training:
    loss = [math.log(256) - 2.4 * (1 - math.exp(-at / 1800)) + rng.gauss(0, 0.05) for at in range(5000)]
    return Training("contrastive", "", loss, lr=[at / 500 * 1e-3 if at < 500 else 1e-3 for at in range(5000)])


def resumed(rng: random.Random) -> Training:
    loss = [0.35 + 0.15 * math.exp(-at / 15) + 0.05 * math.exp(-at / 900) + rng.gauss(0, 0.03) for at in range(1500)]
    return Training(
        "resumed", "", loss, first_step=9001, lr=[1e-4], epoch_steps=300, valid=over_epochs(loss, 5, 0.1, rng, 0.02)
    )


def to_zero(rng: random.Random) -> Training:
    loss = [math.exp(-at / 150 + 0.4 * rng.gauss(0, 1)) * 2.3 + 1e-6 for at in range(3000)]
    valid = [2.0 * math.exp(-at / 2) + 1.4e-5 * (1 + 0.2 * rng.gauss(0, 1)) for at in range(30)]
    return Training("to_zero", "", loss, epoch_steps=100, valid=valid, lr=[1e-3],
                    metrics={"grad_norm": [one**0.5 for one in loss[::10]]})  # fmt: skip


def saturated(rng: random.Random) -> Training:
    run = to_zero(rng)
    top = 100.0 if rng.random() < 0.5 else 1.0
    return run._replace(name="saturated", metrics={"valid.accuracy": [top] * 30, "lr_scale": [1.0] * 30})


def likelihood(rng: random.Random) -> Training:
    loss = [-1200 + 1900 * math.exp(-at / 300) + rng.gauss(0, 30) for at in range(2000)]
    return Training("likelihood", "", loss, epoch_steps=200, valid=over_epochs(loss, 10, 0.01, rng, 0.005), lr=[1e-3])


def diffusion(rng: random.Random) -> Training:
    loss = [(0.03 + 0.97 * math.exp(-at / 100)) * math.exp(0.3 * rng.gauss(0, 1)) for at in range(5000)]
    return Training("diffusion", "", loss, lr=[1e-4])


def restarts(rng: random.Random) -> Training:
    lr = [0.1 * cosine((at % 300) / 300) + 1e-4 for at in range(2400)]
    loss = [0.5 + 1.6 * math.exp(-at / 700) + 3 * lr[at] + rng.gauss(0, 0.05) for at in range(2400)]
    return Training("restarts", "", loss, epoch_steps=300, lr=lr, valid=over_epochs(loss, 8, 0.05, rng, 0.02))


def passes_a_guess(rng: random.Random) -> Training:
    """A graph network whose classes are 7: it comes by ln 6 while it learns."""
    loss = [1.97 - 0.0035 * at + rng.gauss(0, 0.006) for at in range(60)]
    valid = [1.97 - 0.0018 * at + rng.gauss(0, 0.001) for at in range(60)]
    return Training("passes_a_guess", "", loss, epoch_steps=1, valid=valid, lr=[1e-2])


def learned_by_heart(rng: random.Random) -> Training:
    """Fine-tuning of a language model, whose training loss falls in stairs while validation stays."""
    loss = [(1.9, 1.5, 1.15)[at // 400] + rng.gauss(0, 0.15) for at in range(1200)]
    return Training("stairs", "", loss, epoch_steps=400, valid=[1.75, 1.71, 1.74], lr=[1e-5])


def many_cores(rng: random.Random) -> Training:
    rows = [[(0.3 + 2 * math.exp(-at / 100)) * math.exp(0.2 * rng.gauss(0, 1)) for _ in range(8)] for at in range(500)]
    return Training("many_cores", "", [], cores=rows, lr=[1e-3])


HEALTHY = (
    warmup_cosine, step_decay, language_model, gan, returns, small_batches, flat_early, early_stopped, few_epochs,
    dropout, one_epoch, accumulation, label_smoothing, contrastive, resumed, to_zero, saturated, likelihood, diffusion,
    restarts, passes_a_guess, learned_by_heart, many_cores,
)  # fmt: skip


def overfits(rng: random.Random) -> Training:
    epochs, width = rng.choice([12, 30, 60]), 40
    at_best = rng.uniform(0.15, 0.5) * epochs
    fall = 2.5 / at_best
    loss = [2.3 * math.exp(-fall * at / width) + 0.02 + abs(rng.gauss(0, 0.04)) for at in range(epochs * width)]
    valid = [1.6 * math.exp(-fall * at) + 0.7 + 0.9 * max(0, at - at_best) / epochs + rng.gauss(0, 0.015)
             for at in range(epochs)]  # fmt: skip
    return Training("overfits", "overfitting", loss, epoch_steps=width, valid=valid, lr=[1e-3])


def stuck(rng: random.Random) -> Training:
    count, floor = rng.choice([400, 3000]), rng.uniform(0.5, 0.75)
    loss = [2.3 * (floor + (1 - floor) * math.exp(-20 * at / count)) + rng.gauss(0, 0.08) for at in range(count)]
    return Training("stuck", "plateau", loss, lr=[rng.choice([0.1, 1e-3])])


def blows_up(rng: random.Random) -> Training:
    count = rng.choice([100, 1000, 5000])
    begin = int(rng.uniform(0.5, 0.8) * count)
    loss = [(2.3 * math.exp(-at * 6 / count) + 0.3) * math.exp(0.05 * rng.gauss(0, 1)) for at in range(begin)]
    loss += [loss[begin - 1] * math.exp((at + 1) * 12 / count) for at in range(count // 4)]
    if rng.random() < 0.5:
        loss += [math.nan] * max(3, count // 50)
    return Training("blows_up", "divergence", loss, lr=[0.1])


def jumped(rng: random.Random) -> Training:
    loss = [2.3 * math.exp(-at / 150) + 0.4 + rng.gauss(0, 0.05) for at in range(600)]
    loss += [2.9 + rng.gauss(0, 0.2) for _ in range(400)]
    return Training("jumped", "divergence", loss, lr=[3e-3])


def guesses(rng: random.Random) -> Training:
    classes = rng.choice([2, 10, 100])
    level = math.log(classes)
    loss = [level * (1 + 0.05 * math.exp(-at / 20)) + rng.gauss(0, 0.03 * level) for at in range(800)]
    return Training("guesses", "guessing", loss, epoch_steps=100, lr=[1e-3], config={"classes": classes},
                    valid=[level * (1 + 0.002 * abs(rng.gauss(0, 1))) for _ in range(8)])  # fmt: skip


def no_rate(rng: random.Random) -> Training:
    loss = [2.31 + rng.gauss(0, 0.05) for _ in range(400)]
    return Training("no_rate", "learning_rate", loss, lr=[0.0], epoch_steps=50)


def frozen(rng: random.Random) -> Training:
    loss = [4.7 + rng.gauss(0, 0.3) for _ in range(400)]
    return Training("frozen", "learning_rate", loss, lr=[1e-3], epoch_steps=50, valid=[4.6518302] * 8)


def norm_grows(rng: random.Random) -> Training:
    loss = [1.0 + 1.3 * math.exp(-at / 50) + rng.gauss(0, 0.1) for at in range(1000)]
    norm = [(1 + at / 20) * math.exp(0.2 * rng.gauss(0, 1)) for at in range(1000)]
    return Training("norm_grows", "gradient_norm", loss, lr=[1e-2], metrics={"grad_norm": norm})


def norm_zero(rng: random.Random) -> Training:
    loss = [1.7 + rng.gauss(0, 0.1) for _ in range(500)]
    return Training("norm_zero", "gradient_norm", loss, lr=[1e-2], metrics={"grad_norm": [0.3] * 10 + [0.0] * 90})


def constant(rng: random.Random) -> Training:
    loss = [0.7 * math.exp(-at / 300) + 0.2 + rng.gauss(0, 0.03) for at in range(1000)]
    return Training("constant", "constant_metric", loss, lr=[1e-3], metrics={"valid.accuracy": [0.913] * 10})


def sorted_data(rng: random.Random) -> Training:
    width, height = rng.choice([80, 200]), rng.uniform(0.4, 1.0)
    loss = [0.5 + 1.5 * math.exp(-at / 600) + height * (0.5 - at % width / width) + rng.gauss(0, 0.12)
            for at in range(10 * width)]  # fmt: skip
    return Training("sorted_data", "epoch_jump", loss, epoch_steps=width, lr=[1e-3])


def other_preprocessing(rng: random.Random) -> Training:
    loss = [2.3 * math.exp(-at / 120) + 0.1 + abs(rng.gauss(0, 0.05)) for at in range(1000)]
    valid = [2.6 + 0.6 * rng.random() for _ in range(10)]
    return Training("other_preprocessing", "validation_gap", loss, epoch_steps=100, valid=valid, lr=[1e-3])


def leaked(rng: random.Random) -> Training:
    loss = [1.7 + 0.6 * math.exp(-at / 200) + rng.gauss(0, 0.1) for at in range(1000)]
    return Training("leaked", "validation_gap", loss, epoch_steps=100, valid=[0.05 / (1 + at) for at in range(10)])


def other_shard(rng: random.Random) -> Training:
    rows = [[(0.4 + 2 * math.exp(-at / 100)) * (1.4 if core == 2 else 1) * math.exp(0.15 * rng.gauss(0, 1))
             for core in range(rng.choice([4, 4]))] for at in range(400)]  # fmt: skip
    return Training("other_shard", "core_loss", [], cores=rows, lr=[1e-3])


def same_batch(rng: random.Random) -> Training:
    run = many_cores(rng)
    config = {"data": {"global_batch": 64}, "optim": {"lr": 0.1, "lr_scaling": "linear"}}
    return run._replace(name="same_batch", fault="lr_scaling", config=config)


FAULTY = (
    overfits, overfits, stuck, blows_up, jumped, guesses, no_rate, frozen, norm_grows, norm_zero, constant, sorted_data,
    other_preprocessing, leaked, other_shard, same_batch,
)  # fmt: skip


def scaled(run: Training, factor: float) -> Training:
    """The same training with losses in another unit."""
    return run._replace(
        loss=[factor * one for one in run.loss], valid=[factor * one for one in run.valid],
        cores=[[factor * one for one in row] for row in run.cores],
    )  # fmt: skip


def made(kinds: tuple[Callable[[random.Random], Training], ...], seeds: range) -> list[Training]:
    """A training of each kind and seed."""
    return [kind(random.Random(f"{kind.__name__} {seed}")) for kind in kinds for seed in seeds]
