"""The entry points that torch and JAX call when they are imported or start: the observers, and callbacks of frameworks.

Like those of the observers they return at once unless tputui launched the process, and swallow every exception.
"""

from __future__ import annotations

import contextlib
import os

from tputui.observers import autoload


def torch_imported() -> None:
    """Entry point of the group `torch.backends`; runs at the end of `import torch`."""
    autoload.torch_imported()
    _attach_frameworks()


def jax_started() -> None:
    """Called by the entry point of the group `jax_plugins`, when the backend of JAX starts."""
    autoload.jax_started()
    _attach_frameworks()


def _attach_frameworks() -> None:
    if os.environ.get(autoload.RUN_DIR_VARIABLE):
        with contextlib.suppress(Exception, SystemExit):
            from tputui.hooks import frameworks

            frameworks.attach_frameworks()
