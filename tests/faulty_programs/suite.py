"""Compares the verdicts on programs with the faults that are marked in them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests import forked
from tests.deadline import DEADLINE_S
from tests.faulty_programs import __name__ as package
from tests.hermetic import SETTINGS
from tests.observers.observed import installed
from tputui.diagnosis.diagnose import diagnose
from tputui.diagnosis.verdict import Verdict, VerdictStatus, found
from tputui.session import session

FOLDER = Path(__file__).parent
FRAMEWORKS = ("torch_xla", "jax", "torch_compile")
SHARED = frozenset({"small.py"})
"""Files that are no programs."""
WITHOUT_LINE = frozenset({"extra_execution", "input", "tracing"})
"""Rules that know no line, because the runtime only counts; any verdict of theirs is about the marked one."""
_MARK = re.compile(r"# (fault|hint): (\w+)")


class Fault(NamedTuple):
    """A fault of a program, or what is worth a hint, such as a single compilation after warm-up."""

    rule: str
    line: int
    status: VerdictStatus = "found"


class Result(NamedTuple):
    """What the verdicts on a program were."""

    program: Path
    exit_code: int
    faults: frozenset[Fault]
    """The marked ones."""
    verdicts: tuple[Verdict, ...]
    """Those that were found, and hints."""

    @property
    def found(self) -> frozenset[Fault]:
        """Marked faults with a verdict of their rule at their line."""
        return frozenset(fault for fault in self.faults if self.verdict_on(fault) is not None)

    @property
    def others(self) -> tuple[Verdict, ...]:
        """Verdicts that were found on anything but the marked faults."""
        expected = [self.verdict_on(fault) for fault in self.faults]
        return tuple(verdict for verdict in found(self.verdicts) if verdict not in expected)

    def verdict_on(self, fault: Fault) -> Verdict | None:
        """The verdict on a marked fault; None if there is none."""
        line = None if fault.rule in WITHOUT_LINE else fault.line
        file = None if fault.rule in WITHOUT_LINE else str(self.program)
        wanted = (fault.rule, file, line, fault.status)
        return next(
            (
                verdict
                for verdict in self.verdicts
                if (verdict.rule, verdict.file, verdict.line, verdict.status) == wanted
            ),
            None,
        )


def run_directory(folder: Path, file: Path) -> Path:
    """The run directory of a program."""
    return folder / f"{file.parent.name}-{file.stem}"


def programs(names: Sequence[str] = ()) -> list[Path]:
    """All programs, or those with these names."""
    files = [file for name in FRAMEWORKS for file in sorted((FOLDER / name).glob("*.py")) if file.name not in SHARED]
    return [file for file in files if not names or file.stem in names or file.parent.name in names]


def faults_of(file: Path) -> frozenset[Fault]:
    """The faults that are marked in a program; none in a healthy one."""
    lines = enumerate(file.read_text().splitlines(), start=1)
    statuses: dict[str, VerdictStatus] = {"fault": "found", "hint": "hint"}
    marks = [(mark, number) for number, line in lines if (mark := _MARK.search(line))]
    return frozenset(Fault(mark.group(2), number, statuses[mark.group(1)]) for mark, number in marks)


def run(files: Sequence[Path], folder: Path) -> Iterator[Result]:
    """Runs programs with the observers, each in a process of its own, and asks for the verdicts on their runs."""
    path = os.pathsep.join([str(installed(folder)), str(FOLDER.parents[1])])
    env = {"PJRT_DEVICE": "CPU", "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "2", "XLA_FLAGS": SETTINGS["XLA_FLAGS"]}
    done = forked.run(f"{package}.processes", str(folder), *map(str, files), env=env, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    for file in files:
        run_dir = run_directory(folder, file)
        verdicts = diagnose(session.load(run_dir)) if list(run_dir.glob("*.jsonl")) else ()
        answers = tuple(verdict for verdict in verdicts if verdict.status in ("found", "hint"))
        yield Result(file, int((run_dir / "exit.txt").read_text()), faults_of(file), answers)


def recall(results: Sequence[Result]) -> float:
    """Share of the marked faults with a verdict at their line."""
    return sum(len(result.found) for result in results) / sum(len(result.faults) for result in results)


def alarms(results: Sequence[Result]) -> list[Result]:
    """Programs without a fault, with a verdict that was found."""
    return [
        result
        for result in results
        if all(fault.status == "hint" for fault in result.faults) and found(result.verdicts)
    ]
