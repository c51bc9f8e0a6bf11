"""The ratio of paired speeds: exact critical values, the coverage of the interval, and disturbed blocks."""

from __future__ import annotations

import random

import pytest

from tputui.compare.paired import PAIRS_MIN, _critical, paired_ratio


def pairs(ratio: float, noise: float, seed: int, count: int = 10) -> list[tuple[float, float]]:
    """Speeds on a machine whose own speed drifts, with noise in each block."""
    chance = random.Random(seed)
    speeds = [1000 * (1 + 0.02 * number) for number in range(count)]
    return [(speed * chance.gauss(1, noise), speed * ratio * chance.gauss(1, noise)) for speed in speeds]


@pytest.mark.parametrize(("count", "rank_sum"), [(6, 0), (7, 2), (8, 3), (9, 5), (10, 8), (15, 25), (20, 52)])
def test_critical_rank_sums_are_those_of_the_published_tables(count: int, rank_sum: int) -> None:
    assert _critical(count) == rank_sum


def test_the_interval_covers_the_ratio_in_95_of_100_measurements() -> None:
    found = [paired_ratio(pairs(1.1, 0.05, seed)) for seed in range(600)]
    covered = sum(ratio is not None and ratio.low <= 1.1 <= ratio.high for ratio in found)
    assert 0.93 * 600 <= covered <= 0.985 * 600


def test_equal_speeds_do_not_stand_out_and_a_gain_does() -> None:
    same, gain = paired_ratio(pairs(1.0, 0.02, 1)), paired_ratio(pairs(1.2, 0.02, 1))
    assert same is not None
    assert not same.stands_out
    assert gain is not None
    assert gain.stands_out
    assert gain.ratio == pytest.approx(1.2, rel=0.02)


def test_a_disturbed_block_moves_the_ratio_little() -> None:
    measured = pairs(1.2, 0.01, 3)
    measured[4] = (measured[4][0] / 5, measured[4][1])
    ratio = paired_ratio(measured)
    assert ratio is not None
    assert ratio.ratio == pytest.approx(1.2, rel=0.02)


def test_too_few_pairs_have_no_interval() -> None:
    assert paired_ratio(pairs(1.2, 0.01, 3, PAIRS_MIN - 1)) is None
