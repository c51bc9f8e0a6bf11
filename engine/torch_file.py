"""Reads files of `torch.save` that may be anything: the weights and checkpoints that a user or a run names.

Only tensors and plain values are loaded, so a file cannot run code. Must not touch a device.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import torch

_CLASS = re.compile(r"GLOBAL (\S{1,200})")
"""The class or function in torch's refusal of a file that has one."""
_NO_MEMORY = re.compile("allocate memory|not enough memory", re.IGNORECASE)


class UnreadableFile(Exception):
    """A file is not one of `torch.save` with tensors and plain values; the text says why, without its name."""


def read(path: Path) -> Any:
    """The content of a file, on the CPU. Raises `UnreadableFile` and `OSError`."""
    try:
        with warnings.catch_warnings():
            # A file that is none of torch.save may look like an archive of TorchScript, for example.
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # Its readers raise any error on bytes that they do not expect.
        raise UnreadableFile(_reason(path, error)) from error


def _reason(path: Path, error: Exception) -> str:
    """Why a file cannot be read. Torch's own text would advise to load it with `weights_only=False`."""
    if path.stat().st_size == 0:
        return "the file is empty"
    if isinstance(error, MemoryError) or _NO_MEMORY.search(str(error)):
        return "there is not enough memory to read it"
    if found := _CLASS.search(str(error)):
        return f"it contains {found[1]}, and only tensors and plain values are loaded from a file"
    return "it is not a file of torch.save, or it is damaged"
