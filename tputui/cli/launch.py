"""Starts a run: checks its configuration with the engine, creates its directory, starts its supervisor.

Everything is checked before anything is created, so a refused configuration leaves no run directory behind.
"""

from __future__ import annotations

import contextlib
import os
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
from tputui.check_result import CheckResult, Problem
from tputui.cli import hosts
from tputui.cli.console import CommandError, UsageError
from tputui.environment import launch_problem
from tputui.exit_codes import ExitCode
from tputui.formatting import inert
from tputui.session.run_directory import RunDirectory
from tputui.supervise import spawn
from tputui.supervise.command import RunCommand
from tputui.telemetry import code_record, files, provenance, redaction, rundir
from tputui.telemetry.journal import SUFFIX

AnswerT = TypeVar("AnswerT")

SUPERVISOR_START_S = 30.0
SUPERVISOR_EXIT_S = 5.0
_POLL_S = 0.02
_STOP_POLL_S = 0.1
_LOG_LINES = 5


def check_system() -> None:
    """Raises `CommandError` where runs cannot be launched, only watched."""
    if (problem := launch_problem()) is not None:
        raise UsageError(problem)


def last_checkpoint(run_dir: Path) -> Path:
    """The newest checkpoint of a run. Raises `CommandError` if it has none."""
    path = (run_dir / rundir.CHECKPOINTS / hosts.LAST_CHECKPOINT).resolve()
    if not path.is_file():
        raise UsageError(f"{inert(run_dir.name)}: cannot resume: the run saved no checkpoint")
    return path


def check_with_engine(
    loaded: config.RunConfig, source: str, resume: Path | None, overrides: Sequence[str] = ()
) -> dict[str, Any]:
    """Has the engine check the task, its options and the available cores. Raises `CommandError`.

    Returns the derived values: step counts, sizes and cores.
    """
    result = request_check(loaded, source, resume)
    if result.problems:
        sentences = [
            inert(f"{config.source_of_key(source, problem.key, overrides, problem.message)}: {problem.sentence}")
            for problem in result.problems
        ]
        raise UsageError("\ntputui: ".join(sentences))
    return result.facts


def request_check(
    loaded: config.RunConfig,
    source: str,
    resume: Path | None,
    *,
    memory: bool = False,
    call: Callable[[list[str], bytes], subprocess.CompletedProcess[bytes]] | None = None,
) -> CheckResult:
    """The engine's check of a configuration, with `memory` also the predicted memory. Raises `CommandError`."""
    argv = ["--check", "--source", source]
    argv += ["--resume", str(resume)] if resume is not None else []
    argv += ["--memory"] if memory else []
    content = msgspec.json.encode(config.to_builtins(loaded))
    answer = (call or call_engine)([*argv, "--", loaded.task], content)
    return decode_answer(answer, CheckResult, "the engine cannot check the configuration")


def call_engine(
    arguments: list[str], content: bytes = b"", stop: Event | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Runs `python -P -m engine.commands.describe` with these arguments until it ends or `stop` is set."""
    argv = [sys.executable, "-P", "-m", "engine.commands.describe", *arguments]
    pipe, env = subprocess.PIPE, spawn.environment(os.environ)
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, env=env) as process:
        stdin: bytes | None = content
        try:
            while True:
                try:
                    out, err = process.communicate(stdin, timeout=_STOP_POLL_S if stop is not None else None)
                    return subprocess.CompletedProcess(argv, process.returncode, out, err)
                except subprocess.TimeoutExpired:
                    stdin = None
                    if stop is not None and stop.is_set():
                        process.kill()
        except BaseException:
            process.kill()
            raise


def decode_answer(done: subprocess.CompletedProcess[bytes], kind: type[AnswerT], failure: str) -> AnswerT:
    """The engine's answer. Raises `CommandError`, starting with `failure`, if it gave none."""
    try:
        return msgspec.json.decode(done.stdout, type=kind)
    except msgspec.MsgspecError:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        why = inert(last[0]) if last else f"it ended with exit code {done.returncode} without output"
        if done.returncode == ExitCode.USAGE:
            raise UsageError(why) from None
        raise CommandError(ExitCode.ENVIRONMENT, f"{failure}: {why}") from None


def several_hosts(loaded: config.RunConfig) -> Problem | None:
    """Why a configuration cannot be started on this host alone."""
    num_hosts = loaded.launch.num_hosts
    if num_hosts == 1:
        return None
    message = f"a run on {num_hosts} hosts is started by `tputui run` on each of them"
    return Problem("launch.hosts" if loaded.launch.hosts else "launch.nnodes", message)


def create_run(
    parent: Path,
    run: config.RunConfig | config.ScriptRun,
    *,
    config_path: str,
    name: str | None = None,
    resume: Path | None = None,
    argv: list[str] | None = None,
    command: RunCommand | None = None,
    host_index: int | None = None,
) -> Path:
    """Creates the directory of a run with this configuration, named `name` or after time and program.

    `command`: of a `ScriptRun`, as it is run; its secrets are masked. `argv` is by default the command line of this
    process. `host_index`: index of this host in a run on several hosts; if they share the directory, the first one
    creates it, and the others use it.

    Raises `CommandError`.
    """
    if isinstance(run, config.RunConfig):
        if host_index is None and (problem := several_hosts(run)) is not None:
            raise UsageError(f"{inert(config_path)}: {problem.sentence}")
        tables, program = config.to_builtins(run), run.task
        _refuse_secrets(tables, config_path)
    else:
        tables, program = config.script_to_builtins(run), config.script_name(run.script.command)
        tables["script"]["command"] = redaction.masked_argv(run.script.command)
    if command is not None:
        tables["script"]["cwd"] = command.cwd
    now = time.time()
    manifest = rundir.Manifest(
        run=name or rundir.default_name(program, now),
        created=now,
        version=__version__,
        config_path=config_path,
        config=tables,
        argv=argv or ["tputui", *sys.argv[1:]],
        cwd=os.getcwd(),
        resume_from=str(resume) if resume is not None else None,
    ).with_provenance(provenance.collect(Path(command.cwd) if command else Path.cwd()))
    try:
        run_dir = rundir.create(parent, manifest) if name else rundir.create_numbered(parent, manifest)
    except FileExistsError:
        if host_index is not None:
            return hosts.join_directory(parent / manifest.run, manifest, host_index)
        raise UsageError(f"{parent} already contains a run or file named {name}; choose another --name") from None
    except UnicodeEncodeError:
        raise UsageError(_not_utf8(manifest)) from None
    except OSError as error:
        why = files.reason(error, parent)
        message = f"{error.filename or parent}: cannot create a run here: {why}; choose another --runs-dir"
        raise UsageError(message) from None
    # A full disk is reported by the start of the supervisor.
    with contextlib.suppress(OSError):
        if command is None:
            code_record.save(run_dir, code_record.collect(Path.cwd()))
        else:
            code_record.save(run_dir, code_record.collect(Path(command.cwd), command.words, command.environ))
    return run_dir


def _refuse_secrets(values: dict[str, Any], config_path: str) -> None:
    """Raises `CommandError` for secrets: a run stores its whole configuration, for anyone who gets a copy of it."""
    if names := redaction.secret_keys(values):
        message = f"{inert(config_path)}: {inert(', '.join(names))}: this looks like a secret, and a run stores "
        message += "its configuration; put it into an environment variable and read it from there in the task"
        raise UsageError(message)


def _not_utf8(manifest: rundir.Manifest) -> str:
    """A sentence that names the path that is not UTF-8."""
    if _is_utf8(manifest.cwd):
        path = next((text for text in (manifest.config_path, manifest.resume_from or "") if not _is_utf8(text)), "")
        subject = f"the path {path!r}" if path else "the command line"
        return f"{subject} is not valid UTF-8, but a run records it; rename the file or its directory"
    return f"the working directory {manifest.cwd!r} is not valid UTF-8, but a run records it; rename it"


def _is_utf8(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def start_supervisor(
    run_dir: Path, command: RunCommand | None = None, host_index: int | None = None
) -> subprocess.Popen[bytes]:
    """Starts the supervisor, detached; returns once it has written to its journal. `command` replaces the engine.

    Raises `CommandError`. A run that could not be started, for example on a full disk, leaves no directory behind, but
    that of a run on several hosts (`host_index`) may be theirs too.
    """
    index, directory = host_index or 0, RunDirectory(run_dir)
    try:
        process = spawn.start_supervisor(run_dir, command, index)
    except OSError as error:
        message = f"{inert(run_dir.name)} could not be started: {files.reason(error, run_dir)}"
        _remove(run_dir, host_index)
        raise CommandError(ExitCode.FAILED, message) from None
    deadline = time.monotonic() + SUPERVISOR_START_S
    pause = Event()
    # The command may rename the directory as soon as it runs.
    while not _has_started(directory.files, index):
        if process.poll() is not None:
            problem = f"its supervisor ended with exit code {process.returncode}"
        elif time.monotonic() > deadline:
            problem = f"its supervisor wrote nothing within {SUPERVISOR_START_S:g} s"
        else:
            pause.wait(_POLL_S)
            continue
        if not _has_started(directory.files, index):
            message = f"{inert(run_dir.name)} did not start: {problem}: {_log_end(directory.files, index)}"
            if process.poll() is not None:
                _remove(run_dir, host_index)
            raise CommandError(ExitCode.FAILED, message)
    directory.close()
    return process


def wait_settled(supervisor: subprocess.Popen[bytes], timeout_s: float = SUPERVISOR_EXIT_S) -> None:
    """Waits up to `timeout_s` until the supervisor of a run that has ended is gone.

    It seals journals after the end event, and a script that continues after the command expects them sealed.
    """
    with contextlib.suppress(subprocess.TimeoutExpired):
        supervisor.wait(timeout_s)


def _remove(run_dir: Path, host_index: int | None) -> None:
    if host_index is None:
        shutil.rmtree(run_dir, ignore_errors=True)


def _has_started(run_dir: Path, host_index: int) -> bool:
    """Whether the supervisor has written a whole line."""
    try:
        with (run_dir / f"supervisor-{host_index}{SUFFIX}").open("rb") as file:
            return b"\n" in file.read(4096)
    except FileNotFoundError:
        return False


def _log_end(run_dir: Path, host_index: int) -> str:
    try:
        text = (run_dir / spawn.supervisor_log(host_index)).read_text(errors="replace")
    except OSError as error:
        return str(error)
    return inert(" | ".join(text.strip().splitlines()[-_LOG_LINES:])) or "no output"
