"""Values of options, checked."""

from __future__ import annotations

import argparse
import math


def seconds(text: str) -> float:
    """A span of time, 0 or more."""
    value = _number(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is less than 0 s")
    return value


def port(text: str) -> int:
    """A port to listen on; 0 is any. Raises `ArgumentTypeError`."""
    if not text.isascii() or not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"a port is a number from 0 to 65535, not {text!r}")
    return int(text)


def speed(text: str) -> float:
    """A factor of time, more than 0."""
    value = _number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not more than 0")
    return value


def positive_int(text: str) -> int:
    """A count, 1 or more."""
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return int(text)


def count_or_all(text: str) -> int | None:
    """A count, 0 or more; None for `all`."""
    if text == "all":
        return None
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor all")
    return int(text)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text} is not a finite number")
    return value
