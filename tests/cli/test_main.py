"""The command line: help, unknown words, the directory of runs, imports, reports of crashes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import recorded
from tests.cli.helpers import one_sentence, tputui
from tests.deadline import DEADLINE_S
from tputui.cli import main as cli
from tputui.cli.main import COMMANDS, main
from tputui.exit_codes import ExitCode


def test_help_names_every_command_in_one_line() -> None:
    result = tputui("--help")

    assert result.code == 0
    for name, line in COMMANDS.items():
        assert any(row.split()[:1] == [name] and line in row for row in result.out.splitlines())
    assert max(map(len, result.out.splitlines())) < 80


@pytest.mark.parametrize("name", COMMANDS)
def test_command_help_states_output_and_exit_codes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([name, "--help"])

    assert left.value.code == 0
    out = capsys.readouterr().out
    assert out.startswith(f"usage: tputui {name} ")
    assert "exit codes:\n  0  " in out
    codes = [int(code) for code in re.findall(r"^  (\d+)  ", out.partition("exit codes:")[2], re.MULTILINE)]
    assert codes == sorted(codes)
    assert "rint" in out or "hows" in out
    assert "--runs-dir" in out


def test_unknown_command_suggests_the_closest() -> None:
    result = tputui("rnu")

    assert (result.code, result.out) == (2, "")
    assert one_sentence(result) == 'tputui: unknown command "rnu"; did you mean run?'


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["show", "x", "--jsno"], 'unknown option "--jsno"; did you mean --json?'),
        (["stop", "x", "--wiat=3"], 'unknown option "--wiat=3"; did you mean --wait?'),
        (["check", "one", "two"], 'unexpected argument "two"'),
        (["show"], "the following arguments are required: RUN"),
        (["stop", "x", "--now", "--after-epoch"], "not allowed with argument"),
        (["stop", "x", "--wait", "-1"], "-1 is negative"),
        (["replay", "x", "--speed", "0"], "0 is not positive"),
        (["replay", "x", "--speed", "fast"], "'fast' is not a number"),
        (
            ["run", "x", "--epochs", "3"],
            'run: unknown option "--epochs"; to set a configuration key, use --set epochs=3;',
        ),
        (["run", "x", "--lr=0.1"], "use --set optim.lr=0.1;"),
        (["folds", "x", "--batch-per-core", "4"], "use --set data.batch_per_core=4;"),
        (["attach", "x", "--once"], 'unknown option "--once"; see `tputui attach --help`'),
        (["attach", "x", "--lines", "few"], "'few' is neither a whole number nor `all`"),
        (["ls"], "did you mean runs?"),
        (["logs"], "did you mean attach RUN --no-ui?"),
    ],
)
def test_wrong_arguments_are_rejected_in_one_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2

    result = capsys.readouterr()
    assert result.out == ""
    assert sentence in result.err
    assert len(result.err.splitlines()) == 1


EMPTY_RUN_COMMANDS = [
    ["show"],
    ["show", "--json"],
    ["wait"],
    ["doctor"],
    ["attach"],
    ["attach", "--follow"],
    ["replay"],
    ["export", "--to", "csv"],
    ["export", "--to", "html"],
    ["export"],
    ["predict", "--split", "valid"],
    ["rm", "--yes"],
    ["stop"],
    ["checkpoint"],
    ["stacks"],
    ["trace"],
    ["check"],
    ["repair"],
    ["serve"],
    ["serve", "--metrics"],
    ["try"],
    ["compare", "."],
]


@pytest.mark.parametrize("name", ["", "  "])
@pytest.mark.parametrize("command", EMPTY_RUN_COMMANDS, ids=" ".join)
def test_empty_run_is_not_the_current_directory(
    command: list[str],
    name: str,
    recorded_run: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(recorded_run)
    before = sorted(path.name for path in recorded_run.iterdir())

    assert main([*command, name]) == 2

    result = capsys.readouterr()
    assert (result.out, result.err) == ("", "tputui: RUN is empty; `tputui runs` lists the runs\n")
    assert sorted(path.name for path in recorded_run.iterdir()) == before


def test_empty_run_to_resume_is_not_the_current_directory(
    recorded_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = Path("sample_configs/digits.toml").absolute()
    monkeypatch.chdir(recorded_run)

    assert main(["run", str(config), "--resume", ""]) == 2

    assert "RUN is empty; `tputui runs` lists the runs" in capsys.readouterr().err


def test_help_is_also_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    for words, usage in ((["help"], "usage: tputui ["), (["help", "run"], "usage: tputui run ")):
        with pytest.raises(SystemExit) as left:
            main(words)
        assert left.value.code == 0
        assert capsys.readouterr().out.startswith(usage)


def test_runs_directory_from_option_variable_or_default(tmp_path: Path) -> None:
    for name in ("by-option", "by-variable", "runs"):
        recorded.write_run(tmp_path / name, run=f"in-{name}")

    by_option = tputui("runs", "--runs-dir", "by-option", cwd=tmp_path, TPUTUI_RUNS="by-variable")
    before_the_command = tputui("--runs-dir", "by-option", "runs", cwd=tmp_path)
    by_variable = tputui("runs", cwd=tmp_path, TPUTUI_RUNS="by-variable")
    by_default = tputui("runs", cwd=tmp_path)

    assert "in-by-option" in by_option.out
    assert "in-by-option" in before_the_command.out
    assert "in-by-variable" in by_variable.out
    assert "in-runs" in by_default.out


def test_bare_command_without_terminal_prints_the_list(recorded_run: Path) -> None:
    result = tputui("--runs-dir", recorded_run.parent)

    assert result.code == 0
    assert "digits-1" in result.out


_IMPORTED = """
import json, sys
from tputui.cli.main import main
try:
    code = main(sys.argv[1:])
except SystemExit as left:
    code = left.code
sys.stderr.write(json.dumps({"code": code or 0, "modules": sorted(sys.modules)}))
"""
_HEAVY = {
    *("torch", "torch_xla", "jax", "lightning", "textual", "rich", "numpy", "pyarrow", "psutil", "grpc"),
    *("engine", "asyncio", "multiprocessing", "unittest", "email", "http", "ssl", "urllib.request", "xml"),
    *("tputui.supervise", "tputui.integrations", "tputui.reporting", "tputui.observers", "tputui.logs.formats"),
}
"""What takes a tenth of a second or more to import, or belongs to other commands."""


@pytest.mark.parametrize("words", [["--help"], ["show", "digits-1"], ["show", "digits-1", "--json"], ["runs"]])
def test_light_commands_import_nothing_heavy(recorded_run: Path, words: list[str]) -> None:
    env = {**os.environ, "TPUTUI_RUNS": str(recorded_run.parent)}

    done = subprocess.run([sys.executable, "-P", "-c", _IMPORTED, *words], env=env, capture_output=True, check=True)

    printed = json.loads(done.stderr)
    assert printed["code"] == 0
    # The help also lists the commands of other packages: `importlib.metadata` reads their names with `email`.
    assert not _HEAVY & set(printed["modules"]) - ({"email"} if words == ["--help"] else set())


def test_closed_pipe_is_not_an_error(recorded_run: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "tputui", "show", str(recorded_run), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()

    err = process.stderr.read()
    process.stderr.close()
    assert (process.wait(DEADLINE_S), err) == (0, b"")


def test_internal_error_prints_traceback_and_exits_70(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def break_down(words: list[str]) -> ExitCode:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(cli, "_dispatch", break_down)

    assert main(["show", "x"]) == ExitCode.BROKEN
    err = capsys.readouterr().err
    assert "this is a bug in tputui" in err
    assert "ZeroDivisionError: a fault" in err


INTERRUPTED_IN_EXEC = """
import sys
from tputui.cli import main as cli

def interrupted(words):
    try:
        exec("import signal; signal.raise_signal(signal.SIGINT)")
    except KeyboardInterrupt:
        return 6

cli._dispatch = interrupted
sys.exit(cli.main([]))
"""


def test_a_ctrl_c_inside_of_exec_keeps_the_exit_code_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(INTERRUPTED_IN_EXEC)
    path = f"{tmp_path}{os.pathsep}{Path(cli.__file__).parents[2]}"
    command = [sys.executable, "-P", "-m", "program"]
    ended = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, timeout=DEADLINE_S, check=False)
    assert ended.returncode == 6
