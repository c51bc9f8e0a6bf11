"""`tputui rehearse`: some steps of a program on virtual CPU cores, a report with lines of code, and exit codes."""

from __future__ import annotations

import json
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.cli.helpers import CommandResult, one_sentence, tputui
from tests.diagnosis import runs
from tests.diagnosis.runs import (
    change,
    counters,
    epoch_ended,
    fell_back,
    plan,
    recompiled,
    reports,
    snapshot_of,
    synced,
    topology,
    window,
)
from tests.observers.observed import PROGRAMS, faults_of, installed
from tputui import config
from tputui.cli.main import main
from tputui.cli.rehearse import shortened, virtual_cores
from tputui.diagnosis.rehearsal import PredictedMemory, ProgramShapes, Rehearsal, Shapes, fits, rehearsed
from tputui.logs import torch_trace
from tputui.telemetry import events as ev
from tputui.text import rehearsal_lines

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "sample_configs" / "digits.toml"
OBSERVED = """
import signal, sys, time
from tputui.observers.sinks import observes_all, process_sink
from tputui.telemetry import events as ev

assert observes_all()
process_sink.open_journal()
frame = ev.CodeFrame(file=__file__, line=7, function="train", owner="user")
compiled = ev.CompileObserved(
    t=time.time(), runtime="torch_xla", program="step", cause="sync", warm_up=sys.argv[1] == "healthy", seconds=0.01,
    step=9, user_frame=frame, changed_inputs=None, count=4)
process_sink.emit(compiled)
if sys.argv[1] == "fails":
    raise ValueError("no such column")
# It is interrupted after 30 of its 40 steps at the earliest, and not between them.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
for _ in range(0 if sys.argv[1] == "hangs" else 8):
    process_sink.emit(ev.ObservationEnded(
        t=time.time(), runtime="torch_xla", why="every step is observed", steps=5, window_s=0.1, steady_step_s=None))
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
while sys.argv[1] != "healthy":
    time.sleep(0.05)
"""
RAISES = 1 + next(number for number, line in enumerate(OBSERVED.splitlines()) if "raise" in line)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "the configuration file is missing; to run a command of your own, write tputui rehearse -- COMMAND"),
        (["a.toml", "--", "true"], "give either the configuration a.toml or a command after --, not both"),
        (["train.py"], "train.py is a script, not a configuration; write tputui rehearse -- python train.py"),
        (["--set", "epochs=1", "--", "true"], "--set changes a configuration file"),
        (["--steps", "0", "--", "true"], "'0' is not a whole number of 1 or more"),
        (["--", "no-such-program"], "no-such-program: no such command in PATH"),
        (["none.toml"], "none.toml"),
        (["--stesp", "3", "--", "true"], "did you mean --steps?"),
        (["--baseline", "none.json", "--", "true"], "--baseline none.json: No such file or directory"),
        (["--baseline", __file__, "--", "true"], "not printed by `tputui rehearse --json`"),
    ],
)
def test_bad_arguments_are_one_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["--runs-dir", str(tmp_path / "runs"), "rehearse", *words]) == 2
    captured = capsys.readouterr()
    assert sentence in captured.err
    assert (captured.err.count("\n"), captured.out) == (1, "")
    assert not (tmp_path / "runs").exists()


def test_disabled_observers_are_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPUTUI_OBSERVE_OFF", "1")
    assert main(["rehearse", "--", "true"]) == 2
    assert "TPUTUI_OBSERVE_OFF disables the observers" in capsys.readouterr().err


def test_the_environment_has_eight_virtual_cores_unless_the_user_chose_others() -> None:
    environ, cores, chosen = virtual_cores({"PJRT_DEVICE": "TPU", "XLA_FLAGS": "--xla_dump_to=x"}, None)
    assert (cores, chosen) == (8, "")
    assert environ["XLA_FLAGS"] == "--xla_dump_to=x --xla_force_host_platform_device_count=8"
    assert (environ["PJRT_DEVICE"], environ["CPU_NUM_DEVICES"], environ["JAX_PLATFORMS"]) == ("CPU", "8", "cpu")
    environ, cores, chosen = virtual_cores({"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}, None)
    assert (cores, chosen, environ["CPU_NUM_DEVICES"]) == (4, "XLA_FLAGS", "4")
    environ, cores, chosen = virtual_cores({"CPU_NUM_DEVICES": "4"}, 2)
    assert (cores, chosen, environ["CPU_NUM_DEVICES"]) == (2, "--cores", "2")
    assert environ["XLA_FLAGS"] == "--xla_force_host_platform_device_count=2"


def test_a_configuration_trains_two_short_epochs_without_alerts() -> None:
    sets = ["optim.warmup_epochs=5", "device.cores=16", 'alerts.on=["done"]', 'diagnosis.strict=["sync"]']
    given = config.from_builtins(config.load_tables(DIGITS, sets), str(DIGITS), sets)
    made = shortened(given, 30, None)
    assert (made.epochs, made.data.batches_per_epoch, made.alerts.on, made.diagnosis.strict) == (2, 15, (), ())
    assert (made.device.cores, made.device.virtual_cores, made.optim.warmup_epochs) == (16, 16, 2.0)
    # The engine checks it again.
    config.from_builtins(config.to_builtins(made), "rehearsal")
    assert shortened(given, 30, 4).device.virtual_cores == 4


def report_of(*events: ev.Event) -> Rehearsal:
    process = [topology(), plan(), *reports(), window(100), *events]
    return rehearsed(snapshot_of({"worker-0": process}), PredictedMemory(core_bytes=None, source="-"), is_cut=False)


def text_of(report: Rehearsal) -> str:
    return "\n".join(rehearsal_lines.lines(report))


def test_steps_that_cannot_be_counted_are_named() -> None:
    silent = snapshot_of({"observer-0": [runs.compiled(1, warm_up=True, runtime="jax")]})
    memory = PredictedMemory(core_bytes=None, source="-")
    report = rehearsed(silent, memory, is_cut=False)
    assert (report.steps, report.findings) == (0, [])
    assert "number of steps: no step could be counted" in text_of(report)
    assert "no step could be counted" not in text_of(report_of())


def test_steps_beyond_those_that_were_asked_for_are_explained() -> None:
    report = report_of()
    assert rehearsal_lines.steps(report, report.steps) == f"{report.steps} steps"
    assert rehearsal_lines.steps(report, report.steps - 1) == f"{report.steps} steps"
    beyond = rehearsal_lines.steps(report, 30)
    assert (report.steps >= 60, beyond.startswith(f"{report.steps} steps (30 asked for; ")) == (True, True)


def test_programs_that_are_not_shown_are_counted() -> None:
    programs = [ProgramShapes(program="fn", inputs=[f"f32[{size}]"], operations=3) for size in range(1, 7)]
    text = text_of(structs.replace(report_of(), shapes=Shapes(programs=programs)))
    assert "f32[4]" in text
    assert "f32[5]" not in text
    assert re.search(r"^ +2 programs more$", text, re.M)


def test_every_finding_has_its_line_and_no_cost_of_the_cpu() -> None:
    late = recompiled(30, changed_inputs=change("f32[8]", "f32[7]"))
    report = report_of(*late, synced(100, 1e-6, 100), fell_back(100, 1e-6, 100), epoch_ended(1, trace=1.0))
    assert {(one.rule, one.where) for one in report.findings} == {
        ("recompile", "train.py:41"),
        ("sync", "train.py:57"),
        ("fallback", "train.py:63"),
    }
    assert all(one.lost_s is None and one.share is None and one.speedup is None for one in report.findings)
    text = text_of(report)
    assert "lost" not in text
    assert "recompile       train.py:41 in train\n" in text
    assert "input x f32[8] -> f32[7]" in text
    assert "8 examples per core and step, 64 in all" in text
    assert "at most 20.0 ms per step on this host" in text
    assert "only a TPU shows: memory in use, collectives, speed of steps, speed of the loader" in text


def test_effects_of_cpu_cores_are_no_findings() -> None:
    waiting = ev.InputStagesMeasured(t=1.7e9, stages_s={"decode": 90.0}, batches=100, threads=1, waited_s=9.0)
    seldom, once = synced(10, 9.0, 100), fell_back(1, 5.0, 100)
    checkpoint = synced(500, 1.0, 5, operation=".cpu()")
    report = report_of(waiting, seldom, checkpoint, once, epoch_ended(1, trace=0.1, data=8.0), counters())
    assert report.findings == []


def test_memory_is_compared_with_every_kind_of_tpu(tmp_path: Path) -> None:
    gib = 1 << 30
    assert [(one.tpu, one.fits) for one in fits(15 * gib)] == [
        ("v2-8", False), ("v3-8", False), ("v4-8", True), ("v5e-8", False), ("v5p-8", True), ("v6e-8", True)
    ]  # fmt: skip
    memory = PredictedMemory(core_bytes=4 * gib, source="predicted", tpus=fits(4 * gib))
    text = text_of(rehearsed(snapshot_of({"worker-0": [topology()]}), memory, is_cut=True))
    assert "memory          4.0 GiB per core, predicted\n" in text
    assert "fits: v2-8 (50 % of 8 GiB), v3-8 (25 % of 16 GiB), v4-8 (12 % of 32 GiB)" in text
    too_large = PredictedMemory(core_bytes=15 * gib, source="predicted", tpus=fits(15 * gib))
    text += text_of(rehearsed(snapshot_of({"worker-0": [topology()]}), too_large, is_cut=False))
    assert "does not fit: v2-8 (188 % of 8 GiB), v3-8 (94 % of 16 GiB), v5e-8 (94 % of 16 GiB)\n" in text
    assert "not judged      later code: the program was stopped" in text
    sizes = "Graph input size: 2.000000\nGraph output size: 2.500000\nAliased Input size: 2.000000\n"
    sizes += "Intermediate tensor size: 1.000000\nCompiled program size: 0.500000\n"
    made = "".join(f"Post Compilation Analysis: {line} GB\n" for line in sizes.splitlines())
    (tmp_path / "sizes").write_text(f"Compilation Analysis: x\n{made}{made.replace('1.0', '3.0')}")
    assert torch_trace.largest_program(tmp_path / "sizes") == 6 * gib
    (tmp_path / "sizes").write_text("Compilation Analysis: x\n")
    assert torch_trace.largest_program(tmp_path / "sizes") is None


def rehearse(tmp_path: Path, *words: str) -> CommandResult:
    """Runs the command as a package with entry points would; its temporary files must be gone afterwards."""
    temporary = tmp_path / "temporary"
    temporary.mkdir(exist_ok=True)
    paths = os.pathsep.join(str(folder) for folder in (installed(tmp_path), ROOT) if folder.exists())
    result = tputui("rehearse", *words, cwd=tmp_path, PYTHONPATH=paths, TMPDIR=str(temporary))
    assert not list(temporary.glob("tputui-rehearsal-*"))
    return result


def test_exit_codes_of_commands(tmp_path: Path) -> None:
    def result_of(kind: str) -> CommandResult:
        place = tmp_path / kind
        place.mkdir()
        (place / "train.py").write_text(OBSERVED)
        timeout = ["--timeout=1s"] if kind == "hangs" else []
        return rehearse(place, *timeout, "--", sys.executable, "train.py", kind)

    codes = {"faulty": 1, "healthy": 0, "fails": 3, "hangs": 3}
    with ThreadPoolExecutor() as threads:
        results = dict(zip(codes, threads.map(result_of, codes), strict=True))
    assert {kind: result.code for kind, result in results.items()} == codes, results
    for kind, result in results.items():
        if kind != "hangs":  # it may be stopped before it reports anything
            assert ("recompile       train.py:7 in train" in result.out) is (kind != "healthy")
        assert "KeyboardInterrupt" not in result.out
        assert ("ValueError: no such column" in result.out) is (kind == "fails")
        assert (f'train.py", line {RAISES}, in <module>' in result.out) is (kind == "fails")
        assert ("no step within 1.0 s before the first step, so it was stopped" in result.out) is (kind == "hangs")


def test_only_findings_that_the_baseline_does_not_have_fail(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(OBSERVED)
    words = ("--", sys.executable, "train.py", "faulty")
    before = rehearse(tmp_path, "--json", *words)
    (tmp_path / "before.json").write_text(before.out)
    again = rehearse(tmp_path, "--baseline", "before.json", *words)
    assert (before.code, again.code) == (1, 0), again
    assert ": no new findings in 40 steps" in again.out
    assert "baseline        1 known finding of before.json: train.py:7 recompile; 0 no longer found" in again.out
    (tmp_path / "empty.json").write_text('{"findings": []}')
    new = rehearse(tmp_path, "--baseline", "empty.json", "--json", *words)
    made = json.loads(new.out)
    assert (new.code, len(made["findings"]), len(made["baseline"]["new"])) == (1, 1, 1)
    (tmp_path / "failed.json").write_text('{"findings": [], "problem": "it failed"}')
    refused = rehearse(tmp_path, "--baseline", "failed.json", *words)
    assert (refused.code, one_sentence(refused)) == (
        2,
        "tputui: rehearse: --baseline failed.json: no result: it failed",
    )


def test_a_program_in_which_nothing_is_observed_has_no_answer(tmp_path: Path) -> None:
    result = rehearse(tmp_path, "--json", "--", sys.executable, "-c", "print('no framework')")
    made = json.loads(result.out)
    assert (result.code, made["exit_code"], made["findings"], made["stopped"]) == (3, 3, [], False)
    assert made["problem"] == "the program ended before torch_xla, JAX or torch.compile compiled anything in it"


def test_a_framework_that_is_not_supported_has_no_answer(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "from tputui.observers.sinks import could_not_attach, process_sink\n"
        "process_sink.open_journal()\n"
        "could_not_attach('jax', 'jax', 'compilations', reason='it has no monitoring')\n"
    )
    result = rehearse(tmp_path, "--json", "--", sys.executable, "train.py")
    assert (result.code, json.loads(result.out)["problem"]) == (3, "jax is not supported: it has no monitoring")


def test_the_run_is_kept_on_request(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(OBSERVED)
    result = rehearse(tmp_path, "--runs-dir=runs", "--json", "--", sys.executable, "train.py", "faulty")
    made = json.loads(result.out)
    assert (result.code, made["steps"], made["stopped"], made["cores"]) == (1, 40, True, 8)
    assert Path(made["run"], "run.json").exists()
    [finding] = made["findings"]
    assert (finding["where"], finding["lost_s"]) == ("train.py:7", None)
    assert one_sentence(result).endswith("train.py faulty on 8 virtual CPU cores: 30 steps")


def needs(package: str) -> None:
    """Skips the test if a package is missing; imports nothing, which would change the environment of this process."""
    if find_spec(package) is None:
        pytest.skip(f"needs {package}")


TORCH_XLA = """
import torch
import torch_xla
from torch import nn

device = torch_xla.device()
model = nn.Linear(64, 10).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for size in SIZES * 50_000:
    x = torch.randn(size, 64).to(device)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch_xla.sync()
    READ
"""
XLA_PROGRAMS = {
    "faulty.py": TORCH_XLA.replace("SIZES", "([16] * 9 + [5])").replace("READ", "total = loss.item()"),
    "healthy.py": TORCH_XLA.replace("SIZES", "[16]").replace("READ", "pass"),
    "failing.py": TORCH_XLA.replace("SIZES", "[16]").replace("READ", "raise RuntimeError('the disk is gone')"),
}


@pytest.mark.slow
@pytest.mark.xla
@pytest.mark.parametrize(
    ("name", "code", "found"),
    [
        ("faulty.py", 1, [("sync", "faulty.py:16")]),
        ("healthy.py", 0, []),
        ("failing.py", 3, []),
    ],
)
def test_torch_xla_programs(name: str, code: int, found: list[tuple[str, str]], tmp_path: Path) -> None:
    needs("torch_xla")
    (tmp_path / name).write_text(XLA_PROGRAMS[name])
    result = rehearse(tmp_path, "--json", "--", sys.executable, name)
    made: dict[str, Any] = json.loads(result.out)
    assert result.code == code, result.out
    assert [(one["rule"], one["where"]) for one in made["findings"]] == found
    late = [one["where"] for one in made["hints"] if one["rule"] == "recompile"]
    assert late == (["faulty.py:15"] if code == 1 else []), "the smaller batch compiles once"
    assert made["runtimes"] == ["torch_xla"]
    if code == 3:
        assert made["problem"].startswith("the program failed: the command exited with code 1: RuntimeError")
        assert made["failure"]["message"] == "the disk is gone"
        return
    assert made["stopped"]
    assert made["steps"] >= 30
    assert made["shapes"]["programs"][0]["inputs"][0] == "f32[16,64]"
    assert made["memory"]["core_bytes"] > 0
    assert [one["fits"] for one in made["memory"]["tpus"]] == [True] * 6


@pytest.mark.slow
@pytest.mark.xla
def test_a_launched_program_is_rehearsed_on_one_core(tmp_path: Path) -> None:
    needs("torch_xla")
    loop = XLA_PROGRAMS["healthy.py"].partition("device = ")
    body = "".join(f"    {line}\n" for line in (loop[1] + loop[2]).splitlines())
    body = body.replace("optimizer.step()", "xm.optimizer_step(optimizer)")
    code = f"{loop[0]}import torch_xla.core.xla_model as xm\ndef train(index):\n{body}"
    (tmp_path / "train.py").write_text(f"{code}\nif __name__ == '__main__':\n    torch_xla.launch(train)\n")
    result = rehearse(tmp_path, "--", sys.executable, "train.py")
    assert result.code == 0, result.out
    assert "starting again on one core" in result.err
    for printed in (result.out, result.err):
        assert "on 1 virtual CPU core (because of torch_xla.launch)" in printed


@pytest.mark.slow
@pytest.mark.xla
def test_the_sample_has_no_findings(tmp_path: Path) -> None:
    needs("torch_xla")
    result = rehearse(tmp_path, str(DIGITS), "--steps", "20", "--json")
    made: dict[str, Any] = json.loads(result.out)
    assert (result.code, made["findings"], made["steps"], made["stopped"]) == (0, [], 20, False), result.out
    assert made["shapes"]["batch_per_core"] == 8
    assert 0 < made["shapes"]["evaluation_padding"] < 0.1
    assert made["tracing"]["step_s"] > 0
    assert made["memory"]["source"].startswith("predicted from the network for 8 examples per core in fp32")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["float_each_step", "shape_change", "healthy_log_interval", "healthy_sharded"],
)
def test_jax_programs(name: str, tmp_path: Path) -> None:
    needs("jax")
    file = PROGRAMS / "jax" / f"{name}.py"
    result = rehearse(tmp_path, "--json", "--", sys.executable, str(file))
    made: dict[str, Any] = json.loads(result.out)
    expected = faults_of(file)
    assert {(one["rule"], one["line"]) for one in made["findings"]} == expected, result.out
    assert result.code == (1 if expected else 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["healthy_training", "shape_change"])
def test_torch_compile_programs(name: str, tmp_path: Path) -> None:
    needs("torch")
    file = PROGRAMS / "torch_compile" / f"{name}.py"
    result = rehearse(tmp_path, "--json", "--", sys.executable, str(file))
    made: dict[str, Any] = json.loads(result.out)
    expected = faults_of(file)
    assert {(one["rule"], one["line"]) for one in made["findings"]} == expected, result.out
    assert result.code == (1 if expected else 0)


@pytest.mark.slow
@pytest.mark.xla
def test_a_read_on_rank_0_is_found_among_eight_threads(tmp_path: Path) -> None:
    needs("torch_xla")
    program = PROGRAMS.parent / "observers" / "launched.py"
    result = rehearse(tmp_path, "--json", "--steps", "30", "--", sys.executable, str(program), "reads", "100000")
    made = json.loads(result.out)
    assert (result.code, made["cores"], made["stopped"]) == (1, 8, True)
    [finding] = made["findings"]
    assert (finding["rule"], finding["text"]) == ("sync", "`.item()` waits for the device in every step on rank 0")
    assert "loss.item()" in program.read_text().splitlines()[finding["line"] - 1]
