"""The examples of the page about metrics from logs, as they are on the page."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tputui import config
from tputui.logs.console import ConsoleParser
from tputui.logs.tags import TagMeaning, TagRule, meaning_of
from tputui.telemetry.logged_values import LOSS_NAMES

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "metrics-from-logs.md").read_text()
ROWS = re.findall(r"^\| `([^`]+)` \| (\S+) \| (train|valid) \| (\d*) ?\|$", PAGE, re.MULTILINE)
FILES = [tomllib.loads(block) for block in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)]


@pytest.mark.parametrize(("tag", "name", "split", "core"), ROWS, ids=[row[0] for row in ROWS])
def test_tags_of_the_table_mean_what_it_says(tag: str, name: str, split: str, core: str) -> None:
    assert meaning_of(tag) == (name, split, int(core) if core else None)


def test_table_is_read() -> None:
    assert len(ROWS) == 12


def test_order_of_the_loss_is_that_of_the_page() -> None:
    section = PAGE.partition("## The training loss")[2].partition("## ")[0]
    named = [name for name in re.findall(r"`([a-z_]+)`", section) if name != "learning"]
    assert tuple(named[: len(LOSS_NAMES)]) == LOSS_NAMES


@pytest.mark.parametrize("tables", FILES, ids=range(len(FILES)))
def test_configurations_are_valid(tables: dict[str, object]) -> None:
    config.script_from_builtins(tables, "a.toml")


def test_patterns_read_what_they_are_for() -> None:
    _, console, tags = FILES
    (found,) = ConsoleParser(console["script"]["console"]["pattern"]).parse("it 12: 0.5", 1.0)
    assert (found.tag, found.step, found.value) == ("loss", 12, 0.5)
    rule = TagRule(**tags["script"]["tags"])
    assert rule.meaning_of("dev.loss@3") == TagMeaning("loss", "valid", 3)
