"""`tputui trace`: asks a run for a profile of its next steps, and prints XProf's summary of it."""

from __future__ import annotations

import argparse
import shlex

from tputui import formatting as fmt
from tputui.cli import xprof_summary
from tputui.cli.arguments import add_hosts_option, add_run_argument, chosen_run
from tputui.cli.console import narrate, say
from tputui.cli.parser import Command, Parser, exit_codes, positive_int, seconds
from tputui.cli.requests import request_and_wait
from tputui.exit_codes import ExitCode
from tputui.remote import link
from tputui.telemetry.requests import TRACE_SECONDS_MAX, TRACE_STEPS_DEFAULT, TRACE_STEPS_MAX

DESCRIPTION = f"""Writes a profile of the next steps of a running run, for XProf and TensorBoard: what the host and the
cores did, by operation. The run continues; it takes the profile between two steps, with the profiler of torch_xla or
JAX, in its first training process, and ends it early after {TRACE_SECONDS_MAX:g} s. The files are written to
traces/step-N/ in the run directory, N being the first step. Of several hosts, each profiles the same steps; those
after the first write to traces/step-N-host-I/ in their own run directory. With the package xprof installed, the
summary is printed too."""
EXIT_CODES = exit_codes(
    DONE="written",
    UNANSWERED="no receipt within --wait; the request remains pending",
    USAGE="no such run, the run has already ended, or it refused the request",
)
WAIT_S = TRACE_SECONDS_MAX + 60.0


def _add_arguments(parser: Parser) -> None:
    add_run_argument(parser)
    add_hosts_option(parser)
    parser.add_option(
        "--steps",
        type=positive_int,
        default=TRACE_STEPS_DEFAULT,
        metavar="N",
        help=f"steps to profile, at most {TRACE_STEPS_MAX} (default {TRACE_STEPS_DEFAULT})",
    )
    parser.add_option(
        "--wait", type=seconds, default=WAIT_S, metavar="S", help=f"seconds to wait for it (default {WAIT_S:g})"
    )


def _trace(args: argparse.Namespace) -> ExitCode:
    run_dir = chosen_run(args)
    code, applied = request_and_wait(run_dir, "trace", by="tputui trace", wait_s=args.wait, steps=args.steps)
    if applied is None or applied.path is None:
        return code
    folder = (run_dir / applied.path).resolve()
    if not folder.is_relative_to(run_dir.resolve()):
        narrate(f"{fmt.inert(applied.path)} is not in the run directory; nothing in it was read")
        return code
    if not folder.is_dir():
        links = link.read(run_dir)
        command = links.copy_command(applied.path) if links is not None else None
        how = f"; to copy it: {command}" if command is not None else ""
        narrate(f"the profile is on the host that wrote it, in {fmt.inert(applied.path)} of its run directory{how}")
        return code
    say(f"to open it: xprof --logdir {shlex.quote(fmt.inert(str(folder)))}")
    try:
        lines = xprof_summary.read(folder)
    except xprof_summary.NoSummaryError as error:
        narrate(f"no summary: {error}")
    else:
        say("\n".join(lines))
    return code


COMMANDS = {"trace": Command(DESCRIPTION, EXIT_CODES, _add_arguments, _trace)}
