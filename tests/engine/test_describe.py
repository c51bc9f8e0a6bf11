"""`python -m engine.commands.describe`: options of a task, and problems of a configuration."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from engine.commands.describe import check
from engine.errors import Problem
from engine.process import hardware
from tests import forked
from tests.deadline import DEADLINE_S
from tests.engine.workers import DIGITS, HERE, LINE
from tputui import config
from tputui.exit_codes import ExitCode

NO_TPU = hardware.Machine("CPU", 0, 0, "a test")


def describe(*arguments: str, stdin: str = "", cwd: Path = HERE) -> subprocess.CompletedProcess[str]:
    return forked.run("engine.commands.describe", *arguments, cwd=cwd, stdin=stdin, timeout=DEADLINE_S)


def estimated(task: str, tables: dict[str, Any]) -> dict[str, Any]:
    """What is printed with the memory, which needs torch."""
    words = [task, "--check", "--memory"]
    done = forked.run("engine.commands.describe", *words, cwd=HERE, stdin=json.dumps(tables))
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def problems(overrides: list[str]) -> list[Problem]:
    return check(config.load(DIGITS, overrides), NO_TPU, "digits.toml").problems


def test_options_have_type_default_and_documentation() -> None:
    answer = json.loads(describe("digits").stdout)
    assert answer["task"] == "digits"
    assert [option["key"] for option in answer["options"]["model"]] == ["channels", "dropout"]
    (fraction,) = answer["options"]["data"]
    assert (fraction["type"], fraction["default"]) == ("float", 0.2)
    assert "validation" in fraction["doc"]


@pytest.mark.parametrize("words", [["engine.commands.describe", "digits"], ["engine", "--help"], ["engine.rank", "-h"]])
def test_docs_are_equal_without_docstrings(words: list[str]) -> None:
    command = [sys.executable, "-P", "-m", *words]
    plain, dropped = (
        subprocess.run(command, capture_output=True, text=True, cwd=HERE, env={**os.environ, **more}, check=False)
        for more in ({}, {"PYTHONOPTIMIZE": "2"})
    )
    assert (dropped.returncode, dropped.stderr) == (plain.returncode, plain.stderr) == (0, "")
    if words[0] == "engine.commands.describe":
        assert dropped.stdout == plain.stdout


def test_bounds_and_defaults_are_json_schema() -> None:
    answer = json.loads(describe("mask_depth").stdout)
    schemas = {option["key"]: option["schema"] for option in answer["options"]["model"]}
    assert schemas["width"] == {"type": "integer", "minimum": 1, "maximum": 512, "default": 64}
    assert schemas["encoder"]["enum"] == ["resnet18", "resnet34", "resnet50", "thin"]
    assert schemas["mask_losses"]["default"] == {"bce": 1.0, "dice": 1.0}


def test_memory_is_estimated_on_request() -> None:
    answer = estimated("digits", config.to_builtins(config.load(DIGITS)))
    assert answer["memory"]["total_bytes"] > answer["memory"]["activations_bytes"] > 0
    assert answer["memory"]["batch_per_core"] == 8


def test_unavailable_memory_estimate_states_reason() -> None:
    loaded = config.load(HERE.parents[1] / "sample_configs" / "lightning_digits.toml")
    answer = estimated("lightning", config.to_builtins(loaded))
    assert answer["problems"] == []
    assert answer["memory"] is None
    assert "task's own loop" in answer["memory_why"]


def test_memory_without_torch_names_package_to_install(tmp_path: Path) -> None:
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        if not package.name.startswith(("torch", "functorch", "numpy")):
            (tmp_path / package.name).symlink_to(package)
    tables = json.dumps(config.to_builtins(config.load(DIGITS)))
    done = subprocess.run(
        [sys.executable, "-P", "-S", "-m", "engine.commands.describe", "digits", "--check", "--memory"],
        input=tables,
        env={"PYTHONPATH": os.pathsep.join([str(tmp_path), str(HERE.parents[1])])},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    answer = json.loads(done.stdout)
    assert answer["problems"] == []
    assert answer["memory_why"] == "torch and torch_xla are not installed; pip install 'tputui[xla]'"


def test_every_option_is_documented() -> None:
    for task in ("digits", "mytask:Line"):
        tables = json.loads(describe(task).stdout)["options"].values()
        assert all(option["doc"] for table in tables for option in table)


def test_describe_and_check_import_neither_torch_nor_numpy() -> None:
    probe = (
        "import sys, json; from engine.commands.describe import main; "
        "code = main(sys.argv[1:]); "
        "heavy = {'torch', 'torch_xla', 'numpy', 'sklearn'} & set(sys.modules); "
        "assert code == 0 and not heavy, (code, heavy)"
    )
    tables = json.dumps(config.to_builtins(config.load(DIGITS)))
    for arguments in (["digits"], ["digits", "--check"]):
        command = [sys.executable, "-P", "-c", probe, *arguments]
        done = subprocess.run(command, input=tables, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        assert done.returncode == 0, done.stderr


def test_valid_config_has_derived_values() -> None:
    tables = config.to_builtins(config.load(DIGITS))
    done = describe("digits", "--check", stdin=json.dumps(tables))
    assert done.returncode == ExitCode.DONE
    answer = json.loads(done.stdout)
    assert answer["problems"] == []
    facts = answer["facts"]
    assert facts["num_cores"] == 8
    assert facts["global_batch"] == 8 * facts["batch_per_core"]
    assert facts["train_examples"] + facts["valid_examples"] == 1797
    assert facts["steps_per_epoch"] == facts["train_examples"] // facts["global_batch"]


def test_unknown_task_lists_the_known_ones() -> None:
    done = describe("nosuch")
    assert done.returncode == ExitCode.USAGE
    assert "digits" in done.stderr
    assert "Traceback" not in done.stderr


def test_user_task_is_found_despite_user_engine_package(
    tmp_path: Path,
) -> None:
    (tmp_path / "mytask.py").write_text((HERE / "mytask.py").read_text())
    (tmp_path / "engine.py").write_text("raise SystemExit('the wrong engine')")
    done = describe("mytask:Line", cwd=tmp_path)
    assert done.returncode == ExitCode.DONE, done.stderr
    assert json.loads(done.stdout)["options"]["data"][0]["key"] == "num_train"


TASK = (HERE / "mytask.py").read_text()
IN_SIZES = "        return Sizes(data.num_train, data.num_valid)"


@pytest.mark.parametrize(
    ("content", "key", "words"),
    [
        ("def Line(:", "task", "SyntaxError"),
        ("raise ValueError('no GPU here\\nsecond line')", "task", "ValueError: no GPU here"),
        ("raise SystemExit('usage: mytask')", "task", "SystemExit: usage: mytask"),
        ("Line = 1 / 0", "task", "ZeroDivisionError"),
        (TASK.replace("    meters:", "    def __init__(self, x): ...\n    meters:"), "task", "TypeError"),
        ("class Line: ...", "task", "it is not a subclass of engine.task.Task"),
        (TASK.replace("def sizes", "def syzes"), "task", "sizes() is missing"),
        (TASK.replace('("loss",)', '"loss"'), "task", 'meters is not a tuple of names that begins with "loss"'),
        (TASK.replace(IN_SIZES, "        return {}['images']"), "task", "sizes() failed: KeyError: 'images'"),
        (TASK.replace(IN_SIZES, "        return 'many'"), "task", "sizes() returned 'many'"),
        (TASK.replace(IN_SIZES, "        open('/nonexistent/images')"), "data", "/nonexistent/images: No such file"),
    ],
    ids=lambda value: value if len(value) < 80 else "a task",
)
def test_exception_in_user_task_is_one_sentence(tmp_path: Path, content: str, key: str, words: str) -> None:
    (tmp_path / "mytask.py").write_text(content + "\nprint('imported')\n")
    tables = json.dumps(config.to_builtins(config.parse(LINE, "line.toml")))
    done = describe("mytask:Line", "--check", stdin=tables, cwd=tmp_path)
    assert done.returncode == ExitCode.DONE, done.stderr
    (problem,) = json.loads(done.stdout)["problems"]
    assert problem["key"] == key
    assert words in problem["message"]
    assert "\n" not in problem["message"]


@pytest.mark.parametrize(
    ("keys", "key", "message"),
    [
        ({"source": "none.csv"}, "data", "none.csv: no such file; data.source names it from the folder the run is"),
        ({"source": "~nobody-here/a.csv"}, "data", "there is no home directory ~nobody-here; write the whole path"),
        ({"source": "a.csv"}, "data", "a.csv row 3, column image: there is no file "),
        ({"source": ""}, "data.source", "name a table, a folder with a folder for each class"),
        (
            {"source": "b.csv", "label": "kinds"},
            "data",
            'b.csv has no column "kinds" (data.label); did you mean "kind"?',
        ),
        ({"source": "b.csv", "folds": 9, "fold": 0}, "data.folds", "2 rows cannot be split into 9 folds"),
    ],
)
def test_user_file_problems_use_the_users_terms(
    tmp_path: Path, keys: dict[str, object], key: str, message: str
) -> None:
    (tmp_path / "0.png").write_bytes(b"seen only in training")
    (tmp_path / "a.csv").write_text("image,kind\n0.png,cat\n1.png,dog\n")
    (tmp_path / "b.csv").write_text("image,kind\n0.png,cat\n0.png,dog\n")
    tables = config.to_builtins(config.parse(LINE, "line.toml"))
    tables = {**tables, "task": "image_labels", "data": {"batch_per_core": 1, "label": "kind", **keys}, "model": {}}
    done = describe("image_labels", "--check", stdin=json.dumps(tables), cwd=tmp_path)
    assert done.returncode == ExitCode.DONE, done.stderr
    (problem,) = json.loads(done.stdout)["problems"]
    assert problem["key"] == key
    assert problem["message"].startswith(message)


@pytest.mark.parametrize(
    ("override", "key", "words"),
    [
        ("task=os:getcwd", "task", '"os:getcwd" is not a task: it is not a subclass of engine.task.Task'),
        ("task=digitz", "task", 'did you mean "digits"?'),
        ("model.chanels=8", "model.chanels", 'did you mean "channels"?'),
        ("data.valid_fracton=0.1", "data.valid_fracton", 'did you mean "valid_fraction"?'),
        ("data.batch_per_coer=4", "data.batch_per_coer", 'did you mean "batch_per_core"?'),
        ("data.channels=4", "data.channels", '"channels" is a key of [model]'),
        ("model.lr=0.1", "model.lr", '"lr" is a key of [optim]'),
        ("data.valid_fraction=1.5", "data.valid_fraction", "1.5 cannot be used"),
        ("model.channels=many", "model.channels", "'many' cannot be used"),
        ("data.batch_per_core=1000", "data.batch_per_core", "at most 179 a core"),
        ("device.cores=16", "device.cores", "more than the 8 virtual cores"),
        ("device.cores=[8]", "device.cores", "0 to 7"),
        ("checkpoint.monitor=f1", "checkpoint.monitor", "loss, accuracy"),
    ],
)
def test_untrainable_config_is_rejected_with_key(override: str, key: str, words: str) -> None:
    (problem,) = problems([override])
    assert problem.key == key
    assert words in problem.message


def test_all_problems_are_reported_at_once() -> None:
    found = problems(["device.cores=16", "model.x=1", "data.y=2"])
    assert [problem.key for problem in found] == ["device.cores", "data.y", "model.x"]


def make_chips(pci: Path, count: int, device: str) -> None:
    for index in range(count):
        chip = pci / f"0000:00:{index:02x}.0"
        chip.mkdir()
        (chip / "vendor").write_text("0x1ae0\n")
        (chip / "device").write_text(f"{device}\n")


def test_tpu_cores_are_counted_on_the_pci_bus(tmp_path: Path) -> None:
    make_chips(tmp_path, 4, "0x0027")
    other = tmp_path / "0000:01:00.0"
    other.mkdir()
    (other / "vendor").write_text("0x8086\n")
    (other / "device").write_text("0x0027\n")
    found = hardware.find({}, tmp_path)
    assert (found.device, found.tpu_cores) == ("TPU", 8)
    assert hardware.find({"PJRT_DEVICE": "CPU"}, tmp_path).device == "CPU"


def test_tpu_offers_one_core_or_all() -> None:
    tpu = hardware.Machine("TPU", 4, 2, None)
    for cores in ("8", "1", "[7]"):
        assert hardware.core_problems(config.load(DIGITS, [f"device.cores={cores}"]), tpu) == []
    (problem,) = hardware.core_problems(config.load(DIGITS, ["device.cores=4"]), tpu)
    assert problem == Problem(
        "device.cores",
        '4 is not possible: one process drives all 8 TPU cores or one; write 8, "all", 1 or [k] with k from 0 to 7',
    )


def test_one_core_of_a_tpu_opens_its_own_chip() -> None:
    tpu = hardware.Machine("TPU", 4, 2, None)
    chosen = config.load(DIGITS, ["device.cores=[5]"])
    assert hardware.environment(chosen, tpu)["TPU_VISIBLE_CHIPS"] == "2"
    assert hardware.device_index(chosen, tpu) == 1
