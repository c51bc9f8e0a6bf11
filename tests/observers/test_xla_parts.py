"""The parts of the observer of torch_xla that need no torch: texts of programs, decisions and combined events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import pytest

from tests.test_reporter_api import of_type, read_events
from tputui.observers import loader_batches, xla_graph
from tputui.observers.sinks import FIRST_EMITTED, RANKS, CompileReports, ObserverJournal
from tputui.observers.xla_graph import AGAIN_AFTER_S, READS, RECOMPILES, Trouble
from tputui.observers.xla_runtime import Call, Calls, XlaRuntime
from tputui.telemetry import events as ev

FILE = "/home/me/train.py"


def program(rows: int, shift: int, line: int = 9) -> xla_graph.Graph:
    """A program that shifts rows and multiplies them."""
    metadata = f'metadata={{op_type="aten__roll" op_name="aten__roll" source_file="{FILE}" source_line={line}}}'
    text = f"""HloModule IrToHlo.9

ENTRY %IrToHlo.9 (p0.1: f32[{rows},8], p1.2: f32[8,4]) -> (f32[{rows},4]) {{
  %p0.1 = f32[{rows},8]{{1,0}} parameter(0)
  %constant.2 = s64[] constant({shift}), {metadata}
  %roll.3 = f32[{rows},8]{{1,0}} add(f32[{rows},8]{{1,0}} %p0.1, s64[] %constant.2), {metadata}
  %p1.2 = f32[8,4]{{1,0}} parameter(1)
  %d.4 = f32[{rows},4]{{1,0}} dot(f32[{rows},8]{{1,0}} %roll.3, f32[8,4]{{1,0}} %p1.2), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT %tuple.5 = (f32[{rows},4]{{1,0}}) tuple(f32[{rows},4]{{1,0}} %d.4)
}}
"""  # noqa: E501
    graph = xla_graph.parse(text)
    assert graph is not None
    return graph


def test_an_input_of_another_shape_has_the_name_of_the_variable() -> None:
    found = xla_graph.difference(program(16, 1), program(5, 2), {("f32[16,8]", "f32[5,8]"): "x"})
    assert found.inputs == [ev.ChangedInput(name="x", before="f32[16,8]", now="f32[5,8]")]


class Loader(NamedTuple):
    collate_fn: Callable[..., object]
    batch_size: int = 16


BEFORE = (16, 20), (16,)


@pytest.mark.parametrize(
    ("shapes", "changed", "names"),
    [
        (((16, 24), (16,)), [("x", "s64[16,20]", "s64[16,24]")], ["x"]),
        (((16, 24), (16,)), [("an input", "s64[16,20]", "s64[16,24]")], ["batch"]),
        (((16, 24), (16,)), [("x", "s64[16,20]", "s64[16,24]"), ("flat", "s64[320]", "s64[384]")], ["x"]),
        (((6, 20), (6,)), [("x", "s64[16,20]", "s64[6,20]"), ("y", "s64[16]", "s64[6]")], ["x", "y"]),
        # A mask beside the loader.
        (((16, 24), (16,)), [("x", "s64[16,20]", "s64[16,24]"), ("picked", "f32[9]", "f32[5]")], []),
        (((16, 24), (16,)), [("picked", "f32[24]", "f32[20]")], []),
        (((16, 24), (16,)), [("x", "s64[16,20]", "s64[16,22]")], []),
        (((16, 24), (16,)), [("x", "s64[16,20]", "s32[16,24]")], []),
        (((16, 24), (16,)), [("constant of roll", "3", "4")], []),
        (((16, 24), (16,)), [("state", "", "s64[16,24]")], []),
        (BEFORE, [("x", "s64[16,20]", "s64[16,18]")], []),
    ],
)
def test_changes_are_those_of_a_loader_only_if_its_batches_changed_alike(
    shapes: tuple[tuple[int, ...], ...], changed: list[tuple[str, str, str]], names: list[str]
) -> None:
    def pad() -> None:
        """As the user's file has it."""

    made = loader_batches.MadeAt(pad.__code__, 7)
    batches = loader_batches.of_loader(Loader(partial(pad)), made)
    for newest in (BEFORE, shapes):
        batches.take(newest)
    inputs = [ev.ChangedInput(name=name, before=before, now=now) for name, before, now in changed]
    explained = loader_batches.explain(inputs)
    assert (explained is not None) == bool(names)
    if explained is not None:
        line, own = explained
        assert [change.name for change in own] == [ev.OF_LOADER + name for name in names]
        assert line.frame is not None
        # Lengths are those of the function that makes a batch, the number of examples that of the loader.
        assert line.frame.line == (7 if shapes[0][0] == 6 else pad.__code__.co_firstlineno)


def test_a_loader_whose_collate_function_is_of_a_library_is_named_where_it_is_made() -> None:
    made = loader_batches.MadeAt(program.__code__, 7)
    batches = loader_batches.of_loader(Loader(loader_batches.of_loader), made)
    for lengths in (20, 24):
        batches.take(((16, lengths),))
    explained = loader_batches.explain([ev.ChangedInput(name="x", before="s64[16,20]", now="s64[16,24]")])
    assert explained is not None
    assert explained[0].frame is not None
    assert explained[0].frame.line == 7


def test_a_constant_has_its_operation_and_line() -> None:
    found = xla_graph.difference(program(16, 1), program(16, 2), {})
    assert found.inputs == [ev.ChangedInput(name="constant of aten::roll", before="1", now="2")]
    assert found.frame == ev.CodeFrame(file=FILE, line=9, function="", owner="user")


def power(exponent: float) -> str:
    """The text of a program with `x ** exponent` in the user's line 4, and a number of the backward pass before it."""

    def metadata(kind: str) -> str:
        name = f"my_block.1/tputui_5.3/{kind}"
        source = 'source_file="/lib/python3.11/site-packages/torch/_tensor.py" source_line=45'
        return f'metadata={{op_type="{kind}" op_name="{name}" {source}}}'

    return f"""HloModule IrToHlo.9

ENTRY %IrToHlo.9 (p0.1: f32[8]) -> (f32[8]) {{
  %constant.7 = f32[] constant({exponent - 1}), metadata={{op_type="prim__Constant" op_name="prim__Constant"}}
  %p0.1 = f32[8]{{0}} parameter(0)
  %constant.2 = f32[] constant({exponent}), {metadata("prim__Constant")}
  %broadcast.3 = f32[8]{{0}} broadcast(f32[] %constant.2), dimensions={{}}, {metadata("aten__pow")}
  %power.4 = f32[8]{{0}} power(f32[8]{{0}} %p0.1, f32[8]{{0}} %broadcast.3), {metadata("aten__pow")}
}}
"""


def test_a_number_that_a_library_passes_on_has_the_line_and_name_of_its_call() -> None:
    called = Call("layer", ev.CodeFrame(file=FILE, line=4, function="block", owner="user"), is_direct=True)
    before, now = (
        xla_graph.parse(power(exponent), lambda scopes: called if "tputui_5" in scopes else None)
        for exponent in (1.5, 2.5)
    )
    assert before is not None
    assert now is not None
    found = xla_graph.difference(before, now, {})
    assert found.inputs[0] == ev.ChangedInput(name="constant of layer", before="1.5", now="2.5")
    assert found.frame == called.frame


def test_a_number_without_a_call_is_named_after_the_operation_that_takes_it() -> None:
    before, now = xla_graph.parse(power(1.5)), xla_graph.parse(power(2.5))
    assert before is not None
    assert now is not None
    found = xla_graph.difference(before, now, {})
    assert ev.ChangedInput(name="constant of aten::pow", before="1.5", now="2.5") in found.inputs
    assert found.frame is None, "it is in a library"


def test_a_program_lists_its_inputs_and_multiplications() -> None:
    graph = program(16, 1)
    assert xla_graph.inputs(graph, {"f32[8,4]"}) == [ev.TensorSpec(dtype="f32", shape=[16, 8])]
    assert xla_graph.matmuls(graph) == [ev.MatmulObserved(dtype="f32", batch=1, m=16, k=8, n=4, count=1)]


@pytest.mark.parametrize("text", ["", "HloModule x", "\nENTRY ", "\nENTRY %a (p: f32[1]) -> f32[1] {\n  %b = dot("])
def test_texts_that_are_no_programs_raise_nothing(text: str) -> None:
    graph = xla_graph.parse(text)
    assert graph is None or xla_graph.matmuls(graph) == []


class Counters:
    """Counters of a runtime, set by the test."""

    def __init__(self) -> None:
        self.num_reads = 0
        self.fallen: dict[str, int] = {}

    def reads(self) -> int:
        return self.num_reads

    def fallbacks(self) -> dict[str, int]:
        return dict(self.fallen)


def test_a_kind_of_trouble_opens_one_window_in_ten_minutes_and_a_new_kind_at_once() -> None:
    counters, now = Counters(), [0.0]
    trouble = Trouble(cast(XlaRuntime, counters), lambda: 0, lambda: now[0])
    step = 0

    def steps(reads: int, **fallen: int) -> Any:
        nonlocal step
        step, now[0] = step + 10, now[0] + 2.0
        counters.num_reads += reads
        for name, count in fallen.items():
            counters.fallen[name] = counters.fallen.get(name, 0) + count
        trouble.check(step)
        return trouble.take()

    assert steps(0) is None
    assert steps(5) is None, "every second step"
    assert steps(10).why == "1.0 transfers from the device a step"
    assert steps(10) is None
    assert steps(10, histc=20).why == "histc ran on the host CPU 2.0 times a step"
    assert steps(10, histc=20) is None
    trouble.compiled(RECOMPILES, "it compiled again")
    assert trouble.take() == ("it compiled again", True)
    now[0] += AGAIN_AFTER_S
    assert READS not in (steps(0) or ("",))[0]
    assert steps(10).why == "1.0 transfers from the device a step"


def test_counters_that_are_reset_are_no_trouble() -> None:
    counters = Counters()
    counters.num_reads = 1_000
    trouble = Trouble(cast(XlaRuntime, counters), lambda: 0, lambda: 0.0)
    counters.num_reads = 1
    trouble.check(10)
    assert trouble.take() is None
    assert trouble.reads == 1


def test_a_counter_rises_by_the_last_call_to_end() -> None:
    calls = Calls()
    calls.num_threads = calls.num_hooked = 2
    calls.begin("slow", Counter())
    calls.begin("quick", Counter())
    fallen = Counter({"aten::histc": 1})
    assert calls.end("quick", fallen, "") == {}, "the other one may have caused it"
    calls.begin("quick", fallen)
    assert calls.end("slow", fallen, "") == {"aten::histc": 1}
    assert calls.end("quick", fallen + fallen, "") == {"aten::histc": 1}, "its own, after the start"


def test_a_read_is_certain_of_itself_and_others_need_all_threads_observed() -> None:
    calls = Calls()
    calls.num_threads, calls.num_hooked = 2, 1
    for caller in ("item", "backward"):
        calls.begin(caller, Counter())
    assert calls.end("backward", Counter(reads=1), "") == {}
    assert calls.end("item", Counter(reads=2), "reads") == {"reads": 1}


COMPILED = ev.CompileObserved(
    t=1.0, runtime="torch_xla", program="train", cause="sync", warm_up=False, seconds=0.5, step=7, user_frame=None,
    changed_inputs=None,
)  # fmt: skip


def test_a_storm_of_compilations_is_combined_without_losing_any() -> None:
    emitted: list[ev.CompileObserved] = []
    now = [0.0]
    reports = CompileReports(emitted.append, lambda: now[0])
    for _ in range(500):
        now[0] += 0.02
        reports.add(COMPILED)
    reports.flush()
    assert len(emitted) <= FIRST_EMITTED + 11, "in 10 seconds"
    assert sum(event.count for event in emitted) == 500
    assert sum(event.seconds or 0 for event in emitted) == pytest.approx(250)
    named = msgspec.structs.replace(COMPILED, changed_inputs=[ev.ChangedInput(name="x", before="f32[2]", now="f32[3]")])
    reports.add(named)
    assert emitted[-1] == named


def test_a_second_process_of_a_rank_has_a_journal_of_its_own(tmp_path: Path) -> None:
    for _ in range(2):
        journal = ObserverJournal(tmp_path)
        assert list(tmp_path.glob("observer-0.jsonl")) == [] or _ == 1, "created with the first event"
        journal.emit(COMPILED)
        journal.close()
    for name in ("observer-0", f"observer-{RANKS}"):
        assert len(of_type(read_events(tmp_path / f"{name}.jsonl"), ev.CompileObserved)) == 1
