"""`tputui show`: prints the full status of a run."""

from __future__ import annotations

import argparse

from msgspec import to_builtins

from tputui import formatting as fmt
from tputui.cli.arguments import add_run_argument, chosen_run, span, words_of_mirror
from tputui.cli.console import CommandError, UsageError, say, say_json, usage_errors
from tputui.cli.foreign_logs import RUN_OR_LOG, chosen_run_or_log
from tputui.cli.parser import Command, Parser, add_hosts_option, count_or_all, exit_codes
from tputui.exit_codes import ExitCode
from tputui.formatting import inert
from tputui.session import session
from tputui.session.family import family_goodput
from tputui.telemetry import run_labels
from tputui.telemetry.run_labels import RunLabels
from tputui.text import phrases, show_page, show_stream, verdict_lines

DESCRIPTION = """Prints the full status of a run: state, progress, losses by core, meters, epochs with their timings,
XLA counters, memory, checkpoints, requests, NaN/inf values, and damage in the journals; command, host, versions and git
commit; tags and note. With --model the layers of its
network: output shapes and parameter counts. With --code the code that it executed: uncommitted changes, packages and
environment variables. With --json one object, with --json --follow one line per change until the run has ended, at most
one a second; docs/json.md describes the keys. The run is never changed."""
EXIT_CODES = exit_codes(
    DONE="printed, whatever the run's state",
    USAGE="no such run, or no table of layers for --model, no record for --code",
    UNANSWERED="--follow: the run did not change within the time of --idle-timeout",
)


def add_arguments(parser: Parser) -> None:
    add_run_argument(parser, help=RUN_OR_LOG)
    add_hosts_option(parser)
    parser.add_option("--json", action="store_true", help="print one JSON object, with all epochs")
    parser.add_option("--follow", action="store_true", help="with --json: print a line per change until the run ends")
    parser.add_option(
        "--idle-timeout",
        type=span,
        metavar="TIME",
        help="with --follow: exit with 6 if nothing changes for TIME: 90s, 10m (default no limit)",
    )
    parser.add_option(
        "--model", action="store_true", help="print the network's layers instead: output shapes and parameter counts"
    )
    parser.add_option(
        "--code", action="store_true", help="print the code instead: uncommitted changes, packages, environment"
    )
    parser.add_option(
        "--epochs",
        type=count_or_all,
        default=show_page.FEW,
        metavar="N",
        help="print the newest N epochs and the best one, or `all` (default: all of up to "
        f"{show_page.EPOCHS_MAX}; of more the newest {show_page.EPOCHS_SHOWN} and the best)",
    )
    parser.add_option("--sections", action="store_true", help="print what the time of each epoch went into")


def run(args: argparse.Namespace) -> ExitCode:
    if args.follow or args.idle_timeout is not None:
        return _follow(args)
    if args.model:
        return _show_model(args)
    if args.code:
        return _show_code(args)
    run_dir = chosen_run_or_log(args)
    snapshot = session.load(run_dir)
    goodput = family_goodput(run_dir, snapshot)
    try:
        labels, problem = run_labels.read(run_dir), ""
    except run_labels.InvalidLabels as error:
        labels, problem = None, str(error)
    if args.json:
        # Also those with their default, which the encoder leaves out.
        every = labels and {name: getattr(labels, name) for name in labels.__struct_fields__}
        more = {"goodput": to_builtins(goodput), "labels": every}
        say_json({**show_page.to_show(snapshot), **more}, indent=2)
    else:
        address = words_of_mirror(args, run_dir)
        where = f"{inert(address)}; mirrored in {snapshot.dir}" if address is not None else None
        page = show_page.show_text(snapshot, num_epochs=args.epochs, sections=args.sections, where=where).rstrip("\n")
        kept = [f"{'goodput':<12} {verdict_lines.goodput_line(goodput)}"] if goodput.wall_s > 0 else []
        parts = [kept, _label_lines(labels, problem)]
        say("\n\n".join([page, *("\n".join(part) for part in parts if part)]))
    return ExitCode.DONE


def _follow(args: argparse.Namespace) -> ExitCode:
    """Prints an object per change until the run has ended."""
    if not args.follow:
        raise UsageError("show: --idle-timeout needs --follow")
    if not args.json or args.model or args.code:
        message = "show: --follow prints JSON lines: write --json --follow; `tputui attach --no-ui` prints plain lines"
        raise UsageError(message)
    source = session.Session.live(chosen_run(args))
    try:
        for fields in show_stream.stream(source, idle_timeout_s=args.idle_timeout):
            say_json(fields)
    except show_stream.IdleTimeout:
        raise CommandError(ExitCode.UNANSWERED, f"nothing changed within {fmt.duration(args.idle_timeout)}") from None
    finally:
        source.close()
    return ExitCode.DONE


def _label_lines(labels: RunLabels | None, problem: str) -> list[str]:
    """What the user noted about the run."""
    if labels is None:
        return [f"labels       {inert(problem)}"]
    states = [word for word, on in (("pinned", labels.pinned), ("archived", labels.archived)) if on]
    pairs = (("labels", ", ".join(states)), ("tags", ", ".join(labels.tags)), ("note", labels.note))
    return [f"{name:<12} {inert(text)}" for name, text in pairs if text]


def _show_model(args: argparse.Namespace) -> ExitCode:
    """Prints the table of layers."""
    from tputui.telemetry import layer_table

    run_dir = chosen_run(args)
    with usage_errors(layer_table.NoTable):
        table = layer_table.read(run_dir)
    flops = session.load(run_dir).flops
    if args.json:
        say_json({**to_builtins(table), "flops": flops}, indent=2)
    else:
        say(layer_table.text(table))
        if flops is not None:
            say("; ".join(filter(None, phrases.flops(flops))))
    return ExitCode.DONE


def _show_code(args: argparse.Namespace) -> ExitCode:
    """Prints the record of the code, after the command and the commit."""
    from tputui.telemetry import code_record  # The packages of this environment are only read for it.

    run_dir = chosen_run(args)
    with usage_errors(code_record.NoCodeRecord):
        record = code_record.read(run_dir)
    details = session.load(run_dir).details
    if args.json:
        say_json({"command": details.argv, "cwd": details.cwd, "git": details.git, "code": record}, indent=2)
    else:
        head = [f"{name:<12} {text}" for name, text in phrases.details(details)]
        say("\n".join(map(inert, [*head, *code_record.lines(record)])))
    return ExitCode.DONE


COMMANDS = {"show": Command(DESCRIPTION, EXIT_CODES, add_arguments, run)}
