"""Verdicts as text: a line each for `show` and the end of `--no-ui`, and blocks for `tputui doctor RUN`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from tputui import formatting as fmt
from tputui.diagnosis.goodput import PARTS, PRODUCTIVE, Goodput
from tputui.diagnosis.verdict import RuleName, Verdict, VerdictStatus, found

TITLES: dict[RuleName, str] = {
    "out_of_memory": "out of memory",
    "memory_trend": "memory grows",
    "recompile": "recompile",
    "sync": "sync",
    "fallback": "fallback",
    "graph_break": "graph break",
    "compile_limit": "compile limit",
    "input": "input-bound",
    "tracing": "tracing-bound",
    "slow_steps": "slow steps",
    "garbage": "garbage",
    "compile_cache": "compile cache",
    "donation": "donation",
    "replicated": "replicated",
    "op_by_op": "op by op",
    "device_put": "device put",
    "extra_execution": "extra programs",
    "padding": "padding",
    "batch_multiple": "batch size",
    "feature_multiple": "matrix sizes",
    "precision": "precision",
    "device_idle": "device idle",
    "throttling": "throttled",
    "link_health": "chip links",
    "slow_host": "slow host",
    "divergence": "divergence",
    "learning_rate": "learning rate",
    "guessing": "guessing",
    "overfitting": "overfitting",
    "plateau": "plateau",
    "gradient_norm": "gradient norm",
    "constant_metric": "constant",
    "epoch_jump": "epoch pattern",
    "validation_gap": "validation gap",
    "evaluation_mode": "eval mode",
    "core_loss": "core loss",
    "lr_scaling": "lr scaling",
}
"""Names of the rules as views show them."""
LOOKS_FOR: dict[RuleName, str] = {
    "out_of_memory": "a run that ended since the memory of the device was exhausted",
    "memory_trend": "memory that grows steadily while the run trains",
    "recompile": "programs that compile again after warm-up",
    "sync": "reads of device values for which the host waits",
    "fallback": "operations that run on the host CPU",
    "graph_break": "lines that torch.compile cannot compile",
    "compile_limit": "functions that torch.compile gave up on",
    "input": "steps that wait for their batch",
    "tracing": "steps in which the device waits for tracing",
    "slow_steps": "every Nth step that takes longer",
    "garbage": "garbage collections of Python that take 5 % of the steps",
    "compile_cache": "a minute of compilations that a persistent cache would save",
    "donation": "donated inputs of programs of JAX that cannot be reused",
    "replicated": "inputs of programs of JAX that each device has a copy of",
    "op_by_op": "operations of JAX that run one by one, outside of jit",
    "device_put": "arrays of JAX that every step moves, or copies to the device again",
    "extra_execution": "more programs in a step than it needs",
    "padding": "evaluation batches that are mostly padding",
    "batch_multiple": "a batch per core that is no multiple of 8",
    "feature_multiple": "matrices with sizes that are no multiple of 128",
    "precision": "matrix products in float32",
    "device_idle": "cores that compute nothing for more than 10 % of the time",
    "throttling": "chips that run slower than they could",
    "link_health": "problems of links between chips",
    "slow_host": "a host that the others wait for in every step",
    "divergence": "a training loss that rises for good, or stays NaN or infinite",
    "learning_rate": "a learning rate of 0, or weights that do not change",
    "guessing": "a loss that stays at that of guessing",
    "overfitting": "validation that gets worse while training gets better",
    "plateau": "a loss that stays far above zero at a constant learning rate",
    "gradient_norm": "a gradient norm that is zero, or grows until now",
    "constant_metric": "a loss or a result that never changes",
    "epoch_jump": "a loss that follows the place in the epoch, from the order of the data",
    "validation_gap": "validation far from training from the first evaluation on",
    "evaluation_mode": "a model that is evaluated in training mode",
    "core_loss": "a core whose loss has another level than the others",
    "lr_scaling": "a learning rate scaled by the cores while the batch is not",
}
"""What each rule looks for."""
WORST = 3
"""Verdicts at the end of `--no-ui`."""
SHARE_MIN = 0.01
"""Share of the wall time from which the end of `--no-ui` shows a verdict."""
INDENT = 16
UNANSWERED: tuple[VerdictStatus, ...] = ("not enough data yet", "not available")
"""Of rules without an answer."""


def cost(verdict: Verdict) -> str:
    """`8.3 s lost (12 % of the wall time)`; empty if it cannot be measured."""
    if verdict.lost_s is None:
        return ""
    share = f" ({percent(verdict.share)} of the wall time)" if verdict.share is not None else ""
    return f"{fmt.duration(verdict.lost_s)} lost{share}"


def percent(share: float) -> str:
    """`12 %`, or `< 1 %`."""
    return "< 1 %" if share < 0.01 else f"{share * 100:.0f} %"


def gain(verdict: Verdict) -> str:
    """`predicted 1.40x as fast (of the time of steps)`; empty if it cannot be predicted, or makes no difference."""
    if not verdict.speedup or verdict.speedup < 1.005:
        return ""
    return f"predicted {verdict.speedup:.2f}x as fast" + (
        f" (of the {verdict.speedup_of})" if verdict.speedup_of else ""
    )


def try_command(verdict: Verdict, run: str) -> str:
    """The command that measures the fix, `tputui try my-run data.workers=2`; empty if none does."""
    return f"tputui try {shlex.join([run, verdict.change])}" if verdict.change is not None else ""


def line(verdict: Verdict) -> str:
    """The verdict in one line: `recompile at train.py:41: ...; 8.3 s lost (12 % of the wall time)`."""
    at = f" at {verdict.where}" if verdict.where else ""
    return "; ".join(filter(None, (f"{TITLES[verdict.rule]}{at}: {verdict.text}", cost(verdict))))


def worst(verdicts: Sequence[Verdict]) -> list[str]:
    """The lines for the end of a run: the worst that were found, if they cost enough or ended it."""
    shown = [verdict for verdict in found(verdicts) if verdict.fatal or (verdict.share or 0.0) >= SHARE_MIN]
    lines = [f"slow: {line(verdict)}" if not verdict.fatal else line(verdict) for verdict in shown[:WORST]]
    return lines + [f"learning: {line(verdict)}" for verdict in found(verdicts) if verdict.is_learning][:WORST]


def since(verdict: Verdict) -> str:
    """`since epoch 3`, of a verdict on learning; empty for others."""
    if verdict.since_epoch:
        return f"since epoch {verdict.since_epoch}"
    return f"since step {fmt.count(verdict.since_step)}" if verdict.since_step is not None else ""


def blocks(verdicts: Sequence[Verdict], run: str | None = None) -> Iterator[str]:
    """All verdicts with evidence and fix; rules without an answer in a line for each reason. `run` is how a command
    names it."""
    for verdict in verdicts:
        if verdict.status in ("found", "hint"):
            yield from _block(verdict, run)
    for titles, text in unanswered(verdicts):
        yield f"{titles:<{INDENT - 2}}  {text}"


def unanswered(verdicts: Sequence[Verdict]) -> list[tuple[str, str]]:
    """Rules without an answer, those with the same reason together: their titles, and the status with the reason."""
    titles_by_answer: dict[str, list[str]] = {}
    for status in UNANSWERED:
        for verdict in verdicts:
            if verdict.status == status:
                titles_by_answer.setdefault(f"{status}: {verdict.text}", []).append(TITLES[verdict.rule])
    answers = [(", ".join(titles), text) for text, titles in titles_by_answer.items()]
    return [*answers, ("ignored", text)] if (text := ignored(verdicts)) else answers


def ignored(verdicts: Sequence[Verdict]) -> str:
    """`2 findings ignored by comments: train.py:81 sync, ...`; empty if there are none."""
    places = [f"{verdict.where} {TITLES[verdict.rule]}" for verdict in verdicts if verdict.status == "ignored"]
    return f"{fmt.counted(len(places), 'finding')} ignored by comments: {', '.join(places)}" if places else ""


def checked(verdicts: Sequence[Verdict]) -> str:
    """The rules that found nothing, by their titles; empty if there are none."""
    answered = {rule for verdict in verdicts for rule in verdict.rules}
    return ", ".join(title for rule, title in TITLES.items() if rule not in answered)


def _block(verdict: Verdict, run: str | None) -> Iterator[str]:
    place = verdict.where or (f"line unknown: {verdict.line_reason}" if verdict.line_reason else "")
    inside = f"in {verdict.function}" if verdict.where and verdict.function not in (None, "", "<module>") else ""
    head = "  ".join(filter(None, (f"{place} {inside}".strip(), cost(verdict), since(verdict))))
    if verdict.status == "hint":
        head = "  ".join(filter(None, ("hint", head)))
    title = f"{TITLES[verdict.rule]:<{INDENT}}"
    rows = [verdict.text, "; ".join(verdict.evidence), f"overlaps with {verdict.overlap}" if verdict.overlap else ""]
    if verdict.fix:
        rows.append("; ".join(filter(None, (f"fix: {verdict.fix}", gain(verdict)))))
    if verdict.keep is not None:
        rows.append(f"keep: {verdict.keep}")
    if run is not None and (command := try_command(verdict, run)):
        rows.append(f"measure it: {command}")
    shown = list(filter(None, (head, *rows)))
    yield f"{title}{shown[0]}"
    yield from (f"{'':<{INDENT}}{row}" for row in shown[1:])


_SHOWN_FROM_S = 0.05
"""Seconds from which a part is shown."""


def goodput_line(goodput: Goodput) -> str:
    """`84 % of 3 h 12 min over 4 runs was useful training; lost 10 min, downtime 7 min`; or why not known."""
    others = [
        f"{part} {fmt.duration(goodput.parts_s[part])}"
        for part in sorted(PARTS, key=lambda part: -goodput.parts_s.get(part, 0.0))
        if part not in PRODUCTIVE and goodput.parts_s.get(part, 0.0) >= _SHOWN_FROM_S
    ]
    return "; ".join(filter(None, (_head(goodput), ", ".join(others))))


def goodput_blocks(goodput: Goodput, price_per_hour: float | None) -> Iterator[str]:
    """A goodput_line per part with its share, and the cost if the price of an hour is given."""
    useful = [part for part in PARTS if part in PRODUCTIVE and goodput.parts_s.get(part, 0.0) >= _SHOWN_FROM_S]
    of_them = f": {' and '.join(useful)}" if goodput.share is not None and len(useful) > 1 else ""
    yield f"{'goodput':<{INDENT}}{_head(goodput)}{of_them}"
    for part in sorted(PARTS, key=lambda part: -goodput.parts_s.get(part, 0.0)):
        seconds = goodput.parts_s.get(part, 0.0)
        if seconds >= _SHOWN_FROM_S:
            steps = f": {fmt.counted(goodput.lost_steps, 'step')}" if part == "lost" and goodput.lost_steps else ""
            share = f"{seconds / goodput.wall_s * 100:5.1f} %" if goodput.wall_s else ""
            price = f"  {price_per_hour * seconds / 3600:10,.2f}" if price_per_hour is not None else ""
            yield f"{'':<{INDENT}}{part:<11}{share}  {fmt.duration(seconds):>10}{price}  {PARTS[part]}{steps}"
    if price_per_hour is not None:
        total = price_per_hour * goodput.wall_s / 3600
        rate = f"cost {total:,.2f} at {price_per_hour:,.2f} an hour"
        outside = f"; {total * (1 - goodput.share):,.2f} of it outside of training" if goodput.share is not None else ""
        yield f"{'':<{INDENT}}{rate}{outside}"


def _head(goodput: Goodput) -> str:
    if goodput.share is None:
        return f"not available: {goodput.reason}"
    over = f" over {len(goodput.runs)} runs" if len(goodput.runs) > 1 else ""
    return f"{goodput.share * 100:.0f} % of {fmt.duration(goodput.wall_s)}{over} was useful training"
