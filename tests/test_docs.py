"""The pages say what the code does."""

from __future__ import annotations

import base64
import re
import runpy
import zlib
from pathlib import Path

import pytest

from tests import recorded
from tputui.exit_codes import ExitCode
from tputui.fielddocs import field_docs
from tputui.telemetry import events

ROOT = Path(__file__).parent.parent


def test_the_journal_page_is_the_one_that_the_code_makes() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "make_journal_format.py"))["page"]()
    assert (ROOT / "docs" / "journal-format.md").read_text() == page, "run: python docs/make_journal_format.py"


@pytest.mark.parametrize("kind", events.EVENT_TYPES)
def test_every_field_of_every_record_is_documented(kind: type[events.Event]) -> None:
    docs = field_docs(kind)
    assert [name for name in kind.__struct_fields__ if not docs.get(name)] == []


def test_a_stranger_decodes_a_block_by_the_page_alone() -> None:
    np = pytest.importorskip("numpy")
    page = (ROOT / "docs" / "journal-format.md").read_text()
    code = re.search(r"```python\n(.*?)```", page, re.S)
    assert code is not None
    names: dict[str, object] = {"np": np, "base64": base64, "zlib": zlib}
    exec(code.group(1), names)
    rows = [recorded.losses(step) for step in range(1, 101)]
    event = recorded.steps_recorded(1.0, 1, rows)
    decoded = names["values"]({"block": event.block, "n": event.n, "cores": event.cores})  # type: ignore[operator]
    assert decoded.tolist() == rows


def test_the_readme_names_every_exit_code() -> None:
    readme = (ROOT / "README.md").read_text()
    for code in ExitCode:
        assert re.search(rf"^\| {code.value} \|", readme, re.M), f"exit code {code.value} ({code.name})"


def test_the_readme_gives_the_two_commands_and_ci_runs_the_second() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "pip install -e '.[xla]' && tputui run sample_configs/digits.toml" in readme
    assert "pip install -e '.[xla,dev]' && pytest" in readme
    door = (ROOT / ".ci" / "run").read_text()
    assert "pip install -e '.[xla,dev]' && pytest" in door
