"""The first command of the README on every TPU host, with fake PCI trees, and the warnings if a TPU is not used."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import run_plan
from engine.commands.describe import check
from engine.errors import Refused
from engine.process import hardware
from tests.engine.workers import DIGITS
from tputui import config

HOSTS = {
    "v2-8": ("0x0027", 4, 8),
    "v3-8": ("0x0027", 4, 8),
    "v4-8": ("0x005e", 4, 4),
    "v5e-1": ("0x0063", 1, 1),
    "v5e-4": ("0x0063", 4, 4),
    "v5e-8": ("0x0063", 8, 8),
    "v5p-8": ("0x0062", 4, 4),
    "v6e-1": ("0x006f", 1, 1),
    "v6e-4": ("0x006f", 4, 4),
    "v6e-8": ("0x006f", 8, 8),
}
"""PCI device id, chips, and number of cores that the runtime has for them."""
NVIC, UNKNOWN = "0x0042", "0x0099"


def host(tmp_path: Path, *devices: tuple[str, str]) -> Path:
    """A PCI tree of Google devices with these ids and classes."""
    pci = tmp_path / "pci"
    for index, (device, kind) in enumerate(devices):
        directory = pci / f"0000:00:{index:02x}.0"
        directory.mkdir(parents=True)
        (directory / "vendor").write_text("0x1ae0\n")
        (directory / "device").write_text(f"{device}\n")
        (directory / "class").write_text(f"{kind}\n")
    return pci


def tpu_host(tmp_path: Path, name: str) -> hardware.Machine:
    device, num_chips, _ = HOSTS[name]
    pci = host(tmp_path, (NVIC, "0x020000"), *[(device, "0xff0000")] * num_chips)
    return hardware.find({}, pci, tmp_path / "dev")


@pytest.mark.parametrize("strategy", ["spmd", "replica"])
@pytest.mark.parametrize("name", HOSTS)
def test_the_sample_trains_on_all_cores_of_every_tpu_host(tmp_path: Path, name: str, strategy: str) -> None:
    found, num_cores = tpu_host(tmp_path, name), HOSTS[name][2]
    loaded = config.load(DIGITS, [f"device.strategy={strategy}"])
    answer = check(loaded, found, "digits.toml")
    assert answer.problems == []
    facts = answer.facts
    assert (facts["device"], facts["num_cores"], facts["global_batch"]) == ("TPU", num_cores, 8 * num_cores)
    assert facts["lr"] == pytest.approx(0.0005 * num_cores)
    assert facts["lr_rule"].startswith(f"0.0005 x {num_cores} cores")
    assert facts["device_warning"] is None
    environment = hardware.environment(loaded, found)
    assert environment["PJRT_DEVICE"] == "TPU"
    assert ("TPU_VISIBLE_CHIPS" in environment) == (num_cores == 1)
    planned = run_plan.make(loaded, found, "digits.toml")
    assert planned.num_processes == (found.chips if strategy == "replica" else 1)


@pytest.mark.parametrize("sample", sorted(path.name for path in DIGITS.parent.glob("*.toml")))
def test_samples_use_all_cores_and_divisible_batches(sample: str) -> None:
    loaded = config.load(DIGITS.with_name(sample))
    assert loaded.device.cores == "all"
    assert [loaded.on_cores(num_cores).share_problem for num_cores in (1, 4, 8)] == [None] * 3


def test_all_cores_is_the_default_and_means_virtual_off_tpu() -> None:
    loaded = config.parse(
        'task = "digits"\nepochs = 2\n[data]\nbatch_per_core = 4\n[device]\nvirtual_cores = 6\n', "my.toml"
    )
    assert loaded.device.cores == "all"
    here = hardware.Machine("CPU", 0, 0, "a test")
    planned = run_plan.make(loaded, here, "my.toml")
    assert (planned.config.num_cores, planned.config.global_batch) == (6, 24)
    assert hardware.environment(loaded, here)["CPU_NUM_DEVICES"] == "6"
    assert config.to_builtins(loaded)["device"]["cores"] == "all", "a run keeps what was written"


@pytest.mark.parametrize(
    ("name", "cores", "sentence"),
    [
        ("v4-8", "8", '8 is more than the 4 TPU cores of this machine; write 4, "all", 1 or [k] with k from 0 to 3'),
        ("v5e-1", "8", '8 is more than the 1 TPU cores of this machine; write at most 1, "all" or [0]'),
        (
            "v5e-8",
            "4",
            '4 is not possible: one process drives all 8 TPU cores or one; write 8, "all", 1 or [k] with k from 0 to 7',
        ),
        (
            "v6e-4",
            "[4]",
            '[4] names a missing core: this machine has 4 TPU cores; write [k] with k from 0 to 3, or "all"',
        ),
    ],
)
def test_unsupported_core_count_is_rejected_with_valid_ones(
    tmp_path: Path, name: str, cores: str, sentence: str
) -> None:
    answer = check(config.load(DIGITS, [f"device.cores={cores}"]), tpu_host(tmp_path, name), "digits.toml")
    (problem,) = answer.problems
    assert (problem.key, problem.message) == ("device.cores", sentence)


def test_indivisible_batch_is_rejected_with_a_valid_one(
    tmp_path: Path,
) -> None:
    loaded = config.load(DIGITS, ["data.global_batch=6"])
    with pytest.raises(Refused, match=r"data\.global_batch: 6 is not divisible by 4 cores; use 8"):
        run_plan.make(loaded, tpu_host(tmp_path, "v4-8"), "digits.toml")


def test_host_without_tpu_is_not_warned_about(tmp_path: Path) -> None:
    # Every machine of Google Cloud has a network card and possibly disks of its vendor.
    pci = host(tmp_path, (NVIC, "0x020000"), ("0x001f", "0x010802"))
    found = hardware.find({}, pci, tmp_path / "dev")
    assert (found.device, found.warning) == ("CPU", None)


@pytest.mark.parametrize(
    ("devices", "files", "environ", "words"),
    [
        ([(UNKNOWN, "0xff0000")], [], {}, "PCI device 1ae0:0099"),
        ([], ["accel0", "accel1"], {}, "/dev/accel0"),
        ([], [], {"TPU_ACCELERATOR_TYPE": "v9-8"}, "TPU_ACCELERATOR_TYPE is set"),
        ([], [], {"PJRT_DEVICE": "TPU"}, "PJRT_DEVICE=TPU is set"),
        ([("0x005e", "0xff0000")], [], {"PJRT_DEVICE": "CPU"}, "1 x TPU v4 here, but PJRT_DEVICE=CPU is set"),
        ([("0x005e", "0xff0000"), ("0x0063", "0xff0000")], [], {}, "1 x TPU v4, 1 x TPU v5e"),
    ],
)
def test_virtual_cores_on_a_tpu_host_are_warned_about(
    tmp_path: Path, devices: list[tuple[str, str]], files: list[str], environ: dict[str, str], words: str
) -> None:
    (tmp_path / "dev").mkdir()
    for name in files:
        (tmp_path / "dev" / name).touch()
    found = hardware.find(environ, host(tmp_path, *devices), tmp_path / "dev")
    facts = check(config.load(DIGITS), found, "digits.toml").facts
    assert (facts["device"], facts["num_cores"]) == ("CPU", 8)
    assert facts["device_warning"].startswith("not training on a TPU: ")
    assert words in facts["device_warning"]
