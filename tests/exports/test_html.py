"""A run as one HTML page: well-formed, complete, bounded, and inert whatever the run contains."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests import recorded
from tests.cli.helpers import one_sentence, tputui
from tputui.cli.main import main
from tputui.report.charts import chart
from tputui.session import session
from tputui.state.metric_series import LR, ChosenAxis, MetricPoint, MetricSeries
from tputui.telemetry import events as ev
from tputui.telemetry import logged_values
from tputui.telemetry.logged_values import LoggedColumns

HOSTILE = "</pre></svg><script src=https://evil.example/x.js>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m\"'&"


def written(run_dir: Path, out: Path) -> tuple[str, ET.Element]:
    """The page of a run, as text and as the tree that an XML parser reads."""
    assert main(["export", str(run_dir), "--to", "html", "--out", str(out)]) == 0
    page = out.read_text()
    return page, ET.fromstring(page.split("\n", 1)[1])


def script_run(parent: Path) -> Path:
    """A run whose values come from logs."""
    run_dir = recorded.write_run(parent)
    (run_dir / "worker-0.jsonl").unlink()
    return run_dir


def words(tree: ET.Element) -> str:
    return " ".join("".join(tree.itertext()).split())


def figures(tree: ET.Element) -> dict[str, ET.Element]:
    """The charts by the name of their metric."""
    return {figure.findtext("figcaption/b") or "": figure for figure in tree.iter("figure")}


def test_page_shows_state_charts_tables_and_log(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path)
    snapshot = session.load(run_dir)
    _, tree = written(run_dir, tmp_path / "a.html")
    text = words(tree)
    assert "done" in text
    assert snapshot.condition_reason in text
    assert "best validation loss 0.1333 in epoch 3" in text
    assert "step 66 of 66" in text
    assert "tputui run digits.toml" in text
    assert "optim.lr" in text
    assert [head.text for head in tree.iter("h2")] == [
        *("Metrics", "Run", "Cores", "Meters", "Epochs", "Compilation", "Memory", "Checkpoints", "Configuration"),
        *("Events", "Log"),
    ]
    charts = figures(tree)
    assert {"loss", "accuracy", "lr", "throughput", "step time"} <= charts.keys()
    drawn = {path.get("class"): path.get("d", "") for path in charts["loss"].iter("path")}
    assert len(re.findall("[ML]", drawn["tpu-t"])) == 66, "a point per step"
    assert "tpu-band" in drawn
    assert len(re.findall("M", drawn["tpu-v tpu-dots"])) == 3, "a dot per validated epoch"
    cores = next(section for section in tree.iter("section") if section.findtext("h2") == "Cores")
    assert len(list(cores.iter("tr"))) == 9
    for line in snapshot.logs:
        assert " ".join(line.text.split()) in text


def test_nothing_in_a_run_is_executed_or_fetched(tmp_path: Path) -> None:
    run_dir = script_run(tmp_path)
    t = recorded.T0 + 3
    columns = LoggedColumns([1.0, math.nan, 1e308, -1e308, math.inf], [1, 2, 3, 4, 5], [t] * 5, None)
    recorded.write_journal(
        run_dir / "logs-0.jsonl",
        [
            logged_values.values_logged(t, HOSTILE, "valid", HOSTILE, HOSTILE, columns),
            recorded.opened(recorded.T0, "logs"),
            ev.LogWritten(t=t, line=HOSTILE),
            ev.WarningRaised(t=t, text=HOSTILE),
            ev.FailureRaised(t=t, error="E", message=HOSTILE, traceback=HOSTILE, phase="executing", step=1),
        ],
    )
    page, tree = written(run_dir, tmp_path / "a.html")
    assert {element.tag for element in tree.iter()}.isdisjoint(
        {"script", "img", "iframe", "object", "link", "a", "base"}
    )
    assert [name for element in tree.iter() for name in element.attrib if name.startswith("on") or name == "src"] == []
    assert any("<script src=" in name for name in figures(tree)), "shown as text"
    assert "alert(1)" in words(tree)
    assert tree.findtext(".//section/h2") == "First failure", "before the charts"
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", page)
    # Everything that a browser would load is refused by the page itself, and the style sheet names no address.
    policy = next(meta for meta in tree.iter("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    assert policy.get("content") == "default-src 'none'; style-src 'unsafe-inline'"
    assert not re.search(r"url\(|@import|https?:", tree.findtext(".//style") or "")


def test_size_of_the_page_is_bounded(tmp_path: Path) -> None:
    run_dir = script_run(tmp_path)
    t = recorded.T0 + 3
    steps = list(range(1, 2_001))
    columns = LoggedColumns([step % 97 * 0.1 for step in steps], steps, [t] * len(steps), None)
    metrics = [
        logged_values.values_logged(t, f"metric {number} {'x' * 500}", "train", "tag", "log.csv", columns)
        for number in range(70)
    ]
    lines = [ev.LogWritten(t=t, line="&" * 4_000) for _ in range(2_000)]
    opened = recorded.opened(recorded.T0, "logs")
    recorded.write_journal(run_dir / "logs-0.jsonl", [opened, *metrics, *lines])
    page, tree = written(run_dir, tmp_path / "a.html")
    assert len(page) < 10_000_000
    assert len(list(tree.iter("figure"))) == 61
    assert "metrics more, not drawn" in words(tree)


def test_existing_files_and_missing_folders_are_refused(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path)
    kept = tmp_path / "digits-1.html"
    kept.write_text("mine")
    result = tputui("export", run_dir, "--to", "html", cwd=tmp_path)
    assert result.code == 2
    assert "digits-1.html already exists" in one_sentence(result)
    assert kept.read_text() == "mine"
    result = tputui("export", run_dir, "--to", "html", "--out", tmp_path / "no" / "a.html")
    assert (result.code, "No such file or directory" in one_sentence(result)) == (2, True)


@pytest.mark.parametrize(
    "values",
    [[math.nan], [math.inf, -math.inf], [0.0], [1e308, -1e308], [5e-324, 1e-323], [1.0, 1.0], [-1.0, math.nan, 2.0]],
)
def test_any_values_make_a_chart_with_finite_positions(values: list[float]) -> None:
    points = [MetricPoint(step, 1, 0.0, value) for step, value in enumerate(values, 1)]
    drawn = chart(MetricSeries("m", "", "logged", points, [], None))
    ET.fromstring(drawn)
    assert not re.search(r'd="[^"]*(nan|inf)', drawn)
    assert ("every value is NaN or infinite" in drawn) == (not any(map(math.isfinite, values)))


@pytest.mark.parametrize("name", [LR, "lr-Adam", "optim/learning_rate"])
@pytest.mark.parametrize("tokens", [False, True], ids=["by step", "by tokens"])
def test_learning_rate_is_drawn_in_steps(name: str, tokens: bool) -> None:
    points = [MetricPoint(step, 1, 0.0, 0.1 if step < 20 else 0.05) for step in range(1, 40)]
    x = ChosenAxis("tokens", [1, 40], [512.0, 20_480.0]) if tokens else None
    curve = re.search(r'class="tpu-t" d="([^"]*)"', chart(MetricSeries(name, "", "logged", points, [], None, x=x)))
    assert curve is not None
    assert set(re.sub(r"[0-9. ]", "", curve.group(1))) == {"M", "V", "H"}
