"""A run as one HTML page without scripts or links: state, charts, tables, failure report and the end of the log.

Everything of the run is untrusted: it is escaped, and every part has a maximum size. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape

from tputui import formatting as fmt
from tputui.config_diff import config_lines
from tputui.report import charts
from tputui.report.card import COLOURS, headline, split_metrics
from tputui.state import root_cause
from tputui.state.metric_series import MetricSeries
from tputui.state.snapshot import Snapshot
from tputui.text import phrases
from tputui.ui.base.export import BY_PANEL, Figure, Figures

CHARTS_MAX = 60
ROWS_MAX = 1_000
"""Rows of a table; of more, the newest."""
COLUMNS_MAX = 60
TEXT_MAX = 20_000
"""Characters of one text, such as a traceback."""
CELL_MAX = 2_000
_FIRST_BAD = 5
"""NaN and infinite values that are listed; all are counted."""
_LONG = 48
"""Characters from which the text of a column is wrapped."""
LOG_LINES = 400

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""No script, picture or address is ever loaded, whatever the page contains."""
_STYLE = """
*{box-sizing:border-box}
:root{color-scheme:light dark}
body{margin:0 auto;max-width:76rem;padding:1.2rem clamp(.8rem,3vw,2.5rem) 4rem;background:var(--tpu-back);
color:var(--tpu-text);font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem;line-height:1.25;margin:0 0 .3rem;overflow-wrap:anywhere}
h2{font-size:1.08rem;margin:2.2rem 0 .7rem;padding-bottom:.25rem;border-bottom:1px solid var(--tpu-line)}
.wide{overflow:auto;max-height:36rem}
table{border-collapse:collapse;font-size:.87rem;font-variant-numeric:tabular-nums}
th,td{padding:.22rem .9rem .22rem 0;text-align:right;white-space:nowrap;border-bottom:1px solid var(--tpu-line)}
th{font-weight:600;color:var(--tpu-dim);position:sticky;top:0;background:var(--tpu-back)}
th:first-child,td:first-child,td.text,th.text{text-align:left}
td.long{min-width:16rem;max-width:38rem;overflow-wrap:anywhere;white-space:normal}
dl{display:grid;grid-template-columns:minmax(6rem,max-content) minmax(0,1fr);gap:.2rem 1rem;margin:0;font-size:.92rem}
dt{color:var(--tpu-dim)}dd{margin:0;overflow-wrap:anywhere}
pre{margin:0;padding:.8rem;font:12.5px/1.45 ui-monospace,monospace;background:var(--tpu-soft);border-radius:6px;
overflow:auto;max-height:36rem;white-space:pre-wrap;overflow-wrap:anywhere}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,21rem),1fr));gap:1.1rem 1.6rem}
.first{--tpu-height:17rem;margin-top:1.4rem}
.failure{border-left:3px solid var(--tpu-bad)}
p.note{color:var(--tpu-dim);font-size:.87rem;margin:.3rem 0}
.error{color:var(--tpu-bad)}.warning{color:var(--tpu-warn)}
footer{margin-top:2.5rem;color:var(--tpu-dim);font-size:.85rem}
@media print{pre,.wide{max-height:none}body{max-width:none}}
"""


def page(snapshot: Snapshot, version: str) -> str:
    """The page as a document; `version` is that of tputui."""
    loss, others = split_metrics(snapshot)
    parts = [
        headline(snapshot, "h1"),
        _failure(snapshot),
        f'<div class="first">{loss}</div>',
        _charts(others),
        _warnings(snapshot),
        _section("Run", _pairs(_origin(snapshot))),
        *(_section(title, _table(find(snapshot), spell)) for title, find, spell in _TABLES),
        _section("Compilation", _table(BY_PANEL["xla"](snapshot), {})),
        _section("Memory", _memory(snapshot)),
        _section("Checkpoints", _table(_checkpoints(snapshot), {"t": fmt.utc, "bytes": fmt.size})),
        _section("Configuration", _configuration(snapshot)),
        _section("Events", _table(BY_PANEL["events"](snapshot), {"t": fmt.utc})),
        _section("Log", _log(snapshot)),
    ]
    title = _text(snapshot.run, CELL_MAX)
    made = f"tputui {_text(version)}, {fmt.utc(snapshot.now)}"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>{title}</title><style>{COLOURS}{_STYLE}{charts.STYLE}</style></head>\n"
        f"<body>\n{chr(10).join(part for part in parts if part)}\n<footer>{made}</footer>\n</body></html>\n"
    )


def _text(text: str, most: int = TEXT_MAX) -> str:
    """Untrusted text for HTML: its length bounded, without control characters, escaped."""
    cut = text if len(text) <= most else f"{text[:most]}\u2026"
    return escape(fmt.inert(cut))


def _lines(lines: Iterable[str]) -> str:
    """Lines of untrusted text; of too many characters, the first ones."""
    return _bounded("\n".join(map(fmt.inert, lines)))


def _bounded(text: str) -> str:
    return escape(text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}\n\u2026")


def _section(title: str, content: str) -> str:
    return f"<section><h2>{title}</h2>{content}</section>" if content else ""


def _pairs(pairs: Iterable[tuple[str, str]]) -> str:
    rows = "".join(f"<dt>{_text(name, CELL_MAX)}</dt><dd>{_text(value, CELL_MAX)}</dd>" for name, value in pairs)
    return f"<dl>{rows}</dl>" if rows else ""


def _charts(series: Sequence[MetricSeries]) -> str:
    """Every metric but the loss, as on the metric pages of the screen."""
    drawn = "".join(charts.chart(metric) for metric in series[:CHARTS_MAX])
    more = len(series) - CHARTS_MAX
    note = f'<p class="note">{fmt.more(more, "metric")}, not drawn</p>' if more > 0 else ""
    return _section("Metrics", f'<div class="charts">{drawn}</div>{note}') if drawn else ""


def _failure(snapshot: Snapshot) -> str:
    if snapshot.failure is None:
        return ""
    return _section("First failure", f'<pre class="failure">{_lines(root_cause.block(snapshot.failure))}</pre>')


def _warnings(snapshot: Snapshot) -> str:
    topology = snapshot.topology
    texts = [topology.device_warning] if topology is not None and topology.device_warning else []
    texts += [text for text in (*snapshot.troubles, *snapshot.warnings) if text not in texts]
    texts += [f"{bad.metric} {fmt.number(bad.value)} on core {bad.core} in step {bad.step:,}"
              for bad in snapshot.non_finite[:_FIRST_BAD]]  # fmt: skip
    if snapshot.num_non_finite > _FIRST_BAD:
        texts.append(f"{fmt.count(snapshot.num_non_finite)} NaN or infinite values in total")
    texts += [f"damage: {phrases.damage(region)}" for region in snapshot.damage.regions[:ROWS_MAX]]
    texts += [snapshot.newer_format] if snapshot.newer_format else []
    if snapshot.skipped.count:
        texts.append(f"{fmt.counted(snapshot.skipped.count, 'invalid example')} left out")
        texts += [f"{example.split} {example.where}: {example.why}" for example in snapshot.skipped.examples[:20]]
    items = "".join(f"<li>{_text(text, CELL_MAX)}</li>" for text in texts)
    return _section("Warnings", f'<ul class="warning">{items}</ul>' if items else "")


def _origin(snapshot: Snapshot) -> Iterable[tuple[str, str]]:
    yield "directory of the run", snapshot.dir
    if snapshot.created is not None:
        yield "created", fmt.utc(snapshot.created)
    if (topology := snapshot.topology) is not None:
        why = f" ({topology.device_reason})" if topology.device_reason else ""
        strategy = f", strategy {named}" if (named := fmt.strategy(topology.strategy)) else ""
        yield "cores", f"{fmt.device_cores(topology.num_cores, topology.device)}{strategy}{why}"
    if (plan := snapshot.plan) is not None:
        yield "task", plan.task
        if plan.num_parameters:
            yield "parameters", f"{fmt.count(plan.num_parameters)}, {plan.precision}"
        if plan.global_batch:
            yield "batch", f"{plan.batch_per_core} per core, {plan.global_batch} global"
            if examples := fmt.examples(plan.train_examples, plan.valid_examples):
                yield "examples", examples
        if rate := fmt.ruled_rate(plan.lr, plan.lr_rule):
            yield "learning rate", rate
    yield from phrases.details(snapshot.details)


def _configuration(snapshot: Snapshot) -> str:
    lines = config_lines(snapshot.config)
    if not lines:
        return ""
    rows: list[tuple[Figure, ...]] = [(line.key, line.value, "" if line.is_set else "default") for line in lines]
    return _table(Figures(("key", "value", ""), rows[:ROWS_MAX]), {}, newest=False)


def _memory(snapshot: Snapshot) -> str:
    memory = snapshot.memory
    none = f'<p class="note">device memory: {_text(memory.hbm_reason, CELL_MAX)}</p>' if memory.hbm_reason else ""
    predicted = f'<p class="note">{_text(fmt.forecast(memory.predicted))}</p>' if memory.predicted else ""
    table = BY_PANEL["memory"](snapshot)
    table = table._replace(rows=[row for row in table.rows if row[2] is None])
    in_bytes: dict[str, Callable[[float], str]] = dict.fromkeys(("used_bytes", "limit_bytes", "peak_bytes"), fmt.size)
    return none + predicted + _table(table, in_bytes)


def _checkpoints(snapshot: Snapshot) -> Figures:
    rows: list[tuple[Figure, ...]] = [
        (
            checkpoint.path,
            checkpoint.step,
            checkpoint.epoch,
            checkpoint.bytes,
            checkpoint.seconds,
            checkpoint.reason,
            checkpoint.best,
            checkpoint.t,
        )
        for checkpoint in snapshot.checkpoints
    ]
    return Figures(("path", "step", "epoch", "bytes", "seconds", "reason", "best", "t"), rows)


def _log(snapshot: Snapshot) -> str:
    lines = snapshot.logs[-LOG_LINES:]
    shown = "".join(
        f'<span class="{line.level}">{_text(f"{fmt.utc(line.t)}  {line.source:<10}  {line.text}", CELL_MAX)}\n</span>'
        for line in lines
    )
    return f"<pre>{shown}</pre>" if shown else ""


Spell = dict[str, Callable[[float], str]]
"""How the numbers of a column are written, by its title; else as `fmt.number` does."""


_TABLES: tuple[tuple[str, Callable[[Snapshot], Figures], Spell], ...] = (
    ("Cores", BY_PANEL["cores"], {"phase_s": fmt.duration, "compute_s": fmt.duration}),
    ("Meters", BY_PANEL["meters"], {}),
    ("Epochs", BY_PANEL["epochs"], {"lr": fmt.exact}),
)


def _table(table: Figures, spell: Spell, *, newest: bool = True) -> str:
    """A table, its columns without any value left out; empty without rows."""
    rows = table.rows[-ROWS_MAX:] if newest else table.rows[:ROWS_MAX]
    kept = [place for place in range(len(table.head)) if any(_is_shown(row[place]) for row in rows)]
    shown = kept[:COLUMNS_MAX]
    if not shown:
        return ""
    looks = {place: _look([row[place] for row in rows]) for place in shown}
    head = "".join(f"<th{looks[place]}>{_text(_title(table, place, spell), 200)}</th>" for place in shown)
    body = "".join(
        f"<tr>{''.join(_cell(row[place], spell.get(table.head[place]), looks[place]) for place in shown)}</tr>"
        for row in rows
    )
    notes = [f"{len(table.rows) - len(rows):,} earlier rows" if len(table.rows) > len(rows) else "",
             f"{len(kept) - len(shown):,} more columns" if len(kept) > len(shown) else ""]  # fmt: skip
    note = "".join(f'<p class="note">{text} left out</p>' for text in notes if text)
    return f'{note}<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _is_shown(value: Figure) -> bool:
    return value is not None and value is not False and value != ""


def _look(values: Iterable[Figure]) -> str:
    """The class of a column: text is aligned to the left, and long text is wrapped."""
    longest = max((len(value) for value in values if isinstance(value, str)), default=0)
    return "" if not longest else ' class="text"' if longest < _LONG else ' class="text long"'


def _title(table: Figures, place: int, spell: Spell) -> str:
    """`used_bytes` as `used`, since its values are written with their units; `t` as `time`."""
    name = table.head[place]
    if name in spell:
        short = name.removesuffix("_bytes").removesuffix("_s")
        name = f"{short} time" if short in table.head and short != name else short
    return "time" if name == "t" else name.replace("_", " ")


def _cell(value: Figure, spell: Callable[[float], str] | None, look: str) -> str:
    if value is None:
        text = ""
    elif isinstance(value, str):
        text = _text(value, CELL_MAX)
    elif isinstance(value, bool):
        text = "yes" if value else ""
    elif spell is not None:
        text = escape(spell(value))
    else:
        text = f"{value:,}" if isinstance(value, int) else fmt.number(value)
    return f"<td{look}>{text}</td>"
