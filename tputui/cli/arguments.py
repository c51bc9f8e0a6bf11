"""Arguments that several commands share: the run, and a time in a run.

Does not read journals itself: `Session` does.
"""

from __future__ import annotations

import argparse
import datetime
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from tputui import formatting as fmt
from tputui.cli.console import UsageError
from tputui.cli.parser import Parser, nearest
from tputui.diagnosis.verdict import Strict
from tputui.formatting import inert
from tputui.telemetry import events as ev
from tputui.telemetry import rundir


def add_run_argument(parser: Parser, *, optional: bool = False, help: str = "name or directory of a run") -> None:
    parser.add_argument("run", metavar="RUN", nargs="?" if optional else None, help=help)


def add_config_or_command(parser: Parser) -> None:
    """Adds what a command that runs training takes: a configuration file with `--set`, or a command after `--`."""
    parser.usage = f"{parser.prog} [OPTION ...] CONFIG\n       {parser.prog} [OPTION ...] -- COMMAND ..."
    parser.add_argument("config", metavar="CONFIG", nargs="?", help="TOML file, such as those in sample_configs/")
    parser.take_command()
    add_set_option(parser)


def add_set_option(parser: Parser) -> None:
    """Adds `--set`, which is suggested for keys of the configuration that are given as options."""
    # Imported here so that other commands start faster.
    from tputui.config import keys_by_name

    parser.add_option(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="set a key of the configuration; repeatable"
    )
    parser.suggest_set(keys_by_name())


def check_config_or_command(args: argparse.Namespace, name: str) -> None:
    """Refuses arguments of the command `name` that contradict each other. Raises `CommandError`."""
    if args.command is None:
        if args.config is None:
            hint = f"to run a command of your own, write tputui {name} -- COMMAND"
            raise UsageError(f"{name}: the configuration file is missing; {hint}")
        if Path(args.config).suffix in (".py", ".sh"):
            program = "python" if args.config.endswith(".py") else "sh"
            message = f"is a script, not a configuration; write tputui {name} -- {program} {args.config}"
            raise UsageError(inert(f"{name}: {args.config} {message}"))
    elif args.config is not None:
        message = f"give either the configuration {args.config} or a command after --, not both"
        raise UsageError(inert(f"{name}: {message}"))
    elif args.set:
        raise UsageError(f"{name}: --set changes a configuration file; pass options of a command of your own after --")


def parent_of(args: argparse.Namespace) -> Path:
    return rundir.runs_dir(args.runs_dir, os.environ)


def existing_parent(args: argparse.Namespace) -> Path:
    """The directory of the runs, for a command that lists them.

    Raises `CommandError` if it is a file, or if `--runs-dir` does not exist. That of the environment, or the default,
    is created by the first run.
    """
    parent = parent_of(args)
    named = f"--runs-dir {args.runs_dir}" if args.runs_dir else str(parent)
    if parent.exists() and not parent.is_dir():
        raise UsageError(f"{inert(named)}: not a directory")
    if args.runs_dir and not parent.exists():
        raise UsageError(f"{inert(named)}: no such directory")
    return parent


def chosen_run(args: argparse.Namespace) -> Path:
    """The directory of the run RUN, or its mirror if it is on the machines of `--hosts`. Raises `CommandError`."""
    return mirror_of_hosts(args) or find_run(args.run, parent_of(args))


def mirror_of_hosts(args: argparse.Namespace) -> Path | None:
    """The mirror of the run RUN on the machines of `--hosts`; None without that option. Raises `CommandError`."""
    if getattr(args, "hosts", None) is None:
        return None
    from tputui.cli.remote_runs import address_of, whole_mirror

    address = address_of(args)
    return whole_mirror(address) if address is not None else None


def words_of_mirror(args: argparse.Namespace, run_dir: Path) -> str | None:
    """How the user names the chosen run if it is on other machines, such as `ssh://vm/run`; None for one of this."""
    if args.hosts is None and not args.run.startswith("ssh://"):
        return None
    from tputui.cli.remote_runs import words_of

    return words_of(run_dir)


def find_run(name: str, parent: Path) -> Path:
    """The directory of the run with the name or path `name`, or the mirror of one at an ssh address.

    Raises `CommandError` with the nearest name.
    """
    if name.startswith("ssh://"):
        # Imported here so that commands of local runs start faster.
        from tputui.cli.remote_runs import mirror_at

        is_default = parent == rundir.runs_dir(None, os.environ)
        return mirror_at(name, None if is_default else str(parent))
    try:
        return rundir.find(name, parent)
    except PermissionError:
        raise UsageError(f"{name}: this run is {_access_problem(name, parent)}") from None
    except rundir.RunNotFound as error:
        if os.path.lexists(name) and _is_log(Path(name)):
            message = "this is a log of another program; such logs can be shown, and are never changed"
            raise UsageError(f"{name}: {message}") from None
        near = nearest(Path(name).name, [path.name for path in runs_in(parent)])
        hint = f"did you mean {near}?" if near else "`tputui runs` lists the runs"
        raise UsageError(f"{str(error).partition(';')[0]}; {hint}") from None


def find_local_run(name: str, parent: Path) -> Path:
    """As `find_run`, for a command that needs files that are not mirrored, such as checkpoints."""
    if name.startswith("ssh://"):
        message = "this needs all files of the run: do it on that machine, or copy the directory of the run here"
        raise UsageError(f"{inert(name)}: {message}")
    return find_run(name, parent)


def runs_in(parent: Path) -> list[Path]:
    """Directories of the runs, newest first. Raises `CommandError` if they cannot be listed."""
    try:
        return rundir.listing(parent)
    except OSError as error:
        raise UsageError(f"{parent}: cannot list runs: {error.strerror}") from None


def _is_log(path: Path) -> bool:
    """Whether a path is a log of another program, or a folder with some."""
    # Imported here so that commands of runs start faster.
    from tputui.log_import.scan import find_logs, form_of
    from tputui.user_config import LogSource

    return bool(find_logs([LogSource(path, path.name)]).logs if path.is_dir() else form_of(path.name))


def _access_problem(name: str, parent: Path) -> str:
    reasons = [rundir.why_shut(candidate) for candidate in (parent / name, Path(name)) if os.path.lexists(candidate)]
    return next((why for why in reasons if why), "in a directory that you cannot read")


TIME_FORMS = "01:12:30 or 90s (since the start), step:1200, epoch:3, T14:03:07, 2025-10-09T14:03:07 or end"
"""The forms of a time, for help and errors."""

_UNIT_S = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)([dhms])", re.ASCII)
_CLOCK = re.compile(r"(?:(\d+):)?(\d+):([0-5]\d(?:\.\d+)?)", re.ASCII)
_NUMBERED = re.compile(r"(step|epoch):([\d,_]+)", re.ASCII)


class WantedTime(NamedTuple):
    """A time in a run, as the user wrote it."""

    text: str
    kind: Literal["since", "step", "epoch", "clock", "day", "end"]
    value: float
    """By kind: seconds since the start, a step, an epoch, unix time, or seconds since local midnight."""


def parse_time(text: str) -> WantedTime:
    """Parses a time in a run, as the type of an option. Raises `ArgumentTypeError`."""
    word = text.strip().lower()
    if word == "end":
        return WantedTime(text, "end", math.inf)
    if numbered := _NUMBERED.fullmatch(word):
        number = int(numbered[2].replace(",", "").replace("_", "") or 0)
        if number < 1:
            raise argparse.ArgumentTypeError(f"invalid time {text!r}: steps and epochs count from 1")
        return WantedTime(text, "step" if numbered[1] == "step" else "epoch", number)
    if clock := _CLOCK.fullmatch(word):
        hours, minutes, seconds = clock.groups()
        return WantedTime(text, "since", int(hours or 0) * 3_600 + int(minutes) * 60 + float(seconds))
    if word and not _SPAN.sub("", word):
        return WantedTime(text, "since", span(word))
    return _parse_date(text.strip())


def span(text: str) -> float:
    """A length of time in seconds, as the type of an option: `90s`, `1h30m`, `45`. Raises `ArgumentTypeError`."""
    word = text.strip().lower()
    parts = _SPAN.findall(word)
    if parts and not _SPAN.sub("", word):
        return sum(float(number) * _UNIT_S[unit] for number, unit in parts)
    if re.fullmatch(r"\d+(\.\d+)?", word, re.ASCII):
        return float(word)
    raise argparse.ArgumentTypeError(f"invalid time {text!r}; write seconds, or a number with a unit: 90s, 10m, 2h")


def positive_number(text: str) -> float:
    """A number greater than 0, as type of an argument."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: must be a number greater than 0, such as 12.88")
    return number


def unix_time(wanted: WantedTime, run_dir: Path) -> float:
    """The unix time, in seconds, of a time in a run. Raises `CommandError` if it is outside the run."""
    from tputui.session import session

    start, end, _ = session.extent(run_dir)
    if wanted.kind == "end":
        return end
    t = _time_of(wanted, run_dir, start)
    if not start <= t <= end:
        where = "before the start" if t < start else "after the end"
        length = fmt.duration(end - start)
        raise UsageError(
            f"--at {wanted.text} is {where}: the run lasted from {local_time(start)} to {local_time(end)} ({length})",
        )
    return t


def local_time(t: float) -> str:
    """A unix time in the local time zone: `2025-10-09 10:01:10`."""
    try:
        return datetime.datetime.fromtimestamp(t).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return "at an unknown time"


def _time_of(wanted: WantedTime, run_dir: Path, start: float) -> float:
    if wanted.kind == "since":
        return start + wanted.value
    if wanted.kind == "clock":
        return wanted.value
    if wanted.kind == "day":
        midnight = datetime.datetime.fromtimestamp(start).replace(hour=0, minute=0, second=0, microsecond=0)
        t = midnight.timestamp() + wanted.value
        return t if t >= start - 1.0 else (midnight + datetime.timedelta(days=1)).timestamp() + wanted.value
    return _time_of_count(wanted, run_dir)


def _time_of_count(wanted: WantedTime, run_dir: Path) -> float:
    """When the first process reported that a step was done, or that an epoch began."""
    from tputui.session import session

    number, most, times = int(wanted.value), 0, [math.inf]
    for entry in session.read_events(run_dir):
        reached = _step(entry.event) if wanted.kind == "step" else _epoch(entry.event)
        most = max(most, reached)
        if reached >= number and math.isfinite(entry.event.t):
            times.append(entry.event.t)
            if wanted.kind == "epoch" and reached == number:
                break
    if times == [math.inf]:
        choices = f"{wanted.kind}s 1 to {fmt.count(most)}" if most else f"no {wanted.kind} yet"
        raise UsageError(f"--at {wanted.text}: the run has {choices}")
    return min(times)


def _step(event: ev.Event) -> int:
    """The newest step that an event reports as done; 0 if it reports none."""
    if isinstance(event, ev.StepsRecorded):
        return event.first + event.n - 1
    if isinstance(event, ev.ValuesLogged):
        return 0 if event.split != "train" else event.step if event.n == 1 else event.last_step
    return event.step if isinstance(event, ev.ProgressReported | ev.EpochEnded) else 0


def _epoch(event: ev.Event) -> int:
    """The epoch whose start an event reports; 0 if it reports none."""
    return event.epoch if isinstance(event, ev.EpochStarted) else 0


def _parse_date(text: str) -> WantedTime:
    try:
        if text[:1] in ("T", "t"):
            of_day = datetime.time.fromisoformat(text[1:])
            return WantedTime(
                text, "day", of_day.hour * 3_600 + of_day.minute * 60 + of_day.second + of_day.microsecond / 1e6
            )
        return WantedTime(text, "clock", datetime.datetime.fromisoformat(text).timestamp())
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(f"invalid time {text!r}; write {TIME_FORMS}") from None


RULES: tuple[str, ...] = get_args(Strict)


def add_strict_option(parser: Parser) -> None:
    parser.add_option(
        "--strict",
        type=_rules,
        metavar="RULES",
        help=f"exit with 3 if the run has such findings, though it succeeds: {','.join(RULES)}, or some of them",
    )


def with_option(table: object, args: argparse.Namespace) -> object:
    """The table `[diagnosis]` of a file with the option in place of its key; unchanged if it is not a table."""
    if args.strict is None or not (table is None or isinstance(table, Mapping)):
        return table
    return {**(table or {}), "strict": args.strict}


def _rules(text: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in RULES:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(RULES)}")
    return names
