"""The secrets in events and files are masked by what the types of their fields say; everything else is exact."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from tests.deadline import DEADLINE_S
from tests.telemetry.test_journal import read_all
from tputui.telemetry import events as ev
from tputui.telemetry import masking, requests, run_labels, rundir
from tputui.telemetry.code_record import CodeRecord
from tputui.telemetry.journal import JournalWriter
from tputui.telemetry.layer_table import LayerTable
from tputui.telemetry.masking import FieldMasker
from tputui.telemetry.redaction import MASK
from tputui.telemetry.reporter import Reporter
from tputui.telemetry.secrecy import Exact, Secrecy, Text

FILES: tuple[type[msgspec.Struct], ...] = (
    *(rundir.Manifest, CodeRecord, LayerTable, run_labels.RunLabels, requests.Request),
)
SECRET = "password=hunter2"
TOKEN = "hf_AbCdEfGhIjKlMnOpQrSt"


@pytest.mark.parametrize("kind", [*ev.EVENT_TYPES, ev.UnknownEvent, *FILES], ids=lambda kind: kind.__name__)
def test_every_text_of_a_run_is_marked(kind: type[msgspec.Struct]) -> None:
    masking.plan(kind)


class Nested(msgspec.Struct):
    marked: Text
    plain: str


@pytest.mark.parametrize(
    "hint",
    [str, str | None, list[str], dict[str, int], dict[Exact, str], dict[str, Any], list[Nested], Nested | None, object],
    ids=str,
)
def test_text_that_is_not_marked_is_refused(hint: Any) -> None:
    kind = msgspec.defstruct("Added", [("t", float), ("count", ev.Int), ("words", hint)])
    with pytest.raises(TypeError, match=r"(Added\.words|Nested\.plain): mark whether .* may contain a secret"):
        masking.plan(kind)


def filled(hint: Any) -> Any:
    """A value of a type, with a secret in every text that is masked, and `exact` in every other one."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated and isinstance(inner[1], Secrecy):
        command = ["train.py", "--password", "hunter2", SECRET]
        values: dict[Secrecy, Any] = {Secrecy.EXACT: "exact", Secrecy.COMMAND: command, Secrecy.LINES: [SECRET, TOKEN]}
        return values.get(inner[1], {"password": "hunter2"} if inner[1] is Secrecy.VALUES else SECRET)
    if origin is Annotated:
        return filled(inner[0])
    if origin in (Union, types.UnionType):
        return filled(inner[0])
    if origin in (list, tuple):
        return origin([filled(inner[0])])
    if origin is dict:
        return {filled(inner[0]): filled(inner[1])}
    if origin is Literal:
        return inner[0]
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return build(hint)
    return hint(1)


def build(kind: type[msgspec.Struct]) -> Any:
    """A struct with a secret in every text that is masked."""
    hints = get_type_hints(kind, include_extras=True)
    return kind(**{name: filled(hints[name]) for name in kind.__struct_fields__})


def texts_of(value: Any) -> Iterator[str]:
    """Every text in plain values."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from texts_of(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts_of(item)
    elif isinstance(value, str):
        yield value


@pytest.mark.parametrize("kind", ev.EVENT_TYPES, ids=lambda kind: kind.__name__)
def test_no_secret_in_any_field_gets_into_a_journal(tmp_path: Path, kind: type[ev.Event]) -> None:
    event = build(kind)
    journal = JournalWriter(tmp_path / "worker-0.jsonl")
    journal.append([event])
    journal.close()
    content = (tmp_path / "worker-0.jsonl").read_text()
    assert "hunter2" not in content
    assert TOKEN not in content
    ((_, written, _),), damage = read_all(tmp_path / "worker-0.jsonl")
    assert (type(written), damage) == (kind, [])
    exact, kept = (
        [text for text in texts_of(msgspec.to_builtins(each)) if text == "exact"] for each in (event, written)
    )
    assert kept == exact


def written_by(reporter: Reporter, *events: ev.Event) -> list[Any]:
    """The events as the journal of the reporter has them."""
    for event in events:
        reporter.emit(event)
    assert reporter.close(DEADLINE_S)
    records, damage = read_all(reporter.path)
    assert damage == []
    return [record.event for record in records[1:]]


def test_names_of_metrics_meters_and_phases_are_masked(tmp_path: Path) -> None:
    reading = ev.MeterReading(val=1.0, avg=1.0, sum=1.0, count=1)
    meters = {SECRET: reading, "top5/acc@1": reading}
    logged = ev.ValuesLogged(t=1.0, name=TOKEN, tag=f"eval/{TOKEN}", source="runs/events.1", step=1, value=1.0)
    progress = ev.ProgressReported(
        t=1.0, epoch=1, epoch_step=1, step=1, step_s=0.1, examples_per_s=1.0, lr=0.1, report_steps=1,
        sections_s={SECRET: 1.0, "data": 2.0},
    )  # fmt: skip
    found = written_by(
        Reporter(tmp_path, "worker"),
        ev.MetersReported(t=1.0, epoch=1, step=1, split="train", meters=meters, reduced="mean"),
        logged,
        progress,
    )
    assert list(found[0].meters) == [f"password={MASK}", "top5/acc@1"]
    assert (found[1].name, found[1].tag, found[1].source) == (MASK, f"eval/{MASK}", "runs/events.1")
    assert found[2].sections_s == {f"password={MASK}": 1.0, "data": 2.0}


def test_different_secret_names_stay_different(tmp_path: Path) -> None:
    reporter = Reporter(tmp_path, "worker")
    names = ["password=hunter2", "password=hunter22"]
    logged = [
        ev.ValuesLogged(t=float(step), name=name, tag=name, source="console", step=step, value=1.0)
        for step in (1, 2)
        for name in names
    ]
    found = [event.name for event in written_by(reporter, *logged)]
    assert found == [f"password={MASK}", f"password={MASK} 2"] * 2


def test_more_names_than_are_remembered_stay_exact() -> None:
    masker = FieldMasker()
    names = [f"metric {number}" for number in range(2 * masking.NAMES_MAX)]
    assert [masker.name(name) for name in names] == names
    assert (masker.name("password=a"), masker.name("password=b")) == (f"password={MASK}", f"password={MASK} 2")
    assert [masker.name(name) for name in names] == names
    assert masker.name("password=b") == f"password={MASK} 2"


def test_changed_inputs_are_masked_by_their_names(tmp_path: Path) -> None:
    changed = ev.ChangedInput(name="db_password", before="'hunter2'", now="'hunter22'")
    other = ev.ChangedInput(name="x", before="f32[8,28]", now="f32[9,28]")
    limit = ev.CompileLimitReached(
        t=1.0, runtime="torch_compile", program="forward", limit=8, user_frame=None, changed_inputs=[changed, other]
    )
    (found,) = written_by(Reporter(tmp_path, "worker"), limit)
    assert found.changed_inputs == [ev.ChangedInput(name="db_password", before=MASK, now=MASK), other]


def test_key_is_masked_over_several_log_events(tmp_path: Path) -> None:
    key = ["-----BEGIN RSA PRIVATE KEY-----", "MIIEowIBAAKCAQEA7bq", "c2VjcmV0", "-----END RSA PRIVATE KEY-----"]
    lines = ["epoch 1", *key, "epoch 2", "done"]
    found = written_by(Reporter(tmp_path, "worker"), *(ev.LogWritten(t=1.0, line=line) for line in lines))
    assert [event.line for event in found] == ["epoch 1", *[MASK] * 4, "epoch 2", "done"]


def test_an_event_without_secrets_is_not_copied() -> None:
    event = ev.MetersReported(
        t=1.0, epoch=1, step=1, split="train", reduced="mean",
        meters={"loss": ev.MeterReading(val=1.0, avg=1.0, sum=1.0, count=1)},
    )  # fmt: skip
    assert FieldMasker().masked(event) is event


def test_event_with_a_value_of_a_wrong_type_becomes_a_warning(tmp_path: Path) -> None:
    wrong: Any = 7
    found = written_by(
        Reporter(tmp_path, "worker"), ev.LogWritten(t=1.0, line=wrong), ev.LogWritten(t=2.0, line="after")
    )
    assert re.fullmatch("a LogWritten could not be written: .*", found[0].text)
    assert found[1].line == "after"
