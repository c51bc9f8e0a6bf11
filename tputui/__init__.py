"""tputui launches PyTorch/XLA training, outlives the terminal and shows the truth about the run.

In a script of your own, `tputui.start()` reports its training:

    run = tputui.start(config=vars(args), total_steps=10_000)
    run.step(loss=loss, examples=len(batch))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tputui.integrations.run import Run as Run
    from tputui.integrations.start import start as start

__version__ = "0.1.0"
__all__ = ["Run", "__version__", "start"]


def __getattr__(name: str) -> Any:
    """Imports the reporter API when it is used first."""
    if name == "start":
        from tputui.integrations.start import start

        return start
    if name == "Run":
        from tputui.integrations.run import Run

        return Run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
