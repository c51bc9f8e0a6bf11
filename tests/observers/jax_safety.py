"""A program that notices a change of what it calls. Runs with the observers; prints what it found, as JSON."""

from __future__ import annotations

import functools
import json
import os
import pickle
import signal
import sys
from typing import Any

import numpy as np

before = functools.partial(np.asarray, dtype=np.float32)

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

original = np.asarray
jax.jit(lambda x: x + 1)(jnp.ones(3)).block_until_ready()


class Data:
    convert = np.asarray


kept, handled, is_busy = [jnp.float32(one) for one in range(200)], 0, False


def save(*_: Any) -> None:
    """As a handler that saves a checkpoint."""
    global handled, is_busy
    if not is_busy and kept:
        is_busy, handled = True, handled + 1
        float(kept.pop())
        is_busy = False


def read() -> Any:
    signal.signal(signal.SIGALRM, save)
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    total = sum(value.sum().item() for value in [jnp.ones(3)] * 2000)
    signal.setitimer(signal.ITIMER_REAL, 0)
    return total


def in_child() -> list[bool]:
    """Reads in a loop, forks in it; whether the child and this process are traced."""
    ones = [jnp.ones(()) * value for value in range(20)]
    for value in ones:
        float(value)
        if sys.gettrace() is not None:
            break
    is_traced = sys.gettrace() is not None
    child = os.fork()
    if not child:
        os._exit(sys.gettrace() is not None)
    return [is_traced, bool(os.waitpid(child, 0)[1])]


found = {
    "is_hooked": np.asarray is not original,
    "before": pickle.loads(pickle.dumps(before))([1]).dtype == np.float32,
    "during": pickle.loads(pickle.dumps(np.asarray)) is np.asarray,
    "builtin": pickle.loads(pickle.dumps(len)) is len,
    "in_class": Data().convert([1]).tolist() == [1],
    "traced": in_child(),
    "total": read(),
    "handled": handled > 20,
}
sys.stdout.write(json.dumps(found))
