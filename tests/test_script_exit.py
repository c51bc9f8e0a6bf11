"""How a script ends that reports its own training: what its run says then, for every way to leave a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests import recorded
from tests.deadline import DEADLINE_S
from tests.test_reporter_api import of_type, read_events, show, the_run
from tputui.telemetry import events as ev
from tputui.telemetry import rundir

BEFORE = "import multiprocessing, os, sys, threading\nimport tputui\nrun = tputui.start()\nrun.step(loss=1.0)\n"


class End(NamedTuple):
    """A way to end, and what the run says of it."""

    body: str
    code: int
    outcome: str | None
    reason: str
    failed_in: tuple[str, int] | None = None
    """Error of the failure, and line of the script."""


ENDS = {
    "exit code": End("sys.exit(3)", 3, "failed", "exit code 3", ("SystemExit", 5)),
    "in a call": End(
        "def train():\n    sys.exit('no data')\ntry:\n    train()\nfinally:\n    run.text('left')",
        1,
        "failed",
        "exit code 1: no data",
        ("SystemExit", 6),
    ),
    "builtin": End("with open(os.devnull):\n    exit(4)", 4, "failed", "exit code 4", ("SystemExit", 6)),
    "without a code": End("sys.exit()", 0, "done", "1 step trained"),
    "caught": End("try:\n    sys.exit(3)\nexcept SystemExit:\n    run.step(loss=2.0)", 0, "done", "2 steps trained"),
    "in a thread": End(
        "thread = threading.Thread(target=sys.exit, args=[3])\nthread.start()\nthread.join()",
        0,
        "done",
        "1 step trained",
    ),
    "after an error": End(
        "try:\n    1 / 0\nexcept ArithmeticError:\n    sys.exit(1)",
        1,
        "failed",
        "exit code 1 after ZeroDivisionError: division by zero",
        ("ZeroDivisionError", 6),
    ),
    "after Ctrl-C": End(
        "try:\n    raise KeyboardInterrupt\nexcept KeyboardInterrupt:\n    sys.exit(130)",
        130,
        "stopped",
        "ended by KeyboardInterrupt at step 1",
    ),
    "with block": End("with run:\n    raise SystemExit(5)", 5, "failed", "exit code 5", ("SystemExit", 6)),
    "with block, zero": End("with run:\n    sys.exit(0)", 0, "done", "1 step trained"),
    "raised": End("raise SystemExit(3)", 3, "done", "ended by SystemExit with an exit code that is not known"),
    "a handler of atexit reports": End(
        "import atexit\natexit.register(run.step, 2.0)\nsys.exit(3)", 3, "failed", "exit code 3", ("SystemExit", 7)
    ),
    "without clean-up": End(
        "while not (run.dir / 'worker-0.jsonl').stat().st_size:\n    pass\nos._exit(3)", 3, None, ""
    ),
    "a process of multiprocessing": End(
        """
run.close()
def rank():
    os.environ.update(RANK="0", TPUTUI_RUN_DIR=os.getcwd() + "/runs/ranks")
    tputui.start().step(loss=1.0)
    raise SystemExit(3)
from pathlib import Path
from tests import recorded
from tputui.telemetry import rundir
rundir.create(Path("runs").absolute(), recorded.manifest("ranks"))
process = multiprocessing.get_context("fork").Process(target=rank)
process.start()
process.join()
Path(run.dir).rename("elsewhere")
sys.exit(process.exitcode)
""",
        3,
        "failed",
        "exit code 3",
        ("SystemExit", 10),
    ),
}


def test_a_run_ends_as_its_script_does(tmp_path: Path) -> None:
    started = {}
    for number, (name, end) in enumerate(ENDS.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "train.py").write_text(BEFORE + end.body)
        command = [sys.executable, "train.py"]
        env = {**os.environ, "PYTHONPATH": os.getcwd()}
        started[name] = (
            folder,
            subprocess.Popen(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True),
        )
    for name, (folder, process) in started.items():
        _, printed = process.communicate(timeout=DEADLINE_S)
        end = ENDS[name]
        assert process.returncode == end.code, (name, printed)
        events = read_events(the_run(folder) / "worker-0.jsonl")
        ended = [(event.outcome, event.reason) for event in of_type(events, ev.TrainingEnded)]
        assert ended == ([(end.outcome, end.reason)] if end.outcome else []), (name, printed)
        failures = [(failure.error, failure.frames[0].line) for failure in of_type(events, ev.FailureRaised)]
        assert failures == ([end.failed_in] if end.failed_in else []), name
        assert not any("process_exit" in failure.traceback for failure in of_type(events, ev.FailureRaised)), name
    shown = show(the_run(started["exit code"][0]))
    assert shown["state"] == "failed"
    assert show(the_run(started["without clean-up"][0]))["state"] == "lost"


def test_a_supervisor_names_the_exit_code_that_a_script_raises(tmp_path: Path) -> None:
    run_dir = rundir.create(tmp_path, recorded.manifest("command"))
    env = {**os.environ, "PYTHONPATH": os.getcwd(), "TPUTUI_RUN_DIR": str(run_dir)}
    ended = subprocess.run([sys.executable, "-c", BEFORE + "raise SystemExit(0)"], cwd=tmp_path, env=env, check=True)
    assert ended.returncode == 0
    (training,) = of_type(read_events(run_dir / "worker-0.jsonl"), ev.TrainingEnded)
    assert (training.outcome, training.reason) == ("done", "1 step trained")
