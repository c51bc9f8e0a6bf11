"""`tputui doctor` and the checks that it shares with `run`: versions, chips, processes that use them, disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.helpers import one_sentence, tputui
from tests.device.tpu_runtime import TpuRuntime, typical
from tputui import environment
from tputui.cli import doctor
from tputui.cli.main import main


@pytest.mark.parametrize(
    ("torch", "torch_xla", "words"),
    [
        (None, None, "torch and torch_xla are not installed; pip install 'tputui[xla]'"),
        ("2.9.0", None, "torch_xla is not installed; pip install 'tputui[xla]'"),
        ("2.8.0+cpu", "2.9.0", "torch 2.8.0+cpu does not match: both must be 2.9"),
        ("2.8.0", "2.8.1", "torch 2.8.0 and torch_xla 2.8.1 do not match"),
    ],
)
def test_unsupported_versions_are_reported_with_a_command(torch: str | None, torch_xla: str | None, words: str) -> None:
    problem = environment.version_problem(torch, torch_xla)

    assert problem is not None
    assert words in problem
    assert problem.rpartition("; ")[2].startswith("pip install ")


def test_patch_versions_and_builds_may_differ() -> None:
    assert environment.version_problem("2.9.1+cpu", "2.9.0") is None


@pytest.fixture
def tpu_host(tmp_path: Path) -> Path:
    """The files of a host with two v5e chips; process 4711 holds one, and those of process 1 cannot be read."""
    for number in range(2):
        device = tmp_path / f"sys/bus/pci/devices/0000:00:0{number}.0"
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x1ae0\n")
        (device / "device").write_text("0x0063\n")
    (tmp_path / "dev/vfio").mkdir(parents=True)
    for name in ("0", "1", "vfio"):
        (tmp_path / "dev/vfio" / name).touch()
    fds = tmp_path / "proc/4711/fd"
    fds.mkdir(parents=True)
    (fds / "3").symlink_to("/dev/vfio/1")
    (fds / "4").symlink_to("/dev/vfio/vfio")
    (tmp_path / "proc/4711/comm").write_text("python\n")
    return tmp_path


def test_chips_and_their_user_are_found(tpu_host: Path) -> None:
    devices = environment.find_devices(tpu_host)

    assert devices.chips.summary == "2 x TPU v5e"
    assert devices.files == ["/dev/vfio/0", "/dev/vfio/1"]
    assert devices.holders == [environment.Holder("/dev/vfio/1", 4711, "python")]


def test_device_in_use_is_rejected_naming_its_user(tpu_host: Path) -> None:
    problem = environment.environment_problem({}, tpu_host)

    assert problem is not None
    assert "/dev/vfio/1 is in use by process 4711 (python)" in problem
    assert environment.environment_problem({"PJRT_DEVICE": "CPU"}, tpu_host) is None


def test_doctor_names_the_tpu_user_and_a_command(tpu_host: Path) -> None:
    findings = list(doctor.find(tpu_host / "runs", tpu_host))

    held = next(finding for finding in findings if "is in use" in finding.text)
    assert (held.level, held.next) == ("bad", "kill 4711")
    assert any(finding.text.startswith('2 x TPU v5e: device.cores = "all" is 2 cores') for finding in findings)


def test_without_tpu_doctor_names_the_virtual_cores(tmp_path: Path) -> None:
    found = [finding for finding in doctor.find(tmp_path, tmp_path, {}) if finding.about == "device"]

    assert [finding.level for finding in found] == ["ok"]
    assert "no TPU on the PCI bus; training uses virtual cores" in found[0].text


@pytest.mark.parametrize(("device", "words"), [("0x0063", "PJRT_DEVICE=CPU is set"), ("0x0099", "1ae0:0099")])
def test_unused_tpu_is_a_warning(tmp_path: Path, device: str, words: str) -> None:
    chip = tmp_path / "sys/bus/pci/devices/0000:00:01.0"
    chip.mkdir(parents=True)
    (chip / "vendor").write_text("0x1ae0\n")
    (chip / "device").write_text(f"{device}\n")
    environ = {"PJRT_DEVICE": "CPU"}

    found = [finding for finding in doctor.find(tmp_path, tmp_path, environ) if finding.about == "device"]

    (warning,) = [finding for finding in found if finding.level == "warn"]
    assert words in warning.text
    assert "virtual cores" in warning.text
    assert warning.next


def test_lines_and_json_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--runs-dir", str(tmp_path)])
    lines = capsys.readouterr().out
    code_of_json = main(["doctor", "--runs-dir", str(tmp_path), "--json"])
    printed = json.loads(capsys.readouterr().out)

    assert code == code_of_json == (0 if printed["able"] else 1)
    assert {finding["about"] for finding in printed["findings"]} >= {"python", "tputui", "torch", "device", "disk"}
    for finding in printed["findings"]:
        assert finding["level"] in ("ok", "warn", "bad")
        assert (finding["next"] is None) == (finding["level"] == "ok")
        assert finding["about"] in lines


def test_mismatched_versions_prevent_run_from_starting(tmp_path: Path) -> None:
    older = tmp_path / "site/torch-2.8.0.dist-info"
    older.mkdir(parents=True)
    (older / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.8.0\n")
    newer = tmp_path / "site/torch_xla-2.9.0.dist-info"
    newer.mkdir(parents=True)
    (newer / "METADATA").write_text("Metadata-Version: 2.1\nName: torch_xla\nVersion: 2.9.0\n")
    config = Path(__file__).parents[2] / "sample_configs/digits.toml"

    printed = tputui("doctor", cwd=tmp_path, PYTHONPATH=str(tmp_path / "site"))
    refused = tputui("run", config, cwd=tmp_path, PYTHONPATH=str(tmp_path / "site"))

    assert printed.code == 1
    assert "bad   torch" in printed.out
    assert "next: pip install 'torch==2.9.*' 'torch_xla==2.9.*'" in printed.out
    assert refused.code == 7
    assert "torch 2.8.0 does not match: both must be 2.9" in one_sentence(refused)
    assert not (tmp_path / "runs").exists()


def test_metric_service_of_the_tpu_runtime_answers_or_says_why_not(tmp_path: Path) -> None:
    def metrics(**environ: str) -> doctor.Finding:
        (found,) = [one for one in doctor.find(tmp_path, tmp_path, environ) if one.about == "metrics"]
        return found

    assert metrics().text == "not read: no TPU is used"
    with TpuRuntime(typical([0])) as runtime:
        port = str(runtime.port)
        found = metrics(TPU_RUNTIME_METRICS_PORTS=port)
        assert found.level == "ok"
        assert f"port {port}: answers, with duty_cycle_percent, hbm_total, hbm_used" in found.text
    assert f"port {port}: no TPU runtime answers" in metrics(TPU_RUNTIME_METRICS_PORTS=port).text
    bad = metrics(TPU_RUNTIME_METRICS_PORTS="8431;8432")
    assert (bad.level, bad.next) == ("warn", "unset TPU_RUNTIME_METRICS_PORTS")


def test_a_libtpu_that_is_too_old_for_the_chip_is_named() -> None:
    finding = doctor._libtpu("0.0.21", {"TPU v7x"})
    assert (finding.level, finding.next) == ("warn", "pip install 'libtpu>=0.0.42.1'")
    assert "0.0.21 may not know TPU v7x chips" in finding.text
    assert doctor._libtpu("0.0.52", {"TPU v7x"}).level == "ok"
    assert doctor._libtpu("0.0.21", {"TPU v5e"}).level == "ok"
