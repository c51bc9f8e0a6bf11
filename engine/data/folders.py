"""Reads a folder that holds a folder for each class, with or without folders for the splits. No torch.

    train/cat/1.png  train/dog/2.png  valid/cat/3.png        or        cat/1.png  dog/2.png

A folder for predictions needs no classes: every image below it is an example, and labelled if its folder is a class.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import polars as pl

from engine.data.options import SourceOptions
from engine.data.row_errors import refuse
from engine.data.rows import Names, Raw
from engine.data.rows import TRAIN, VALID, TEST

IMAGES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp", ".gif", ".ppm", ".pgm")
SPLITS = TRAIN + VALID + TEST
LABEL, SPLIT = "folder", "split"
"""Columns that stand for what the folders are called."""


def read_folders(options: SourceOptions) -> Raw:
    """The images of a folder for each class, sorted by path, with the columns `folder` and `split`.

    Raises `ValueError` where there are none, `FileNotFoundError` where there is no such folder.
    """
    root = _root(options.source)
    parts = [name for name in _folders(root) if name.lower() in SPLITS]
    found = [(split, row) for split in parts or [""] for row in _class_rows(root / split)]
    if not found:
        refuse(f"{options.source} holds no images in a folder for each class, such as {options.source}/cat/1.png")
    frame = pl.DataFrame({LABEL: [row[0] for _, row in found], SPLIT: [split for split, _ in found]})
    return _raw(options.source, root, frame, [row[1] for _, row in found])


def has_splits(source: str) -> bool:
    """Whether the folder has folders such as `train` and `valid`."""
    return any(name.lower() in SPLITS for name in _folders(_root(source)))


def read_images(source: str, classes: Collection[str] = ()) -> Raw:
    """Every image below the folder, or the one image, sorted by path. Raises as `read_folders` does.

    The column `folder` has the class of each image that is in a folder of one of the `classes`, and else is empty.
    """
    path = Path(source).expanduser()
    if path.is_file():
        return _raw(source, path.parent, pl.DataFrame({LABEL: [""]}), [str(path)])
    paths = _images(_root(source))
    if not paths:
        refuse(f"{source} holds no images; known are {', '.join(IMAGES)}")
    labels = [_class_of(Path(one).relative_to(path).parts, classes) for one in paths]
    return _raw(source, path, pl.DataFrame({LABEL: labels}), paths)


def test_folder(source: str) -> Path | None:
    """The folder of the test split in a folder."""
    root = _root(source)
    return next((root / name for name in _folders(root) if name.lower() in TEST), None)


def _class_of(parts: tuple[str, ...], classes: Collection[str]) -> str:
    """The class that the path of an image says, below a folder of a split or not; empty where it says none."""
    folder = parts[1] if len(parts) > 2 and parts[0].lower() in SPLITS and parts[0] not in classes else parts[0]
    return folder if len(parts) > 1 and folder in classes else ""


def _raw(source: str, root: Path, frame: pl.DataFrame, paths: list[str]) -> Raw:
    return Raw(source, frame, Names(source, own=paths), root, paths)


def _root(source: str) -> Path:
    root = Path(source).expanduser()
    if not root.is_dir():
        raise FileNotFoundError(f"{source}: no such folder; data.source names it from the folder the run is started in")
    return root


def _folders(root: Path) -> list[str]:
    with os.scandir(root) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))


def _class_rows(root: Path) -> list[tuple[str, str]]:
    return [(name, path) for name in _folders(root) for path in _images(root / name)]


def _images(root: Path) -> list[str]:
    found = [
        os.path.join(parent, name)
        for parent, _, names in os.walk(root, followlinks=True)
        for name in names
        if name.lower().endswith(IMAGES) and not name.startswith(".")
    ]
    return sorted(found)
