"""Names of log files, by which they are found among other files."""

from __future__ import annotations

import re

_LOG = re.compile(r"(.*\.(csv|tsv|jsonl|ndjson|wandb)|.*tfevents.*|trainer_state\.json)", re.IGNORECASE | re.DOTALL)
_OTHER = re.compile(
    r".*\.(pt|pth|ckpt|bin|safetensors|npy|npz|h5|hdf5|pkl|pickle|arrow|parquet|tar|gz|zst|zip|so|py|pyc|lock|db|sqlite"
    r"|png|jpg|jpeg|mp4|tmp|log|txt|out|err|onnx|lock|prof|xplane|pb)",
    re.IGNORECASE | re.DOTALL,
)  # fmt: skip


def is_log(name: str) -> bool:
    """Whether the name of a file is that of a log."""
    return _LOG.fullmatch(name) is not None


def is_other(name: str) -> bool:
    """Whether the name of a file is that of no log, or of one whose lines are printed text."""
    return _OTHER.fullmatch(name) is not None


def opened_logs_name(host_id: str) -> str:
    """Name of the file in a run directory in which the processes of a host list the logs that they open."""
    # Without the process namespace, since a command may begin one of its own.
    return f"opened-logs-{host_id.partition('/')[0]}"
