"""Options of `[data]` that name a user's files and how they are split into training and validation.

The options of a task subclass `ImageData`, `TextData` or `ArrayData`, with other defaults if they suit the task better.
Must not import torch or numpy: the check before a run reads them.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from engine.task import Options

Share = Annotated[float, msgspec.Meta(gt=0, lt=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Side = Annotated[int, msgspec.Meta(ge=1, le=8192)]
FeatureKind = Literal["byte", "int", "float"]


class SplitOptions(Options, frozen=True, kw_only=True):
    """How rows are split into training and validation."""

    fold: Count | None = None
    """Fold that validates, from 0; the others train. By default `valid_fraction` of the rows validates, or fold 0 of a
    `fold_column`."""
    folds: Annotated[int, msgspec.Meta(ge=2, le=1000)] = 5
    """Number of folds; a `fold_column` sets it by itself."""
    folds_by: Literal["kfold", "stratified", "group", "stratified_group"] = "kfold"
    """What the cut respects: nothing (`kfold`), that labels are as frequent everywhere (`stratified`), that a group
    is never split (`group`), or both (`stratified_group`). Rows of several binary labels count by their rarest one."""
    valid_fraction: Share = 0.2
    """Share of the rows that validates where no `fold` is chosen, more than 0 and less than 1."""
    allow_leaks: bool = False
    """Whether a group may have rows in training and in validation: a note then, an error otherwise."""


class SourceOptions(SplitOptions, frozen=True, kw_only=True):
    """Where the rows are, and what their columns mean."""

    source: str = ""
    """Where the rows are: a path, or `set:NAME/FILE` for a file of a set that `tputui data fetch NAME` gets.
    A table (`.csv`, `.tsv`, either with `.gz`, `.parquet`), a folder with a folder for each class, a `.npy` file,
    or TFRecord files (`.tfrec`, `.tfrecord`, `.tfrecords`; a pattern such as `train*.tfrec` names several)."""
    label: str | list[str] = "label"
    """Column of the class, or a list of columns. Not needed with one folder per class."""
    label_kind: Literal["class", "binary", "float"] = "class"
    """Kind of labels: one class, 0 or 1 in each column, or a number in each column."""
    classes: tuple[str, ...] = ()
    """Names of the classes, in the order of their numbers. Empty: the values that occur, sorted."""
    num_classes: Count = 0
    """Number of classes if the column holds class numbers from 0; 0 takes the largest that occurs."""
    id: str = ""
    """Column that names each row, such as an image id; names must be unique."""
    group: str = ""
    """Column of the group that must not be split, such as the patient."""
    fold_column: str = ""
    """Column with the fold of each row as a number from 0, if the folds exist already."""
    split_column: str = ""
    """Column that is `train` or `valid` (`val`, `validation`), if the split exists already. Rows with `test` do
    neither; `tputui predict --split test` evaluates them."""
    separator: str = ""
    """Cell separator of a table; empty: a tab for `.tsv`, else a comma."""
    max_bad_rows: Count = 0
    """How many rows may be left out because they cannot be used; one more is an error."""


class ImageData(SourceOptions, frozen=True, kw_only=True):
    """Images, each with labels, a mask or a depth map."""

    image: str = "image"
    """Column of the image's path, or a path with columns in braces such as `images/{id}.jpg`. In TFRecord, the feature
    with the encoded image. Not needed with one folder per class."""
    image_folder: str = ""
    """Folder that the paths are relative to; empty: the folder of the table."""
    mask: str = ""
    """Column or path, as for `image`, of a mask: a gray image as large as the image."""
    mask_above: Annotated[int, msgspec.Meta(ge=0, le=254)] = 0
    """Pixels of the mask brighter than this are foreground."""
    depth: str = ""
    """Column or path, as for `image`, of a depth map: a 16-bit PNG, or `.npy` of [height, width]."""
    depth_scale: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    """Factor for stored depths. A stored 0 means that the depth is unknown."""
    depth_valid: str = ""
    """Column or path, as for `image`, of a gray image that is 0 where the depth is unknown."""
    size: tuple[Side, Side] = (224, 224)
    """Height and width that every image is resized to; the aspect ratio is not kept."""
    channels: Literal[1, 3] = 3
    """3 for red, green, blue; 1 for gray."""
    resize: Literal["bilinear", "bicubic", "nearest"] = "bilinear"
    """How images are resized; `bilinear` and `bicubic` use antialiasing. Masks and depths always take the nearest
    pixel."""
    cache_mb: Count = 2048
    """Memory for decoded images in MiB. If all images fit, each is decoded once; otherwise none is kept."""
    features: dict[str, FeatureKind] = msgspec.field(default_factory=dict)
    """TFRecord: the kind of each feature, such as `{image = "byte", label = "int"}`; checked in every record."""


class TextData(SourceOptions, frozen=True, kw_only=True):
    """Texts with labels."""

    text: str = "text"
    """Column of the text."""
    length: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 200
    """Number of words that every text is cut or padded to."""
    pad: Literal["left", "right"] = "right"
    """Which side is padded, with word 0. Of a text that is too long the first `length` words are kept in either case.
    """
    max_words: Annotated[int, msgspec.Meta(ge=3, le=10_000_000)] = 20_000
    """Size of the vocabulary, including its two reserved numbers: 0 for padding and 1 for unknown words."""
    min_count: Annotated[int, msgspec.Meta(ge=1)] = 1
    """Minimum number of occurrences in the training texts for a word to be in the vocabulary."""
    vocabulary: str = ""
    """JSON file of a vocabulary to use instead of one built from the training texts."""


class ArrayData(SourceOptions, frozen=True, kw_only=True):
    """Features in the columns of a table, or in a `.npy` file that is read from disk on demand."""

    features: tuple[str, ...] = ()
    """Feature columns of a table, all numeric. Empty: every column that no other key names."""
    labels_file: str = ""
    """`.npy` file with the labels of a `.npy` source: [rows], or [rows, labels]."""
    groups_file: str = ""
    """`.npy` file of integers: the group of each row of a `.npy` source."""

    @property
    def is_array(self) -> bool:
        """Whether the source is a `.npy` file, not a table."""
        return self.source.endswith(".npy")
