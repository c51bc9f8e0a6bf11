"""The page about logs agrees with the readers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tputui.logs import growing, rows, tfevents, wandb_log
from tputui.logs.console import LINE_CHARS_MAX, ConsoleParser, check_pattern

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "open-existing-logs.md").read_text()
CONSOLE = PAGE[PAGE.index("## Console output") :]
EXAMPLES = [
    example.replace("\\|", "|")
    for line in CONSOLE.splitlines()
    if line.startswith("| ")
    for example in re.findall(r"`([^`]+)`", line.split(" | ", 1)[1])
]


def test_page_has_the_examples() -> None:
    assert len(EXAMPLES) >= 8


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_line_of_the_page_is_read(example: str) -> None:
    values = ConsoleParser().parse(example, 1.0)
    is_header = example == "Epoch 3/10"
    assert (values == []) is is_header


def test_pattern_of_the_page_is_valid() -> None:
    pattern = re.search(r"```text\n(.*)\n```", CONSOLE)
    assert pattern is not None
    assert check_pattern(pattern.group(1)) is None
    (value,) = ConsoleParser(pattern.group(1)).parse("it 3 core 1 L=0.5", 1.0)
    assert (value.tag, value.step, value.value) == ("train/loss/core1", 3, 0.5)


def test_page_lists_the_names_and_the_limits() -> None:
    names = {*rows.STEP_NAMES, *rows.EPOCH_NAMES, *rows.TIME_NAMES}
    assert [name for name in names if not name.startswith("_") and f"`{name}`" not in PAGE] == []
    assert growing.LINE_BYTES_MAX == 1 << 20
    assert tfevents.RECORD_BYTES_MAX == wandb_log.RECORD_BYTES_MAX == 64 << 20
    assert f"{LINE_CHARS_MAX:,} characters" in PAGE
