"""The documentation agrees with the code."""

from __future__ import annotations

import base64
import json
import re
import runpy
import subprocess
import sys
import zlib
from functools import partial
from pathlib import Path
from typing import get_args

import pytest

from benchmarks import code_size
from tests import recorded
from tests.cli.helpers import tputui
from tests.deadline import DEADLINE_S
from tests.engine.workers import make, runs_to_end
from tputui.cli import main
from tputui.config.tables import field_docs
from tputui.diagnosis.verdict import RuleName
from tputui.exit_codes import ExitCode
from tputui.logs import formats
from tputui.telemetry import events

ROOT = Path(__file__).parent.parent


def test_journal_page_is_up_to_date() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "make_journal_format.py"))["page"]()
    assert (ROOT / "docs" / "journal-format.md").read_text() == page, "run: python docs/make_journal_format.py"


def test_page_of_facts_is_that_of_the_code() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "make_facts.py"))["page"]()
    assert (ROOT / "docs" / "facts.md").read_text() == page, "run: python docs/make_facts.py"


def test_json_page_is_up_to_date() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "make_json_page.py"))["page"]()
    assert (ROOT / "docs" / "json.md").read_text() == page, "run: python docs/make_json_page.py"
    rows = re.findall(r"^\| `\w+` \| .* \| (.*) \|$", page.partition("## Its parts")[0], re.M)
    assert len(rows) > 40
    assert all(rows)


def test_faults_page_matches_the_tests() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "make_faults.py"))["page"]()
    assert (ROOT / "docs" / "faults.md").read_text() == page, "run: PYTHONPATH=. python docs/make_faults.py"
    assert page.count(" x |") >= 60
    assert [name for name in re.findall(r"`(tests/[\w/.]+)`", page) if not (ROOT / name).exists()] == []


def test_diagnosis_page_quotes_the_programs_and_names_every_rule() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "make_diagnosis.py"))["page"]()
    assert (ROOT / "docs" / "diagnosis.md").read_text() == page, "run: PYTHONPATH=. python docs/make_diagnosis.py"
    assert [rule for rule in get_args(RuleName) if f"(`{rule}`)" not in page] == []


def test_scale_page_and_plot_show_the_stored_figures() -> None:
    pytest.importorskip("numpy")
    made = runpy.run_path(str(ROOT / "docs" / "make_scale.py"))
    for path, content in (("scale.md", made["page"]()), ("pictures/scale.svg", made["plot"]())):
        assert (ROOT / "docs" / path).read_text() == content, "run: PYTHONPATH=. python docs/make_scale.py"


def test_page_of_frameworks_shows_what_the_tests_observed() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "make_support.py"))["page"]()
    assert (ROOT / "docs" / "guide" / "frameworks.md").read_text() == page, "run: python docs/make_support.py"
    for name in ("torch.compile", "JAX", "Lightning", "transformers", "accelerate", "Keras"):
        assert f"| {name} |" in page


@pytest.mark.parametrize("kind", events.EVENT_TYPES)
def test_every_event_field_is_documented(kind: type[events.Event]) -> None:
    docs = field_docs(kind)
    assert [name for name in kind.__struct_fields__ if not docs.get(name)] == []


def test_block_decodes_with_the_code_on_the_page() -> None:
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


def test_guide_lists_every_exit_code() -> None:
    guide = (ROOT / "docs" / "guide.md").read_text()
    for code in ExitCode:
        assert re.search(rf"^\| {code.value} \|", guide, re.M), f"exit code {code.value} ({code.name})"


def test_readme_commands_match_ci() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "pip install -e '.[xla]' && tputui run sample_configs/digits.toml" in readme
    assert "pip install -e '.[xla,dev]' && pytest" in readme
    checks = (ROOT / ".ci" / "run").read_text()
    assert "pip install -e '.[xla,dev]' && pytest" in checks


def test_links_between_pages_resolve() -> None:
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "benchmarks" / "README.md"):
        targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
        assert [target for target in targets if not (page.parent / target).exists()] == [], page.name


def test_paths_and_modules_named_on_the_pages_exist() -> None:
    missing: list[str] = []
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "benchmarks" / "README.md"):
        if page.name == "ARCHITECTURE.md":
            continue  # its map shortens paths
        text = page.read_text()
        paths = re.findall(r"(?<![\w/.])(?:tputui|engine|tests|docs|benchmarks|sample_configs)/[\w/.-]*\w", text)
        missing += [f"{page.name}: {path}" for path in paths if not (ROOT / path).exists()]
        names = re.findall(r"\b(?:tputui|engine|tests|benchmarks)(?:\.\w+)+", text)
        missing += [
            f"{page.name}: {name}" for name in names if not name.endswith((".md", ".py")) and not _defined(name)
        ]
    assert missing == []


def _defined(name: str) -> bool:
    """Whether a dotted name is a module or defined or imported in one, or a group of entry points."""
    if name in (main.GROUP, formats.GROUP):
        return True
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        module = ROOT.joinpath(*parts[:length])
        source = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
        if source.exists():
            return length == len(parts) or re.search(rf"\b{parts[length]}\b", source.read_text()) is not None
    return False


def test_map_of_modules_is_up_to_date() -> None:
    make_map = runpy.run_path(str(ROOT / "docs" / "make_map.py"))
    assert (ROOT / "docs" / "ARCHITECTURE.md").read_text() == make_map["architecture"](), "run: python docs/make_map.py"
    assert (ROOT / "docs" / "files.md").read_text() == make_map["files"](), "run: python docs/make_map.py"


def test_walks_of_the_architecture_follow_imports() -> None:
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    walks = page.partition("## Six walks")[2].partition("\n## ")[0].partition("\n**")[2]
    modules = {module.name: module for module in map(partial(code_size.read, root=ROOT), code_size.files_of(ROOT))}
    steps = re.findall(r"`([\w/]+)\.py`(?: \([^)]*\))?\s*(→)?(?=\s*`?([\w/]*))", walks)
    named = [(_module_of(path), _module_of(following) if arrow else None) for path, arrow, following in steps]
    assert len(named) > 60
    assert [name for name, _ in named if name not in modules] == []
    imports = {name: code_size.targets_of(module, set(modules)) for name, module in modules.items()}
    assert [
        (one, other) for one, other in named if other and other not in imports[one] and one not in imports[other]
    ] == []


def _module_of(path: str) -> str:
    name = path.replace("/", ".")
    return name if name.startswith("engine.") else f"tputui.{name}"


def test_every_task_key_is_documented() -> None:
    pytest.importorskip("numpy")
    code = "import json, msgspec; from engine.commands import describe; from engine.run_plan import KNOWN_TASKS; "
    code += "print(json.dumps(msgspec.to_builtins([describe.describe(name) for name in KNOWN_TASKS])))"
    command = [sys.executable, "-P", "-c", code]
    tasks = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True).stdout)
    options = [(task["task"], option) for task in tasks for table in task["options"].values() for option in table]
    assert len(options) > 50
    assert [(name, option["key"]) for name, option in options if not option["doc"]] == []


def test_every_sample_is_documented() -> None:
    pages = [(ROOT / name).read_text() for name in ("README.md", "docs/workloads.md")]
    for sample in (ROOT / "sample_configs").glob("*.toml"):
        assert all(sample.name in page for page in pages), sample.name


@pytest.mark.slow
@pytest.mark.xla
def test_task_example_trains_and_predicts(tmp_path: Path) -> None:
    from tests.fixtures.rgbd import write_crops  # needs numpy

    page = (ROOT / "docs" / "tasks.md").read_text()
    code, toml = (re.search(rf"```{language}\n(.*?)```", page, re.S) for language in ("python", "toml"))
    assert code is not None
    assert toml is not None
    (tmp_path / "my_project").mkdir()
    (tmp_path / "my_project" / "tasks.py").write_text(code.group(1))
    (tmp_path / "set").mkdir()
    write_crops(tmp_path / "set", crop_px=32, stride_px=60)
    smaller = [f"data.source={tmp_path / 'set' / 'frames.csv'}", "data.size=[32, 32]", "data.batches_per_epoch=4"]
    overrides = [*smaller, "device.cores=2", "epochs=1", "report.pictures=1"]
    run = runs_to_end(make(tmp_path, "first", overrides, text=toml.group(1), cwd=tmp_path))
    (epoch,) = run.all(events.EpochEnded)
    assert [picture.name for picture in run.one(events.PicturesKept).pictures] == ["input", "mask"]
    predicted = tputui("predict", run.dir, "--split", "valid", "--json", cwd=tmp_path)
    assert predicted.code == 0, predicted.err
    figures = json.loads(predicted.out)["figures"]
    assert figures == pytest.approx({name: meter.avg for name, meter in epoch.valid.items()}, rel=1e-4)
