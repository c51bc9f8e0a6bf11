"""Floating-point operations of a training step: equal to a count by hand, and absent if an operator has no count."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

from tests.engine.test_memory_estimate import planned
from tputui.telemetry import events as ev

pytestmark = [
    pytest.mark.xla,
    # Looked for, but not imported: this process needs torch alone.
    pytest.mark.skipif(find_spec("torch_xla") is None, reason="needs the extra `xla`"),
]
torch = pytest.importorskip("torch")


def counted(make: Any, *shape: int) -> int:
    """Operations of forward and backward of a network."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    from engine.memory.flops import FlopSum

    with FakeTensorMode():
        network, given = make(), torch.zeros(shape)
        with FlopSum() as flops:
            network(given).sum().backward()
    return flops.total()


def test_convolution_and_matrices_are_counted_by_hand() -> None:
    def network() -> Any:
        return torch.nn.Sequential(
            torch.nn.Conv2d(1, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 26 * 26, 10)
        )

    convolution, matrices = 2 * 4 * 8 * 26 * 26 * 9, 2 * 4 * 8 * 26 * 26 * 10
    # Backward: one product for the weights of each; one for the input of the second, as the first has data as input.
    assert counted(network, 4, 1, 28, 28) == 2 * convolution + 3 * matrices


def test_operator_without_a_count_is_named() -> None:
    from engine.memory.estimate import Unpredictable

    class Recurrent(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.rnn = torch.nn.LSTM(5, 6)

        def forward(self, given: Any) -> Any:
            return self.rnn(given)[0]

    with pytest.raises(Unpredictable, match=r"the number of operations of aten.*rnn.* is not known"):
        counted(Recurrent, 4, 2, 5)


def test_event_has_the_operations_of_all_cores() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    from engine.memory import estimate, flops

    emitted: list[ev.Event] = []
    plan = planned()
    shapes = estimate.shapes(plan.task.load(plan.data, 0).train)
    state = torch.get_rng_state()
    flops.emit_flops(plan, shapes, emitted.append)
    assert torch.equal(torch.get_rng_state(), state)
    (event,) = emitted
    assert isinstance(event, ev.FlopsCounted)
    assert plan.config.num_cores == 2
    assert event.flops_per_step == 2 * flops.count_flops(plan, shapes)
    assert event.reason is None
    # Tensors without data, and the fake ones of networks that do not support these, have the same operations.
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert flops._count(plan, shapes, "cpu") == flops._count(plan, shapes, "meta")
    # Recomputed blocks are no more useful work.
    again = planned("device.rematerialise=true")
    assert flops.count_flops(again, shapes) == flops.count_flops(plan, shapes)
