"""Runs the programs, or those that are named, and prints what was found of their faults."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests import forked
from tests.faulty_programs import suite
from tputui.text import verdict_lines


def _rows(result: suite.Result) -> Iterator[tuple[str, str]]:
    if result.exit_code:
        yield "FAILED", f"exit code {result.exit_code}"
    for fault in sorted(result.faults, key=lambda observed: observed.line):
        verdict = result.verdict_on(fault)
        yield "found" if verdict else "MISSED", f"{fault.rule} in line {fault.line}: {verdict.text if verdict else '-'}"
    for verdict in result.others:
        yield "also" if result.faults else "ALARM", verdict_lines.line(verdict)


def main() -> None:
    """Entry point."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        os.environ[forked.SOCKET] = str(Path(folder) / "template")
        results = list(suite.run(suite.programs(sys.argv[1:]), Path(folder)))
        forked.end_template()
    for result in results:
        name = f"{result.program.parent.name}/{result.program.stem}"
        for state, text in list(_rows(result)) or [("ok", "no verdict")]:
            print(f"{name:42} {state:6} {text}")
            name = ""
    faulty = [of_program for of_program in results if of_program.faults]
    healthy = [of_program for of_program in results if not of_program.faults]
    alarms = suite.alarms(results)
    share = f"recall {suite.recall(faulty):.3f}" if faulty else ""
    print(f"{len(faulty)} faulty programs: {share}; {len(healthy)} healthy ones: {len(alarms)} with an alarm")
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
