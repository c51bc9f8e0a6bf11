"""`tputui try`: measures what a change of the configuration gains, in blocks of steps with and without it."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from tputui import config
from tputui import formatting as fmt
from tputui.cli import launch, script, trial_command
from tputui.cli.arguments import find_run, parent_of, span
from tputui.cli.console import CommandError, ProgressLine, UsageError, narrate, say, say_json, usage_errors
from tputui.cli.parser import Command, Parser, exit_codes, positive_int
from tputui.cli.trial_run import (
    BLOCK_S,
    CACHE_VARIABLE,
    SKIPPED,
    MeasuredBlocks,
    Outcome,
    TrialFailed,
    TrialPlan,
    TrialProcess,
    measure,
)
from tputui.compare.agreement import agreement, least
from tputui.compare.paired import METHOD, PAIRS_MIN, paired_ratio
from tputui.compare.verdict import LEVEL, Ratio
from tputui.config_diff import flatten, texts
from tputui.diagnosis.diagnose import diagnose
from tputui.diagnosis.diagnosed_run import is_trained_by_engine
from tputui.diagnosis.verdict import Verdict, assigned_key
from tputui.environment import device_in_use, environment_problem, find_devices
from tputui.exit_codes import ExitCode
from tputui.formatting import inert
from tputui.session import session
from tputui.state.snapshot import Snapshot
from tputui.supervise import spawn
from tputui.telemetry import rundir
from tputui.telemetry.codec import spell_non_finite
from tputui.text import verdict_lines

DESCRIPTION = f"""Measures how much faster training is with a change of its configuration, or of a command of your own.
RUN is a recorded run of the engine, or a configuration file; a change is a key with its new value, such as
data.workers=2 or device.precision=bf16. Without a change, measures the one that the diagnosis of RUN proposes. Trains
with and without the change in alternating blocks of about {BLOCK_S:g} s, one at a time, and prints the ratio of
examples per second with its interval of 95 %, beside the gain that the diagnosis predicts. Compilations, evaluations
and saves are not part of it. A command after -- is run and stopped again for each block, of about
{trial_command.BLOCK_S:g} s after its first step; whether both have the same losses is printed too. Nothing is recorded
among the runs, and no file of yours is changed by tputui."""
EXIT_CODES = exit_codes(
    DONE="measured, whether the change is faster or not, and whether the losses agree or not",
    USAGE="no such run, or the change cannot be measured; nothing was trained",
    FAILED="training failed with or without the change, no step of the command is known, or the time was too short",
    ENVIRONMENT="this machine cannot train: no torch_xla, wrong versions, or the device is in use",
    INTERRUPTED="Ctrl-C ended it",
)
PAIRS = 10
COMMAND_PAIRS = PAIRS_MIN
"""Pairs of runs of a command, each of which has to start."""
TIMEOUT_S = 600.0
BATCH_KEYS = ("data.batch_per_core", "data.global_batch")
NOTED_KEYS = {
    "data.batch_per_core": "the batch size",
    "data.global_batch": "the batch size",
    "optim.accumulate": "the number of batches per update",
    "device.cores": "the number of cores",
    "device.precision": "the precision",
}
"""Keys that change the pace and the training."""
PACE_KEYS = (
    *NOTED_KEYS,
    "data.cache_mb",
    "data.prefetch_batches",
    "data.workers",
    "device.strategy",
    "device.rematerialise",
    "device.virtual_cores",
    "report.interval_s",
    "report.every_batches",
    "non_finite.policy",
)
"""Keys whose effect is in the pace of training steps."""


class Trial(NamedTuple):
    name: str
    """The run, or the configuration file."""
    base: config.RunConfig
    changed: config.RunConfig
    changes: list[str]
    """As `key=value`."""
    snapshot: Snapshot | None
    """Of the recorded run; None for a configuration file."""
    verdict: Verdict | None
    """The verdict on the run that proposes the change."""
    source: str
    """The configuration file, for messages."""
    on_tpu: bool = False


def add_arguments(parser: Parser) -> None:
    parser.usage = (
        "tputui try [OPTION ...] RUN|CONFIG [KEY=VALUE ...]\n"
        "       tputui try --with ARG=VALUE [OPTION ...] -- COMMAND ..."
    )
    parser.add_argument("run", metavar="RUN", nargs="?", help="name or directory of a run, or a configuration file")
    parser.add_argument("changes", metavar="KEY=VALUE", nargs="*", help="key of the configuration with its new value")
    parser.take_command()
    trial_command.add_options(parser)
    parser.add_option("--seed", type=int, default=0, metavar="N", help="of a command: seed of both sides (default 0)")
    parser.add_option(
        "--blocks",
        type=positive_int,
        metavar="N",
        help=f"blocks of each of the two (default {PAIRS}, of a command {COMMAND_PAIRS})",
    )
    parser.add_option(
        "--steps", type=positive_int, metavar="N", help="steps of a block (default: as many as take the time above)"
    )
    parser.add_option(
        "--timeout", type=span, default=TIMEOUT_S, metavar="TIME", help="stop measuring after this time (default 10m)"
    )
    parser.add_option(
        "--restart", action="store_true", help="train each block in a new process, as is always done on TPU chips"
    )
    parser.add_option("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> ExitCode:
    """Measures and prints the gain."""
    launch.check_system()
    args.blocks = args.blocks or (PAIRS if args.command is None else COMMAND_PAIRS)
    if args.blocks < PAIRS_MIN:
        raise UsageError(f"try: --blocks {args.blocks}: an interval needs at least {PAIRS_MIN} blocks of each")
    _check_words(args)
    return _run_config(args) if args.command is None else _run_command(args)


def _check_words(args: argparse.Namespace) -> None:
    if (args.command is None) == (args.run is None):
        message = "try: give a run or a configuration file, or a command after --, such as tputui try --with lr=0.1 -- "
        raise UsageError(f"{message}python train.py")
    if args.command is None and (args.with_ or args.with_env or args.with_args):
        raise UsageError("try: --with, --with-env and --with-args change a command after --; of a run give KEY=VALUE")


def _run_config(args: argparse.Namespace) -> ExitCode:
    trial = _trial(args)
    if (problem := environment_problem(os.environ)) is not None:
        raise CommandError(ExitCode.ENVIRONMENT, problem)
    restarts = args.restart or trial.on_tpu
    plan = TrialPlan(args.blocks, args.steps, args.timeout, restarts)

    def sides(folder: Path) -> Iterator[TrialProcess]:
        for name, loaded in (("without the change", trial.base), ("with the change", trial.changed)):
            yield _side(trial, folder, name, loaded, restarts=restarts)

    what = ", ".join(trial.changes)
    measured = _measured(args, plan, what, trial.name, sides)
    _print(args, plan, measured, _fields(trial), what, _predictions(trial), notes=_notes(trial))
    return ExitCode.DONE


def _run_command(args: argparse.Namespace) -> ExitCode:
    base, new, changes = trial_command.changed(args.command, args)
    plan = TrialPlan(args.blocks, args.steps, args.timeout, restarts=False, block_s=trial_command.BLOCK_S)
    runs: list[trial_command.CommandRuns] = []

    def sides(folder: Path) -> Iterator[TrialProcess]:
        for name, run in (("without the change", base), ("with the change", new)):
            runs.append(trial_command.CommandRuns(name, run, folder, args.seed, runs[0] if runs else None))
            yield runs[-1]

    what = inert(", ".join(changes))
    measured = _measured(args, plan, what, script.shown_command(base.script.command), sides)
    without, changed = runs
    # The losses of the first runs count, too: only their speed does not.
    unchanged = least(agreement(without.losses[0], losses) for losses in without.losses[1:])
    pairs = least(itertools.starmap(agreement, zip(without.losses, changed.losses, strict=False)))
    verdict, sentence = trial_command.judged(unchanged, pairs)
    fields = {
        "commands": {"without": without.shown, "with": changed.shown},
        "changes": changes,
        "seed": args.seed,
        "unit": measured[0].unit,
        "losses": {
            "verdict": verdict,
            "text": sentence,
            "unchanged_runs": unchanged and unchanged._asdict(),
            "pairs": pairs and pairs._asdict(),
        },
    }
    seed = f"{'seed':<10} {args.seed} for hashes, random, numpy and torch; a seed that the script sets replaces it"
    suffix = ", but not the same training" if verdict == "different" else ""
    losses = f"{'losses':<10} {sentence}"
    _print(args, plan, measured, fields, what, [losses, seed], suffix=suffix, commands=[run.shown for run in runs])
    return ExitCode.DONE


_Measured = tuple[Outcome, Ratio, float]
"""What was measured, the gain, and the seconds that it took."""


def _measured(
    args: argparse.Namespace, plan: TrialPlan, changes: str, name: str, sides: Callable[[Path], Iterable[TrialProcess]]
) -> _Measured:
    """Says what will be measured, and measures both sides in a temporary directory. Raises `CommandError`."""
    began, length = time.monotonic(), fmt.counted(plan.pairs, "block")
    if args.steps is None and not args.json:
        length += f" of about {plan.block_s:g} s"
    within = fmt.duration(args.timeout)
    narrate(f"trying {changes} on {inert(name)}: {length} with it and without, at most {within}")
    with tempfile.TemporaryDirectory(prefix="tputui-try-", ignore_cleanup_errors=True) as folder:
        try:
            without, changed = sides(Path(folder))
            outcome = measure(without, changed, plan, ProgressLine())
        except TrialFailed as error:
            raise CommandError(ExitCode.FAILED, inert(str(error))) from None
        except OSError as error:
            raise CommandError(ExitCode.FAILED, f"try: training cannot be started: {error.strerror}") from None
    pairs = list(zip(outcome.without.rates, outcome.changed.rates, strict=True))
    ratio = paired_ratio(pairs)
    if outcome.is_interrupted:
        so_far = f"{fmt.counted(len(pairs), 'block')} of {plan.pairs} without and with {changes}: "
        median_of = median(new / old for old, new in pairs) if pairs else 0.0
        so_far += _speed(ratio) if ratio else f"{median_of:.2f}x as fast, too few for an interval"
        raise CommandError(ExitCode.INTERRUPTED, f"interrupted after {so_far if pairs else 'no block of both'}")
    if ratio is None:
        message = f"only {fmt.counted(len(pairs), 'block')} of each measured within {fmt.duration(plan.timeout_s)}; an "
        message += f"interval needs {PAIRS_MIN}: give a longer --timeout or fewer --steps"
        raise CommandError(ExitCode.FAILED, message)
    return outcome, ratio, time.monotonic() - began


def _print(
    args: argparse.Namespace, plan: TrialPlan, measured: _Measured, fields: Mapping[str, Any], changes: str,
    lines: Sequence[str], *, notes: Sequence[str] = (), suffix: str = "", commands: Sequence[str] = (),
) -> None:  # fmt: skip
    """Prints what was measured: `fields` and `lines` are what only a configuration, or only a command, has."""
    outcome, ratio, seconds = measured
    if args.json:
        say_json(spell_non_finite({**fields, **_measured_json(outcome, ratio, seconds)}), indent=2)
        return
    say("\n".join([f"{changes}: {_speed(ratio)}{suffix}", *lines]))
    for at, (label, side) in enumerate((("without", outcome.without), ("with", outcome.changed))):
        blocks = f"{fmt.counted(len(side.blocks), 'block')} of {fmt.counted(side.steps, 'step')}"
        rate = fmt.count(round(side.rate)) if side.rate >= 1000 else f"{side.rate:.4g}"
        say(f"{label:<10} {rate} {outcome.unit} in {blocks}{' or more: ' + commands[at] if commands else ''}")
    if outcome.is_cut:
        notes = [f"the time was over after {len(outcome.without.blocks)} of {plan.pairs} blocks of each", *notes]
    for note in notes:
        say(f"{'note':<10} {note}")


def _trial(args: argparse.Namespace) -> Trial:
    """What to measure, after all checks. Raises `CommandError`."""
    if (word := next((word for word in args.changes if "=" not in word), None)) is not None:
        raise UsageError(f"try: {word}: expected KEY=VALUE, such as data.workers=2")
    path = Path(args.run)
    manifest: rundir.Manifest | None = None
    snapshot: Snapshot | None = None
    verdict: Verdict | None = None
    try:
        if path.suffix == ".toml" or path.is_file():
            tables, name, source = config.load_tables(path), inert(args.run), args.run
            if config.is_script(tables):
                raise UsageError(_SCRIPT.format(name))
        else:
            run_dir = find_run(args.run, parent_of(args))
            name = inert(run_dir.name)
            manifest = _recorded(run_dir, name)
            tables, source = msgspec.to_builtins(manifest.config), manifest.config_path
            snapshot = session.load(run_dir)
        changes = list(args.changes)
        verdicts = diagnose(snapshot) if snapshot is not None else ()
        proposed = [candidate for candidate in verdicts if candidate.change is not None]
        if not changes:
            changes = [_proposed(name, proposed, has_run=snapshot is not None)]
        keys = [change.partition("=")[0].strip() for change in changes]
        verdict = next((candidate for candidate in proposed if [assigned_key(candidate.change)] == keys), None)
        base = config.from_builtins(tables, source)
        new = config.with_overrides(config.to_builtins(base), changes)
        changed = config.from_builtins(new, source, changes)
    except config.ConfigError as error:
        raise UsageError(str(error).removeprefix("--set ")) from None
    trial = Trial(name, base, changed, changes, snapshot, verdict, source)
    if manifest is not None:
        # Relative paths of a recorded configuration are relative to the working directory of its run.
        with contextlib.suppress(OSError):
            os.chdir(manifest.cwd)
    return trial._replace(on_tpu=_refuse(trial, keys))


_SCRIPT = (
    "{}: this runs a command of your own; write the command after --, such as tputui try --with lr=0.1 -- python "
    "train.py"
)


def _recorded(run_dir: Path, name: str) -> rundir.Manifest:
    """The manifest of a run of the engine. Raises `CommandError`."""
    with usage_errors(rundir.RunNotFound, OSError):
        manifest = rundir.read_manifest(run_dir)
    if config.is_script(manifest.config):
        raise UsageError(_SCRIPT.format(name))
    if not is_trained_by_engine(manifest.config):
        raise UsageError(
            f"{name}: only runs of the engine can be trained again with a change; this run is reported by a script"
        )
    return manifest


def _proposed(name: str, proposed: list[Verdict], *, has_run: bool) -> str:
    if proposed and proposed[0].change is not None:
        return proposed[0].change
    why = "its diagnosis proposes no change of the configuration" if has_run else "a configuration has no diagnosis"
    raise UsageError(f"try: {name}: {why}; give one, such as data.workers=2")


def _refuse(trial: Trial, keys: list[str]) -> bool:
    """Refuses changes that are none, or whose effect is not in the pace of training. Raises `CommandError`.

    Returns whether training uses TPU chips.
    """
    before, now = texts(config.to_builtins(trial.base)), texts(config.to_builtins(trial.changed))
    facts = [_checked(trial, loaded, changes) for loaded, changes in ((trial.base, []), (trial.changed, trial.changes))]
    for key in keys:
        if before.get(key) == now.get(key):
            raise UsageError(f"{key} is {now.get(key)} in {trial.name} already, so nothing changes")
        if key not in PACE_KEYS:
            raise UsageError(f"{key} {_why_not(key)}")
    batches = [of_run.get("global_batch") for of_run in facts]
    if all(key in BATCH_KEYS for key in keys) and batches[0] == batches[1]:
        problem = f"{', '.join(trial.changes)}: {trial.name} trains {batches[0]} examples per step already"
        raise UsageError(f"{problem}, so nothing changes")
    if keys == ["device.strategy"] and facts[0].get("num_cores") == 1:
        raise UsageError(f"device.strategy has no effect on one core, on which {trial.name} trains")
    on_tpu = facts[0].get("device") == "TPU"
    if on_tpu and (holder := next(iter(find_devices().holders), None)) is not None:
        raise CommandError(ExitCode.ENVIRONMENT, device_in_use(holder))
    return on_tpu


def _checked(trial: Trial, loaded: config.RunConfig, changes: list[str]) -> Mapping[str, Any]:
    """The engine's check of a configuration: the sizes of its run. Raises `CommandError`."""
    try:
        return launch.check_with_engine(loaded, trial.source, None, changes)
    except CommandError as error:
        raise CommandError(error.code, str(error).replace("--set ", "")) from None


def _why_not(key: str) -> str:
    """Why the effect of a key cannot be measured by the pace of training."""
    table, _, name = key.rpartition(".")
    if key == "task" or table == "model":
        return "changes the network: the pace of two networks does not decide which is better, so compare full runs"
    if table == "optim":
        return "changes how the weights are optimised, which pace does not judge, so compare the losses of full runs"
    if table == "data" and name not in config.data_keys():
        return "changes the examples of the task, so the pace with and without it is not of the same work"
    return "has no effect on the pace of training steps, which is all that try measures"


def _side(trial: Trial, folder: Path, name: str, loaded: config.RunConfig, *, restarts: bool) -> TrialProcess:
    """The training process of a configuration; its run is in `folder`."""
    trained = replace(
        loaded,
        epochs=config.EPOCHS_MAX,
        checkpoint=replace(loaded.checkpoint, every_epochs=config.EPOCHS_MAX),
        report=replace(loaded.report, pictures=0, seal=False),
        alerts=config.AlertsConfig(targets=()),
        diagnosis=config.DiagnosisConfig(),
        launch=config.LaunchConfig(),
    )
    name_of_run = "with" if loaded is trial.changed else "without"
    run_dir = launch.create_run(folder, trained, config_path=trial.source, name=name_of_run)
    environ = {**spawn.environment(os.environ), "PYTHONUNBUFFERED": "1"}
    if restarts:
        environ.setdefault(CACHE_VARIABLE, str(folder / "programs"))
    skip = SKIPPED + (loaded.data.prefetch_batches if restarts else 0)
    return TrialProcess(name, run_dir, skip, loaded.optim.accumulate, environ)


def _notes(trial: Trial) -> list[str]:
    """What the user should know about the result."""
    notes = []
    changed = dict.fromkeys(NOTED_KEYS[key] for key in map(assigned_key, trial.changes) if key in NOTED_KEYS)
    if changed:
        notes.append(f"{' and '.join(changed)} also changes what is learned: compare the losses of full runs")
    if trial.base.launch.num_hosts > 1:
        notes.append(f"measured on this host alone; {trial.name} trains on {trial.base.launch.num_hosts} hosts")
    topology = trial.snapshot.topology if trial.snapshot is not None else None
    recorded = topology.chip or topology.device if topology is not None else None
    if recorded is not None and not trial.on_tpu and recorded != "CPU":
        notes.append(f"{trial.name} was recorded on {recorded}, and this was measured on virtual CPU cores")
    elif not trial.on_tpu:
        notes.append("measured on virtual CPU cores; the gain on a TPU may differ")
    return notes


def _predicted(trial: Trial) -> float | None:
    """The gain by the diagnosis; None if it predicts none. Twice the threads load at most twice as fast."""
    verdict = trial.verdict
    if verdict is None or verdict.speedup is None:
        return None
    measured = trial.snapshot.evidence.input if trial.snapshot is not None else None
    if assigned_key(verdict.change) != "data.workers" or measured is None or not measured.threads:
        return verdict.speedup
    return min(verdict.speedup, max(1.0, trial.changed.data.workers / measured.threads))


def _speed(ratio: Ratio) -> str:
    speed = f"{ratio.ratio:.2f}x as fast" if ratio.stands_out else f"no proven gain: {ratio.ratio:.2f}x as fast"
    return f"{speed} ({LEVEL * 100:.0f} % interval {ratio.low:.2f} to {ratio.high:.2f})"


def _predictions(trial: Trial) -> list[str]:
    if trial.verdict is None:
        return []
    predicted = _predicted(trial)
    gain = f"{predicted:.2f}x as fast" if predicted is not None else "not possible"
    title = verdict_lines.TITLES[trial.verdict.rule]
    return [f"{'predicted':<10} {gain}, by the diagnosis of {trial.name} ({title})"]


def _fields(trial: Trial) -> dict[str, Any]:
    before, now = (flatten(config.to_builtins(loaded)) for loaded in (trial.base, trial.changed))
    return {
        "run": trial.name,
        "changes": [
            {"key": key, "before": before.get(key), "after": now.get(key)} for key in map(assigned_key, trial.changes)
        ],
        "predicted": _predicted(trial),
        "rule": trial.verdict.rule if trial.verdict is not None else None,
        "notes": _notes(trial),
    }


def _measured_json(outcome: Outcome, ratio: Ratio, seconds: float) -> dict[str, Any]:
    return {
        "speedup": ratio.ratio,
        "low": ratio.low,
        "high": ratio.high,
        "confidence": LEVEL,
        "method": METHOD,
        "without": _side_json(outcome.without),
        "with": _side_json(outcome.changed),
        "is_cut": outcome.is_cut,
        "seconds": round(seconds, 3),
    }


def _side_json(measured: MeasuredBlocks) -> dict[str, Any]:
    blocks = [{"examples_per_s": block.examples / block.seconds, "seconds": block.seconds} for block in measured.blocks]
    return {"examples_per_s": measured.rate, "steps_per_block": measured.steps, "blocks": blocks}


COMMANDS = {"try": Command(DESCRIPTION, EXIT_CODES, add_arguments, run)}
