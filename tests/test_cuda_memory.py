"""Memory and model of CUDA devices, as far as a machine without one shows: nothing is started or reported."""

from __future__ import annotations

from typing import Any

import pytest

from tputui.environment import installed
from tputui.reporting import cuda_memory, device_values
from tputui.reporting.cuda_memory import CudaMemory


@pytest.mark.xla
@pytest.mark.skipif(installed("torch") is None, reason="needs torch")
def test_a_program_that_does_not_use_cuda_has_no_memory_of_it_and_does_not_start_it() -> None:
    import torch

    torch.ones(3).sum()
    assert CudaMemory(0).sample() is None
    assert (cuda_memory.used_devices(), cuda_memory.device_name()) == ([], None)
    cuda: Any = torch.cuda
    assert not cuda.is_initialized()
    assert all(hasattr(cuda, name) for name in ("memory_allocated", "max_memory_allocated", "memory_reserved"))
    assert device_values.device_kind()
