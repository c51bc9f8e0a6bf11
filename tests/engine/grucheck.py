"""Which GRUs are unrolled once the runtime was imported, and whether its own runs on 8 virtual cores; prints JSON.

Run as a module with `PJRT_DEVICE=CPU CPU_NUM_DEVICES=8`.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import nn

from engine.models.scan_lstm import unrolled_modules
from engine.parallel.strategies import Spmd
from engine.xla import backend

CORES = 8


def main() -> None:
    """Lists the GRUs, and compares the runtime's gradients with those of the GRU it replaced."""
    cores = Spmd(CORES)
    scanned: Any = nn.GRU
    torch.manual_seed(0)
    plain = scanned._orig(3, 4, batch_first=True)
    model = scanned(3, 4, batch_first=True)
    model.load_state_dict(plain.state_dict())
    batch = {"x": torch.randn(CORES, 5, 3)}
    plain(batch["x"])[0].square().sum().backward()
    model.to(cores.device)(cores.put(batch)["x"])[0].square().sum().backward()
    backend.sync()
    difference = (model.weight_hh_l0.grad.cpu() - plain.weight_hh_l0.grad).abs().max()
    grus = {"one": scanned(2, 3), "both": scanned(2, 3, bidirectional=True)}
    sentences = {name: unrolled for name, gru in grus.items() if (unrolled := unrolled_modules(gru))}
    print(json.dumps({"sentences": sentences, "difference": float(difference)}))  # noqa: T201


if __name__ == "__main__":
    main()
