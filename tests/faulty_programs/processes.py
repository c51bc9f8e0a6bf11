"""Runs programs, each in a process of its own: a copy of this one, which has imported torch_xla but not used it.

`python -m tests.faulty_programs.processes FOLDER FILE...` makes a run directory in FOLDER for each program, with its
output in `output.txt` and its exit code in `exit.txt`.
"""

from __future__ import annotations

import atexit
import gc
import os
import runpy
import signal
import sys
import time
import traceback
from pathlib import Path

import torch
import torch_xla  # noqa: F401

from tests.deadline import DEADLINE_S
from tests.faulty_programs.suite import run_directory
from tputui.observers import autoload

AT_ONCE = 2
EIGHT_DEVICES = "--xla_force_host_platform_device_count=8"


def _copy(folder: Path, file: Path) -> int:
    """Starts a program in a copy of this process; returns its process id."""
    run_dir = run_directory(folder, file)
    run_dir.mkdir()
    pid = os.fork()
    if pid == 0:
        os._exit(_run(run_dir, file))
    return pid


def _run(run_dir: Path, file: Path) -> int:
    """Runs a program as `python FILE` would under `tputui run --`."""
    output = os.open(run_dir / "output.txt", os.O_WRONLY | os.O_CREAT)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.environ["TPUTUI_RUN_DIR"] = str(run_dir)
    if file.parent.name == "jax":
        os.environ.update(JAX_PLATFORMS="cpu", XLA_FLAGS=f"{os.environ.get('XLA_FLAGS', '')} {EIGHT_DEVICES}")
    sys.path.insert(0, str(file.parent))
    sys.argv[:] = [str(file)]
    torch.set_num_threads(1)
    code = 0
    try:
        # The template has imported torch already, so its entry points have run.
        if file.parent.name != "jax" and autoload.torch_imported():
            _hook_loaders()
        runpy.run_path(str(file), run_name="__main__")
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    return code


def _hook_loaders() -> None:
    """The losses are not reported: the labels are random, so that nothing is learned."""
    from tputui.hooks import batches  # not in the template, whose process the sink of events would belong to

    batches.hook(sys.modules["torch.utils.data.dataloader"])
    of_xla = "torch_xla.distributed.parallel_loader"
    autoload.after_import(of_xla, lambda: batches.hook_xla(sys.modules[of_xla]))


def _wait(running: dict[int, tuple[Path, float]]) -> tuple[Path, int]:
    """Waits until a copy ends; returns its program and exit code."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            return running.pop(pid)[0], os.waitstatus_to_exitcode(status)
        for late, (_, began) in running.items():
            if time.monotonic() - began > DEADLINE_S:
                os.kill(late, signal.SIGKILL)
        time.sleep(0.02)


def main() -> None:
    """Entry point."""
    folder = Path(sys.argv[1])
    waiting = [Path(name) for name in sys.argv[:1:-1]]
    running: dict[int, tuple[Path, float]] = {}
    gc.freeze()
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            file = waiting.pop()
            running[_copy(folder, file)] = file, time.monotonic()
        file, code = _wait(running)
        (run_directory(folder, file) / "exit.txt").write_text(str(code))


if __name__ == "__main__":
    main()
