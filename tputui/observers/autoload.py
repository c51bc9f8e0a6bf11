"""The entry points that frameworks call when they are imported: start the observers in commands of `tputui run --`.

`import torch` calls the entry points of the group `torch.backends`, and fails if one of them raises. The functions here
return at once unless tputui launched the process, and swallow every exception. Imports nothing at first, because
every program in the environment of tputui pays for it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

RUN_DIR_VARIABLE = "TPUTUI_RUN_DIR"
"""As in `tputui.telemetry.rundir`."""


def torch_imported() -> bool:
    """Starts the observers of torch at the end of `import torch`; returns whether tputui launched the process."""
    if not os.environ.get(RUN_DIR_VARIABLE):
        return False
    try:
        is_observed = _begin()
        if is_observed:
            observe_torch()
        return is_observed
    except (Exception, SystemExit):  # noqa: BLE001, RUF100 - it would make `import torch` fail
        return False


def _begin() -> bool:
    """Prepares a process that tputui launched; returns whether it is observed."""
    from tputui.observers import opened_logs
    from tputui.observers.sinks import process_sink

    print_whole_lines()
    if not process_sink.open_journal():
        return False
    opened_logs.start(os.environ[RUN_DIR_VARIABLE])
    return True


def observe_torch() -> None:
    """Observes the runtimes of torch in this process, each once it is imported, unless the user disabled that."""
    from tputui.observers.sinks import is_disabled

    if is_disabled():
        return
    after_import("torch_xla.torch_xla", _torch_xla_imported)
    after_import("torch._dynamo", _torch_compile_imported)


def print_whole_lines() -> None:
    """Writes printed text line by line, if the output of Python is not buffered, as tputui starts a command.

    Each `print` would be several writes, and those of other ranks to the same file would come between them.
    """
    out = sys.stdout
    if getattr(out, "write_through", False) and hasattr(out, "reconfigure"):
        out.reconfigure(line_buffering=True, write_through=False)


def _torch_xla_imported() -> None:
    from tputui.observers.sinks import attaching

    with attaching("torch_xla", "torch_xla", "compilations", "reads", "fallbacks"):
        from tputui.observers import xla_observer

        xla_observer.start()


def _torch_compile_imported() -> None:
    from tputui.observers.sinks import attaching

    with attaching("torch_compile", "torch", "compilations", "graph breaks", "compile limits"):
        from tputui.observers import compile_observer

        compile_observer.start()


def jax_started() -> None:
    """Called by the entry point of the group `jax_plugins`, when the backend of JAX starts."""
    if not os.environ.get(RUN_DIR_VARIABLE):
        return
    # JAX would print the exception.
    with contextlib.suppress(Exception, SystemExit):
        if _begin():
            observe_jax()


def observe_jax() -> None:
    """Observes JAX in this process, once it is imported."""
    after_import("jax", _jax_imported)


def _jax_imported() -> None:
    from tputui.observers import jax_observer

    jax_observer.start()


def after_import(name: str, act: Callable[[], None]) -> None:
    """Calls `act` after a module was imported; now if it is. Exceptions of `act` are swallowed."""
    if name in sys.modules:
        _quietly(act)
        return
    for finder in sys.meta_path:
        if isinstance(finder, _ImportHook):
            finder.wanted[name] = act
            return
    hook = _ImportHook()
    hook.wanted[name] = act
    sys.meta_path.insert(0, hook)


class _ImportHook:
    """Calls functions after modules were imported. It finds no modules itself."""

    def __init__(self) -> None:
        self.wanted: dict[str, Callable[[], None]] = {}

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Called by the import system for every module that is not imported yet."""
        act = self.wanted.pop(name, None)
        if act is None:
            return None
        try:
            from importlib.util import find_spec

            spec = find_spec(name)
            loader = spec.loader if spec is not None else None
            if loader is None:
                return None
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _quietly(act)

            loader.exec_module = exec_module  # type: ignore[method-assign]
            return spec
        except Exception:  # noqa: BLE001, RUF100 - the import goes on without the hook
            return None


def _quietly(act: Callable[[], None]) -> None:
    # The program does not depend on its observers.
    with contextlib.suppress(Exception):
        act()
