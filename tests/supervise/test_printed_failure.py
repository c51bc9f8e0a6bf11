"""The failure that ended a command, found in what it printed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tputui.supervise.failure_found import PrintedFailure
from tputui.supervise.log_tail import last_raw_lines
from tputui.supervise.printed_failure import cause_in

# As Python 3.13 prints it.
RAISED = """\
Traceback (most recent call last):
  File "/home/u/train.py", line 9, in <module>
    main()
    ~~~~^^
  File "/home/u/data.py", line 5, in read
    decode(
    ...<2 lines>...
    )
ValueError: bad row 7""".splitlines()
BAR = "Epoch 0:  30%|###       | 3/10 [00:01<00:02,  3.1it/s, loss=0.333]"


def found_in(lines: list[str]) -> PrintedFailure:
    """The failure in the lines, which have one."""
    found = cause_in(lines)
    assert found is not None
    return found


def lines_of(found: PrintedFailure) -> list[int]:
    """The lines of its calls, newest first."""
    return [frame.line for frame in found.frames]


def printed_by(folder: Path, text: str, *words: str) -> list[str]:
    """What a script prints, as it is read from the log of a run."""
    (folder / "train.py").write_text(text)
    log, env = folder / "worker-0.log", {**os.environ, "COLUMNS": "200"}
    with log.open("wb") as file:
        argv = [sys.executable, "train.py", *words]
        subprocess.run(argv, cwd=folder, stdout=file, stderr=file, env=env, check=False)
    return last_raw_lines(log)


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(BAR, id="bar"),
        pytest.param("continue? [y/N] ", id="prompt"),
        pytest.param("2026-11-26 10:00:00,123 ERROR train: the epoch failed: ", id="logger"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "[rank1]: ", "[default1]:", "worker-1  | "])
def test_a_traceback_is_found_behind_an_open_line(first: str, prefix: str) -> None:
    found = found_in(["epoch 0", prefix + first + RAISED[0], *(prefix + line for line in RAISED[1:])])
    assert (found.error, found.message, found.first_line, lines_of(found)) == ("ValueError", "bad row 7", 1, [5, 9])


def test_a_traceback_behind_a_bar_of_a_rank_is_found() -> None:
    # Of the line with the bar only the part after its last carriage return is read, without the prefix of the launcher.
    found = found_in([BAR + RAISED[0], *(f"[default0]:{line}" for line in RAISED[1:])])
    assert (found.message, lines_of(found)) == ("bad row 7", [5, 9])


def test_a_traceback_at_the_end_of_a_long_line_is_found(tmp_path: Path) -> None:
    text = "import sys\nsys.stderr.write('.' * 100_000)\nraise ValueError('bad row 7')\n"
    found = found_in(printed_by(tmp_path, text))
    assert (found.message, lines_of(found)) == ("bad row 7", [3])


PREFIXES = (
    "[rank{}]: ",
    "[rank{0}]: [rank{0}]: ",
    "[default{}]:",
    "r12i0n8:{}: ",
    "{}: ",
    "[1,{}]<stderr>:",
    "(TrainWorker pid={}, ip=10.0.0.2) ",
    "worker-{}  | ",
)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_tracebacks_of_interleaved_ranks_are_told_apart(prefix: str) -> None:
    lines = [
        prefix.format(rank) + line.replace("bad row 7", f"bad row {rank}").replace("line 5", f"line {rank}")
        for line in RAISED
        for rank in (2, 0, 1)
    ]
    found = found_in(lines)
    assert (found.message, lines_of(found)) == ("bad row 2", [2, 9])
    assert prefix.format(2) not in found.text
    lost = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.3]:6539"
    assert found_in([line.replace("bad row 2", lost) for line in lines]).message == "bad row 0"


def test_a_prefix_with_the_time_of_each_line_is_removed() -> None:
    lines = [f"2026-11-26T10:00:00.{number:03}Z stderr F {line}" for number, line in enumerate(RAISED)]
    found = found_in(lines)
    assert (found.message, lines_of(found)) == ("bad row 7", [5, 9])


def test_lines_of_others_within_a_traceback_are_left_out() -> None:
    lines = [
        *RAISED[:3],
        "[rank3]: step 4",
        "saved",
        *RAISED[3:6],
        "epoch: 3",
        *RAISED[6:-1],
        "INFO saving",
        RAISED[-1],
    ]
    found = found_in(lines)
    assert (found.error, found.message, lines_of(found)) == ("ValueError", "bad row 7", [5, 9])


GROUP = """\
def read(row):
    raise ValueError(f"bad row {row}")
def shard():
    try:
        read(7)
    except ValueError as error:
        raise RuntimeError("shard 3") from error
errors = []
for each in (shard, lambda: read(8)):
    try:
        each()
    except Exception as error:
        errors.append(error)
try:
    raise ExceptionGroup("loaders", errors)
except ExceptionGroup as group:
    raise ExceptionGroup("epoch", [group, TypeError("not raised")])
"""


@pytest.mark.parametrize("prefix", ["", "[rank0]: ", "node-7:12: "])
def test_the_first_exception_of_a_group_is_the_failure(tmp_path: Path, prefix: str) -> None:
    lines = [prefix + line for line in printed_by(tmp_path, GROUP)]
    lines[0] = lines[0] if prefix else BAR + lines[0]
    found = found_in(lines)
    assert (found.error, found.message, found.first_line) == ("RuntimeError", "shard 3", 0)
    assert lines_of(found) == [7, 11, 15, 17]
    assert "ValueError: bad row 7" in found.text
    assert "ExceptionGroup: epoch (2 sub-exceptions)" in found.text
    assert found.text.splitlines()[-1].endswith("---")


def test_an_exception_that_was_not_raised_has_the_calls_of_its_group(tmp_path: Path) -> None:
    found = found_in(printed_by(tmp_path, 'raise ExceptionGroup("two\\nlines", [ValueError("bad row 7")])\n'))
    assert (found.error, found.message, lines_of(found)) == ("ValueError", "bad row 7", [1])


def test_an_exception_of_a_loader_process_is_reported_with_its_own_calls() -> None:
    # As torch.utils.data prints it.
    found = found_in(
        """\
Traceback (most recent call last):
  File "/home/u/train.py", line 9, in <module>
    for batch in loader:
  File "/v/site-packages/torch/_utils.py", line 769, in reraise
    raise exception
ValueError: Caught ValueError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/v/site-packages/torch/utils/data/_utils/worker.py", line 349, in _worker_loop
    data = fetcher.fetch(index)
  File "/home/u/data.py", line 5, in __getitem__
    raise ValueError("bad row 7")
ValueError: bad row 7""".splitlines()
    )
    assert (found.message, found.first_line) == ("bad row 7", 0)
    assert [frame.line for frame in found.frames if frame.owner == "user"] == [5, 9]
    assert "Caught ValueError" in found.text


def test_what_ray_quotes_of_a_process_is_the_failure() -> None:
    lines = [*RAISED[:-1], "ray.exceptions.RayTaskError(ValueError): ray::fit() (pid=7)"]
    found = found_in([*lines, '  File "/home/u/fit.py", line 3, in fit', "ValueError: bad row 7"])
    assert (found.error, lines_of(found)[0]) == ("ValueError", 3)


@pytest.mark.parametrize("prefix", ["", "0: "])
def test_a_script_that_does_not_compile_is_reported(tmp_path: Path, prefix: str) -> None:
    lines = [prefix + line for line in printed_by(tmp_path, "x = 1\ndef f(:\n    pass\n")]
    found = found_in(lines)
    assert (found.error, lines_of(found)) == ("SyntaxError", [2])


RICH = """\
import logging, sys
from rich.logging import RichHandler
from rich.traceback import install
def read(row):
    raise ValueError(f"bad row {row}")
if sys.argv[1] == "box":
    install()
    read(7)
logging.basicConfig(handlers=[RichHandler()])
try:
    read(7)
except ValueError:
    logging.exception("the epoch failed")
    sys.exit(1)
"""


@pytest.mark.parametrize(("how", "calls"), [("box", [5, 8]), ("log", [5, 11])])
def test_tracebacks_of_rich_are_found(tmp_path: Path, how: str, calls: list[int]) -> None:
    found = found_in(printed_by(tmp_path, RICH, how))
    assert (found.error, found.message, lines_of(found)) == ("ValueError", "bad row 7", calls)
    assert [frame.function for frame in found.frames] == ["read", "<module>"]


def test_a_frame_that_loguru_marks_is_read() -> None:
    lines = """\
2026-11-26 10:00:00.123 | ERROR    | __main__:<module>:12 - the epoch failed
Traceback (most recent call last):
> File "/home/u/train.py", line 12, in <module>
    main()
    \u2514 <function main at 0x7f>
  File "/home/u/train.py", line 5, in main
    raise ValueError(text)
                     \u2514 'bad row 7'
ValueError: bad row 7""".splitlines()
    assert lines_of(found_in(lines)) == [5, 12]


ARGPARSE = """\
import argparse
parser = argparse.ArgumentParser()
for number in range(30):
    parser.add_argument(f"--option-{number}")
parser.parse_args()
"""
CLICK = """\
import click
@click.command()
@click.option("--lr", type=float)
def main(lr):
    pass
main()
"""
ABSL = """\
from absl import app, flags
flags.DEFINE_float("lr", 1.0, "rate")
app.run(lambda argv: 0)
"""
TYPER = """\
import typer
def main(lr: float = 1.0):
    pass
typer.run(main)
"""


@pytest.mark.parametrize("prefix", ["", "[rank0]: ", "[default0]:", "r12i0n8:3: "])
@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param(ARGPARSE, "error: unrecognized arguments: --bogus", id="argparse"),
        pytest.param(CLICK, "Error: No such option", id="click"),
        pytest.param(ABSL, "Flags parsing error: Unknown command line flag 'bogus'", id="absl"),
        pytest.param(TYPER, "Error: No such option: --bogus", id="typer"),
    ],
)
def test_an_error_of_the_command_line_is_the_failure(tmp_path: Path, prefix: str, text: str, error: str) -> None:
    launcher = """\
Traceback (most recent call last):
  File "/v/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError: """.splitlines()
    lines = ["starting", *(prefix + line for line in printed_by(tmp_path, text, "--bogus"))]
    found = found_in([*lines, *launcher])
    assert f"{found.error}: {found.message}".startswith(error)
    assert (found.kind, found.frames) == ("refused", [])


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        pytest.param(["ERROR: Could not consume arg: --x", "Usage: x.py"], "Could not consume arg: --x", id="fire"),
        pytest.param(["usage: x.py [-h]", "error: Key 'x' is unknown"], "Key 'x' is unknown", id="jsonargparse"),
        pytest.param(["/v/bin/python3: No module named trian"], "No module named trian", id="module"),
        pytest.param(["python: can't open file '/w/x.py': x"], "can't open file '/w/x.py': x", id="file"),
        pytest.param(
            [
                "\u256d\u2500 Required options \u2500\u2500\u2500\u2500\u256e",
                "\u2502 Missing: --lr     \u2502",
                "\u2502 \u2500\u2500\u2500\u2500\u2500\u2500\u2500\u2500\u2500 \u2502",
                "\u2502 see --help        \u2502",
            ],
            "Missing: --lr",
            id="tyro",
        ),
    ],
)  # fmt: skip
def test_other_errors_of_command_lines_are_known(lines: list[str], error: str) -> None:
    assert found_in(lines).message == error


def test_a_later_traceback_counts_more_than_a_usage_message() -> None:
    assert found_in(["usage: tool [-h]", "tool: error: no", *RAISED]).error == "ValueError"
    assert cause_in(["memory usage: 3 GB", "Error: none of the hosts answers"]) is None


def test_a_command_of_a_package_is_not_the_users_code(tmp_path: Path) -> None:
    for folder in ("venv/bin", "project/bin"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "venv/bin/python3").touch()
    files = [tmp_path / name for name in ("venv/bin/accelerate", "project/bin/train", "venv/bin/train.py")]
    files.append(Path("/home/u/.local/bin/torchrun"))
    calls = [line for file in files for line in (f'  File "{file}", line 8, in <module>', "    sys.exit(main())")]
    found = found_in([RAISED[0], *calls, RAISED[-1]])
    owners = [frame.owner for frame in reversed(found.frames)]
    assert owners == ["library", "user", "user", "library"]


POOL = """\
Traceback (most recent call last):
  File "/home/u/train.py", line 9, in <module>
    list(pool.map(load, rows))
  File "/usr/lib/python3.11/concurrent/futures/_base.py", line 401, in __get_result
    raise self._exception
concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly.""".splitlines()


@pytest.mark.parametrize("prefix", ["", "[rank1]: ", "[default0]:", "0: ", "r12i0n8:3: "])
@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("F external/xla/xla/service/rendezvous.cc:127] Termination timeout of 40 seconds exceeded", "SIGABRT"),
        ("2026-11-26 11:12:18.5: F external/xla/xla/service/hlo.cc:7] Check failed: a == b (1 vs. 2)", "SIGABRT"),
        ("F0000 00:00:1764155548.123456   12345 hlo.cc:7] Check failed: a == b", "SIGABRT"),
        ("[F1126 10:00:00.123456789 TensorImpl.cpp:7] Check failed: a == b", "SIGABRT"),
        ("Check failed: a == b (1 vs. 2)", "SIGABRT"),
        ("free(): invalid pointer", "SIGABRT"),
        ("double free or corruption (!prev)", "SIGABRT"),
        ("*** SIGSEGV received by PID 7 (TID 8) on cpu 1; stack trace: ***", "SIGSEGV"),
        ("terminate called without an active exception", "SIGABRT"),
        ("python: ../csrc/pool.c:3: int take(): Assertion `size > 0' failed.", "SIGABRT"),
        ("Fatal Python error: Bus error", "SIGBUS"),
    ],
)
def test_an_abort_in_native_code_is_the_failure(prefix: str, line: str, error: str) -> None:
    lines = [f"{prefix}step 1", prefix + line, *POOL]
    found = found_in(lines)
    assert (found.error, found.kind, found.first_line, lines_of(found)) == (error, "aborted", 1, [401, 9])
    assert line.lstrip("[").endswith(found.message)
    assert found.text.splitlines()[1:] == POOL
    assert found_in(lines[:2]).error == error, "without a traceback"


@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError: DataLoader worker (pid(s) 17) exited unexpectedly",
        "RuntimeError: DataLoader worker (pid 17) is killed by signal: Aborted. ",
        "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGABRT",
        "joblib.externals.loky.process_executor.TerminatedWorkerError: A worker process was unexpectedly terminated.",
        "EOFError",
        "RuntimeError: CUDA error: device-side assert triggered",
    ],
)
def test_the_loss_of_a_process_follows_from_its_abort(error: str) -> None:
    abort = ["terminate called after throwing an instance of 'std::runtime_error'", "  what():  no space in the arena"]
    found = found_in(["step 1", *abort, *RAISED[:-1], error])
    assert (found.error, found.message) == ("std::runtime_error", "no space in the arena")
    assert found.text.splitlines()[:2] == abort


def test_an_exception_before_an_abort_or_without_relation_to_it_stays() -> None:
    abort = "terminate called without an active exception"
    assert found_in([*RAISED, abort]).error == "ValueError", "the interpreter ends by it"
    assert found_in([abort, *RAISED]).error == "ValueError"
    lost = (
        "F1126 10:00:00.1 7 client.h:80] Terminating process because the JAX distributed service detected fatal errors"
    )
    assert found_in([f"[rank0]: {lost}", *(f"[rank1]: {line}" for line in RAISED)]).error == "ValueError"
    assert found_in([lost]).is_following
    steps = [f"step {number}" for number in range(100)]
    assert found_in([*RAISED, *steps, abort]).error == "SIGABRT", "the exception was handled"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("train.sh: line 3: 12345 Segmentation fault      (core dumped) python train.py", "aborted"),
        ("srun: error: node-1: task 3: Segmentation fault (core dumped)", "aborted"),
        ("Killed", "killed"),
    ],
)
def test_what_a_shell_says_of_a_signal_is_the_failure(line: str, kind: str) -> None:
    found = found_in(["step 1", line])
    assert (found.message, found.kind) == (line, kind)


def test_lines_about_other_things_are_no_aborts() -> None:
    lines = ["W external/xla/x.cc:3] slow", "step 3 Aborted: 2", "F 3.5 x.h", "training terminated", "Check failed: no"]
    assert cause_in(lines[:-1]) is None
    warned = "W0000 00:00:1764155548.1 17 pjrt.cc:77] Check failed: no peer, tried again"
    assert cause_in([warned, "we terminate called jobs", "free(): 3 slots"]) is None
    assert cause_in(["usage: 45.2 GB", "server: error: tried again"]) is None


def test_a_foreign_traceback_is_found_among_those_of_launchers() -> None:
    lines = """[rank1]: Traceback (most recent call last):
[rank0]: Traceback (most recent call last):
[rank1]:   File "/home/u/train.py", line 3, in main
[rank0]:   File "/home/u/train.py", line 9, in main
[rank1]: ValueError: bad row 7
[rank0]: RuntimeError: Connection closed by peer
Traceback (most recent call last):
  File "/x/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError: """.splitlines()

    cause = cause_in(lines)

    assert cause is not None
    assert (cause.error, cause.message, cause.frames[0].line) == ("ValueError", "bad row 7", 3)
    # A rank that lost another one may print first.
    first, second = ([line for line in lines if line.startswith(f"[rank{rank}]")] for rank in (0, 1))
    message = "[/pytorch/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:6539"
    lost = [line.replace("Connection closed by peer", message) for line in first]
    assert cause_in([*lost, *second, *lines[6:]]) == cause._replace(first_line=3)
    # Lines of a log are stripped.
    assert cause_in([line.rstrip() for line in lines]) == cause
    assert cause_in(["Traceback", "Error: x", '  File "x", line 1']) is None


def test_an_exception_in_a_process_of_a_pool_is_found_where_it_was_raised() -> None:
    # As torch_xla.launch prints it.
    lines = """concurrent.futures.process._RemoteTraceback:
\"\"\"
Traceback (most recent call last):
  File "/home/u/train.py", line 18, in main
ValueError: bad row 7
\"\"\"

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/home/u/train.py", line 29, in <module>
ValueError: bad row 7""".splitlines()

    cause = cause_in(lines)

    assert cause is not None
    assert [(frame.line, frame.function) for frame in cause.frames] == [(18, "main")]
    assert "line 29" in cause.text


def test_an_exception_long_before_the_end_by_a_signal_was_survived() -> None:
    steps = [f"step {step}" for step in range(100)]
    assert cause_in([*RAISED, *steps], -signal.SIGSEGV) is None
    # The interpreter may crash while it ends by an exception.
    assert cause_in([*RAISED, "2 warnings"], -signal.SIGSEGV) == cause_in(RAISED)
    assert cause_in(["usage: x.py [-h]", "error: Key 'x' is unknown"], -signal.SIGKILL) is None


def test_functions_that_call_each_other_without_end_are_reported(tmp_path: Path) -> None:
    text = "def f(n):\n    return g(n)\n\n\ndef g(n):\n    return f(n)\n\n\nf(0)\n"
    found = found_in(printed_by(tmp_path, text))
    assert (found.error, found.message) == ("RecursionError", "maximum recursion depth exceeded")
    shown = found.text.split("\n")
    assert (shown[0], shown[-1]) == ("Traceback (most recent call last):", f"{found.error}: {found.message}")
    assert len(shown) < 500


HYDRA_HINT = ["", "Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace."]


@pytest.mark.parametrize("prefix", ["", "[rank0]: "])
@pytest.mark.parametrize(
    "lines",
    [
        [
            "Could not override 'lr'.",
            "To append to your config use +lr=3",
            "Key 'lr' is not in struct",
            "    full_key: lr",
        ],
        ["Error parsing override 'lr==[3'", "extraneous input '=' expecting {<EOF>}"],
        ["In 'config': Could not find 'model/big'", "", "Available options in 'model':", "\tsmall"],
        ["Primary config directory not found.", "Check that the config directory '/conf' exists and readable"],
    ],
    ids=lambda lines: lines[0],
)
def test_the_error_of_hydra_is_the_failure(prefix: str, lines: list[str]) -> None:
    found = found_in(["step 1 loss 0.5", *(prefix + line for line in [*lines, *HYDRA_HINT])])
    assert (found.error, found.message, found.kind) == ("hydra", lines[0], "refused")


def test_an_exception_below_hydra_is_the_failure() -> None:
    found = found_in(["Error executing job with overrides: []", *RAISED, *HYDRA_HINT])
    assert found.error == found_in(RAISED).error
    assert (found_in(RAISED).message, found_in(RAISED).kind) == (found.message, found.kind)


def test_what_absl_logs_before_it_aborts_is_the_failure() -> None:
    fatal = "F1126 14:55:22.738898 139802483673984 train.py:4] no data in /data"
    stack = ["Fatal Python error: Aborted", "", "Current thread 0x00007f (most recent call first):"]
    steps = [f"I1126 14:55:22.7 1398 train.py:{index}] step {index}" for index in range(2_000)]
    found = found_in([*steps, fatal, *stack, '  File "/home/u/train.py", line 4 in main'])
    assert (found.error, found.message, found.kind, lines_of(found)) == ("SIGABRT", fatal, "aborted", [4])


def test_the_exception_of_a_program_that_a_script_started_is_the_failure(tmp_path: Path) -> None:
    child = "raise ValueError(7)"
    text = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', '{child}'], check=True)\n"
    found = found_in(printed_by(tmp_path, text))
    assert (found.error, found.message) == ("ValueError", "7")

    handled = text.replace("subprocess.run", "print('step\\n' * 20); subprocess.run").replace(child, "exit(7)")
    caught = "import traceback\ntry:\n    1 / 0\nexcept ArithmeticError:\n    traceback.print_exc()\n"
    assert found_in(printed_by(tmp_path, caught + handled)).error == "subprocess.CalledProcessError"


def test_the_first_exception_of_a_group_drawn_by_rich_is_the_failure(tmp_path: Path) -> None:
    text = """
from rich.traceback import install
install()
raise ExceptionGroup("all", [ExceptionGroup("inner", [ValueError("bad row")]), TypeError("x")])
"""
    found = found_in(printed_by(tmp_path, text))
    assert (found.error, found.message, lines_of(found)) == ("ValueError", "bad row", [4])


def test_a_box_of_rich_in_a_narrow_column_is_a_traceback(tmp_path: Path) -> None:
    text = """
import logging, sys
from rich.console import Console
from rich.logging import RichHandler
logging.basicConfig(handlers=[RichHandler(rich_tracebacks=True, console=Console(width=70))])
try:
    raise ValueError("bad row")
except ValueError:
    logging.exception("failed")
sys.exit(1)
"""
    found = found_in(printed_by(tmp_path, text))
    assert (found.error, found.message, lines_of(found)) == ("ValueError", "bad row", [7])
