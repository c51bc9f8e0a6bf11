"""The option `--strict` of `tputui run`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import get_args

from tputui.cli.parser import Parser
from tputui.diagnosis.verdict import Strict

RULES: tuple[str, ...] = get_args(Strict)


def add_strict_option(parser: Parser) -> None:
    """Adds `--strict`."""
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
