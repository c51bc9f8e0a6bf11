"""Entry point: `python -P -m tputui.supervise RUN_DIR [--host N] [--command]`.

Its output goes to `RUN_DIR/supervisor.log`, on another host than the first one to `supervisor-N.log`.

With `--command` it runs the command that its standard input contains, else training by the engine.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tputui.exit_codes import ExitCode
from tputui.supervise.command import read_command
from tputui.supervise.spawn import COMMAND_OPTION, HOST_OPTION, observed
from tputui.supervise.supervisor import Supervisor
from tputui.telemetry.rundir import RunNotFound


def main(argv: list[str]) -> int:
    """Supervises a run on this host; returns the exit code of the run."""
    parser = argparse.ArgumentParser(prog="python -P -m tputui.supervise")
    parser.add_argument("run_dir", type=Path)
    parser.add_argument(HOST_OPTION, type=int, default=0)
    parser.add_argument(COMMAND_OPTION, action="store_true")
    arguments = parser.parse_args(argv)
    try:
        command = None
        if arguments.command:
            command = observed(read_command(sys.stdin.buffer), arguments.run_dir)
        return Supervisor(arguments.run_dir, command=command, host_index=arguments.host).run()
    except FileExistsError:
        # A journal has exactly one writer, so a run has one supervisor, whether that still lives or not.
        why = "another supervisor has started it; `tputui run --resume` continues from its last checkpoint as a new run"
    except (RunNotFound, ValueError) as error:
        why = str(error)
    except OSError as error:
        why = f"{error.filename or arguments.run_dir}: {error.strerror or error}"
    sys.stderr.write(f"tputui: this run cannot be supervised: {why}\n")
    return ExitCode.USAGE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
