"""Entry point of the group `jax_plugins`: JAX imports this module and calls `initialize` when its backend starts.

It registers no device. Like the entry point of torch, it returns at once unless tputui launched the process.
"""

from __future__ import annotations

from tputui.hooks.entry import jax_started


def initialize() -> None:
    """Observes JAX in this process, if tputui launched it."""
    jax_started()
