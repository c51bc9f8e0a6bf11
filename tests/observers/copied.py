"""Runs a program as `python PROGRAM` would under `tputui run --`, in a copy of a process that has imported torch.

`forked.run("tests.observers.copied", PROGRAM, ARGUMENT...)` spares the program the import.
"""

from __future__ import annotations

import runpy
import sys

from tputui.observers import autoload


def main() -> None:
    """Entry point."""
    sys.argv[:] = sys.argv[1:]
    # The template has imported torch already, so its entry points have run, without a run directory.
    autoload.torch_imported()
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
