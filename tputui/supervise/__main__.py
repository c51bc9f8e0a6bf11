"""Entry point: `python -P -m tputui.supervise RUN_DIR [--command]`. Its output goes to `RUN_DIR/supervisor.log`.

With `--command` it runs the command that its standard input contains, else training by the engine.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tputui.exit_codes import ExitCode
from tputui.supervise.command import read_command
from tputui.supervise.spawn import COMMAND_OPTION
from tputui.supervise.supervisor import Supervisor
from tputui.telemetry.rundir import RunNotFound


def main(argv: list[str]) -> int:
    """Supervises the run in the directory `argv[0]`; returns the exit code of the run."""
    if not argv or argv[1:] not in ([], [COMMAND_OPTION]):
        sys.stderr.write(f"usage: python -P -m tputui.supervise RUN_DIR [{COMMAND_OPTION}]\n")
        return ExitCode.USAGE
    try:
        command = read_command(sys.stdin.buffer) if argv[1:] else None
        return Supervisor(Path(argv[0]), command=command).run()
    except FileExistsError:
        # A journal has exactly one writer, so a run has one supervisor, whether that still lives or not.
        why = "another supervisor has started it; `tputui run --resume` continues from its last checkpoint as a new run"
    except (RunNotFound, ValueError) as error:
        why = str(error)
    except OSError as error:
        why = f"{error.filename or argv[0]}: {error.strerror or error}"
    sys.stderr.write(f"tputui: this run cannot be supervised: {why}\n")
    return ExitCode.USAGE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
