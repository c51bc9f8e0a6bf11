"""What one writer's facts add up to, as bytes and back: so that a reader can go on where another one was.

The same records give the same bytes, however they were read, and bytes that are read back go on to the same snapshot.
They are a stranger's until then: see `keptforms` for what is kept and `keptsound` for what is believed of it. Pure: no
clock, no file.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter, deque
from typing import Any, TypeVar

import msgspec

from tputui.cache.state_forms import (
    ColumnForm,
    ColumnsForm,
    Form,
    LineForm,
    MarksForm,
    PaceForm,
    ReceiptsForm,
    RecentForm,
    SeriesForm,
    TellingForm,
    ThinnedForm,
    UsageForm,
    ValuesForm,
    WriterForm,
)
from tputui.cache.state_validation import check
from tputui.state.chart_data import Mark, MeterPoint
from tputui.state.core_series import AllCoreSeries, CoreSeries
from tputui.state.downsampled import Downsampled, Recent, last_of
from tputui.state.process_log import OF_A_KIND_MAX, TOOL, Marks, ProcessLog
from tputui.state.process_state import ProcessState, Receipts
from tputui.state.series import Series
from tputui.state.snapshot import LogLine
from tputui.state.step_values import Row, StepValues
from tputui.telemetry import float_blocks
from tputui.telemetry.events import StepsRecorded, TopologyDeclared

T = TypeVar("T")
FormT = TypeVar("FormT", bound=Form)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(WriterForm)


class NotCacheable(ValueError):
    """A state that cannot be written, or bytes that hold none; the text says why."""


def encode(state: ProcessState) -> bytes:
    """Encodes a state. Raises `NotCacheable` if it is too large or inconsistent."""
    try:
        content = _encoder.encode(_form_of(state))
        check(_decoder.decode(content))
        return content
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise NotCacheable(f"it cannot be written: {error}") from None


def decode(name: str, content: bytes) -> ProcessState:
    """The state of the writer called `name` that bytes hold. Raises `NotCacheable`."""
    try:
        form = _decoder.decode(content)
        check(form)
        return _state_of(name, form)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise NotCacheable(f"it holds no state: {error}") from None


def _held(form: type[FormT], thing: object, **instead: Any) -> FormT:
    """The form of an object: its attributes by their names, or what stands `instead` of them."""
    has = vars(thing)
    return form(*(instead[name] if name in instead else has[_attribute(has, name)] for name in form.__struct_fields__))


def _filled(thing: T, form: Form, **instead: Any) -> T:
    """The object with its attributes taken from a form, or from what stands `instead` of them."""
    has = vars(thing)
    for name in form.__struct_fields__:
        has[_attribute(has, name)] = instead[name] if name in instead else getattr(form, name)
    return thing


def _attribute(has: dict[str, Any], name: str) -> str:
    return name if name in has else f"_{name}"


def _form_of(state: ProcessState) -> WriterForm:
    return _held(
        WriterForm,
        state,
        values=_values_form(state.values),
        epoch_starts=_held(ThinnedForm, state.epoch_starts),
        pace=_held(PaceForm, state.pace),
        usage=_held(UsageForm, state.usage, samples=_held(ThinnedForm, state.usage.samples)),
        meter_history={split: _held(ThinnedForm, points) for split, points in state.meter_history.items()},
        log=_telling_form(state.log),
        receipts={request: _held(ReceiptsForm, answer) for request, answer in state.receipts.items()},
    )


def _state_of(name: str, form: WriterForm) -> ProcessState:
    state = ProcessState(name)
    histories = {
        split: _filled(Downsampled[MeterPoint](last_of), points) for split, points in form.meter_history.items()
    }  # fmt: skip
    return _filled(
        state,
        form,
        values=_values(form.values, form.topology),
        epoch_starts=_filled(state.epoch_starts, form.epoch_starts),
        pace=_filled(state.pace, form.pace),
        usage=_filled(state.usage, form.usage, samples=_filled(state.usage.samples, form.usage.samples)),
        meter_history=histories,
        log=_telling(state.log, form.log, f"worker-{state.index}"),
        receipts={request: _filled(Receipts(), answer) for request, answer in form.receipts.items()},
        unknown=Counter(form.unknown),
    )


def _values_form(state: StepValues) -> ValuesForm:
    columns = [_column_form(column) for column in state.columns.columns]
    decoded = tuple(vars(state.columns)["_decoded"])
    return _held(
        ValuesForm,
        state,
        series={metric: _held(SeriesForm, series) for metric, series in state.series.items()},
        newest=[_newest_step(record, state.newest_row(metric)) for metric, record in state.newest.items()],
        recent=[(row.step, _bytes_of(row.values)) for row in state.recent_rows()],
        columns=_held(ColumnsForm, state.columns, columns=columns, decoded=decoded),
    )


def _values(form: ValuesForm, topology: TopologyDeclared | None) -> StepValues:
    columns = [_column(column) for column in form.columns.columns]
    return _filled(
        StepValues(),
        form,
        series={metric: _filled(Series(), series) for metric, series in form.series.items()},
        newest={record.metric: record for record in form.newest},
        recent=[Row(step, _floats_of(content)) for step, content in form.recent],
        columns=_filled(AllCoreSeries(), form.columns, columns=columns, decoded=list(form.columns.decoded)),
        topology=topology,
    )


def _newest_step(record: StepsRecorded, row: list[float] | None) -> StepsRecorded:
    """The last step of a record as a record of its own: no more of it is ever looked at. `row` are its values."""
    last = record.first + record.n - 1
    if row is None:
        return msgspec.structs.replace(record, first=last, n=1, bad=min(record.bad, record.cores), block="")
    mean, least, greatest, bad = float_blocks.summarise(row)
    block = float_blocks.pack_plain(_bytes_of(array("f", row)))
    return msgspec.structs.replace(
        record, first=last, n=1, mean=mean, min=least, max=greatest, bad=bad, block=block
    )  # fmt: skip


def _column_form(column: CoreSeries) -> ColumnForm:
    counts = None if column.counts is None else column.counts.tolist()
    means = _bytes_of(column.means)
    return ColumnForm(column.first, column.last, column.rows, means, counts, column.sampled_bad, column.middle)


def _column(form: ColumnForm) -> CoreSeries:
    means = _floats_of(form.means)
    counts = None if form.counts is None else array("L", form.counts)
    return CoreSeries(form.first, form.last, form.rows, means, counts, form.sampled_bad, form.middle)


def _bytes_of(floats: array[float]) -> bytes:
    """Little-endian float32."""
    if sys.byteorder == "big":
        floats = array("f", floats)
        floats.byteswap()
    return floats.tobytes()


def _floats_of(content: bytes) -> array[float]:
    """Of little-endian float32."""
    floats = array("f", content)
    if sys.byteorder == "big":
        floats.byteswap()
    return floats


def _telling_form(state: ProcessLog) -> TellingForm:
    logs = [LineForm(line.t, line.source != TOOL, line.level, line.text) for line in state.logs]
    of_kind = {
        kind: _held(RecentForm, kept, old=_held(ThinnedForm, vars(kept)["_old"]), newest=list(vars(kept)["_newest"]))
        for kind, kept in state.marks.of_kind.items()
    }
    marks = _held(MarksForm, state.marks, of_kind=of_kind, was_bad=sorted(vars(state.marks)["_was_bad"]))
    return _held(TellingForm, state, logs=logs, warnings=list(state.warnings), marks=marks)


def _telling(state: ProcessLog, form: TellingForm, printed_by: str) -> ProcessLog:
    logs = (
        LogLine(t=line.t, source=printed_by if line.printed else TOOL, level=line.level, text=line.text)
        for line in form.logs
    )
    of_kind = {kind: _recent(recent) for kind, recent in form.marks.of_kind.items()}
    marks = _filled(Marks(), form.marks, of_kind=of_kind, was_bad=set(form.marks.was_bad))
    state.logs.extend(logs)
    state.warnings.extend(form.warnings)
    return _filled(state, form, logs=state.logs, warnings=state.warnings, marks=marks)


def _recent(form: RecentForm[Mark]) -> Recent[Mark]:
    kept: Recent[Mark] = Recent(OF_A_KIND_MAX)
    old: Downsampled[Mark] = vars(kept)["_old"]
    return _filled(kept, form, old=_filled(old, form.old), newest=deque(form.newest))
