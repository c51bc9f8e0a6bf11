"""The protocol between `tputui try` and the training processes that it measures: one line of JSON per message.

`try` sends a `BlockOrder`, and the process answers with a `BlockResult` once it has trained these steps. Between blocks
the process waits between two steps. It ends when the connection is closed.
"""

from __future__ import annotations

import msgspec

CONNECTION_VARIABLE = "TPUTUI_TRIAL_FD"
"""Environment variable with the number of the inherited socket."""
MESSAGE_BYTES_MAX = 4096
SEED_VARIABLE = "TPUTUI_TRIAL_SEED"
"""Environment variable with the seed of a command that `try` measures."""


class BlockOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A block of training steps to measure."""

    skip: int
    """Steps to train before the measured ones."""
    steps: int
    """Steps to measure."""


class BlockResult(msgspec.Struct, frozen=True, kw_only=True):
    """The measured steps of a block."""

    steps: int
    """Number of steps."""
    examples: int
    """Examples of these steps, over all cores."""
    seconds: float
    """Wall time from an idle device to an idle device, without evaluations and saves."""
    compile_s: float
    """Part of `seconds` inside the compiler."""
