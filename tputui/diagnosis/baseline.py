"""The findings of an earlier rehearsal, so that only new ones fail.

A finding is the same if its rule, its file and the text of its line are: lines may move. Without a text, the function
has to be the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from tputui.diagnosis.verdict import Verdict
from tputui.telemetry.files import read_small

BYTES_MAX = 16 << 20


class KnownFinding(msgspec.Struct, frozen=True):
    """A finding in the file."""

    rule: str
    where: str | None = None
    function: str | None = None
    code: str | None = None


class _Report(msgspec.Struct, frozen=True):
    findings: list[KnownFinding]
    problem: str | None = None


class NoBaseline(Exception):
    """A file is no report of a rehearsal; the message is one sentence."""


def read(path: Path) -> list[KnownFinding]:
    """The findings in what `rehearse --json` printed. Raises `NoBaseline`."""
    try:
        report = msgspec.json.decode(read_small(path, BYTES_MAX), type=_Report)
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else f"not what `tputui rehearse --json` prints: {error}"
        raise NoBaseline(f"{path}: {why}") from None
    if report.problem is not None:
        raise NoBaseline(f"{path}: its rehearsal has no result: {report.problem}")
    return report.findings


def new_findings(findings: Sequence[Verdict], known: Sequence[KnownFinding]) -> tuple[list[Verdict], int]:
    """The findings that the baseline does not have, and how many of its own were not found again."""
    left, new = list(known), []
    for finding in findings:
        same = next((one for one in left if _is_same(one, finding)), None)
        if same is None:
            new.append(finding)
        else:
            left.remove(same)
    return new, len(left)


def _is_same(known: KnownFinding, finding: Verdict) -> bool:
    if (known.rule, _file(known.where)) != (finding.rule, _file(finding.where)):
        return False
    return known.code == finding.code if known.code and finding.code else known.function == finding.function


def _file(where: str | None) -> str:
    return (where or "").rpartition(":")[0]
