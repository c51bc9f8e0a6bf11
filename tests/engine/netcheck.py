"""Trains small networks on 8 virtual cores in a process of its own, and prints the results as JSON.

Run as a module with `PJRT_DEVICE=CPU CPU_NUM_DEVICES=8` and the names of networks and precisions: `unet:fp32`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from engine import losses
from engine.loop.network import to_device
from engine.models.efficientnet import EfficientNet
from engine.models.resnet import ResNet
from engine.models.text_classifier import LstmClassifier
from engine.models.unet import UNet
from engine.parallel.strategies import Spmd
from engine.xla import backend
from tputui.observers.xla_runtime import BEGUN, XlaRuntime

CORES = 8
STEPS = 12
WARM_UP = 2
BATCH = 16
SIDE = 32
WORDS = 40
Batch = dict[str, torch.Tensor]


class Net(NamedTuple):
    """A network with its data and loss."""

    model: torch.nn.Module
    batch: Batch
    loss: Callable[[Any, Batch], torch.Tensor]
    lr: float


def unet() -> Net:
    """Segments bright pixels and predicts their brightness; some pixels are ignored."""
    pixels = torch.rand(BATCH, 3, SIDE, SIDE)
    bright = torch.nn.functional.avg_pool2d(pixels.mean(dim=1, keepdim=True), 5, 1, 2)
    mask, valid = (bright > bright.median()).float(), torch.rand_like(bright) > 0.1
    valid[0] = False
    batch = {"pixels": pixels, "mask": mask, "depth": torch.where(valid, bright, torch.nan), "valid": valid}

    def loss(maps: Any, batch: Batch) -> torch.Tensor:
        mask, depth, valid = batch["mask"], batch["depth"], batch["valid"]
        terms = {
            "bce": losses.bce_with_logits(maps.mask, mask, valid),
            "dice": losses.dice(maps.mask, mask, valid),
            "l1": losses.l1(maps.depth, depth, valid),
            "ssim": losses.ssim(maps.depth, depth, valid),
        }
        return losses.combine(terms, dict.fromkeys(terms, 1.0))

    return Net(UNet("thin", 8), batch, loss, 0.01)


def efficientnet() -> Net:
    """One logit, weighted positives."""
    model = EfficientNet("b0", 1, width=0.25, depth=0.3, stem_stride=1)

    def loss(logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        return losses.bce_with_logits(logits, batch["labels"][:, :1], pos_weight=3.0)

    return Net(model, _pictures(), loss, 0.002)


def resnet() -> Net:
    """Ten labels."""

    def loss(logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        return losses.bce_with_logits(logits, batch["labels"])

    return Net(ResNet("thin", 10, width=8), _pictures(), loss, 0.01)


def lstm() -> Net:
    """Two layers over texts of different lengths, one of them empty."""
    lengths = torch.randint(0, WORDS + 1, (BATCH,))
    lengths[0] = 0
    tokens = torch.randint(1, 50, (BATCH, WORDS)) * (torch.arange(WORDS) < lengths[:, None])
    batch = {"tokens": tokens, "lengths": lengths, "labels": (tokens == 7).any(dim=1, keepdim=True).long()}

    def loss(logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        return losses.cross_entropy(logits, batch["labels"].squeeze(1))

    return Net(LstmClassifier(50, 16, 16, layers=2, num_logits=2), batch, loss, 0.02)


def _pictures() -> Batch:
    labels = torch.randint(0, 2, (BATCH, 10)).float()
    shade = torch.nn.functional.interpolate(labels[:, :9].reshape(BATCH, 1, 3, 3), size=SIDE)
    return {"pixels": shade + 0.1 * torch.rand(BATCH, 3, SIDE, SIDE), "labels": labels}


NETS = {"unet": unet, "efficientnet": efficientnet, "resnet": resnet, "lstm": lstm}
INPUTS = ("pixels", "tokens", "lengths")


def train(name: str, precision: str, cores: Spmd) -> dict[str, Any]:
    """Steps on one batch."""
    torch.manual_seed(0)
    net = NETS[name]()
    model = to_device(net.model, cores.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=net.lr, capturable=True)
    batch = cores.put(net.batch)
    values, compiles, seconds = [], [], []
    for step in range(STEPS):
        began = time.perf_counter()
        backend.seed(step, cores.device)
        with torch.autocast("xla", dtype=torch.bfloat16, enabled=precision == "bf16"):
            losses = net.loss(model(*(batch[key] for key in INPUTS if key in batch)), batch)
        losses.mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        backend.sync()
        backend.wait()
        values.append(losses.detach().mean())
        compiles.append({"begun": XlaRuntime().count(BEGUN), "done": XlaRuntime().compile_times().total})
        seconds.append(time.perf_counter() - began)
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "warm_up": WARM_UP,
        "compiles": compiles,
        "seconds": seconds,
        "losses": [float(value) for value in torch.stack(values).cpu()],
        "fallbacks": XlaRuntime().fallbacks(),
    }


def main() -> None:
    """Trains the networks that the arguments name."""
    cores = Spmd(CORES)
    by_name = {}
    for case in sys.argv[1:]:
        name, precision = case.split(":")
        by_name[case] = train(name, precision, cores)
    print(json.dumps(by_name))  # noqa: T201


if __name__ == "__main__":
    main()
