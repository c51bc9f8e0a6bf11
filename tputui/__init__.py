"""tputui launches training on TPUs, keeps it running without the terminal, and shows it live.

In a script of your own, `tputui.start()` reports its training:

    run = tputui.start(config=vars(args), total_steps=10_000)
    run.step(loss=loss, examples=len(batch))
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # without the import of `typing`, which takes most of the time of `import tputui`
if TYPE_CHECKING:
    from typing import Any

    from tputui.reporting.run import Run as Run
    from tputui.reporting.start import start as start

__version__ = "0.2.0"
__all__ = ["Run", "__version__", "start"]


_HOMES = {"Run": "tputui.reporting.run", "start": "tputui.reporting.start"}


def __getattr__(name: str) -> Any:
    """Imports the reporter API when it is used first."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
