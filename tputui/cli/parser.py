"""The command line's parser: errors in one sentence, with the nearest name, and exit code 2.

Must not know any command.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

from tputui.cli.console import CommandError
from tputui.exit_codes import ExitCode


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` that raises `CommandError` and names the nearest option."""

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

    def add_option(self, *names: str, **how: object) -> None:
        """Adds an option that the error messages know of."""
        self._options += [name for name in names if name.startswith("--")]
        self.add_argument(*names, **how)  # type: ignore[arg-type]

    def know_keys(self, keys: Mapping[str, str]) -> None:
        """Names keys of the configuration file, which people try as options: by each spelling the full key."""
        self._keys = keys

    def parse(self, argv: list[str]) -> argparse.Namespace:
        """Parses all of `argv`. Raises `CommandError`."""
        args, unknown = self.parse_known_args(argv)
        if unknown:
            self.error(self._unknown(unknown[0], argv))
        return args

    def error(self, message: str) -> NoReturn:
        """Refuses the command line."""
        command = self.prog.removeprefix("tputui").strip()
        where = f"{command}: " if command else ""
        raise CommandError(ExitCode.USAGE, f"{where}{message}; see `{self.prog} --help`")

    def _unknown(self, word: str, argv: Sequence[str] = ()) -> str:
        if not word.startswith("-"):
            return f'"{word}" is one word too many'
        option, equals, value = word.partition("=")
        key = option.removeprefix("--").replace("-", "_")
        if key in self._keys:
            after = argv[argv.index(word) + 1 :][:1] if word in argv else []
            value = value if equals else next((given for given in after if not given.startswith("-")), "VALUE")
            return f'there is no option "{option}"; set a key of the configuration with --set {self._keys[key]}={value}'
        near = nearest(option, self._options)
        return f'there is no option "{word}"' + (f"; did you mean {near}?" if near else "")


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most like `word`, whatever dashes they begin with; None if none is like it."""
    names = {name.lstrip("-"): name for name in known}
    plain = word.lstrip("-")
    # One letter of two or three is half of the word.
    near = difflib.get_close_matches(plain, list(names), n=1, cutoff=0.5 if len(plain) < 4 else 0.6)
    return names[near[0]] if near else None


def exit_codes(**meanings: str) -> str:
    """The lines of a command's help that tell what it exits with: `exit_codes(DONE="...", USAGE="...")`."""
    lines = [f"  {int(ExitCode[name])}  {meaning}" for name, meaning in meanings.items()]
    return "exit codes:\n" + "\n".join(lines)
