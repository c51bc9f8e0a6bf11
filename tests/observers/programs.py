"""Small training loops on torch_xla; the line of a fault is marked. Each runs in a process of its own, a copy of one
that has imported torch_xla: `python -m tests.observers.programs FOLDER` writes a journal per loop."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch_xla
from torch import nn

import tputui
from tputui.observers import autoload

AT_ONCE = 2


class Net:
    """A small network with its optimizer."""

    def __init__(self) -> None:
        self.device = torch_xla.device()
        self.model = nn.Linear(8, 4).to(self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)

    def batches(self, sizes: list[int]) -> Iterator[torch.Tensor]:
        for size in sizes:
            yield torch.randn(size, 8).to(self.device)

    def update(self, loss: Any) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


STEADY = [16] * 20


def faulty_ragged() -> None:
    net = Net()
    for _ in range(2):
        for x in net.batches([16] * 7 + [5]):
            net.update(net.model(x).square().mean())
            torch_xla.sync()  # fault: x


def faulty_reads() -> None:
    net, seen = Net(), list[Any]()
    for x in net.batches(STEADY):
        loss = net.model(x).square().mean()
        net.update(loss)
        loss = loss.detach()
        torch_xla.sync()
        seen.append(loss.item())  # fault: .item()
        seen.append(float(loss))  # fault: float()
        seen.append(f"loss {loss:.3f}")  # fault: format()
        print(loss, file=io.StringIO())  # fault: print()
        seen.append(loss.cpu())  # fault: .cpu()
        seen.append(loss.to("cpu"))  # fault: .to("cpu")
        seen.append(loss.tolist())  # fault: .tolist()
        if loss > 3:  # fault: if tensor
            seen.append(True)


def _faulty_reads_and_compiles(steps: int) -> None:
    """Reads in every step; after so many of them a function is compiled, while the reads are observed."""
    import torch._dynamo.utils as counted
    from torch._dynamo import callback

    net, graphs, announced = Net(), list[list[str]](), list[object]()
    callback.on_compile_start(announced.append)

    def backend(graph: Any, _: object) -> Any:
        graphs.append([node.op for node in graph.graph.nodes])
        return graph.forward

    @torch.compile(backend=backend)
    def score(out: torch.Tensor) -> torch.Tensor:
        return torch.relu(out - 1).square().mean()

    for step, x in enumerate(net.batches([16] * 30), 1):
        loss = net.model(x).square().mean()
        net.update(loss)
        torch_xla.sync()
        loss.item()  # fault: .item()
        if step > steps:
            score(x).item()
    assert graphs == [["placeholder", *["call_function"] * 2, *["call_method"] * 2, "output"]]
    assert counted.counters["frames"] == {"total": 1, "ok": 1}
    assert not counted.counters["graph_break"]
    assert len(announced) == 1, "the program's own callback is called"


def faulty_reads_compiled_early() -> None:
    _faulty_reads_and_compiles(6)


def faulty_reads_compiled_late() -> None:
    _faulty_reads_and_compiles(9)


def faulty_reads_before_sync() -> None:
    net, total = Net(), 0.0
    for x in net.batches(STEADY):
        loss = net.model(x).square().mean()
        net.update(loss)
        total += loss.item()  # fault: .item()
        torch_xla.sync()


def faulty_fallbacks() -> None:
    net, kept = Net(), []
    for x in net.batches(STEADY):
        out = net.model(x)
        kept.append(torch.histc(out.detach(), 4))  # fault: aten::histc
        kept.append(torch.nonzero(out.detach() > 1e9))  # fault: aten::nonzero
        net.update(out.square().mean())
        torch_xla.sync()


def faulty_constant() -> None:
    net = Net()
    for step, x in enumerate(net.batches([16] * 12)):
        x = torch.roll(x, step % 8, 1)  # fault: constant of roll
        net.update(net.model(x).square().mean())
        torch_xla.sync()


def _train_on_changed(change: Callable[[torch.Tensor, int], Any]) -> None:
    net = Net()
    for step, x in enumerate(net.batches([16] * 12)):
        net.update(net.model(change(x, step)).square().mean())
        torch_xla.sync()


def faulty_power() -> None:
    def change(x: torch.Tensor, step: int) -> Any:
        return x.abs() ** (1.5 + step / 8)  # fault: constant of pow

    _train_on_changed(change)


def faulty_layer_norm() -> None:
    def change(x: torch.Tensor, step: int) -> Any:
        return nn.functional.layer_norm(x, (8,), eps=0.5 + step)  # fault: constant of layer_norm

    _train_on_changed(change)


def faulty_threshold() -> None:
    def change(x: torch.Tensor, step: int) -> Any:
        return nn.Threshold(step / 8, 0.0)(x)  # fault: constant of threshold

    _train_on_changed(change)


def faulty_slice() -> None:
    def change(x: torch.Tensor, step: int) -> Any:
        kept = x[:, step % 4 : step % 4 + 4]  # fault: xla::select
        return kept.repeat(1, 2)

    _train_on_changed(change)


def faulty_mask() -> None:
    def kept(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        is_known = x[:, 0] > 0
        outputs = net.model(x)[is_known]  # fault: nonzero
        wanted = x[is_known]
        return outputs, wanted

    net = Net()
    for x in net.batches([64] * 24):
        outputs, wanted = kept(x)
        net.update((outputs - wanted[:, :4]).square().mean())
        torch_xla.sync()


def faulty_mask_that_is_read() -> None:
    net, least = Net(), 9.0
    for x in net.batches([64] * 24):
        flat = torch.masked_select(net.model(x), x[:, :4] > 0)  # fault: masked_select
        loss = flat.square().mean()
        least = min(least, loss.item())
        net.update(loss)
        torch_xla.sync()


def faulty_lengths_with_a_mask() -> None:
    """Its batches have other shapes too, so that the mask is not the cause."""
    net = Net()
    for x in net.batches([64 - step for step in range(16)]):
        outputs = net.model(x)
        net.update(outputs.square().mean() + outputs[outputs > 0].mean())
        torch_xla.sync()  # fault: x


class Synced(torch.Tensor):
    """`torch.neg` of it syncs, within the call."""

    @classmethod
    def __torch_function__(cls, func: Any, *call: Any) -> Any:
        if func is torch.neg:
            torch_xla.sync()
        base: Any = super()
        return base.__torch_function__(func, *call)


def faulty_sync_within_a_call() -> None:
    net = Net()
    for step, x in enumerate(net.batches([16] * 12)):
        x = torch.roll(x, step % 8, 1)  # fault: constant of roll
        net.update(net.model(x).square().mean())
        torch_xla.sync()
        torch.neg(x.as_subclass(Synced))


def faulty_no_sync() -> None:
    net, total = Net(), 0.0
    net.optimizer = torch.optim.SGD(net.model.parameters(), lr=0.1)
    for x in net.batches([4] * 14):
        loss = net.model(x).mean()
        net.update(loss)
        total += loss.item()  # fault: .item()


def _time_steps(*, is_cut: bool) -> None:
    net = Net()
    cell = nn.RNNCell(8, 8).to(net.device)
    for x in net.batches([16] * 30):
        state = torch.zeros(16, 8, device=net.device)
        for _ in range(4):
            state = cell(x, state)
            if is_cut:
                torch_xla.sync()
        net.update(net.model(state).square().mean())
        torch_xla.sync()


def faulty_time_steps() -> None:
    _time_steps(is_cut=True)


def healthy_time_steps() -> None:
    _time_steps(is_cut=False)


def _plain() -> None:
    net = Net()
    schedule = torch.optim.lr_scheduler.StepLR(net.optimizer, 3)
    for x in net.batches([16] * 40):
        net.update(net.model(x).square().mean())
        schedule.step()
        torch_xla.sync()


def _accumulation() -> None:
    net = Net()
    for step, x in enumerate(net.batches([16] * 24), 1):
        net.model(x).square().mean().backward()
        if step % 4 == 0:
            net.optimizer.step()
            net.optimizer.zero_grad()
        torch_xla.sync()


def _evaluation() -> None:
    net, scores = Net(), []
    for _ in range(3):
        for x in net.batches([16] * 10):
            loss = net.model(x).square().mean()
            net.update(loss)
            torch_xla.sync()
        total = torch.zeros((), device=net.device)
        with torch.no_grad():
            for x in net.batches([16] * 5):
                total = total + net.model(x).square().mean()
                torch_xla.sync()
        scores.append((total / 5).item())


def _log() -> None:
    net, losses = Net(), []
    for step, x in enumerate(net.batches([16] * 60)):
        loss = net.model(x).square().mean()
        net.update(loss)
        torch_xla.sync()
        if step % 10 == 0:
            losses.append(loss.item())


def healthy_all() -> None:
    """In one process: what one loop does must be no alarm for the next one either."""
    for loop in (_plain, _accumulation, _evaluation, _log):
        loop()


def _train_on(net: Net, sizes: list[int]) -> None:
    for x in net.batches(sizes):
        loss = net.model(x).square().mean()
        net.update(loss)
        torch_xla.sync()
        loss.item()


def _write_metrics() -> None:
    """What torch_xla itself counted in this process, in a file of the run directory."""
    metrics: Any = importlib.import_module("torch_xla.debug.metrics")
    (compiles, *_), (executes, *_) = metrics.metric_data("CompileTime"), metrics.metric_data("ExecuteTime")
    to, of = metrics.metric_data("TransferToDeviceTime")[0], metrics.metric_data("TransferFromDeviceTime")[0]
    reads = metrics.counter_value("aten::_local_scalar_dense")
    counted = {"compiles": compiles, "executes": executes, "to": to, "from": of, "reads": reads}
    rank = os.environ.get("RANK", "0")
    Path(os.environ["TPUTUI_RUN_DIR"], f"metrics-{rank}.json").write_text(json.dumps(counted))


LENGTHS = [16] * 8 + [15, 14, 13, 12] + [16] * 8
"""Sizes of batches of which four compile after warm-up."""


def counted_plain() -> None:
    _train_on(Net(), LENGTHS)
    _write_metrics()


def counted_reported() -> None:
    """Trains before it joins its run, and after it has left it."""
    net = Net()
    for is_reported, sizes in ((False, [16] * 6), (True, LENGTHS), (False, [11, 10])):
        with tputui.start() if is_reported else contextlib.nullcontext() as run:
            for size in sizes:
                _train_on(net, [size])
                if run is not None:
                    run.step()
    _write_metrics()


def counted_of_two_ranks() -> None:
    counted_reported()
    if os.environ["RANK"] == "0":
        assert os.wait()[1] == 0


def counted_without_a_device() -> None:
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tputui.start() as run:
        until = time.monotonic() + 1.5  # counters are written once a second
        while time.monotonic() < until:
            model(torch.randn(16, 8)).square().mean().backward()
            optimizer.step()
            run.step()


def _in_copy(name: str, folder: Path) -> int:
    """Runs a loop in a copy of this process; returns its process id."""
    folder.mkdir()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.environ["TPUTUI_RUN_DIR"] = str(folder)
            if name.endswith("of_two_ranks"):
                # Before anything is observed, as a launcher starts them.
                os.environ.update(WORLD_SIZE="2", RANK="0" if os.fork() else "1")
            autoload.torch_imported()
            globals()[name]()
            overrides: Any = torch.overrides
            runtime: Any = torch_xla
            left = overrides._len_torch_function_stack()
            is_recording = runtime._XLAC._get_ir_debug()
            code = 2 if left or is_recording else 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            atexit._run_exitfuncs()
            os._exit(code)
    return pid


def main() -> None:
    """Runs all loops, or those that are named."""
    folder, *names = sys.argv[1:]
    waiting = names or [name for name in globals() if name.startswith(("faulty_", "healthy_"))]
    running: dict[int, str] = {}
    failed = []
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            name = waiting.pop(0)
            running[_in_copy(name, Path(folder) / name)] = name
        pid, status = os.wait()
        if os.waitstatus_to_exitcode(status):
            failed.append(f"{running[pid]}: {os.waitstatus_to_exitcode(status)}")
        del running[pid]
    if failed:
        sys.exit(f"failed: {failed}")


if __name__ == "__main__":
    main()
