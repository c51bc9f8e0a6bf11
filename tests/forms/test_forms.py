"""Printed and stored forms of training: what tputui reads of them, compared with the truth."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.forms import form

SCORE = 0.9972
"""Least share of the values and meanings of all forms that is told right; it only rises."""


def test_forms_are_told_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    scores = []
    for path in sorted(form.FOLDER.glob("*.toml")):
        known = form.read(path)
        (folder := tmp_path / path.stem).mkdir()
        scores.append(form.score(known, form.tell(known, folder)))
    assert sum(score.num_right for score in scores) / sum(score.num_all for score in scores) >= SCORE
