"""A program that starts others with torch imported: `forked.run("tests.forked_tree", MODULE, ARGUMENT...)`.

The program is a copy of the template of `tests.forked`, and what it would start as `python -P -m` a training process or
another one of the engine is a copy of it in turn, as is the supervisor that it starts. All run what they always run,
with the command line that they always have. What the kernel shows as their environment is that of the template.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import io
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
import traceback
from functools import partial
from typing import Any

from tests.forked import run_as_main, set_command_line

COPIED = (
    "engine",
    "engine.rank",
    "engine.commands.describe",
    "engine.commands.export",
    "engine.commands.predict",
    "engine.launch",
    "tputui.supervise",
)
"""Modules that import torch, and those that start the engine."""


TEARDOWN_S = 0.5
"""Seconds that an interpreter with torch and torch_xla takes to end, and a copy does not."""


class Popen(subprocess.Popen[bytes]):
    """Starts those modules as copies of this process, and anything else as always."""

    def __init__(self, argv: list[str], **options: Any) -> None:
        if argv[:3] == [sys.executable, "-P", "-m"] and argv[3] in COPIED:
            kept = {0, 1, 2, *options.get("pass_fds", ())}
            options["preexec_fn"] = partial(_become, argv[3], argv[4:], options.get("env"), kept)
        super().__init__(argv, **options)


def _become(module: str, arguments: list[str], env: dict[str, str] | None, kept: set[int]) -> None:
    """Called in the copy; never returns."""
    code: Any = 0
    try:
        _leave_the_parent(kept)
        if env is not None:
            os.environ.clear()
            os.environ.update(env)
        set_command_line([sys.executable, "-P", "-m", module, *arguments])
        _renew_output()
        code = run_as_main(module, arguments)
    except BaseException:
        traceback.print_exc()
        code = 1
    if module == "engine.rank":
        # The launcher ends the other ranks once one has ended, and they may still be writing how their training did.
        time.sleep(TEARDOWN_S)
    # As the interpreter ends: waits for threads, calls what is registered, and flushes.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def _leave_the_parent(kept: set[int]) -> None:
    """Drops what a new interpreter would not have: the parent's files, signal handlers, and calls at its end."""
    # The pipe on which `subprocess` waits for the new program is among them.
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor not in kept:
            with contextlib.suppress(OSError):
                os.close(descriptor)
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # `subprocess` has restored what each interpreter ignores from its start.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    faulthandler.disable()
    atexit._clear()
    gc.enable()


def _renew_output() -> None:
    """Of the parent's, which may hold what was not printed yet, nothing is printed here; a new one is set up like it,
    or as the environment has it."""
    is_unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    raw = io.FileIO(1, "w", closefd=False)
    sys.stdout = io.TextIOWrapper(
        raw if is_unbuffered else io.BufferedWriter(raw), errors=sys.stdout.errors, write_through=is_unbuffered
    )


if __name__ == "__main__":
    subprocess.Popen = Popen  # type: ignore[assignment, misc]
    del sys.argv[0]
    set_command_line([sys.executable, "-P", "-m", *sys.argv])
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
