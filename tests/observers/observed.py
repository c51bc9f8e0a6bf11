"""Runs programs with the observers as `tputui run --` starts them, and reads what was observed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

from tests import forked
from tests.deadline import DEADLINE_S
from tests.observers import __name__ as package
from tputui.diagnosis.program_rules import ALL_REPLICATED_BYTES
from tputui.telemetry import events as ev
from tputui.telemetry.journal import Tail

PROGRAMS = Path(__file__).parents[1] / "faulty_programs"
_PYPROJECT = PROGRAMS.parents[1] / "pyproject.toml"
_RUN_ALL = "import runpy, sys\nfor file in sys.argv[1:]: runpy.run_path(file, run_name='__main__')"


def observe(files: list[Path], folder: Path, **variables: str) -> list[ev.Event]:
    """Runs programs in one process; returns what its observers wrote."""
    environ = environment(folder, **variables)
    command = [sys.executable, "-c", _RUN_ALL, *map(str, files)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=DEADLINE_S, cwd=folder)
    return _ended(done, folder)


def observe_in_copy(file: Path, folder: Path, *arguments: str, **variables: str) -> list[ev.Event]:
    """Runs a program of torch in a process that has imported it; returns what its observers wrote. Without a
    `TPUTUI_RUN_DIR` they are not started, as if the import were still to come.
    """
    environ = environment(folder, **variables)
    done = forked.run(f"{package}.copied", str(file), *arguments, env=environ, timeout=DEADLINE_S, cwd=folder)
    return _ended(done, folder)


def _ended(done: subprocess.CompletedProcess[str], folder: Path) -> list[ev.Event]:
    assert done.returncode == 0, done.stderr
    assert "CACHE MISS" not in done.stderr, "messages that the user did not ask for are not shown"
    return observed_in(folder / "run")


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """The environment of a program whose observers write to `folder/run`, which is created."""
    run_dir = folder / "run"
    run_dir.mkdir(exist_ok=True)
    environ = {**os.environ, "TPUTUI_RUN_DIR": str(run_dir), "JAX_PLATFORMS": "cpu", **variables}
    environ["PYTHONPATH"] = os.pathsep.join([str(installed(folder)), str(PROGRAMS.parents[1])])
    return environ


def observed_in(run_dir: Path) -> list[ev.Event]:
    """The events of the observers of a process: in a journal of theirs, and in that of the process once it trains."""
    journals = [run_dir / f"{writer}-0.jsonl" for writer in ("observer", "worker")]
    return [record.event for journal in journals if journal.exists() for record in Tail(journal).read()]


def faults_of(file: Path) -> set[tuple[str, int]]:
    """The faults of a program by the comments in it: names of rules with lines."""
    lines = enumerate(file.read_text().splitlines(), start=1)
    return {
        (match.group(1), number) for number, line in lines if (match := re.search(r"# (?:fault|hint): (\w+)", line))
    }


def findings_in(file: Path, events: list[ev.Event]) -> set[tuple[str, int]]:
    """What was observed in a program after warm-up: names of rules with lines."""
    findings: set[tuple[str, int]] = set()
    for event in events:
        rule = _rule_of(event)
        frame = getattr(event, "user_frame", None)
        if rule and frame is not None and frame.file == str(file):
            findings.add((rule, frame.line))
    return findings


def _rule_of(event: ev.Event) -> str:
    match event:
        case ev.CompileObserved(warm_up=False):
            return "recompile"
        case ev.SyncObserved():
            return "sync"
        case ev.GraphBroken(in_library=False):
            return "graph_break"
        case ev.CompileLimitReached():
            return "compile_limit"
        case ev.ProgramObserved(unused_donations=[_, *_]):
            return "donation"
        case ev.ProgramObserved(is_replicated=True) if event.replicated_bytes >= ALL_REPLICATED_BYTES:
            return "replicated"
    return ""


def installed(folder: Path) -> Path:
    """A directory with the entry points of this tree, if the installed tputui has others."""
    site = folder / "site"
    groups = tomllib.loads(_PYPROJECT.read_text())["project"]["entry-points"]
    if not all(entry_points(group=group, name=name, value=target) for group, name, target in _flat(groups)):
        info = site / "tputui_observers-0.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tputui-observers\nVersion: 0\n")
        lines = [f"[{group}]\n{name} = {target}\n" for group, name, target in _flat(groups)]
        (info / "entry_points.txt").write_text("".join(lines))
    return site


def _flat(groups: dict[str, dict[str, str]]) -> list[tuple[str, str, str]]:
    """Group, name and target of entry points."""
    return [(group, name, target) for group, named in groups.items() for name, target in named.items()]
