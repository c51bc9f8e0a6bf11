"""Which code a run executed: uncommitted changes, the script, packages and environment variables, in `code.json`.

Recorded once, before the run starts, with secrets masked and sizes limited. Never raises while it collects: what cannot
be found out is recorded with the reason. A run directory is untrusted input, so reading is bounded too.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Annotated

import msgspec

from tputui.telemetry.files import read_small
from tputui.telemetry.masking import FieldMasker
from tputui.telemetry.provenance import git_problem, run_git
from tputui.telemetry.rundir import write_atomically
from tputui.telemetry.secrecy import Exact, Secrecy, Text

FILE = "code.json"
FORMAT = 1
DIFF_BYTES_MAX = 1 << 20
"""More of the uncommitted changes is not kept."""
SCRIPT_BYTES_MAX = 256 << 10
UNTRACKED_MAX = 200
PACKAGES_MAX = 5_000
RECORD_BYTES_MAX = 16 << 20
"""Maximum size of the file."""
GIT_TIMEOUT_S = 3.0
PYTHON_TIMEOUT_S = 5.0
ENVIRONMENT_PREFIXES = (
    *("PYTHON", "VIRTUAL_ENV", "CONDA_", "LD_LIBRARY_PATH", "LD_PRELOAD", "OMP_", "MKL_", "OPENBLAS_", "KMP_"),
    *("XLA_", "PJRT_", "PT_XLA_", "TPU_", "LIBTPU_", "CPU_NUM_DEVICES", "JAX_", "TF_", "TORCH", "PYTORCH_", "CUDA_"),
    *("NCCL_", "GLOO_", "MEGASCALE_", "HF_", "TRANSFORMERS_", "ACCELERATE_", "WANDB_", "KERAS_", "SLURM_"),
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NNODES", "NODE_RANK", "TPUTUI_"),
)
"""Environment variables that are recorded start like this: those that change how training runs. Any other variable may
be private and is left out."""
_VALUE_CHARS_MAX = 4_096
_LIST_PACKAGES = (
    "import json; from importlib import metadata; "
    "print(json.dumps({d.metadata['Name']: d.version for d in metadata.distributions() if d.metadata['Name']}))"
)


class UntrackedScript(msgspec.Struct, frozen=True, kw_only=True):
    """A script that git does not track, as it was when the run started."""

    path: Exact
    text: Text
    cut: bool = False
    """Whether the end of the file was left out."""


class CodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Which code a run executed. The commit is in the manifest."""

    format: int = FORMAT
    diff: Text = ""
    """Changes of tracked files against the commit, as `git diff HEAD` prints them."""
    diff_bytes: int = 0
    """Size of all changes; more than `diff` has if they were too large."""
    diff_why: Text | None = None
    """Why the changes are unknown; None if they are known."""
    untracked: list[Text] = []
    """Files in the working directory that git neither tracks nor ignores; at most `UNTRACKED_MAX`."""
    num_untracked: int = 0
    script: UntrackedScript | None = None
    """The script of the command, if git does not track it."""
    python: Exact | None = None
    """The interpreter that `packages` belong to; None if the command does not name one."""
    packages: dict[Exact, Exact] = {}
    """Installed packages: versions by name."""
    packages_why: Text | None = None
    """Why the packages are unknown; None if they are known."""
    environment: Annotated[dict[str, str], Secrecy.VALUES] = {}
    """Environment variables that start with one of `ENVIRONMENT_PREFIXES`, with secrets masked."""


class NoCodeRecord(Exception):
    """A run recorded no code, or its record cannot be read; the message is one sentence."""


def collect(directory: Path, command: Sequence[str] = (), environ: Mapping[str, str] = os.environ) -> CodeRecord:
    """The record of a run that starts `command` in `directory` now, with secrets masked; without a command, of this
    interpreter.

    Takes at most the two timeouts above.
    """
    diff, size, why = _diff(directory, environ)
    untracked = _untracked(directory, environ) if why is None else []
    python = python_of(command, directory, environ) if command else sys.executable
    packages, packages_why = _packages(python, directory, environ)
    kept = {name: value for name, value in sorted(environ.items()) if name.startswith(ENVIRONMENT_PREFIXES)}
    record = CodeRecord(
        diff=diff,
        diff_bytes=size,
        diff_why=why,
        untracked=untracked[:UNTRACKED_MAX],
        num_untracked=len(untracked),
        script=_script(command, directory, None if why is not None else untracked),
        python=python,
        packages=packages,
        packages_why=packages_why,
        environment={name: value[:_VALUE_CHARS_MAX] for name, value in kept.items()},
    )
    return FieldMasker().masked(record)


def save(run_dir: Path, record: CodeRecord) -> None:
    """Writes the record into a run directory. Raises `OSError`."""
    write_atomically(run_dir / FILE, msgspec.json.format(msgspec.json.encode(record)))


def read(run_dir: Path) -> CodeRecord:
    """The record of a run. Raises `NoCodeRecord`."""
    try:
        return msgspec.json.decode(read_small(run_dir / FILE, RECORD_BYTES_MAX), type=CodeRecord)
    except FileNotFoundError:
        raise NoCodeRecord("the run did not record its code: it is of an older version") from None
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise NoCodeRecord(f"{run_dir / FILE}: cannot be read: {why}") from None


def python_of(command: Sequence[str], directory: Path, environ: Mapping[str, str] = os.environ) -> str | None:
    """The Python interpreter that a command starts, by its name or by its first line; None if it is not known."""
    program = _program(command[0], directory, environ) if command else None
    if program is None:
        return None
    if os.path.basename(program).startswith("python"):
        return program
    try:
        with open(program, "rb") as file:
            first, *_ = file.readline(512).decode("utf-8", "replace").removeprefix("#!").split() or [""]
    except OSError:
        return None
    return first if os.path.basename(first).startswith("python") and os.access(first, os.X_OK) else None


def _program(name: str, directory: Path, environ: Mapping[str, str]) -> str | None:
    if os.path.dirname(name):
        path = directory / name
        return str(path) if os.access(path, os.X_OK) else None
    return shutil.which(name, path=environ.get("PATH"))


def _diff(directory: Path, environ: Mapping[str, str]) -> tuple[str, int, str | None]:
    """The changes against the commit, their size in bytes, and why they are unknown."""
    arguments = ["diff", "HEAD", "--no-color", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty"]
    try:
        done = run_git(arguments, directory, environ, time.monotonic() + GIT_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", 0, git_problem(error, directory, GIT_TIMEOUT_S)
    if done.returncode:
        return "", 0, git_problem(done.stderr, directory, GIT_TIMEOUT_S)
    content = done.stdout.encode("utf-8", "replace")
    text = content[:DIFF_BYTES_MAX].decode("utf-8", "ignore") if len(content) > DIFF_BYTES_MAX else done.stdout
    return text, len(content), None


def _untracked(directory: Path, environ: Mapping[str, str]) -> list[str]:
    arguments = ["ls-files", "--others", "--exclude-standard", "-z"]
    try:
        done = run_git(arguments, directory, environ, time.monotonic() + GIT_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [] if done.returncode else [name for name in done.stdout.split("\0") if name]


def _script(command: Sequence[str], directory: Path, untracked: Sequence[str] | None) -> UntrackedScript | None:
    """The first Python file among the words of the command, unless git tracks it. `untracked` is None without git."""
    name = next((word for word in command if word.endswith(".py") and (directory / word).is_file()), None)
    if name is None or (untracked is not None and os.path.normpath(name) not in untracked):
        return None
    try:
        with (directory / name).open("rb") as file:
            content = file.read(SCRIPT_BYTES_MAX + 1)
    except OSError:
        return None
    text = content[:SCRIPT_BYTES_MAX].decode("utf-8", "replace")
    return UntrackedScript(path=name, text=text, cut=len(content) > SCRIPT_BYTES_MAX)


def _packages(python: str | None, directory: Path, environ: Mapping[str, str]) -> tuple[dict[str, str], str | None]:
    """The packages of an interpreter, and why they are unknown."""
    if python is None:
        return {}, "the command is not a Python program"
    if os.path.realpath(python) == os.path.realpath(sys.executable) and _prefix(python) == _prefix(sys.executable):
        # Damaged metadata has no name.
        return _bounded({dist.metadata["Name"]: dist.version for dist in metadata.distributions()}), None
    try:
        done = subprocess.run(
            [python, "-c", _LIST_PACKAGES],
            cwd=directory,
            # Modules of the directory must not be imported in place of Python's own.
            env={**environ, "PYTHONSAFEPATH": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PYTHON_TIMEOUT_S,
            check=True,
        )
        return _bounded(msgspec.json.decode(done.stdout, type=dict[str, str])), None
    except subprocess.TimeoutExpired:
        return {}, f"{python} did not list them within {PYTHON_TIMEOUT_S:g} s"
    except (OSError, subprocess.CalledProcessError, msgspec.MsgspecError):
        return {}, f"{python} could not list them"


def _bounded(packages: Mapping[str, str]) -> dict[str, str]:
    named = sorted((name, version) for name, version in packages.items() if name and version)
    return dict(named[:PACKAGES_MAX])


def _prefix(python: str) -> str:
    """The folder of an interpreter: two virtual environments may link to the same program."""
    return os.path.dirname(os.path.abspath(python))


def summary(run_dir: Path) -> dict[str, object] | None:
    """The record of a run as a configuration, for comparing runs: changes by digest, packages and variables by name.

    None if the run has no readable record.
    """
    try:
        record = read(run_dir)
    except NoCodeRecord:
        return None
    changes = hashlib.sha256(record.diff.encode("utf-8", "surrogatepass")).hexdigest()[:12] if record.diff else "none"
    script = record.script
    config: dict[str, object] = {"uncommitted changes": record.diff_why or changes}
    if script is not None:
        digest = hashlib.sha256(script.text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        config["script"] = f"{script.path} {digest}"
    return {**config, "packages": dict(record.packages), "environment": dict(record.environment)}


def lines(record: CodeRecord) -> list[str]:
    """The record as text for a terminal, without escape sequences; the changes last."""
    packages = record.packages_why or f"{len(record.packages):,} of {record.python}"
    text_lines = [f"packages     {packages}"]
    text_lines += [f"  {name} {version}" for name, version in record.packages.items()]
    text_lines += [f"environment  {len(record.environment):,} variables"]
    text_lines += [f"  {name}={value}" for name, value in record.environment.items()]
    if record.num_untracked:
        more = record.num_untracked - len(record.untracked)
        text_lines += [f"untracked    {record.num_untracked:,} files", *(f"  {name}" for name in record.untracked)]
        text_lines += [f"  and {more:,} more"] if more else []
    if record.script is not None:
        cut = f" (only its first {SCRIPT_BYTES_MAX >> 10} KiB)" if record.script.cut else ""
        text_lines += [f"script       {record.script.path}, not tracked by git{cut}"]
        text_lines += [f"  {line}" for line in record.script.text.splitlines()]
    return [*text_lines, *_diff_lines(record)]


def _diff_lines(record: CodeRecord) -> list[str]:
    if record.diff_why is not None:
        return [f"changes      unknown: {record.diff_why}"]
    if not record.diff:
        return ["changes      none: the files that git tracks were those of the commit"]
    kept = len(record.diff.encode("utf-8", "replace"))
    size = f"{record.diff_bytes:,} bytes" + (f", the first {kept:,} kept" if record.diff_bytes > DIFF_BYTES_MAX else "")
    return [f"changes      against the commit, {size}", *record.diff.splitlines()]
