"""Foreground mask and depth of images: two heads of a U-Net, each with losses of its own.

Where the depth is not known it counts in nothing, and by choice the mask neither. The top of this module is torch-free.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from engine.data import sources
from engine.data.options import ImageData
from engine.errors import Problem, Refused
from engine.models import scaling
from engine.models.scaling import ScaledModel
from engine.task import Dataset, Options, Picture, Sizes, Splits, Task

if TYPE_CHECKING:
    import torch

    from engine.task import Plan

Loss = Callable[..., Any]
Weight = Annotated[float, msgspec.Meta(ge=0)]
# Dark blue over green to yellow: where depth is nearness dark is far, and gray scales keep the order.
RAMP = np.array([[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]], dtype=np.float64)


# Two grays, which neither the ramp nor a mask has, in squares that are seen at any size.
CHECKS = (104, 152)
CHECKS_ACROSS = 16


class MaskDepthData(ImageData, frozen=True, kw_only=True):
    """Keys of `[data]`."""

    label: str | list[str] = msgspec.field(default_factory=list)
    """No labels: what is learned is in `mask` and `depth`."""
    mask: str = "mask"
    """Column or path, as for `image`, of a mask: a gray image as large as the image."""
    depth: str = "depth"
    """Column or path, as for `image`, of a depth map: a 16-bit PNG, or `.npy` of [height, width]."""
    mask_where: Literal["everywhere", "depth_known"] = "everywhere"
    """Where the mask counts: in every pixel, or where the depth is known, for a mask that was made from the depth."""
    size: tuple[int, int] = (96, 96)
    """Height and width that every image is resized to, multiples of 32."""
    flips: Literal["none", "horizontal"] = "none"
    """How training images are mirrored at random, with their masks and depths: not at all, or left to right."""
    relight: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0
    """By which share the brightness and the contrast of a training image vary at random."""


class MaskDepthModel(ScaledModel, frozen=True, kw_only=True):
    """Keys of `[model]`."""

    encoder: Literal["thin", "resnet18", "resnet34", "resnet50"] = "resnet50"
    """The half of the network that looks: a ResNet."""
    width: Annotated[int, msgspec.Meta(ge=1, le=512)] = 64
    """Channels of its first stage: 64 is the published size, and 32.5 million parameters with `resnet50`."""
    mask_losses: dict[Literal["bce", "dice"], Weight] = msgspec.field(default_factory=lambda: {"bce": 1.0, "dice": 1.0})
    """Losses of the mask with their weights, of `bce` and `dice`; none leaves the mask unlearned."""
    depth_losses: dict[Literal["l1", "ssim"], Weight] = msgspec.field(default_factory=lambda: {"l1": 1.0, "ssim": 0.1})
    """Losses of the depth with their weights, of `l1` and `ssim`; none leaves the depth unlearned."""
    weights: str = ""
    """File of weights to start from: of `torch.save`, where the layer of the mask is new; or `checkpoints/best.pt` of a
    run, that layer included."""


class MaskDepth(Task):
    """Predicts a foreground mask and a depth for each pixel."""

    data_options: ClassVar[type[Options]] = MaskDepthData
    model_options: ClassVar[type[Options]] = MaskDepthModel
    meters: ClassVar[tuple[str, ...]] = ("loss", "mask_loss", "depth_loss", "iou", "depth_mae")
    pictures_legend: ClassVar[str] = (
        "depth: dark blue is 0, yellow the most of the example (of nearness: far and near); gray checks: not known"
    )

    def __init__(self) -> None:
        self._options = MaskDepthModel()
        self._data = MaskDepthData(source="")

    def sizes(self, data: MaskDepthData, seed: int) -> Sizes:
        """As the table says."""
        return sources.sizes(data, seed)

    def num_folds(self, data: MaskDepthData) -> int:
        """As the keys or the table say."""
        return sources.num_folds(data)

    def load(self, data: MaskDepthData, seed: int) -> Splits:
        """Nothing is decoded yet."""
        from engine.data import images

        return images.load(data, seed)

    def model(self, options: MaskDepthModel, data: MaskDepthData) -> torch.nn.Module:
        """The U-Net. Raises `Refused` where it cannot halve the images."""
        from engine.models import weights
        from engine.models.unet import UNet, check_sides

        check_sides(*data.size)
        if not any(options.mask_losses.values()) and not any(options.depth_losses.values()):
            raise Refused([Problem("model", "every weight in mask_losses and depth_losses is 0: nothing is learned")])
        self._options, self._data = options, data
        net = UNet(options.encoder, options.width)
        if options.weights:
            weights.load(net, Path(options.weights).expanduser(), "mask")
        return net

    def augment(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Mirrors each image or not, and lights it anew."""
        from engine.data import images

        if self._data.flips != "none":
            batch = images.mirrored(batch, ["image", "mask", "depth", "depth_valid"], 3)
        if self._data.relight:
            batch = {**batch, "image": images.relit(batch["image"], self._data.relight)}
        return batch

    def predict(self, model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """`mask` logits and `depth`, [examples, 1, height, width] each."""
        maps = model(scaling.of(self._options)(batch["image"]))
        return {"mask": maps.mask, "depth": maps.depth}

    def outcomes(self, predictions: dict[str, torch.Tensor], batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The weighted losses, the overlap of the masks, and the mean distance of the depths where they are known."""
        import torch

        from engine import losses

        mask, depth, valid = batch["mask"].float(), batch["depth"], batch["depth_valid"] > 0
        mask_terms: dict[str, Loss] = {"bce": losses.bce_with_logits, "dice": losses.dice}
        depth_terms: dict[str, Loss] = {"l1": losses.l1, "ssim": losses.ssim}
        mask_weights: dict[str, float] = {str(name): weight for name, weight in self._options.mask_losses.items()}
        depth_weights: dict[str, float] = {str(name): weight for name, weight in self._options.depth_losses.items()}
        nothing = predictions["mask"].new_zeros(len(mask))
        counts = valid if self._data.mask_where == "depth_known" else torch.ones_like(valid)
        masks = {name: mask_terms[name](predictions["mask"], mask, counts) for name in mask_weights}
        depths = {name: depth_terms[name](predictions["depth"], depth, valid) for name in depth_weights}
        mask_loss = losses.combine(masks, mask_weights) if masks else nothing
        depth_loss = losses.combine(depths, depth_weights) if depths else nothing
        return {
            "loss": mask_loss + depth_loss,
            "mask_loss": mask_loss,
            "depth_loss": depth_loss,
            "iou": overlap((predictions["mask"] > 0) & counts, (mask > 0.5) & counts),
            "depth_mae": losses.l1(predictions["depth"], depth, valid),
        }

    def examples(self, batch: dict[str, npt.NDArray[Any]]) -> list[Picture]:
        """The image as it is trained on, with its mask and its depth."""
        found: list[Picture] = []
        for row in range(len(batch["image"])):
            shown = {"input": _image(batch, row), "true mask": self._mask(batch, row), "true depth": _depth(batch, row)}
            found += [Picture(name, f"example {row}", pixels) for name, pixels in shown.items()]
        return found

    def _mask(self, batch: dict[str, npt.NDArray[Any]], row: int) -> npt.NDArray[np.uint8]:
        """The true mask; checks where it counts in nothing."""
        known = batch["depth_valid"][row, 0] > 0
        counts = known if self._data.mask_where == "depth_known" else np.ones_like(known)
        return checked(_gray(batch["mask"][row, 0] > 0), counts)

    def pictures(self, batch: dict[str, npt.NDArray[Any]], predictions: dict[str, npt.NDArray[Any]]) -> list[Picture]:
        """The image, then mask and depth as predicted and as they are; what counts in nothing is not drawn as known."""
        found: list[Picture] = []
        for row in range(len(batch["image"])):
            shown = {
                "input": _image(batch, row),
                "mask": _gray(predictions["mask"][row, 0] > 0),
                "true mask": self._mask(batch, row),
                "depth": ramp(predictions["depth"][row, 0], batch["depth"][row, 0]),
                "true depth": _depth(batch, row),
            }
            found += [Picture(name, f"example {row}", pixels) for name, pixels in shown.items()]
        return found

    def problems(self, plan: Plan) -> list[Problem]:
        """A mean or spread that does not fit the channels."""
        assert isinstance(plan.model, MaskDepthModel)
        assert isinstance(plan.data, MaskDepthData)
        return scaling.problems(plan.model, plan.data.channels)

    def inputs(self, data: MaskDepthData, source: Path) -> Dataset:
        """Images of a table, of a folder, or one image."""
        from engine.data import images

        return images.inputs(data, source)

    def test_split(self, data: MaskDepthData) -> Dataset:
        """Rows that say `test`."""
        from engine.data import images

        return images.load_test(data)

    def columns(self, predictions: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """A figure each for a table: the share that is foreground, and the mean depth of it."""
        mask, depth = predictions["mask"] > 0, predictions["depth"]
        pixels = (1, 2, 3)
        inside = np.where(mask, depth, 0).sum(axis=pixels) / np.maximum(mask.sum(axis=pixels), 1)
        return {"foreground": mask.mean(axis=pixels), "foreground depth": inside}


def overlap(predicted: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Intersection over union of boolean masks [n, ...], float32 [n]; 1 where both are empty."""
    both = (predicted & mask).flatten(1).sum(1).float()
    either = (predicted | mask).flatten(1).sum(1).float()
    return (both + (either == 0)) / (either + (either == 0))


def ramp(values: npt.NDArray[Any], scale: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """[height, width] in colours [height, width, 3], from 0 to the largest of `scale`; black where it is no number."""
    most = float(scale.max()) or 1.0
    place = np.clip(np.nan_to_num(values.astype(np.float64)) / most, 0, 1) * (len(RAMP) - 1)
    colours = np.stack([np.interp(place, np.arange(len(RAMP)), channel) for channel in RAMP.T], axis=2)
    return np.where(np.isfinite(values)[:, :, None], colours, 0).astype(np.uint8)


def checked(pixels: npt.NDArray[np.uint8], known: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
    """[height, width, 3] with gray checks where a pixel is not `known` [height, width]."""
    side = max(min(known.shape) // CHECKS_ACROSS, 1)
    rows, columns = np.indices(known.shape) // side
    checks = np.where((rows + columns) % 2, CHECKS[0], CHECKS[1]).astype(np.uint8)
    return np.where(known[:, :, None], pixels, checks[:, :, None])


def _image(batch: dict[str, npt.NDArray[Any]], row: int) -> npt.NDArray[np.uint8]:
    shown: npt.NDArray[np.uint8] = np.moveaxis(batch["image"][row], 0, 2).astype(np.uint8)
    return shown


def _depth(batch: dict[str, npt.NDArray[Any]], row: int) -> npt.NDArray[np.uint8]:
    """The true depth; checks where it is not known."""
    depth = batch["depth"][row, 0]
    return checked(ramp(depth, depth), batch["depth_valid"][row, 0] > 0)


def _gray(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
    return np.repeat((mask * np.uint8(255)).astype(np.uint8)[:, :, None], 3, axis=2)
