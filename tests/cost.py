"""What code costs, in numbers that a busy machine does not change much: function calls, or processor time."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType


def num_calls(work: Callable[[], object]) -> int:
    """Number of calls of functions, of Python and of C, while `work` is done."""
    counted = 0

    def count(frame: FrameType, kind: str, argument: object) -> None:
        nonlocal counted
        counted += kind in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return counted


@contextlib.contextmanager
def bounded(limit_s: float) -> Iterator[None]:
    """Fails if this thread uses more processor time inside. `limit_s` is many times what is needed, and much less than
    what code takes that reads everything, or whose time grows faster than its input."""
    began = time.thread_time()
    yield
    spent = time.thread_time() - began
    assert spent < limit_s, f"{spent:.1f} s of processor time"
