"""How figures read."""

from __future__ import annotations

import math

import pytest

from tputui import formatting as fmt


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.41321, "0.4132"),
        (0.0, "0.0000"),
        (12.3456, "12.346"),
        (-1234.5, "-1234.5"),
        (1.2e-7, "1.2e-07"),
        (3.4e20, "3.4e+20"),
        (math.nan, "NaN"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (None, "-"),
    ],
)
def test_number(value: float | None, text: str) -> None:
    assert fmt.number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0131, "13.1 ms"),
        (0.4, "0.40 s"),
        (3.21, "3.2 s"),
        (12.0, "12 s"),
        (200.0, "3 min 20 s"),
        (18_120.0, "5 h 02 min"),
        (273_600.0, "3 d 4 h"),
        (-12.0, "-12 s"),
        (math.nan, "-"),
        (None, "-"),
    ],
)
def test_duration(seconds: float | None, text: str) -> None:
    assert fmt.duration(seconds) == text


@pytest.mark.parametrize(
    ("num_bytes", "text"), [(0, "0 B"), (1023, "1023 B"), (361_472, "353 KiB"), (3 << 30, "3.0 GiB"), (None, "-")]
)
def test_size(num_bytes: int | None, text: str) -> None:
    assert fmt.size(num_bytes) == text


def test_rate_and_share() -> None:
    assert fmt.rate(4885.2, "examples") == "4,885 examples/s"
    assert fmt.rate(1.5, "steps") == "1.500 steps/s"
    assert fmt.rate(math.inf, "steps") == "-"
    assert fmt.percent(87.4) == "87 %"


def test_an_age_is_never_in_the_future() -> None:
    assert fmt.whole(-0.3) == "0 s"
    assert fmt.whole(59.9) == "59 s"
    assert fmt.whole(200) == "3 min 20 s"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain \u00e9 \u4e2d", "plain \u00e9 \u4e2d"),
        ("\x1b[2J\x07", "\\x1b[2J\\x07"),
        ("a\tb", "a    b"),
        ("\x9b1m", "\\x9b1m"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("two\nlines\r", "two\\x0alines\\x0d"),
        ("\ud800", "\\ud800"),
    ],
)
def test_foreign_text_is_escaped_for_the_terminal(text: str, shown: str) -> None:
    assert fmt.inert(text) == shown


def test_skipped_examples_are_mentioned_only_if_any() -> None:
    assert fmt.ragged_end(22, 64, 1437) == "22 steps of 64 take a different 1,408 of 1,437 examples each epoch"
    assert fmt.ragged_end(22, 64, 1408) == ""
