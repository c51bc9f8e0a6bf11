"""The page of text and the JSON object that `tputui show` prints for a snapshot.

The object's keys are a contract with scripts: keys may be added, none may change its meaning. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from tputui import formatting as fmt
from tputui.config_diff import config_lines
from tputui.diagnosis.diagnose import diagnose
from tputui.diagnosis.verdict import found
from tputui.logs.tags import is_of_xla
from tputui.state import facts, root_cause
from tputui.state.chart_data import LoggedView
from tputui.state.run_condition import ENDED
from tputui.state.snapshot import MemoryView, MeterView, Snapshot, best_epoch, hides_steps, monitored
from tputui.telemetry.codec import spell_non_finite
from tputui.telemetry.events import EpochEnded
from tputui.telemetry.logged_values import CONSOLE, LOSS, class_of, first_of
from tputui.text import phrases, show_hosts, verdict_lines
from tputui.text.loss_chart import loss_chart
from tputui.text.phrases import row


def core_lines(snapshot: Snapshot) -> list[str]:
    """The cores; then the one that is slower than the others, or why that is not known."""
    rows = _losses(snapshot)
    if (slow := snapshot.slow_core) is not None:
        steps = f"{fmt.counted(slow.num_steps, 'step')} since step {slow.first_step:,}"
        rows.append(
            row(
                "slow core",
                f"{phrases.core_name(snapshot, slow.core)}: {fmt.slower(slow.share)} than the others for {steps}",
            )
        )
    if snapshot.compute_reason is not None:
        rows.append(row("core times", snapshot.compute_reason))
    return rows


def _losses(snapshot: Snapshot) -> list[str]:
    """One line per core, or the minimum and maximum loss if there are more than 16 cores."""
    if len(snapshot.cores) <= 16:
        return [
            row(
                f"core {core.core}",
                core.host,
                f"loss {fmt.number(core.loss)}",
                f"step {core.step:,}",
                f"time {fmt.duration(core.compute_s)}" if core.compute_s is not None else "",
                core.condition,
            )
            for core in snapshot.cores
        ]
    finite = sorted((core for core in snapshot.cores if core.loss is not None and math.isfinite(core.loss)), key=_loss)
    if not finite:
        return [row("cores", f"{len(snapshot.cores)}, none with a finite loss")]
    low, high = finite[0], finite[-1]
    ends = (f"{fmt.number(extreme.loss)} on {phrases.core_name(snapshot, extreme.core)}" for extreme in (low, high))
    spread = " to ".join(ends)
    return [row("train loss", spread, f"{len(finite)} of {len(snapshot.cores)} cores are finite")]


def _loss(core: Any) -> float:
    loss: float = core.loss
    return loss


JSON_VERSION = 2
"""Version of the object of `to_show`: it increases if the meaning of a key changes."""
MARKS_SHOWN = 40
LINES_SHOWN = 40
"""Newest log lines on the page of `show --at`, and as many marks."""
FEW = -1
"""In place of a number of epochs: all if there are few, else the newest and a table of the metrics."""
EPOCHS_MAX = 10
EPOCHS_SHOWN = 5
"""Of more than `EPOCHS_MAX` epochs the newest that are shown, beside the best one."""
_TABLE_WIDTH = 118
"""Most characters of a row of the table of epochs; further columns are left out."""
CORES_SHOWN = 16
"""With more cores only the one with the fullest memory has a line."""
LOGGED_MAX = 256
"""Logged metrics that have a line, losses and validation values first."""
_HISTORIES = ("picture_history", "memory_history", "device_history", "meter_history", "xla_history")
NOT_SHOWN = ("logs", "stacks", "loss", "core_columns", "evidence", "is_behind", *_HISTORIES)
"""Fields for screens, which scripts do not need."""
OF_ONE_HOST = ("host_index", "cores")
"""Fields of the topology that are those of the first host."""


def to_show(snapshot: Snapshot, *, whole: bool = False) -> dict[str, Any]:
    """The object that `show --json` prints. Non-finite floats are "NaN", "Infinity" and "-Infinity".

    `whole`: include everything that the screen draws, such as curves, losses of each core, histories and log lines.
    """
    shown = snapshot
    if not whole:
        logged = [msgspec.structs.replace(view, points=[]) for view in snapshot.logged]
        shown = msgspec.structs.replace(snapshot, core_columns=[], logged=logged)
    fields: dict[str, Any] = msgspec.to_builtins(shown, enc_hook=list)
    fields["state"] = fields.pop("condition")
    fields["state_reason"] = fields.pop("condition_reason")
    fields["memory"]["host_rss_bytes"] = _rss_bytes(snapshot)
    fields["meters"] = [_meter(view) for view in snapshot.meters]
    for fact in (facts.LOSS, facts.EPOCH_LOSS, facts.BEST_EPOCH, facts.BEST_VALUE, facts.DURATION):
        fields[fact.key] = fact.of(snapshot)
    if hides_steps(snapshot):
        fields["steps"] = fields["epoch_step"] = None
    for view in fields["epochs"]:
        view["step"] = view["step"] or None
        view["best_so_far"] = view["best"]  # its name since version 2, with the one in version 1
        view["lr"] = None if math.isnan(view["lr"]) else view["lr"]
    of_lists = (event for name in ("checkpoints", "epochs", "epoch_starts", "traces") for event in fields[name])
    for event in (*of_lists, *fields["skipped"]["examples"], fields["pictures"], fields["topology"]):
        # The keys of the lists say which events they contain.
        if event is not None:
            del event["k"]
    if fields["topology"] is not None:
        for name in OF_ONE_HOST:
            del fields["topology"][name]
    fields["verdicts"] = msgspec.to_builtins(list(diagnose(snapshot)))
    if not whole:
        for name in NOT_SHOWN:
            del fields[name]
        for view in fields["logged"]:
            del view["points"]
        if snapshot.throughput is not None:
            del fields["throughput"]["history"]
        if snapshot.time_spent is not None:
            del fields["time_spent"]["saves"]
    spelt: dict[str, Any] = spell_non_finite(fields)
    return {"version": JSON_VERSION, **spelt}


def moment_text(snapshot: Snapshot, spell_time: Callable[[float], str]) -> str:
    """The page of one moment: that of `show_text`, a loss chart, the timeline marks and the log.

    `spell_time` formats a unix time.
    """
    since = f"{fmt.duration(snapshot.now - snapshot.started)} since the start" if snapshot.started is not None else ""
    heading = row("moment", spell_time(snapshot.now), f"({since})" if since else "")
    chart = loss_chart(snapshot.loss)
    marks = snapshot.marks[-MARKS_SHOWN:]
    left_out = snapshot.num_marks - len(marks)
    parts = [
        ["loss of all cores: mean (*), min-max (:)", *chart] if chart else [],
        [
            f"events{f' ({fmt.count(left_out)} earlier ones not shown)' if left_out else ''}",
            *(f"{spell_time(mark.t)}  step {fmt.count(mark.step):>9}  {mark.kind:<10}  {mark.text}" for mark in marks),
        ]
        if marks
        else [],
        ["log", *(f"{spell_time(line.t)}  {line.source:<10}  {line.text}" for line in snapshot.logs[-LINES_SHOWN:])]
        if snapshot.logs
        else [],
    ]
    pages = ["\n".join(fmt.inert(line) for line in part) for part in parts if part]
    return "\n\n".join([f"{heading}\n{show_text(snapshot).rstrip()}", *pages]) + "\n"


def show_text(
    snapshot: Snapshot, *, num_epochs: int | None = FEW, sections: bool = False, where: str | None = None
) -> str:
    """The page that `show` prints, with the newest `num_epochs` epochs (None: all) and the best one.

    `FEW` prints all epochs if there are at most `EPOCHS_MAX`, else the newest ones and a table of the metrics.
    `sections` adds a table of what the time of each epoch went into. `where` is printed in place of the directory of
    the run.
    """
    parts = [
        _head(snapshot, where or snapshot.dir),
        _details(snapshot),
        show_hosts.lines(snapshot),
        core_lines(snapshot),
        _meters(snapshot),
        _logged(snapshot),
        *(_epochs(snapshot, num_epochs, sections) if snapshot.epochs else []),
        _machine(snapshot),
        [row("diagnosis", verdict_lines.line(verdict)) for verdict in found(diagnose(snapshot))],
        _kept(snapshot),
        _wrong(snapshot),
    ]
    return "\n\n".join("\n".join(fmt.inert(line) for line in part) for part in parts if part) + "\n"


def _rss_bytes(snapshot: Snapshot) -> int | None:
    processes = snapshot.memory.processes
    return sum(process.rss_bytes for process in processes) if processes else None


def _meter(view: MeterView) -> dict[str, Any]:
    reading: dict[str, Any] = msgspec.to_builtins(view.reading)
    ranks = msgspec.to_builtins(view.ranks)
    return {
        "name": view.name,
        "split": view.split,
        "epoch": view.epoch,
        **reading,
        "reduced": view.reduced,
        "ranks": ranks,
    }


def _head(snapshot: Snapshot, where: str) -> list[str]:
    lines = [
        row("run", snapshot.run, f"({where})"),
        row("state", facts.STATE.text(snapshot), f"({snapshot.condition_reason})"),
    ]
    topology, plan = snapshot.topology, snapshot.plan
    if topology is not None:
        hosts = f"{topology.num_hosts} hosts" if topology.num_hosts > 1 else ""
        why = f"({topology.device_reason})" if topology.device_reason else ""
        strategy = fmt.strategy(topology.strategy)
        lines.append(row("cores", fmt.device_cores(topology.num_cores, topology.device), strategy, hosts, why))
        lines += [row("warning", topology.device_warning)] if topology.device_warning else []
    if plan is not None:
        batch = f"batch {plan.batch_per_core} per core, {plan.global_batch} global"
        parameters = f"{fmt.count(plan.num_parameters)} parameters" if plan.num_parameters else ""
        lines += [row("task", plan.task, parameters, plan.precision)] if plan.task or parameters else []
        if plan.global_batch:
            lines.append(row("data", fmt.examples(plan.train_examples, plan.valid_examples), batch))
        if ragged := fmt.ragged_end(plan.steps_per_epoch, plan.global_batch, plan.train_examples):
            lines.append(row("", ragged))
        if snapshot.lr is not None and not math.isnan(plan.lr):
            planned = f"{fmt.exact(plan.lr)} at the start: " if plan.lr != snapshot.lr else ""
            lines.append(row(facts.LEARNING_RATE.label, fmt.exact(snapshot.lr), f"({planned}{plan.lr_rule})"))
        has_epochs = snapshot.epoch or plan.num_epochs
        epoch = f"epoch {fmt.epoch_of(snapshot.epoch, plan.num_epochs)}" if has_epochs else ""
        step = f"step {snapshot.steps:,}/{plan.total_steps:,}" if plan.total_steps else _step(snapshot)
        lines.append(row("progress", epoch, step, _pace(snapshot)))
    elif snapshot.steps:
        epoch = f"epoch {snapshot.epoch}" if snapshot.epoch else ""
        lines.append(row("progress", epoch, _step(snapshot), _pace(snapshot)))
    if snapshot.flops is not None:
        lines.append(row("flops", *phrases.flops(snapshot.flops)))
    lines += _train_loss(snapshot)
    if snapshot.phase is not None and snapshot.ended is None and snapshot.condition != "lost":
        lines.append(row("phase", fmt.PHASES[snapshot.phase], f"for {fmt.whole(snapshot.phase_s)}"))
    return lines


def _step(snapshot: Snapshot) -> str:
    """The step; empty for logs that have none."""
    if hides_steps(snapshot):
        return "steps not known"
    return f"step {snapshot.steps:,}" if facts.STEP.of(snapshot) is not None else ""


def _details(snapshot: Snapshot) -> list[str]:
    """Where the run comes from, and the configuration values that differ from the defaults."""
    lines = [row(name, text) for name, text in phrases.details(snapshot.details)]
    changed = ", ".join(f"{line.key} = {line.value}" for line in config_lines(snapshot.config) if line.is_set)
    source = snapshot.details.config_path or ""
    return [*lines, *([row("config", source, changed)] if changed or source else [])]


def _train_loss(snapshot: Snapshot) -> list[str]:
    """The training loss of the newest step, the highest of the run with its core and step, and that of the epoch."""
    newest = facts.LOSS.text(snapshot)
    if not newest:
        return []
    highest = max(
        (column.highest for column in snapshot.core_columns if column.highest is not None),
        key=lambda extreme: extreme.value,
        default=None,
    )
    top = f"highest {fmt.number(highest.value)} on core {highest.core} in step {highest.step:,}" if highest else ""
    printed = next(
        (view for view in snapshot.logged if view.source and (view.split, view.name) == ("train", LOSS)), None
    )
    if highest is not None and printed is not None and printed.max > highest.value:
        # A progress bar prints several values of one step, of which the step keeps the last.
        top = f"highest {fmt.number(printed.max)} of {fmt.counted(printed.num_values, 'value')}"
    num_with_loss = sum(core.loss is not None for core in snapshot.cores)
    step = max((core.step for core in snapshot.cores), default=0)
    num_cores = snapshot.num_losses
    averaged = (
        f"{num_with_loss} of {num_cores} cores" if 0 < num_with_loss < num_cores else fmt.counted(num_with_loss, "core")
    )
    mean = f"mean of {averaged} in step {step:,}" if num_with_loss else "mean of the newest steps"
    of_script = snapshot.loss_named.text if snapshot.loss_named is not None else ""
    lines = [row(facts.LOSS.label, newest, mean, top, of_script)]
    if of_epoch := facts.EPOCH_LOSS.text(snapshot):
        lines.append(row("", of_epoch, f"mean over epoch {snapshot.epochs[-1].epoch}"))
    return lines


def _pace(snapshot: Snapshot) -> str:
    parts = [facts.STEP_TIME.text(snapshot), facts.SPEED.text(snapshot)]
    if any(parts) and snapshot.condition in ENDED:
        parts.append("at steady state")
    if remaining := facts.REMAINING.text(snapshot):
        parts.append(f"{remaining} to go")
    return "  ".join(filter(None, parts))


def _meters(snapshot: Snapshot) -> list[str]:
    """The means of the newest epoch, except for those of values that are logged, whose series have lines."""
    logged = {(view.split, view.name, view.value) for view in snapshot.logged}
    return [
        row(
            view.split,
            f"{view.name:<12} avg {fmt.number(view.reading.avg)}",
            f"last {fmt.number(view.reading.val)}",
            f"sum {fmt.number(view.reading.sum)}",
            f"count {fmt.count(view.reading.count)}",
            f"epoch {view.epoch}",
            f"({view.reduced})" if view.reduced else "",
        )
        for view in snapshot.meters
        if (view.split, view.name, view.reading.val) not in logged
    ]


def _logged(snapshot: Snapshot) -> list[str]:
    """What the script logged itself; the word console marks values that were read from printed text."""
    views = [view for view in snapshot.logged if not is_of_xla(view.name)]
    few = first_of(views, LOGGED_MAX, lambda view: class_of(view.name, view.split))
    lines = [row(view.split, f"{view.name:<12} {fmt.number(view.value)}", *_origin(view)) for view in few]
    if len(few) < len(views):
        lines.append(row("logged", f"{fmt.more(len(views) - len(few), 'metric')}; --json has them"))
    of_xla = len(snapshot.logged) - len(views)
    return [
        *lines,
        *([row("xla", f"{fmt.count(of_xla)} metrics of XLA's own report; --json has them")] if of_xla else []),
    ]


def _origin(view: LoggedView) -> Iterable[str]:
    """Step, range and source of the values of a metric."""
    if not view.counted:
        yield f"step {fmt.count(view.step)}"
    if view.num_values > 1:
        yield f"{fmt.number(view.min)} to {fmt.number(view.max)} in {fmt.count(view.num_values)} values"
    if view.num_bad:
        yield f"{fmt.count(view.num_bad)} not finite"
    yield "from console" if view.source == CONSOLE else f"from {view.source}"


def _epochs(snapshot: Snapshot, most: int | None, sections: bool) -> Iterable[list[str]]:
    """The tables of the metrics, of the epochs, and with `sections` of their times."""
    is_short = most == FEW and len(snapshot.epochs) > EPOCHS_MAX
    newest = EPOCHS_SHOWN if is_short else None if most == FEW else most
    shown, note = _newest_and_best(snapshot.epochs, newest)
    if is_short:
        yield _metric_table(snapshot)
    yield [*note, *_epoch_table(snapshot, shown)]
    if sections:
        yield _section_table(shown)


def _newest_and_best(views: list[EpochEnded], most: int | None) -> tuple[list[EpochEnded], list[str]]:
    """The newest epochs and the best one, in order, and a line with the number of the others, if any."""
    newest = views if most is None else views[max(0, len(views) - most) :]
    best = best_epoch(views)
    shown = newest if best is None or best in newest else [best, *newest]
    left_out = len(views) - len(shown)
    note = row("epochs", f"{fmt.count(left_out)} of {fmt.count(len(views))} not shown; --epochs all prints them")
    return shown, [note] if left_out else []


def _metric_table(snapshot: Snapshot) -> list[str]:
    """Every metric in the newest and in the best epoch, in training and validation."""
    views = snapshot.epochs
    best, last = best_epoch(views), views[-1]
    by = monitored(snapshot.config, snapshot.epochs)
    heads = [f"epoch {last.epoch} train", "valid"]
    heads += [f"best epoch {best.epoch} train", "valid"] if best is not None else []
    rows = [[f"metrics by {by}" if best is not None else "metrics", *heads]]
    for name in _metric_names(views, by):
        of = (last, best) if best is not None else (last,)
        rows.append([name, *(fmt.number(value) for view in of for value in _figures(view, name))])
    return _aligned(rows)


def _epoch_table(snapshot: Snapshot, shown: list[EpochEnded]) -> list[str]:
    """The epochs `shown` with as many metrics as fit, and how many do not."""
    views = snapshot.epochs
    best = best_epoch(views)
    names = _metric_names(views, monitored(snapshot.config, snapshot.epochs))
    wanted = [(split, name) for name in names for split in (0, 1) if _has(views, name, split)]
    has_lr = not all(math.isnan(view.lr) for view in views)
    rows = [["epoch", "train s", "valid s", *(["lr"] if has_lr else [])]]
    rows += [
        [
            f"epoch {view.numbers}{' best' if view is best else ''}",
            *(fmt.in_seconds(spent or None) for spent in (view.train_s, view.valid_s)),
            *([fmt.UNKNOWN if math.isnan(view.lr) else fmt.exact(view.lr)] if has_lr else []),
        ]
        for view in shown
    ]
    hidden: list[str] = []
    for number, (split, name) in enumerate(wanted):
        column = [f"{('train', 'valid')[split]} {name}", *(fmt.number(_figures(view, name)[split]) for view in shown)]
        wider = [[*row, cell] for row, cell in zip(rows, column, strict=True)]
        if len(_aligned(wider)[0]) > _TABLE_WIDTH:
            hidden = [row("", f"+{fmt.counted(len(wanted) - number, 'column')}: --json has all")]
            break
        rows = wider
    return [*_aligned(rows), *hidden]


def _section_table(shown: list[EpochEnded]) -> list[str]:
    """What the time of each epoch went into; the parts of tracing follow it."""
    times = [{f"trace {name}": spent for name, spent in view.trace_s.items()} for view in shown]
    times = [view.sections_s | parts for view, parts in zip(shown, times, strict=True)]
    names = list(dict.fromkeys(name for of in times for name in of))
    rows = [[f"epoch {view.numbers}", *(fmt.duration(of.get(name)) for name in names)]
            for view, of in zip(shown, times, strict=True)]  # fmt: skip
    return _aligned([["time", *names], *rows]) if names else [row("time", "the run does not report what it went into")]


def _metric_names(views: Iterable[EpochEnded], first: str) -> list[str]:
    """The names of all meters and scores; the monitored one and the loss come first."""
    names = dict.fromkeys(name for view in views for name in (*view.train, *view.valid, *view.scores))
    return [name for name in dict.fromkeys((first, "loss", *names)) if name in names]


def _figures(view: EpochEnded, name: str) -> tuple[float | None, float | None]:
    """The training and the validation value of a metric; None where the epoch has none."""
    return (view.train[name].avg if name in view.train else None), view.figure(name)


def _has(views: Iterable[EpochEnded], name: str, split: int) -> bool:
    return any(_figures(view, name)[split] is not None for view in views)


def _aligned(rows: list[list[str]]) -> list[str]:
    """The rows as text: the first column aligned to the left, the others to the right."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return [
        "  ".join(
            [
                f"{row[0]:<{max(widths[0], 12)}}",
                *(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in rows
    ]


def _machine(snapshot: Snapshot) -> list[str]:
    lines: list[str] = []
    xla, memory = snapshot.xla, snapshot.memory
    if xla is not None:
        compiles = f"{fmt.count(xla.compiles)} compiles in {fmt.duration(xla.compile_s)}"
        again = f"recompiles {phrases.recompiles(xla)}"
        lines.append(row("xla", compiles, again, f"{fmt.count(xla.executes)} executions", phrases.executes_a_step(xla)))
        if reads := phrases.reads_a_step(xla):
            lines.append(row("host reads", reads, f"{fmt.count(xla.scalar_reads)} scalars in total"))
        to = f"{fmt.count(xla.transfers_to_device)} host->device ({fmt.size(xla.bytes_to_device)})"
        back = f"{fmt.count(xla.transfers_from_device)} device->host ({fmt.size(xla.bytes_from_device)})"
        lines.append(row("transfers", to, back))
        if xla.fallbacks:
            lines.append(row("fallbacks", *(f"{name} {fmt.count(n)}" for name, n in xla.fallbacks.items())))
    if memory.host_used_bytes is not None:
        used = f"{fmt.size(memory.host_used_bytes)} of {fmt.size(memory.host_total_bytes)}"
        lines.append(row("host", used, f"CPU {fmt.percent(memory.host_cpu_percent)}"))
    if memory.predicted is not None:
        lines.append(row("predicted", fmt.forecast(memory.predicted).removeprefix("predicted ")))
        biggest = ", ".join(f"{share.name} {fmt.size(share.bytes)}" for share in memory.predicted.biggest)
        lines += [row("", f"most activations: {biggest}")] if biggest else []
    return [*lines, *show_hosts.processes(snapshot), *_hbm(snapshot.memory), *_devices(snapshot)]


def _hbm(memory: MemoryView) -> list[str]:
    """The memory of each core; of many cores only the fullest."""
    if memory.hbm is None:
        return [row("hbm", f"none: {memory.hbm_reason}")]
    shown = memory.hbm
    if len(shown) > CORES_SHOWN:
        shown = [max(shown, key=lambda reading: reading.used_bytes / max(reading.limit_bytes, 1))]
    lines = [row(f"hbm {core.core}", f"{fmt.size(core.used_bytes)} of {fmt.size(core.limit_bytes)}") for core in shown]
    others = len(memory.hbm) - len(shown)
    return [*lines, row("hbm", f"{others:,} other cores use less")] if others else lines


def _devices(snapshot: Snapshot) -> list[str]:
    """What the TPU runtime reports of each core, and why something is missing."""
    view = snapshot.devices
    if view is None:
        return []
    lines = [row(f"core {core.core}", *phrases.device_values(core)) for core in view.cores]
    lines += [row("warning", text) for text in phrases.device_problems(view.cores)]
    return [*lines, row("tpu", view.reason)] if view.reason and view.reason != snapshot.memory.hbm_reason else lines


def _kept(snapshot: Snapshot) -> list[str]:
    lines = [
        row(
            "checkpoint",
            saved.path,
            f"step {saved.step:,}",
            f"{fmt.size(saved.bytes)} in {fmt.duration(saved.seconds)}",
            saved.reason,
            "best" if saved.best else "",
        )
        for saved in snapshot.checkpoints
    ]
    for trace in snapshot.traces:
        covered = f"steps {trace.step - trace.steps + 1:,} to {trace.step:,} in {fmt.duration(trace.seconds)}"
        lines.append(row("profile", trace.path, covered, fmt.size(trace.bytes)))
    for request in snapshot.requests:
        seen = fmt.seen_while(request.seen_phase) if request.seen_phase else ""
        applied = f"after step {request.applied_step:,}" if request.applied_step is not None else ""
        details = (request.path or "", request.why or "", show_hosts.unanswered(request.unanswered))
        lines.append(row("request", request.kind, request.state, seen, applied, *details))
    return lines


def _wrong(snapshot: Snapshot) -> list[str]:
    lines = [row("non-finite", _bad(bad.metric, bad.value), phrases.core_name(snapshot, bad.core), f"step {bad.step:,}")
             for bad in snapshot.non_finite[:8]]  # fmt: skip
    if snapshot.num_non_finite > len(lines):
        lines.append(row("non-finite", f"{fmt.count(snapshot.num_non_finite)} values in total"))
    skipped = snapshot.skipped
    lines += [row("left out", bad.split, f"{bad.where}: {bad.why}") for bad in skipped.examples[:8]]
    if skipped.count > 8:
        lines.append(row("left out", f"{fmt.count(skipped.count)} examples in total, limit {skipped.limit}"))
    if snapshot.dropped_steps:
        lines.append(row("dropped", f"the losses of {fmt.count(snapshot.dropped_steps)} steps are in no journal"))
    if snapshot.num_senseless:
        lines.append(row("left out", f"{fmt.count(snapshot.num_senseless)} events that contradict themselves"))
    head = snapshot.topology.device_warning if snapshot.topology is not None else None
    lines += [row("warning", text) for text in (*snapshot.troubles, *snapshot.warnings) if text != head]
    lines += [row("damage", phrases.damage(region)) for region in snapshot.damage.regions]
    if snapshot.newer_format:
        lines.append(row("newer", snapshot.newer_format))
    if snapshot.failure is not None:
        lines += root_cause.block(snapshot.failure)
    return lines


def _bad(metric: str, value: float) -> str:
    return f"{metric} {fmt.number(value)}"
