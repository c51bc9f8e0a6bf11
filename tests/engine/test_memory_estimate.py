"""Predicted memory compared with real tensors and the compiler; its reports; rematerialisation."""

from __future__ import annotations

import json
import re
import resource
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from tests import forked
from tputui import config
from tputui.config import OptimConfig
from tputui.telemetry import events as ev

pytestmark = [
    pytest.mark.xla,
    # Looked for, but not imported: this process needs torch alone.
    pytest.mark.skipif(find_spec("torch_xla") is None, reason="needs the extra `xla`"),
]
torch = pytest.importorskip("torch")

HERE = Path(__file__).parent
GIB = 1 << 30
DEEP = 'task = "tests.engine.deeptask:Deep"\nepochs = 1\n[data]\nbatch_per_core = 8\n[device]\ncores = 2\n'
OOM = (
    "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. "
    "Used 19.96G of 15.48G hbm. Exceeded hbm capacity by 4.48G.\nTotal hbm usage >= 20.48G"
)


def planned(*overrides: str, text: str = DEEP) -> Any:
    """A plan on two virtual cores."""
    from engine import run_plan as plan
    from engine.process import hardware

    return plan.make(config.parse(text, "test.toml", list(overrides)), hardware.find({"PJRT_DEVICE": "CPU"}), "t")


def forecast(plan: Any, limit: int | None = None) -> Any:
    """A prediction for cores with this much memory."""
    from engine.memory import advice as forecast
    from engine.process.hardware import MemoryLimit

    made = forecast.predict(plan, plan.task.load(plan.data, 0).train)
    return made._replace(limit=MemoryLimit(limit, "the HBM of a core"))


def predicted(plan: Any, **changed: Any) -> Any:
    """The predicted memory of the plan with other settings."""
    from engine.memory import estimate

    shapes = estimate.shapes(plan.task.load(plan.data, 0).train)
    return estimate.estimate(plan, shapes, estimate.settings(plan)._replace(**changed))


def really_kept(plan: Any) -> int:
    """Bytes that autograd saves in a real step on the CPU."""
    import numpy as np

    model = plan.task.model(plan.model, plan.data).train()
    batch = plan.task.load(plan.data, 0).train.fetch(np.arange(plan.config.batch_per_core))
    kept = {}
    elsewhere = {t.untyped_storage().data_ptr() for t in [*model.parameters(), *model.buffers(), *batch.values()]}

    def keep(tensor: Any) -> Any:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        plan.task.outcomes(plan.task.predict(model, batch), batch)["loss"].mean()
    return sum(tensor.untyped_storage().nbytes() for where, tensor in kept.items() if where not in elsewhere)


def test_estimated_activations_match_a_real_step() -> None:
    assert predicted(planned()).activations == pytest.approx(really_kept(planned()), rel=0.001)


@pytest.mark.parametrize("name", get_args(get_type_hints(OptimConfig)["name"]))
def test_parameter_gradient_optimizer_sizes_match_real_ones(name: str) -> None:
    plan = planned(f"optim.name={name}")
    model = plan.task.model(plan.model, plan.data)
    by_name: dict[str, Any] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "rmsprop": torch.optim.RMSprop}
    made = {**by_name, "sgd": torch.optim.SGD}[name]
    optimizer = made(model.parameters(), lr=0.1, **({"momentum": 0.9} if name == "sgd" else {}))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    state = [value for one in optimizer.state.values() for key, value in one.items() if key != "step"]
    found = predicted(plan)
    assert found.parameters == sum(value.nbytes for value in model.state_dict().values())
    assert found.gradients == sum(parameter.grad.nbytes for parameter in model.parameters())
    assert found.optimizer == sum(value.nbytes for value in state)


def test_plain_sgd_has_no_optimizer_state() -> None:
    assert predicted(planned("optim.name=sgd", "optim.momentum=0")).optimizer == 0


def test_activations_scale_with_batch_bf16_and_recompute() -> None:
    plan = planned()
    full, double = predicted(plan), predicted(plan, batch=16)
    assert double.activations == pytest.approx(2 * full.activations, rel=0.01)
    assert (double.parameters, double.inputs) == (full.parameters, 2 * full.inputs)
    assert 0.4 * full.activations < predicted(plan, bf16=True).activations < 0.9 * full.activations
    assert predicted(plan, rematerialise=True).activations < 0.5 * full.activations
    deeper = planned("model.blocks=12")
    assert predicted(deeper, rematerialise=True).activations < 0.25 * predicted(deeper).activations


def test_largest_tensors_are_named_by_block_and_type() -> None:
    assert [share.name for share in predicted(planned()).biggest] == [f"1.{n} (Residual)" for n in range(3)]


def test_large_network_is_estimated_without_using_memory() -> None:
    torchvision = pytest.importorskip("torchvision")
    from engine.memory import estimate
    from tests.engine.deeptask import Deep

    num_walks = 0

    def count(*_: object) -> None:
        nonlocal num_walks
        num_walks += 1

    class Large(Deep):
        """EfficientNet-b7 on full-size images."""

        def model(self, options: Any, data: Any) -> Any:
            model = torchvision.models.efficientnet_b7(num_classes=1)
            model.register_forward_pre_hook(count)
            return model

    plan = replace(planned(), task=Large())
    shapes = {
        "pixels": estimate.TensorShape((3, 600, 600), torch.float32),
        "labels": estimate.TensorShape((), torch.float32),
    }
    draws, resident = torch.get_rng_state(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = estimate.estimate(plan, shapes, estimate.Settings(32, False, False))
    assert num_walks == 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident < 100 << 10
    assert torch.equal(torch.get_rng_state(), draws), "the weights that training starts from would be others"
    assert 100 * GIB < found.activations < 130 * GIB
    assert 240 << 20 < found.parameters < 260 << 20


def test_failed_estimate_states_reason_and_does_not_block() -> None:
    from engine.memory import advice as forecast
    from tests.engine.deeptask import Deep

    class Peeking(Deep):
        """Reads a value while it is traced."""

        def predict(self, model: Any, batch: dict[str, Any]) -> dict[str, Any]:
            if batch["pixels"].mean().item() > 0:
                return super().predict(model, batch)
            return {}

    emitted: list[ev.Event] = []
    plan = replace(planned(), task=Peeking())
    assert forecast.emit_prediction(plan, plan.task.load(plan.data, 0).train, emitted.append) is None
    (warning,) = emitted
    assert isinstance(warning, ev.WarningRaised)
    assert warning.text.startswith("the memory of a step cannot be predicted: the step cannot be traced")


def test_estimate_is_in_the_journal_with_share_of_the_host() -> None:
    from engine.memory import advice as forecast

    emitted: list[ev.Event] = []
    plan = planned()
    made = forecast.emit_prediction(plan, plan.task.load(plan.data, 0).train, emitted.append)
    (event,) = emitted
    assert made is not None
    assert isinstance(event, ev.MemoryPredicted)
    core = event.core
    assert core.total_bytes == made.predicted.total
    assert core.limit_bytes is not None
    assert core.limit.startswith("a core's share of this host's free memory, 2 cores")


def test_too_little_memory_warns_before_start() -> None:
    from engine.memory import advice as forecasts

    plan = planned()
    need = predicted(plan).total
    assert forecasts.warning(forecast(plan, need)) is None
    text = forecasts.warning(forecast(plan, need // 2))
    assert text is not None
    assert "a step is predicted to take 2.1" in text
    assert re.search(r"data.batch_per_core = [1-7] would take", text)
    assert 'device.precision = "bf16" would take' in text


@pytest.mark.parametrize(
    ("device", "subsystem", "gib"),
    [
        ("0x0027", "0x004e", 8),
        ("0x0027", "0x004f", 16),
        ("0x0063", "0x0001", 16),
        ("0x0062", "", 95),
        ("0x9", "", None),
    ],
)
def test_the_memory_of_a_chip_is_known_by_its_kind(
    device: str, subsystem: str, gib: int | None, tmp_path: Path
) -> None:
    from engine.process import hardware
    from engine.process.hardware import Machine

    slot = tmp_path / "0000:00:04.0"
    slot.mkdir()
    for name, value in (("vendor", "0x1ae0"), ("device", device), ("subsystem_device", subsystem)):
        (slot / name).write_text(f"{value}\n")
    machine = hardware.find({}, tmp_path, tmp_path) if gib else Machine("TPU", 4, 1, None)
    found = hardware.memory_limit(machine, 4)
    assert found.bytes == (gib * GIB if gib else None)
    assert found.what


def test_out_of_memory_report_suggests_fitting_settings() -> None:
    from engine.memory import advice as forecasts
    from engine.process.hardware import Machine

    plan = replace(planned("data.batch_per_core=64", "device.cores=1"), machine=Machine("TPU", 2, 1, None))
    made = forecast(plan, None)
    need = made.predicted.total
    page = forecasts.out_of_memory_page(RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 99 bytes"), made)
    assert page is not None
    assert page.splitlines()[0] == "out of memory: RESOURCE_EXHAUSTED: Out of memory allocating 99 bytes"
    assert len(page.splitlines()) < 24, "it is to be one screen"
    for wanted in (
        "activations",
        "1.0 (Residual)",
        "batch_per_core = 32",
        'precision = "bf16"',
        "rematerialise = true",
    ):
        assert wanted in page
    limited = forecasts.out_of_memory_page(
        MemoryError("std::bad_alloc"), made._replace(limit=made.limit._replace(bytes=need // 2))
    )
    assert limited is not None
    batch = int(re.search(r"batch_per_core = (\d+) +about .* fits", limited).group(1))  # type: ignore[union-attr]
    assert batch % 8 == 0
    assert predicted(plan, batch=batch).total <= need // 2 < predicted(plan, batch=batch + 8).total * 1.2


def test_compiler_count_scales_the_estimate() -> None:
    from engine.memory import advice as forecasts

    page = forecasts.out_of_memory_page(RuntimeError(OOM), forecast(planned(), 16 * GIB))
    assert page is not None
    assert "the compiler counts 20.0 GiB" in page
    assert re.search(r"batch_per_core = [1-7] +about 1\d\.\d GiB a core, fits", page)


def test_other_errors_are_not_explained_as_memory() -> None:
    from engine.memory import advice as forecasts

    assert forecasts.out_of_memory_page(ValueError("shapes do not match"), forecast(planned())) is None
    assert forecasts.out_of_memory_page(RuntimeError(OOM), None) is not None


def train(tmp_path: Path, rematerialise: str) -> tuple[dict[str, Any], float]:
    """A run of `rematcheck` on two cores: its output, and the compiler's count of a step's tensors in bytes."""
    report = tmp_path / f"compiler-{rematerialise}"
    words = ("2", "fp32", rematerialise, "2", "16", "2")
    env = {"PT_XLA_DEBUG_LEVEL": "1", "PT_XLA_DEBUG_FILE": str(report)}
    done = forked.run("tests.engine.rematcheck", *words, cwd=HERE.parents[1], env=env)
    assert done.returncode == 0, done.stderr
    sizes = re.findall(r"(?:Graph input|Intermediate tensor) size: ([\d.]+) GB", report.read_text())
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result, sum(map(float, sizes[:2])) * 1e9


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[dict[str, Any], float]]:
    """The same training on two cores, with and without recomputed blocks."""
    folder = tmp_path_factory.mktemp("remat")
    return {how: train(folder, how) for how in ("no", "yes")}


@pytest.mark.slow
def test_recomputed_blocks_learn_the_same(both: dict[str, tuple[dict[str, Any], float]]) -> None:
    kept, again = both["no"][0], both["yes"][0]
    assert again["losses"] == pytest.approx(kept["losses"], rel=1e-6)
    assert again["statistics"] == pytest.approx(kept["statistics"], rel=1e-5, abs=1e-5)
    assert set(again["counted"]) == {2}, "running statistics saw a batch twice"
    assert again["names"] == kept["names"], "a checkpoint would fit no longer"
    assert again["compiles"] == kept["compiles"]


@pytest.mark.slow
def test_estimate_is_near_the_compiler_count(both: dict[str, tuple[dict[str, Any], float]]) -> None:
    found = predicted(planned("model.blocks=2"), batch=16)
    ratio = (found.parameters + found.optimizer + found.activations) / both["no"][1]
    assert 0.5 < ratio < 2.0
