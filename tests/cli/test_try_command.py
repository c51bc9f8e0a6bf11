"""`tputui try -- COMMAND`: what it changes in a command, what it measures, and whether the losses agree."""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
from array import array
from pathlib import Path

import pytest

from tests.cli.helpers import script, tputui
from tests.deadline import DEADLINE_S
from tests.supervise.harness import is_running, text_of, wait_for
from tputui.cli import trial_command
from tputui.cli.console import CommandError
from tputui.cli.main import main
from tputui.cli.trial_command import judged
from tputui.compare.agreement import Losses as LossesByStep
from tputui.compare.agreement import agreement, least

REPORTS = """
import argparse, random, time
import tputui

parser = argparse.ArgumentParser()
parser.add_argument("--pause", type=float, default=0.05)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--seed", type=int)
args = parser.parse_args()
generator = random.Random(args.seed)
run = tputui.start()
loss = 4.0 + generator.random() * (args.seed is None)
for step in range(100000):
    time.sleep(args.pause)
    loss -= args.lr * 0.01 * loss
    run.step(loss, examples=8)
    if run.should_stop():
        break
"""


def changed(
    command: str, *, arguments: list[str] | None = None, env: list[str] | None = None, more: list[str] | None = None
) -> str:
    """The changed command, in one line."""
    args = argparse.Namespace(with_=arguments or [], with_env=env or [], with_args=more or [])
    _, made, _ = trial_command.changed(command.split(), args)
    return " ".join([*(f"{name}={value}" for name, value in made.script.env.items()), *made.script.command])


@pytest.mark.parametrize(
    ("command", "assignment", "expected"),
    [
        ("python t.py --batch-size 32 --x", "batch_size=64", "python t.py --batch-size 64 --x"),
        ("python t.py --batch_size=32", "batch-size=64", "python t.py --batch_size=64"),
        ("python t.py --batch-size 32", "--batch-size=64", "python t.py --batch-size 64"),
        ("python t.py optim.lr=0.1 epochs=2", "optim.lr=0.2", "python t.py optim.lr=0.2 epochs=2"),
        ("python t.py +lr=0.1", "lr=0.2", "python t.py +lr=0.2"),
        ("python t.py -b 32", "-b=64", "python t.py -b 64"),
        ("python t.py --lr -1 --lr 5", "lr=2", "python t.py --lr -1 --lr 2"),
        ("python t.py --shift -1", "shift=-2", "python t.py --shift -2"),
        ("python t.py --compile --x", "--compile=max", "python t.py --compile=max --x"),
        ("python t.py", "--workers=2", "python t.py --workers=2"),
        ("python t.py", "workers=2", "python t.py --workers=2"),
        ("python t.py epochs=2", "workers=2", "python t.py epochs=2 workers=2"),
        ("python t.py", "data.workers=2", "python t.py data.workers=2"),
        ("python t.py", "-w=2", "python t.py -w 2"),
        ("python t.py --url a=b", "url=c=d", "python t.py --url c=d"),
    ],
)
def test_an_argument_is_replaced_in_the_form_that_the_command_has_else_added(
    command: str, assignment: str, expected: str
) -> None:
    assert changed(command, arguments=[assignment]) == expected


def test_variables_and_further_arguments_are_added() -> None:
    assert changed("python t.py", env=["THREADS=2"], more=["--a 'b' -c"]) == "THREADS=2 python t.py --a b -c"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--", "python", "t.py"], "try: give a change of the command, such as --with batch_size=64"),
        (["--with", "lr", "--", "python"], "--with lr: expected NAME=VALUE"),
        (["--with", "=3", "--", "python"], "--with =3: expected NAME=VALUE"),
        (["--with", "lr=3", "--", "python", "--lr", "3"], "lr=3: the command has it already"),
        (["--with-env", "A-B=3", "--", "python"], "--with-env A-B=3: expected NAME=VALUE"),
        (["--with-args", "'a", "--", "python"], "No closing quotation"),
        (["--with", "lr=3", "digits.toml"], "change a command after --"),
        (["--with", "lr=3"], "a command after --, such as tputui try --with lr=0.1 -- python train.py"),
        (["--with", "lr=3", "--", "no-such-program"], "no-such-program: no such command in PATH"),
    ],
)
def test_what_changes_nothing_is_one_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["try", *words]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert sentence in error


def test_options_may_follow_the_command() -> None:
    assert changed("python t.py --with lr=1 --with-env=A=2 --with b=3") == "A=2 python t.py --lr=1 --b=3"
    own = changed("python t.py --with 3", arguments=["lr=1"])
    assert own == "python t.py --with 3 --lr=1", "an option of the same name is the command's own then"


def rows(*values: float) -> LossesByStep:
    """Losses of one core from step 1 on."""
    return {step: array("f", [value]) for step, value in enumerate(values, start=1)}


def test_losses_agree_by_bits_within_rounding_or_not() -> None:
    first = rows(2.0, 1.5, math.nan)
    found = agreement(first, rows(2.0, 1.5, math.nan))
    assert found is not None
    assert (found.likeness, found.num_steps, found.first_step) == ("equal bits", 3, None)
    close = agreement(first, rows(2.0, 1.5001, math.nan))
    assert close is not None
    assert (close.likeness, close.first_step) == ("within rounding", 2)
    for other in (rows(2.0, 1.6), rows(2.0002, 1.5), rows(2.0, 1.5, 1.0), {1: array("f", [2.0, 2.0])}):
        other_training = agreement(first, other)
        assert other_training is not None
        assert other_training.likeness == "different", other
    assert agreement(first, {}) is None
    assert least([found, close]) == close
    assert least([found, None]) is None


def test_a_script_that_is_not_deterministic_gets_no_verdict_on_its_losses() -> None:
    same, other = agreement(rows(2.0), rows(2.0)), agreement(rows(2.0), rows(3.0))
    verdict, sentence = judged(same, other)
    assert verdict == "different"
    assert sentence.startswith("different: not the same training (from step 1 on, relative difference up to 3.3e-01)")
    verdict, sentence = judged(other, other)
    assert verdict == "not comparable"
    assert "not deterministic, since two unchanged runs already differ" in sentence
    assert judged(same, None)[1] == "not known: the script reports no losses"
    assert judged(same, same)[1] == "equal bits in 1 step of every pair"


def test_a_script_whose_steps_are_not_known_gets_one_sentence(tmp_path: Path) -> None:
    script(tmp_path, "for step in range(3):\n    print(f'step {step} loss 0.5')\n")
    done = tputui("try", "--with", "lr=1", "--", sys.executable, "train.py", cwd=tmp_path)
    assert done.code == 3
    assert "no step of" in done.err.splitlines()[-1]
    assert "call run.step() of tputui.start()" in done.err.splitlines()[-1]
    script(tmp_path, "raise ValueError('no such column')\n")
    done = tputui("try", "--with", "lr=1", "--", sys.executable, "train.py", cwd=tmp_path)
    assert done.code == 3
    assert "the command without the change failed: ValueError: no such column" in done.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("runs", "sentence"),
    [
        (1, "interrupted after no block of both"),
        # Two runs that fill caches, and both runs of the first pair.
        pytest.param(5, "interrupted after 1 block of 6 without and with pause=0.01: ", marks=pytest.mark.slow),
    ],
)
def test_ctrl_c_stops_the_command_and_says_what_was_measured(tmp_path: Path, runs: int, sentence: str) -> None:
    script(tmp_path, "import os\nprint(os.getpid(), file=open('pids', 'a'))\n" + REPORTS)
    pids, scratch = tmp_path / "pids", tmp_path / "scratch"
    scratch.mkdir()
    words = ["try", "--with", "pause=0.01", "--steps", "10", "--", sys.executable, "train.py"]
    trial = subprocess.Popen(
        [sys.executable, "-P", "-m", "tputui", *words], cwd=tmp_path, env={**os.environ, "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        wait_for(lambda: len(text_of(pids).split()) >= runs, "the runs of the command")
        trial.send_signal(signal.SIGINT)
        out, error = trial.communicate(timeout=DEADLINE_S)
    finally:
        trial.kill()
    assert trial.returncode == 130
    assert (out, error.splitlines()[-1][: len(sentence) + 8]) == ("", f"tputui: {sentence}")
    assert not any(is_running(int(pid)) for pid in text_of(pids).split())
    assert [*scratch.iterdir()] == []


@pytest.mark.slow
def test_a_faster_command_with_the_same_losses(tmp_path: Path) -> None:
    script(tmp_path, REPORTS)
    before = sorted(tmp_path.iterdir())
    words = [sys.executable, "train.py", "--seed", "1", "--pause", "0.2", "--with", "pause=0.05"]
    done = tputui("try", "--json", "--steps", "10", "--", *words, cwd=tmp_path)
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["changes"] == ["pause=0.05"]
    assert found["commands"]["with"].endswith("train.py --seed 1 --pause 0.05")
    assert (found["losses"]["verdict"], found["losses"]["unchanged_runs"]["likeness"]) == ("equal bits", "equal bits")
    assert found["unit"] == "examples/s"
    assert 1 < found["low"] <= found["speedup"] <= found["high"]
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("own", "line"),
    [
        (["--seed", "1"], "losses     different: not the same training"),
        ([], "losses     cannot be compared: the script is not deterministic"),
    ],
)
def test_another_training_is_called_so(tmp_path: Path, own: list[str], line: str) -> None:
    script(tmp_path, REPORTS)
    done = tputui("try", "--with", "lr=0.2", "--steps", "10", "--", sys.executable, "train.py", *own, cwd=tmp_path)
    assert done.code == 0, done.err
    assert line in done.out
    assert f"{' '.join(['train.py', *own])} --lr=0.2" in done.out


@pytest.mark.slow
def test_a_torch_script_without_a_seed_is_seeded(tmp_path: Path) -> None:
    script(
        tmp_path,
        "import os, random, time, torch\n"
        "model = torch.nn.Linear(8, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for step in range(100000):\n"
        "    time.sleep(0.05)\n"
        "    loss = (model(torch.randn(4, 8)) * random.random()).square().mean()\n"
        "    loss.backward()\n"
        "    optimizer.step()\n"
        "    optimizer.zero_grad()\n",
    )
    words = ("try", "--json", "--steps", "10", "--with-env", "UNUSED=1", "--", sys.executable, "train.py")
    done = tputui(*words, cwd=tmp_path)
    assert done.code == 0, done.err
    assert json.loads(done.out)["losses"]["verdict"] == "equal bits"


def test_a_bad_assignment_is_refused() -> None:
    with pytest.raises(CommandError, match="expected NAME=VALUE"):
        changed("python t.py", arguments=["--=3"])
