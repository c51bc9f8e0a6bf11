"""`tputui rehearse`: a short run on virtual CPU cores that finds the problems of a program before it uses a TPU."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from tputui import config
from tputui import formatting as fmt
from tputui.cli import launch, open_run, script
from tputui.cli.arguments import add_config_or_command, check_config_or_command, parent_of, span
from tputui.cli.console import CommandError, ProgressLine, UsageError, narrate, say, say_json, usage_errors
from tputui.cli.parser import Command, Parser, exit_codes, positive_int
from tputui.diagnosis.diagnosed_run import DiagnosedRun
from tputui.diagnosis.rehearsal import (
    Baseline,
    PredictedMemory,
    Rehearsal,
    fits,
    new_findings,
    program_needs,
    rehearsed,
    runtimes_of,
    steps_of,
)
from tputui.diagnosis.verdict import Verdict
from tputui.environment import environment_problem, installed
from tputui.exit_codes import ExitCode
from tputui.formatting import inert
from tputui.logs import torch_trace
from tputui.observers.sinks import DISABLED_VARIABLES, OBSERVE_VARIABLE, is_disabled
from tputui.session import session
from tputui.session.session import Session
from tputui.state.root_cause import has_lost_threads
from tputui.state.run_condition import ENDED
from tputui.state.snapshot import Snapshot
from tputui.supervise.command import RunCommand, unobserved_reason
from tputui.telemetry import requests
from tputui.telemetry.codec import spell_non_finite
from tputui.telemetry.events import RequestKind
from tputui.telemetry.files import read_small
from tputui.telemetry.merge import JournalEvent
from tputui.text import rehearsal_lines, verdict_lines

CORES = 8
EPOCHS = 2
"""Epochs of a configuration: what only the second one compiles would compile in every later one."""
EVALUATION_S = 120.0
"""Time after which an evaluation is stopped."""
UNCOUNTED_S = 60.0
"""Time without a step or a compilation after which a program is stopped whose steps are not counted reliably."""
STOP_GRACE_ENGINE_S = 60.0
STOP_GRACE_S = 15.0
"""Seconds from SIGINT to SIGTERM for a command."""
POLL_S = 0.1
DEVICE_COUNT_FLAG = "--xla_force_host_platform_device_count"
BASELINE_BYTES_MAX = 16 << 20
PROGRAM_SIZES = "xla-programs.txt"
"""File in the run directory in which torch_xla reports the sizes of its programs."""


class Rehearsed(NamedTuple):
    snapshot: Snapshot
    is_stopped: bool
    problem: str | None
    """Why nothing can be concluded; None if the report is complete."""


class Setup(NamedTuple):
    program: str
    """The configuration file, or the command line."""
    cores: int
    cores_from: str
    """Why there are so many, such as `by --cores`; empty for the default."""
    command: RunCommand | None
    """None for a configuration."""
    sizes: Path | None
    """File in which torch_xla reports the sizes of its programs; None if the user has it written elsewhere."""


def shortened(run: config.RunConfig, steps: int, cores: int | None) -> config.RunConfig:
    """The configuration of a rehearsal: two short epochs, and nothing that reaches beyond it, such as alerts."""
    batches = max(1, -(-steps // EPOCHS), run.optim.accumulate)
    batches = min(batches, run.data.batches_per_epoch or batches)
    device = run.device
    if cores is not None:
        device = replace(
            device, virtual_cores=cores, cores="all" if not isinstance(device.cores, list) else device.cores
        )
    elif isinstance(device.cores, int):
        device = replace(device, virtual_cores=max(device.cores, device.virtual_cores))
    return replace(
        run,
        epochs=EPOCHS,
        data=replace(run.data, batches_per_epoch=batches),
        optim=replace(run.optim, warmup_epochs=min(run.optim.warmup_epochs, float(EPOCHS))),
        device=device,
        report=replace(run.report, pictures=0),
        stall=replace(run.stall, policy="notify"),
        alerts=config.AlertsConfig(targets=()),
        diagnosis=config.DiagnosisConfig(),
    )


def virtual_cores(environ: Mapping[str, str], cores: int | None) -> tuple[dict[str, str], int, str]:
    """The environment in which torch_xla and JAX use virtual CPU cores, their number, and who chose it."""
    chosen, flags = "--cores" if cores else "", environ.get("XLA_FLAGS", "")
    kept = [flag for flag in flags.split() if not flag.startswith(f"{DEVICE_COUNT_FLAG}=")]
    counts = {
        "CPU_NUM_DEVICES": environ.get("CPU_NUM_DEVICES", ""),
        "XLA_FLAGS": next((flag.partition("=")[2] for flag in flags.split() if flag not in kept), ""),
        "JAX_NUM_CPU_DEVICES": environ.get("JAX_NUM_CPU_DEVICES", ""),
    }
    for name, count in counts.items():
        if cores is None and count.isdecimal() and int(count) > 0:
            cores, chosen = int(count), name
    cores = cores or CORES
    changed = {
        "PJRT_DEVICE": "CPU",
        "CPU_NUM_DEVICES": str(cores),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": " ".join([*kept, f"{DEVICE_COUNT_FLAG}={cores}"]),
        OBSERVE_VARIABLE: "all",
    }
    others = {name: value for name, value in environ.items() if name != "JAX_NUM_CPU_DEVICES"}
    return others | changed, cores, chosen


def sizes_file(environ: Mapping[str, str], run_dir: Path) -> Path | None:
    """Where torch_xla reports the sizes of its programs; None if the user has set one of its variables."""
    if any(name in environ for name in torch_trace.VARIABLES):
        return None
    return run_dir.resolve() / PROGRAM_SIZES


def run_to_end(setup: Setup, run_dir: Path, steps: int, timeout_s: float) -> Rehearsed:
    """Starts the run, stops it after its steps, and returns how it ended. No process of it is left afterwards."""
    interrupts = open_run.Interrupts(run_dir)
    watch = _Watch(steps, timeout_s, has_epochs=setup.command is None)

    def ask(snapshot: Snapshot, events: Sequence[JournalEvent]) -> RequestKind | None:
        return watch.request(snapshot, time.monotonic()) if snapshot.condition not in ENDED else None

    with interrupts.caught(signal.SIGINT, signal.SIGTERM):
        try:
            follow(run_dir, setup.command, ask, "rehearse")
        finally:
            watch.progress.rewrite()
    snapshot = session.load(run_dir)
    is_stopped = watch.is_stopped or interrupts.requested
    return Rehearsed(snapshot, is_stopped, watch.problem or _problem(snapshot, setup, is_stopped))


def follow(
    run_dir: Path,
    command: RunCommand | None,
    ask: Callable[[Snapshot, Sequence[JournalEvent]], RequestKind | None],
    by: str,
) -> None:
    """Starts a run and follows it to its end. No process of it is left afterwards, whatever is raised.

    `ask` gets the newest snapshot with the events since the one before, and returns a request to the run, mostly None.
    """
    supervisor = launch.start_supervisor(run_dir, command)
    try:
        with contextlib.closing(Session.live(run_dir)) as source:
            is_done = False
            while not is_done:
                settled = source.settled
                events = source.poll()
                snapshot = source.snapshot()
                is_done = snapshot.condition in ENDED and settled and not events
                kind = ask(snapshot, events)
                if kind is not None and snapshot.condition not in ENDED:
                    requests.submit(run_dir, kind, by=by, now=time.time())
                if not is_done:
                    time.sleep(POLL_S)
        launch.wait_settled(supervisor)
    finally:
        if supervisor.poll() is None:
            supervisor.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                supervisor.wait(STOP_GRACE_ENGINE_S)


class _Watch:
    """Decides when the run has done its steps, and shows its progress in a terminal."""

    def __init__(self, steps: int, timeout_s: float, *, has_epochs: bool) -> None:
        self._steps = steps
        self._timeout_s = timeout_s
        self._has_epochs = has_epochs
        self._newest: object = None
        self._since = time.monotonic()
        self._evaluating: float | None = None
        self.progress = ProgressLine()
        self.is_stopped = False
        self.problem: str | None = None
        """Why the run was given up."""

    def request(self, snapshot: Snapshot, tick: float) -> RequestKind | None:
        """The request that the run gets now; None most of the time."""
        steps, phase = steps_of(snapshot), snapshot.phase or ""
        phase_text = f" ({phase})" if phase not in ("", "unknown") else ""
        done = f"step {fmt.count(steps)} of {fmt.count(self._steps)}{phase_text}"
        self.progress.rewrite("stopping" if self.is_stopped else done)
        if self.is_stopped:
            return None
        compiled = sum(group.count for group in snapshot.evidence.compiles)
        activity = (steps, compiled, phase == "evaluating")
        if activity != self._newest:
            self._newest, self._since = activity, tick
        self._evaluating = (self._evaluating or tick) if phase == "evaluating" else None
        is_done = steps >= self._steps
        if self._has_epochs:
            # It ends by itself after its second epoch.
            is_done = self._evaluating is not None and tick - self._evaluating >= EVALUATION_S
        elif compiled and not _are_steps_counted(snapshot):
            is_done = is_done or tick - self._since >= UNCOUNTED_S
        if is_done:
            self.is_stopped = True
            return "stop"
        if tick - self._since < self._timeout_s:
            return None
        self.is_stopped = True
        after = f"after step {fmt.count(steps)}" if steps else "before the first step"
        self.problem = f"no step within {fmt.duration(self._timeout_s)} {after}, so it was stopped"
        return "stop_now"


def _are_steps_counted(snapshot: Snapshot) -> bool:
    """Whether an observer counts all steps. Those of JAX are seen only if they read values or are printed."""
    windows = {window.runtime for window in snapshot.evidence.windows}
    return "torch_xla" in runtimes_of(snapshot) or "torch_compile" in windows


def _problem(snapshot: Snapshot, setup: Setup, is_stopped: bool) -> str | None:
    """Why nothing can be concluded from a run; None if it can."""
    if snapshot.condition in ("failed", "lost"):
        return f"the program failed: {snapshot.condition_reason}"
    if not runtimes_of(snapshot):
        if unsupported := DiagnosedRun.of(snapshot).unsupported("compilations"):
            return unsupported
        reason = unobserved_reason(setup.command.environ) if setup.command is not None else None
        did = "was stopped" if is_stopped else "ended"
        return reason or f"the program {did} before torch_xla, JAX or torch.compile compiled anything in it"
    return None


DESCRIPTION = """Runs some steps of a configuration, or of any command of your own after --, on virtual CPU cores with
every step observed, and reports what would cost time on a TPU: compilations after warm-up, lines that wait for the
device, operations that run on the host, shapes and padding, and the memory that training takes against that of each
kind of TPU. Every finding has its line of code. A configuration trains two short epochs, with their evaluations; a
command is stopped by SIGINT after its steps. The run is deleted afterwards, unless --keep or --runs-dir is given."""
EXIT_CODES = exit_codes(
    DONE="nothing was found",
    DAMAGED="something was found, with --baseline something new",
    USAGE="the command line, the configuration or the baseline is not valid; nothing was run",
    FAILED="the program itself failed, or no step of it was observed",
    ENVIRONMENT="this machine cannot train: no torch_xla, or wrong versions",
)
STEPS = 30
TIMEOUT_S = 600.0
ONE_CORE = "threads of torch_xla.launch cannot exchange values between virtual cores; starting again on one core"


def add_arguments(parser: Parser) -> None:
    add_config_or_command(parser)
    parser.add_option("--steps", type=positive_int, default=STEPS, metavar="K", help=f"steps to run (default {STEPS})")
    parser.add_option("--cores", type=positive_int, metavar="N", help=f"virtual CPU cores (default {CORES})")
    parser.add_option(
        "--timeout", type=span, default=TIMEOUT_S, metavar="TIME", help="give up after TIME without a step (10m)"
    )
    parser.add_option("--keep", action="store_true", help="keep the run among the other runs")
    parser.add_option("--baseline", metavar="FILE", help="what --json printed earlier: only new findings fail")
    parser.add_option("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> ExitCode:
    """Runs the program and prints the report."""
    launch.check_system()
    _check_words(args)
    known = _known(args.baseline) if args.baseline is not None else []
    began = time.monotonic()
    with _folder(args) as parent:
        setup, run_dir, done = _run(args, parent, args.cores)
        failure, may_change = done.snapshot.failure, setup.command is not None and args.cores is None
        if may_change and setup.cores > 1 and failure is not None and has_lost_threads(failure):
            narrate(ONE_CORE)
            setup, run_dir, done = _run(args, parent, 1, because="because of torch_xla.launch")
        memory = _memory(done.snapshot, setup.sizes)
        report = rehearsed(done.snapshot, memory, is_cut=done.is_stopped)
        new, num_gone = new_findings(report.findings, known)
        code = ExitCode.FAILED if done.problem else ExitCode.DAMAGED if new else ExitCode.DONE
        kept = run_dir.absolute() if _is_kept(args) else None
    seconds = time.monotonic() - began
    if args.json:
        fields = _as_json(setup, done, report, code, kept, seconds)
        if args.baseline is not None:
            fields["baseline"] = {"file": args.baseline, "new": msgspec.to_builtins(new), "num_gone": num_gone}
        say_json(spell_non_finite(fields), indent=2)
    else:
        old = [finding for finding in report.findings if finding not in new]
        _print(setup, done, replace(report, findings=new), kept, seconds, args)
        if args.baseline is not None and done.problem is None:
            places = ", ".join(f"{finding.where or ''} {verdict_lines.TITLES[finding.rule]}".strip() for finding in old)
            text = f"{fmt.counted(len(old), 'known finding')} of {args.baseline}{f': {places}' if old else ''}"
            say(inert(f"{'baseline':<16}{text}; {num_gone} no longer found"))
    return code


def _known(path: str) -> list[Verdict]:
    """The findings in what `--json` printed earlier. Raises `CommandError`."""
    try:
        report = msgspec.json.decode(read_small(Path(path), BASELINE_BYTES_MAX), type=Baseline)
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else f"not printed by `tputui rehearse --json`: {error}"
        raise UsageError(inert(f"rehearse: --baseline {path}: {why}")) from None
    if report.problem is not None:
        raise UsageError(inert(f"rehearse: --baseline {path}: no result: {report.problem}"))
    return report.findings


def _run(args: argparse.Namespace, parent: Path, cores: int | None, because: str = "") -> tuple[Setup, Path, Rehearsed]:
    setup, run_dir = _created(args, parent, cores)
    setup = setup._replace(cores_from=because or setup.cores_from)
    narrate(f"rehearsing {setup.program} on {_cores(setup)}: {fmt.counted(args.steps, 'step')}")
    return setup, run_dir, run_to_end(setup, run_dir, args.steps, args.timeout)


def _check_words(args: argparse.Namespace) -> None:
    check_config_or_command(args, "rehearse")
    if is_disabled():
        name = next(name for name in DISABLED_VARIABLES if os.environ.get(name, "") not in ("", "0"))
        raise UsageError(f"rehearse: {name} disables the observers that find lines; unset it")


def _is_kept(args: argparse.Namespace) -> bool:
    return bool(args.keep or args.runs_dir)


@contextlib.contextmanager
def _folder(args: argparse.Namespace) -> Iterator[Path]:
    """The directory of the run: that of the other runs if it is kept, else a temporary one."""
    if _is_kept(args):
        yield parent_of(args)
        return
    with tempfile.TemporaryDirectory(prefix="tputui-rehearsal-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _created(args: argparse.Namespace, parent: Path, cores: int | None) -> tuple[Setup, Path]:
    """Checks the program and creates its run. Raises `CommandError`."""
    if args.config is None:
        return _script_run(script.from_words(args.command), "rehearse", parent, cores)
    with usage_errors(config.ConfigError, has_lines=True):
        tables = config.load_tables(Path(args.config), args.set)
        if config.is_script(tables):
            loaded = config.script_from_builtins(tables, args.config, args.set)
            return _script_run(loaded, args.config, parent, cores)
        trained = shortened(config.from_builtins(tables, args.config, args.set), args.steps, cores)
    os.environ |= {"PJRT_DEVICE": "CPU", OBSERVE_VARIABLE: "all"}
    if (problem := environment_problem(os.environ)) is not None:
        raise CommandError(ExitCode.ENVIRONMENT, problem)
    launch.check_with_engine(trained, args.config, None, args.set)
    run_dir = launch.create_run(parent, trained, config_path=args.config)
    sizes = sizes_file(os.environ, run_dir)
    os.environ |= torch_trace.variables(sizes)
    used = trained.device.virtual_cores if trained.device.cores == "all" else trained.num_cores
    chosen = "by --cores" if cores else "by the configuration" if used != CORES else ""
    return Setup(inert(args.config), used, chosen, None, sizes), run_dir


def _script_run(loaded: config.ScriptRun, source: str, parent: Path, cores: int | None) -> tuple[Setup, Path]:
    loaded = config.ScriptRun(script=replace(loaded.script, stop_grace_s=STOP_GRACE_S, exit_grace_s=STOP_GRACE_S))
    command = script.prepared(loaded, source)
    environ, used, chosen = virtual_cores(command.environ, cores)
    command = command._replace(environ=environ)
    program = script.shown_command(loaded.script.command)
    run_dir = launch.create_run(parent, loaded, config_path=program, command=command)
    sizes = sizes_file(environ, run_dir)
    command = command._replace(environ=environ | torch_trace.variables(sizes))
    return Setup(inert(program), used, f"by {chosen}" if chosen else "", command, sizes), run_dir


def _cores(setup: Setup) -> str:
    chosen = f" ({setup.cores_from})" if setup.cores_from else ""
    return f"{fmt.counted(setup.cores, 'virtual CPU core')}{chosen}"


def _memory(snapshot: Snapshot, sizes: Path | None) -> PredictedMemory:
    """The memory of training: as the engine predicts it, else by the compiler's sizes of the largest program."""
    predicted = snapshot.memory.predicted
    if predicted is not None:
        source = f"predicted from the network for {fmt.counted(predicted.batch_per_core, 'example')} per core"
        return PredictedMemory(
            core_bytes=predicted.total_bytes,
            source=f"{source} in {predicted.precision}, without the compiler's working space",
            tpus=fits(predicted.total_bytes),
        )
    if needs := program_needs(snapshot):
        source = f"the largest of {fmt.counted(len(needs), 'program')}, by the compiler of the CPU"
        largest_bytes = needs[0].total_bytes
        return PredictedMemory(core_bytes=largest_bytes, source=source, tpus=fits(largest_bytes), programs=needs)
    if sizes is None:
        return PredictedMemory(
            core_bytes=None, source="your PT_XLA_DEBUG variables send the sizes of programs elsewhere"
        )
    largest = None
    with contextlib.suppress(OSError):
        largest = torch_trace.largest_program(sizes)
    if largest is not None:
        source = "the largest program by the compiler of the CPU; that of a TPU pads shapes and fuses more"
        return PredictedMemory(core_bytes=largest, source=source, tpus=fits(largest))
    runtimes = [name for name in runtimes_of(snapshot) if name != "torch_xla"]
    who = " and ".join(runtimes) if runtimes else "the program"
    return PredictedMemory(core_bytes=None, source=f"{who} reports no sizes of compiled programs")


def _versions(setup: Setup, report: Rehearsal) -> dict[str, str]:
    """Versions of the observed frameworks, if the command uses the environment of this process."""
    if setup.command is not None:
        program = shutil.which(setup.command.words[0], path=setup.command.environ.get("PATH"))
        if program is None or Path(program).parent.resolve() != Path(sys.executable).parent.resolve():
            return {}
    names = {"torch_xla": ("torch", "torch_xla"), "jax": ("jax",), "torch_compile": ("torch",)}
    wanted = dict.fromkeys(name for runtime in report.runtimes for name in names.get(runtime, ()))
    return {name: version for name in wanted if (version := installed(name)) is not None}


def _print(
    setup: Setup, done: Rehearsed, report: Rehearsal, kept: Path | None, seconds: float, args: argparse.Namespace
) -> None:
    if done.problem is not None:
        _print_problem(setup, done, report)
    else:
        what = "finding" if args.baseline is None else "new finding"
        number = fmt.counted(len(report.findings), what) if report.findings else f"no {what}s"
        steps = rehearsal_lines.steps(report, args.steps)
        versions = "".join(f", {name} {version}" for name, version in _versions(setup, report).items())
        say(f"{setup.program}: {number} in {steps} on {_cores(setup)}{versions}, {fmt.duration(seconds)}")
        for line in rehearsal_lines.lines(report):
            say(line)
    if kept is not None:
        say(f"{'run':<16}{inert(str(kept))}")


def _print_problem(setup: Setup, done: Rehearsed, report: Rehearsal) -> None:
    """Prints why there is no answer, with the program's own traceback, and what was found before."""
    say(f"{setup.program}: {done.problem}")
    failure = done.snapshot.failure
    for line in failure.traceback.rstrip().splitlines() if failure is not None else ():
        say(f"  {line}")
    if report.findings:
        say(f"{fmt.counted(len(report.findings), 'finding')} before that")
    for line in verdict_lines.blocks(report.findings):
        say(line)


def _as_json(
    setup: Setup, done: Rehearsed, report: Rehearsal, code: ExitCode, kept: Path | None, seconds: float
) -> dict[str, Any]:
    failure = done.snapshot.failure if done.problem is not None else None
    return {
        "program": setup.program,
        "exit_code": int(code),
        "problem": done.problem,
        "failure": {"error": failure.error, "message": failure.message, "traceback": failure.traceback}
        if failure is not None
        else None,
        "stopped": done.is_stopped,
        "cores": setup.cores,
        "seconds": round(seconds, 3),
        "versions": _versions(setup, report),
        "run": str(kept) if kept is not None else None,
        **msgspec.to_builtins(report),
    }


COMMANDS = {"rehearse": Command(DESCRIPTION, EXIT_CODES, add_arguments, run)}
