"""The layers of a run's network, as `model.json` in its directory: names, output shapes, parameter counts.

Written once by the training process. A reader bounds the file before it parses it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from tputui.telemetry import files
from tputui.telemetry.masking import FieldMasker
from tputui.telemetry.secrecy import Name

FILE = "model.json"
LAYERS_MAX = 2_000
"""Maximum number of layers listed; the totals include all."""
BYTES_MAX = 2**22
_RULE = "-"


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """A module that holds parameters, or has no modules inside."""

    name: Name
    """Its name in the network; empty for the network itself."""
    kind: Name
    """Name of its class."""
    shapes: list[list[int]] | None = None
    """Shapes of the tensors that its first call returned, batch dimension first; None if it was not called."""
    parameters: int = 0
    """Number of its own parameters, without those of modules inside."""
    trainable: int = 0
    """Those of them that the optimizer changes."""


class LayerTable(msgspec.Struct, frozen=True, kw_only=True):
    """The layers of a network in the order of their first call, those that were not called at the end."""

    batch: int
    """Examples of the batch that the shapes are of."""
    layers: list[Layer]
    num_layers: int
    """Layers of the network, those that are not listed too."""
    parameters: int
    """Of the whole network; what two layers share counts once."""
    trainable: int
    """Those of them that the optimizer changes."""


class NoTable(Exception):
    """There is no table; the message is the reason."""


def read(run_dir: Path) -> LayerTable:
    """The table of a run. Raises `NoTable`."""
    path = run_dir / FILE
    try:
        return msgspec.json.decode(files.read_small(path, BYTES_MAX), type=LayerTable)
    except FileNotFoundError:
        why = f"{run_dir.name} has no {FILE}: it is written when the first training step is traced"
        raise NoTable(why) from None
    except OSError as error:
        raise NoTable(f"{path} cannot be read: {error.strerror or error}") from None
    except msgspec.MsgspecError as error:
        raise NoTable(f"{path} is not a table of layers: {error}") from None


def encode(table: LayerTable) -> bytes:
    """The content of the file, with secrets masked."""
    return msgspec.json.format(msgspec.json.encode(FieldMasker().masked(table)), indent=1)


def text(table: LayerTable) -> str:
    rows = [("layer", "type", "output", "parameters", "trainable")]
    rows += [
        (
            layer.name or "(the network)",
            layer.kind,
            "not called" if layer.shapes is None else ", ".join(map(str, layer.shapes)) or "no tensor",
            f"{layer.parameters:,}",
            f"{layer.trainable:,}",
        )
        for layer in table.layers
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = [_line(row, widths) for row in rows]
    lines.insert(1, _RULE * max(map(len, lines)))
    if table.num_layers > len(table.layers):
        lines.append(f"and {table.num_layers - len(table.layers):,} more layers")
    frozen = table.parameters - table.trainable
    lines.append(lines[1])
    lines.append(f"{table.parameters:,} parameters, {table.trainable:,} trainable, {frozen:,} frozen")
    lines.append(f"shapes are of a batch of {table.batch:,} examples")
    return "\n".join(lines)


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    cells = [cell.ljust(width) for cell, width in zip(row[:3], widths[:3], strict=True)]
    cells += [cell.rjust(width) for cell, width in zip(row[3:], widths[3:], strict=True)]
    return "  ".join(cells)
