"""From a configuration file to a running supervisor, in the order in which things can be refused.

Nothing is made before everything was checked: what is refused leaves no run directory behind.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

import msgspec

from tputui import __version__, config
from tputui.check_result import CheckResult
from tputui.cli.console import CommandError
from tputui.exit_codes import ExitCode
from tputui.formatting import inert
from tputui.supervise import spawn
from tputui.telemetry import redaction, rundir
from tputui.telemetry.journal import SUFFIX

AnswerT = TypeVar("AnswerT")

LAST_CHECKPOINT = "last.pt"
SUPERVISOR_START_S = 30.0
SUPERVISOR_EXIT_S = 5.0
_POLL_S = 0.02
_LOOK_S = 0.1
"""Seconds between two looks at whether an answer is still wanted."""
_LOG_LINES = 5


def last_checkpoint(run_dir: Path) -> Path:
    """The newest checkpoint of a run. Raises `CommandError` where it has none."""
    path = (run_dir / rundir.CHECKPOINTS / LAST_CHECKPOINT).resolve()
    if not path.is_file():
        words = f"{inert(run_dir.name)}: there is nothing to go on from: it saved no checkpoint"
        raise CommandError(ExitCode.USAGE, words)
    return path


def check_with_engine(
    loaded: config.RunConfig, source: str, resume: Path | None, overrides: Sequence[str] = ()
) -> dict[str, Any]:
    """Has the engine check what only it knows: the task, its keys, the cores there are. Raises `CommandError`.

    Returns the figures that the configuration comes to.
    """
    verdict = ask_engine(loaded, source, resume)
    if verdict.problems:
        sentences = [
            inert(f"{config.blamed(source, problem.key, overrides)}: {problem.key}: {problem.message}")
            for problem in verdict.problems
        ]
        raise CommandError(ExitCode.USAGE, "\ntputui: ".join(sentences))
    return verdict.facts


def ask_engine(
    loaded: config.RunConfig,
    source: str,
    resume: Path | None,
    *,
    memory: bool = False,
    call: Callable[[list[str], bytes], subprocess.CompletedProcess[bytes]] | None = None,
) -> CheckResult:
    """What the engine says of a configuration, with `memory` also of the memory of a step. Raises `CommandError`."""
    argv = ["--check", "--source", source]
    argv += ["--resume", str(resume)] if resume is not None else []
    argv += ["--memory"] if memory else []
    content = msgspec.json.encode(config.to_builtins(loaded))
    done = (call or call_engine)([*argv, "--", loaded.task], content)
    return answer_of(done, CheckResult, "the engine cannot check the configuration")


def call_engine(
    words: list[str], content: bytes = b"", stop: Event | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Runs `python -P -m engine.commands.describe` with these words to its end, or until `stop` is set."""
    argv = [sys.executable, "-P", "-m", "engine.commands.describe", *words]
    pipe, env = subprocess.PIPE, spawn.environment(os.environ)
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, env=env) as process:
        given: bytes | None = content
        try:
            while True:
                try:
                    out, err = process.communicate(given, timeout=_LOOK_S if stop is not None else None)
                    return subprocess.CompletedProcess(argv, process.returncode, out, err)
                except subprocess.TimeoutExpired:
                    given = None
                    if stop is not None and stop.is_set():
                        process.kill()
        except BaseException:
            process.kill()
            raise


def answer_of(done: subprocess.CompletedProcess[bytes], kind: type[AnswerT], cannot: str) -> AnswerT:
    """The engine's answer. Raises `CommandError` where it gave none; `cannot` says then what was wanted of it."""
    try:
        return msgspec.json.decode(done.stdout, type=kind)
    except msgspec.MsgspecError:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        why = inert(last[0]) if last else f"it ended with exit code {done.returncode} and said nothing"
        if done.returncode == ExitCode.USAGE:
            raise CommandError(ExitCode.USAGE, why) from None
        raise CommandError(ExitCode.ENVIRONMENT, f"{cannot}: {why}") from None


def create_run(
    parent: Path, loaded: config.RunConfig, *, config_path: str, name: str | None, resume: Path | None, argv: list[str]
) -> Path:
    """Makes the run's directory, named after the time and the task or as was asked. Raises `CommandError`."""
    _refuse_secrets(config.to_builtins(loaded), config_path)
    now = time.time()
    manifest = rundir.Manifest(
        run=name or _default_name(loaded.task, now),
        created=now,
        version=__version__,
        config_path=config_path,
        config=config.to_builtins(loaded),
        argv=argv,
        cwd=os.getcwd(),
        resume_from=str(resume) if resume is not None else None,
    )
    try:
        return rundir.create(parent, manifest) if name else _create_numbered(parent, manifest)
    except FileExistsError:
        words = f"there is a run or a file called {name} in {parent}; choose another --name"
        raise CommandError(ExitCode.USAGE, words) from None
    except UnicodeEncodeError:
        raise CommandError(ExitCode.USAGE, _not_utf8(manifest)) from None
    except OSError as error:
        words = f"{error.filename or parent}: a run cannot be made there: {error.strerror}; name another --runs-dir"
        raise CommandError(ExitCode.USAGE, words) from None


def _refuse_secrets(values: dict[str, Any], config_path: str) -> None:
    """A run keeps its whole configuration, for everybody who gets a copy of it."""
    if names := redaction.secret_keys(values):
        words = f"{inert(config_path)}: {inert(', '.join(names))}: this looks like a secret, and a run keeps its "
        words += "configuration; put it into the environment, which no run keeps, and have the task read it there"
        raise CommandError(ExitCode.USAGE, words)


def _not_utf8(manifest: rundir.Manifest) -> str:
    """Which path of a run is not UTF-8, and what to do."""
    if _is_utf8(manifest.cwd):
        path = next((text for text in (manifest.config_path, manifest.resume_from or "") if not _is_utf8(text)), "")
        what = f"the path {path!r}" if path else "the command line"
        return f"{what} is not valid UTF-8, and a run records it; rename the file or its directory"
    return f"the working directory {manifest.cwd!r} is not valid UTF-8, and a run records it; rename it"


def _is_utf8(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def start(run_dir: Path) -> subprocess.Popen[bytes]:
    """Starts the supervisor, detached; returns once its journal is there.

    Raises `CommandError`; a run that nothing has started, for want of room on the disk, leaves no directory behind.
    """
    try:
        process = spawn.start_supervisor(run_dir)
    except OSError as error:
        shutil.rmtree(run_dir, ignore_errors=True)
        words = f"{inert(run_dir.name)} cannot be started: {error.strerror or error}"
        raise CommandError(ExitCode.FAILED, words) from None
    deadline = time.monotonic() + SUPERVISOR_START_S
    pause = Event()
    while not _has_begun(run_dir):
        if process.poll() is not None:
            how = f"its supervisor ended with exit code {process.returncode}"
        elif time.monotonic() > deadline:
            how = f"its supervisor wrote nothing within {SUPERVISOR_START_S:g} s"
        else:
            pause.wait(_POLL_S)
            continue
        if not _has_begun(run_dir):
            words = f"{inert(run_dir.name)} did not start: {how}: {_log_end(run_dir)}"
            if process.poll() is not None:
                shutil.rmtree(run_dir, ignore_errors=True)
            raise CommandError(ExitCode.FAILED, words)
    return process


def wait_settled(supervisor: subprocess.Popen[bytes]) -> None:
    """Waits until the supervisor of a run that has ended is gone, within reason.

    It seals journals after the end record; a script that goes on after the command finds them settled.
    """
    with contextlib.suppress(subprocess.TimeoutExpired):
        supervisor.wait(SUPERVISOR_EXIT_S)


def _has_begun(run_dir: Path) -> bool:
    """Whether the supervisor has written whole lines."""
    try:
        with (run_dir / f"supervisor-0{SUFFIX}").open("rb") as file:
            return b"\n" in file.read(4096)
    except FileNotFoundError:
        return False


def _log_end(run_dir: Path) -> str:
    try:
        text = (run_dir / spawn.SUPERVISOR_LOG).read_text(errors="replace")
    except OSError as error:
        return str(error)
    return inert(" | ".join(text.strip().splitlines()[-_LOG_LINES:])) or "it printed nothing"


def _default_name(task: str, now: float) -> str:
    return time.strftime("%Y%m%d-%H%M%S-", time.localtime(now)) + re.sub(r"[^A-Za-z0-9._-]+", "-", task)[:64]


def _create_numbered(parent: Path, manifest: rundir.Manifest) -> Path:
    """Makes a run whose name is taken already under the next free number."""
    base, number = manifest.run, 1
    while True:
        try:
            return rundir.create(parent, manifest)
        except FileExistsError:
            number += 1
            manifest = msgspec.structs.replace(manifest, run=f"{base}-{number}")
