"""Checks the configuration on standard input with each override of the command line; prints what is refused."""

from __future__ import annotations

import sys

from engine import run_plan
from engine.errors import Refused
from engine.process import hardware
from tputui import config


def main() -> None:
    """Prints a line for each override."""
    text, machine = sys.stdin.read(), hardware.find({"PJRT_DEVICE": "CPU"})
    for override in sys.argv[1:]:
        try:
            run_plan.make(config.parse(text, "tied.toml", [override]), machine, "tied.toml")
        except Refused as refused:
            sys.stdout.write("; ".join(problem.sentence for problem in refused.problems) + "\n")
        else:
            sys.stdout.write("accepted\n")


if __name__ == "__main__":
    main()
