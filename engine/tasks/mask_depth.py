"""Task `mask_depth`: predicts foreground mask and depth of images with a U-Net of two heads, each with its own losses.

Pixels of unknown depth are ignored in the depth loss, and optionally in the mask loss. Importing this module does not
import torch.
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
from engine.models import unet
from engine.models.unet import ScaledModel
from engine.task import Dataset, Options, Picture, Sizes, Splits, Task

if TYPE_CHECKING:
    import torch

    from engine.task import Plan

Loss = Callable[..., Any]
Weight = Annotated[float, msgspec.Meta(ge=0)]
# Dark blue over green to yellow: if depth is nearness, dark is far, and gray scales keep the order.
RAMP = np.array([[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]], dtype=np.float64)


# Two grays, which occur neither in the ramp nor in a mask, in squares that are visible at any size.
CHECKS = (104, 152)
CHECKS_ACROSS = 16


class MaskDepthData(ImageData, frozen=True, kw_only=True):
    """Keys of `[data]`."""

    label: str | list[str] = msgspec.field(default_factory=list)
    """No labels: the targets are `mask` and `depth`."""
    mask: str = "mask"
    """Column or path, as for `image`, of a mask: a gray image as large as the image."""
    depth: str = "depth"
    """Column or path, as for `image`, of a depth map: a 16-bit PNG, or `.npy` of [height, width]."""
    mask_where: Literal["everywhere", "depth_known"] = "everywhere"
    """Pixels that count in the mask loss: all, or those of known depth, for a mask that was made from the depth."""
    size: tuple[int, int] = (96, 96)
    """Height and width that every image is resized to, multiples of 32."""
    flips: Literal["none", "horizontal"] = "none"
    """Random mirroring of training images, with their masks and depths: none, or left to right."""
    relight: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0
    """Maximum random change of brightness and contrast of a training image, as a share."""


class MaskDepthModel(ScaledModel, frozen=True, kw_only=True):
    """Keys of `[model]`."""

    encoder: Literal["thin", "resnet18", "resnet34", "resnet50"] = "resnet50"
    """The encoder of the U-Net: a ResNet."""
    width: Annotated[int, msgspec.Meta(ge=1, le=512)] = 64
    """Channels of its first stage: 64 is the published size, with 32.5 million parameters for `resnet50`."""
    mask_losses: dict[Literal["bce", "dice"], Weight] = msgspec.field(default_factory=lambda: {"bce": 1.0, "dice": 1.0})
    """Losses of the mask with their weights, `bce` and `dice`; with none the mask is not learned."""
    depth_losses: dict[Literal["l1", "ssim"], Weight] = msgspec.field(default_factory=lambda: {"l1": 1.0, "ssim": 0.1})
    """Losses of the depth with their weights, `l1` and `ssim`; with none the depth is not learned."""
    weights: str = ""
    """File of weights to start from: of `torch.save`, with a new mask layer; or `checkpoints/best.pt` of a run,
    including that layer."""


class MaskDepth(Task):
    """Predicts a foreground mask and a depth for each pixel."""

    data_options: ClassVar[type[Options]] = MaskDepthData
    model_options: ClassVar[type[Options]] = MaskDepthModel
    meters: ClassVar[tuple[str, ...]] = ("loss", "mask_loss", "depth_loss", "iou", "depth_mae")
    pictures_legend: ClassVar[str] = (
        "depth: dark blue is 0, yellow the example's maximum (nearness: far to near); gray checks: unknown"
    )

    def __init__(self) -> None:
        self._options = MaskDepthModel()
        self._data = MaskDepthData(source="")

    def sizes(self, data: MaskDepthData, seed: int) -> Sizes:
        """Sizes of the splits in the table."""
        return sources.sizes(data, seed)

    def num_folds(self, data: MaskDepthData) -> int:
        """The number of folds, from the options or the table."""
        return sources.num_folds(data)

    def load(self, data: MaskDepthData, seed: int) -> Splits:
        """Images are decoded when they are fetched."""
        from engine.data import images

        return images.load(data, seed)

    def model(self, options: MaskDepthModel, data: MaskDepthData) -> torch.nn.Module:
        """The U-Net. Raises `Refused` if it cannot halve the images."""
        from engine.models import weights
        from engine.models.unet import UNet, check_sides

        check_sides(*data.size)
        if not any(options.mask_losses.values()) and not any(options.depth_losses.values()):
            raise Refused.of("model", "every weight in mask_losses and depth_losses is 0: nothing is learned")
        self._options, self._data = options, data
        net = UNet(options.encoder, options.width)
        if options.weights:
            weights.load(net, options.weights, "mask")
        return net

    def augment(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Mirrors images and changes their brightness and contrast, randomly; shapes stay."""
        from engine.data import images

        if self._data.flips != "none":
            batch = images.random_mirror(batch, ["image", "mask", "depth", "depth_valid"], 3)
        if self._data.relight:
            batch = {**batch, "image": images.random_light(batch["image"], self._data.relight)}
        return batch

    def predict(self, model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """`mask` logits and `depth`, float32 [n, 1, height, width] each."""
        maps = model(unet.of(self._options)(batch["image"]))
        return {"mask": maps.mask, "depth": maps.depth}

    def outcomes(self, predictions: dict[str, torch.Tensor], batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The weighted losses, the intersection over union of the masks, and the mean depth error over known pixels;
        float32 [n] each."""
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
        """Training images as the network gets them, with mask and depth."""
        pictures: list[Picture] = []
        for row in range(len(batch["image"])):
            shown = {"input": _image(batch, row), "true mask": self._mask(batch, row), "true depth": _depth(batch, row)}
            pictures += [Picture(name, f"example {row}", pixels) for name, pixels in shown.items()]
        return pictures

    def _mask(self, batch: dict[str, npt.NDArray[Any]], row: int) -> npt.NDArray[np.uint8]:
        """The true mask; checkered where it is ignored."""
        depth_known = batch["depth_valid"][row, 0] > 0
        counts = depth_known if self._data.mask_where == "depth_known" else np.ones_like(depth_known)
        return checkered(_gray(batch["mask"][row, 0] > 0), counts)

    def pictures(self, batch: dict[str, npt.NDArray[Any]], predictions: dict[str, npt.NDArray[Any]]) -> list[Picture]:
        """The image, then predicted and true mask and depth; ignored pixels are checkered."""
        pictures: list[Picture] = []
        for row in range(len(batch["image"])):
            shown = {
                "input": _image(batch, row),
                "mask": _gray(predictions["mask"][row, 0] > 0),
                "true mask": self._mask(batch, row),
                "depth": ramp(predictions["depth"][row, 0], batch["depth"][row, 0]),
                "true depth": _depth(batch, row),
            }
            pictures += [Picture(name, f"example {row}", pixels) for name, pixels in shown.items()]
        return pictures

    def problems(self, plan: Plan) -> list[Problem]:
        """A mean or std with the wrong number of channels."""
        assert isinstance(plan.model, MaskDepthModel)
        assert isinstance(plan.data, MaskDepthData)
        return unet.problems(plan.model, plan.data.channels)

    def inputs(self, data: MaskDepthData, source: Path) -> Dataset:
        """Images of a table, of a folder, or one image."""
        from engine.data import images

        return images.inputs(data, source)

    def test_split(self, data: MaskDepthData) -> Dataset:
        """The rows with split `test`."""
        from engine.data import images

        return images.load_test(data)

    def columns(self, predictions: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Figures for a table: the share of foreground and its mean depth."""
        mask, depth = predictions["mask"] > 0, predictions["depth"]
        pixels = (1, 2, 3)
        inside = np.where(mask, depth, 0).sum(axis=pixels) / np.maximum(mask.sum(axis=pixels), 1)
        return {"foreground": mask.mean(axis=pixels), "foreground depth": inside}


def overlap(predicted: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Intersection over union of boolean masks [n, ...], float32 [n]; 1 if both are empty."""
    both = (predicted & mask).flatten(1).sum(1).float()
    either = (predicted | mask).flatten(1).sum(1).float()
    return (both + (either == 0)) / (either + (either == 0))


def ramp(values: npt.NDArray[Any], scale: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """[height, width] as colours [height, width, 3], from 0 to the largest of `scale`; black for NaN and infinity."""
    most = float(scale.max()) or 1.0
    place = np.clip(np.nan_to_num(values.astype(np.float64)) / most, 0, 1) * (len(RAMP) - 1)
    colours = np.stack([np.interp(place, np.arange(len(RAMP)), channel) for channel in RAMP.T], axis=2)
    return np.where(np.isfinite(values)[:, :, None], colours, 0).astype(np.uint8)


def checkered(pixels: npt.NDArray[np.uint8], valid: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
    """[height, width, 3] with gray checks where a pixel is not `valid` [height, width]."""
    side = max(min(valid.shape) // CHECKS_ACROSS, 1)
    rows, columns = np.indices(valid.shape) // side
    checks = np.where((rows + columns) % 2, CHECKS[0], CHECKS[1]).astype(np.uint8)
    return np.where(valid[:, :, None], pixels, checks[:, :, None])


def _image(batch: dict[str, npt.NDArray[Any]], row: int) -> npt.NDArray[np.uint8]:
    shown: npt.NDArray[np.uint8] = np.moveaxis(batch["image"][row], 0, 2).astype(np.uint8)
    return shown


def _depth(batch: dict[str, npt.NDArray[Any]], row: int) -> npt.NDArray[np.uint8]:
    """The true depth; checkered where it is unknown."""
    depth = batch["depth"][row, 0]
    return checkered(ramp(depth, depth), batch["depth_valid"][row, 0] > 0)


def _gray(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
    return np.repeat((mask * np.uint8(255)).astype(np.uint8)[:, :, None], 3, axis=2)
