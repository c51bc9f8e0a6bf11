"""A run as a small piece of HTML: state, progress, newest metrics and the loss chart. Notebooks show it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tputui import formatting as fmt
from tputui.report import charts
from tputui.state import facts
from tputui.state.metric_series import LOSS, MetricSeries, MetricSource, metric_series
from tputui.state.snapshot import Snapshot, monitored
from tputui.telemetry.events import Split
from tputui.telemetry.logged_values import class_of, first_of

METRICS_MAX = 12
_TEXT_MAX = 300
SPLITS: tuple[Split, ...] = ("train", "valid")
_CHIPS = {"done": "good", "failed": "bad", "lost": "bad", "stalled": "warn", "stopped": "warn"}

COLOURS = """
:root,.tpu-card{--tpu-back:#fff;--tpu-text:#1d2129;--tpu-dim:#656d78;--tpu-line:#dfe3e8;--tpu-soft:#f4f6f8;
--tpu-train:#1f6feb;--tpu-valid:#b45309;--tpu-bad:#c62828;--tpu-warn:#8a5a00;--tpu-good:#1a7f37}
@media(prefers-color-scheme:dark){:root,.tpu-card{--tpu-back:#14171c;--tpu-text:#e3e6ea;--tpu-dim:#98a1ad;
--tpu-line:#2e343d;--tpu-soft:#1d2128;--tpu-train:#6cb0ff;--tpu-valid:#f0a44b;--tpu-bad:#ff7b72;--tpu-warn:#e3b341;
--tpu-good:#56d364}}
.tpu-state{display:inline-block;padding:.05em .6em;border-radius:1em;border:1px solid currentColor;font-weight:600;
font-size:.9rem}
.tpu-good{color:var(--tpu-good)}.tpu-bad{color:var(--tpu-bad)}.tpu-warn{color:var(--tpu-warn)}
.tpu-info{color:var(--tpu-train)}
.tpu-facts{display:flex;flex-wrap:wrap;gap:.2em 1.6em;margin:.5em 0;padding:0;list-style:none}
.tpu-facts b{font-weight:600;font-variant-numeric:tabular-nums}
.tpu-bar{height:6px;border-radius:3px;background:var(--tpu-line);overflow:hidden;margin:.5em 0}
.tpu-bar i{display:block;height:100%;background:var(--tpu-train)}
"""
_CARD_STYLE = """
.tpu-card{max-width:60rem;padding:.7em 1em;border:1px solid var(--tpu-line);border-radius:6px;
background:var(--tpu-back);color:var(--tpu-text);font:14px/1.45 system-ui,sans-serif}
.tpu-card h4{margin:0 0 .2em;font-size:1.05em;color:inherit}
"""


def card(snapshot: Snapshot) -> str:
    """The piece of HTML, with its own style sheet."""
    style = f"<style>{COLOURS}{charts.STYLE}{_CARD_STYLE}</style>"
    loss, others = split_metrics(snapshot)
    return f'<div class="tpu-card">{style}{headline(snapshot, "h4")}{loss}{_newest(others)}</div>'


def summary(snapshot: Snapshot) -> str:
    """The state in one line of text, for where HTML is not shown."""
    facts = ", ".join(f"{name} {value}" for name, value in _facts(snapshot))
    return fmt.inert(fmt.with_reason(f"{snapshot.run} {snapshot.condition}", facts or snapshot.condition_reason))


def headline(snapshot: Snapshot, tag: str) -> str:
    """Name, state with its cause, progress, duration, pace and the best metric; `tag` is that of the heading."""
    chip = _CHIPS.get(snapshot.condition, "info")
    state = f'<span class="tpu-state tpu-{chip}">{_text(snapshot.condition)}</span>'
    reason = f" {_text(snapshot.condition_reason)}" if snapshot.condition_reason else ""
    facts = "".join(f"<li>{name} <b>{_text(value)}</b></li>" for name, value in _facts(snapshot))
    return (
        f"<header><{tag}>{_text(snapshot.run)}</{tag}><div>{state}{reason}</div>"
        f'{_bar(snapshot)}<ul class="tpu-facts">{facts}</ul></header>'
    )


def split_metrics(snapshot: Snapshot) -> tuple[str, list[MetricSeries]]:
    """The chart of the loss with the range of its cores, or of a run without a loss that of its first metric; and the
    other metrics."""
    series = metric_series(MetricSource.of(snapshot))
    if not series:
        return "", []
    first = next((metric for metric in series if metric.name == LOSS), series[0])
    drawn = charts.chart(first, snapshot.loss if first.name == LOSS else ())
    return drawn, [metric for metric in series if metric is not first]


def _text(text: str) -> str:
    return escape(fmt.inert(text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}\u2026"))


def _facts(snapshot: Snapshot) -> list[tuple[str, str]]:
    plan = snapshot.plan
    rows = []
    if snapshot.epoch:
        rows.append(
            ("epoch", f"{snapshot.epoch}/{plan.num_epochs}" if plan and plan.num_epochs else f"{snapshot.epoch}")
        )
    if snapshot.steps:
        of = f" of {fmt.count(plan.total_steps)}" if plan and plan.total_steps else ""
        rows.append(("step", f"{fmt.count(snapshot.steps)}{of}"))
    rows += [(fact.label, text) for fact in (facts.DURATION, facts.LOSS) if (text := fact.text(snapshot))]
    if text := facts.BEST_VALUE.text(snapshot):
        best = f"best validation {_text(monitored(snapshot.config, snapshot.epochs))}"
        rows.append((best, f"{text} in epoch {facts.BEST_EPOCH.text(snapshot)}"))
    pace = (facts.STEP_TIME, facts.SPEED, facts.REMAINING)
    return rows + [(fact.label, text) for fact in pace if (text := fact.text(snapshot))]


def _bar(snapshot: Snapshot) -> str:
    """The share of the planned steps that are done; empty if no number of steps is planned."""
    total = snapshot.plan.total_steps if snapshot.plan is not None else 0
    if total <= 0:
        return ""
    share = min(max(snapshot.steps / total, 0.0), 1.0)
    return f'<div class="tpu-bar"><i style="width:{share:.1%}"></i></div>'


def _newest(series: Sequence[MetricSeries]) -> str:
    points = [
        (metric, split, point) for metric in series for split in SPLITS if (point := metric.newest(split)) is not None
    ]
    shown = first_of(points, METRICS_MAX, lambda entry: class_of(entry[0].name, entry[1]))
    items = []
    for metric, split, point in shown:
        name = metric.name if split == "train" else f"validation {metric.name}"
        unit = f" {metric.unit}" if metric.unit else ""
        items.append(f"<li>{_text(name)} <b>{fmt.number(point.value)}{escape(unit)}</b></li>")
    more = f"<li>{len(points) - len(shown)} more</li>" if len(points) > len(shown) else ""
    return f'<ul class="tpu-facts">{"".join(items)}{more}</ul>' if items else ""
