"""The command line parser, the types of options, and the form of a command.

An error is one sentence with the nearest valid name, and exit code 2.
"""

from __future__ import annotations

import argparse
import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, NoReturn

from tputui.cli.console import UsageError
from tputui.exit_codes import ExitCode


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` that raises `CommandError` and suggests the nearest option."""

    def __init__(self, prog: str, description: str | None = None, epilog: str | None = None) -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self._options: list[str] = ["--help"]
        self._keys: Mapping[str, str] = {}
        self._takes_command = False

    def add_option(self, *names: str, **settings: object) -> None:
        """Adds an option that error messages can suggest."""
        self._options += [name for name in names if name.startswith("--")]
        self.add_argument(*names, **settings)  # type: ignore[arg-type]

    def suggest_set(self, keys: Mapping[str, str]) -> None:
        """For an unknown option that is a key of the configuration, suggests `--set`. `keys` maps spellings to keys."""
        self._keys = keys

    def take_command(self) -> None:
        """Makes everything after `--` the argument `command`, a list of words; None without `--`."""
        self._takes_command = True

    def parse(self, argv: list[str]) -> argparse.Namespace:
        """Parses all of `argv`. Raises `CommandError`."""
        command: list[str] | None = None
        if self._takes_command and "--" in argv:
            place = argv.index("--")
            argv, command = argv[:place], argv[place + 1 :]
        args, unknown = self.parse_known_args(argv)
        if unknown:
            self.error(self._unknown(unknown[0], argv))
        if self._takes_command:
            args.command = command
        return args

    def error(self, message: str) -> NoReturn:
        """Raises `CommandError` with the message and a pointer to `--help`."""
        command = self.prog.removeprefix("tputui").strip()
        where = f"{command}: " if command else ""
        raise UsageError(f"{where}{message}; see `{self.prog} --help`")

    def _unknown(self, word: str, argv: Sequence[str] = ()) -> str:
        if not word.startswith("-"):
            hint = f"; to run a command of your own, write {self.prog} -- COMMAND" if self._takes_command else ""
            return f'unexpected argument "{word}"{hint}'
        option, equals, value = word.partition("=")
        key = option.removeprefix("--").replace("-", "_")
        if key in self._keys:
            after = argv[argv.index(word) + 1 :][:1] if word in argv else []
            value = value if equals else next((given for given in after if not given.startswith("-")), "VALUE")
            return f'unknown option "{option}"; to set a configuration key, use --set {self._keys[key]}={value}'
        near = nearest(option, self._options)
        return f'unknown option "{word}"' + (f"; did you mean {near}?" if near else "")


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most similar to `word`, ignoring leading dashes; None if none is similar."""
    names = {name.lstrip("-"): name for name in known}
    plain = word.lstrip("-")
    # In a word of two or three letters, one wrong letter is already half of it.
    near = difflib.get_close_matches(plain, list(names), n=1, cutoff=0.5 if len(plain) < 4 else 0.6)
    return names[near[0]] if near else None


def exit_codes(**meanings: str) -> str:
    """The exit codes in the help of a command: `exit_codes(DONE="...", USAGE="...")`."""
    lines = [f"  {code:d}  {meanings[code.name]}" for code in ExitCode if code.name in meanings]
    return "exit codes:\n" + "\n".join(lines)


def seconds(text: str) -> float:
    """A number of seconds, 0 or more. Raises `ArgumentTypeError`, as do all types of options."""
    value = _number(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return value


def port(text: str) -> int:
    """A port to listen on; 0 for any free port."""
    if not text.isascii() or not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to 65535")
    return int(text)


def speed(text: str) -> float:
    """A playback speed, more than 0."""
    value = _number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value


def positive_int(text: str) -> int:
    """A count, 1 or more."""
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def count_or_all(text: str) -> int | None:
    """A count, 0 or more; None for `all`."""
    if text == "all":
        return None
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a whole number nor `all`")
    return int(text)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text} is not a finite number")
    return value


class Command(NamedTuple):
    """A command: its help, its arguments and its action."""

    description: str
    """What the command does and what it prints."""
    exit_codes: str
    """What it exits with, as `exit_codes` formats it."""
    add_arguments: Callable[[Parser], None]
    run: Callable[[argparse.Namespace], ExitCode]
    """Runs the command. Raises `CommandError`."""


def add_hosts_option(parser: Parser) -> None:
    parser.add_option(
        "--hosts",
        metavar="HOSTS",
        help="RUN is on these machines: a,b,c or @FILE with one per line, each [user@]HOST[:port]; read over ssh",
    )
