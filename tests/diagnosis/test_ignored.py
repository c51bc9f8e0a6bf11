"""Findings that a comment at the line of code ignores, and findings of an earlier rehearsal."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from tests.diagnosis.runs import by_rule, frame, reports, synced, verdicts, window
from tputui.diagnosis.rehearsal import Baseline, new_findings
from tputui.diagnosis.verdict import RuleName, Verdict, found, is_ignored
from tputui.telemetry import events as ev
from tputui.text import verdict_lines


def coded(code: str, line: int = 41) -> ev.CodeFrame:
    """A line of the user's code with this text."""
    return msgspec.structs.replace(frame(line), code=code)


@pytest.mark.parametrize(
    ("code", "rules"),
    [
        ("x.item()  # tputui: ignore sync", ["sync"]),
        ("x.item()  # tputui: ignore sync, graph-break", ["sync", "graph_break"]),
        ("x.item()  #tputui:ignore  # noqa", ["sync", "graph_break", "recompile"]),
        ("x.item()  # tputui: ignore once a report", []),
        ("x.item()  # ignore sync", []),
        ("", []),
    ],
)
def test_a_comment_names_rules_or_all(code: str, rules: list[RuleName]) -> None:
    every: tuple[RuleName, ...] = ("sync", "graph_break", "recompile")
    assert [rule for rule in every if is_ignored(rule, code)] == rules


def test_an_ignored_finding_is_no_finding_but_is_counted_and_listed() -> None:
    events = [*reports(), window()]
    shown = verdicts(*events, synced(user_frame=coded("loss.item()")), device="TPU")
    assert [verdict.code for verdict in by_rule(shown, "sync")] == ["loss.item()"]

    ignored = verdicts(*events, synced(user_frame=coded("loss.item()  # tputui: ignore sync")), device="TPU")
    assert not by_rule(ignored, "sync")
    (verdict,) = by_rule(ignored, "sync", "ignored")
    assert (verdict.line, verdict in found(ignored)) == (41, False)
    (line,) = [line for line in verdict_lines.blocks(ignored) if line.startswith("ignored")]
    assert line.split(maxsplit=1)[1] == f"1 finding ignored by comments: {verdict.where} sync"
    assert "sync" not in verdict_lines.checked(ignored), "it was found"

    other = verdicts(*events, synced(user_frame=coded("loss.item()  # tputui: ignore fallback")), device="TPU")
    assert len(by_rule(other, "sync")) == 1


def finding(line: int, code: str | None, rule: RuleName = "sync", function: str = "train") -> Verdict:
    """A finding in train.py."""
    return Verdict(
        rule=rule, status="found", text="waits", where=f"src/train.py:{line}", line=line, function=function, code=code
    )


def known(tmp_path: Path, *findings: Verdict) -> list[Verdict]:
    """The findings as a baseline has them."""
    file = tmp_path / "baseline.json"
    file.write_text(json.dumps({"findings": msgspec.to_builtins(findings), "problem": None}))
    return msgspec.json.decode(file.read_bytes(), type=Baseline).findings


def test_a_moved_line_is_the_same_finding_and_another_line_is_new(tmp_path: Path) -> None:
    before = known(tmp_path, finding(41, "loss.item()"), finding(50, "print(loss)"))
    moved, other = finding(43, "loss.item()"), finding(43, "acc.item()")
    assert new_findings([moved], before) == ([], 1)
    assert new_findings([moved, other], before) == ([other], 1)
    again = finding(60, "loss.item()")
    assert new_findings([moved, again], before) == ([again], 1), "each is known once"
    recompile = finding(41, "loss.item()", "recompile")
    assert new_findings([recompile], before) == ([recompile], 2)


def test_without_a_text_of_the_line_the_function_decides(tmp_path: Path) -> None:
    before = known(tmp_path, finding(41, None))
    assert new_findings([finding(43, "loss.item()")], before)[0] == []
    elsewhere = finding(43, "loss.item()", function="evaluate")
    assert new_findings([elsewhere], before)[0] == [elsewhere]
