"""`LaunchPlan`: what the launcher of a host has to do, from its command line and the manifest of the run."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from engine.errors import Unable
from tputui.config import LaunchConfig, endpoint_of
from tputui.engine_api import __version__, flatten
from tputui.reporting import Manifest


class LaunchPlan(msgspec.Struct, frozen=True, kw_only=True):
    run_dir: Path
    run: str
    """Name of the run, the same on every host."""
    config: dict[str, Any]
    """The whole configuration of the run."""
    index: int
    launch: LaunchConfig
    """The table `[launch]`, with the number of hosts and the endpoint resolved."""
    endpoint: tuple[str, int]
    """Where host 0 serves the store; port 0 for any free port of a single host."""
    worker_argv: list[str]
    """Command line of the training process."""

    @property
    def num_hosts(self) -> int:
        return self.launch.num_hosts

    @property
    def where(self) -> str:
        """The endpoint, for messages."""
        return f"{self.endpoint[0]}:{self.endpoint[1]}"

    @property
    def flat_config(self) -> dict[str, str]:
        """Every value of the configuration by its dotted key, and the version of tputui."""
        values = {key: msgspec.json.encode(value).decode() for key, value in flatten(self.config).items()}
        return {"version of tputui": __version__, **values}

    @property
    def digest(self) -> str:
        return hashlib.sha256(msgspec.json.encode(sorted(self.flat_config.items()))).hexdigest()[:16]


def make_plan(run_dir: Path, manifest: Manifest, index: int, worker_argv: list[str]) -> LaunchPlan:
    """The plan of host `index`. Raises `Unable`."""
    try:
        launch = msgspec.convert(manifest.config.get("launch", {}), LaunchConfig)
    except msgspec.ValidationError as error:
        raise Unable(f"the table [launch] of the run cannot be used: {error}") from None
    endpoint = endpoint_of(launch.rdzv_endpoint or "") or ("127.0.0.1", 0)
    if launch.num_hosts > 1 and not endpoint[1]:
        raise Unable("launch.rdzv_endpoint is missing: the address of host 0, where the hosts meet")
    return LaunchPlan(
        run_dir=run_dir,
        run=manifest.run,
        config=manifest.config,
        index=index,
        launch=launch,
        endpoint=endpoint,
        worker_argv=worker_argv,
    )
