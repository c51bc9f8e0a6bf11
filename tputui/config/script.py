"""The configuration of a command of the user: the table `[script]` of a file, or the words after `tputui run --`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, Literal

import msgspec

from tputui.config.tables import AlertsConfig, DiagnosisConfig, LaunchConfig, Table

SCRIPT = "script"
"""Name of the table."""
STOP_GRACE_S = 60.0
EXIT_GRACE_S = 60.0
STARTING_MODULES = frozenset(
    {
        "accelerate.commands.launch",
        "accelerate.commands.accelerate_cli",
        "deepspeed.launcher.launch",
        "deepspeed.launcher.runner",
        "torch.distributed.launch",
        "torch.distributed.run",
        "torch_xla.distributed.xla_dist",
    }
)
"""Modules that start processes which run a script named later on their command line."""
LAUNCHERS = STARTING_MODULES | {"cProfile", "coverage", "debugpy", "pdb"}
"""Modules that run a script named later on their command line, also in their own process."""
LAUNCHER_PROGRAMS = frozenset({"torchrun", "accelerate", "composer", "deepspeed", "fabric", "horovodrun", "lightning"})
"""Python programs that start processes which run a script named later on their command line."""
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_SCRIPT_SUFFIXES = frozenset({".py", ".sh"})


class TagsConfig(Table, frozen=True, kw_only=True):
    """What the tags of values mean that a command logs, if the usual rule does not fit; see the guide."""

    pattern: str | None = None
    """Regular expression for whole tags, with the group `name` and optionally `split` and `core`, such as
    `(?P<split>\\w+)\\.(?P<name>\\w+)@(?P<core>\\d+)`. Tags that it does not match keep the usual rule."""
    loss: str | None = None
    """Tag or metric that is the training loss."""


class ConsoleConfig(Table, frozen=True, kw_only=True):
    """What the command prints, if the usual forms do not fit; see the guide."""

    pattern: str | None = None
    """Regular expression for a part of a line, with a named group per metric and optionally the groups `step`, `epoch`
    and `core`, such as `it (?P<step>\\d+): (?P<loss>[-+.e0-9]+)`. Lines that it does not match are not read."""


class ScriptConfig(Table, frozen=True, kw_only=True):
    """A command of the user that is run as it is."""

    command: list[str]
    """The program and its arguments, such as `["python", "train.py", "--lr", "0.1"]`. No shell reads them."""
    env: dict[str, str] = msgspec.field(default_factory=dict)
    """Environment variables that are set for the command, in addition to those of `tputui run`."""
    cwd: str | None = None
    """Working directory of the command; default the one in which `tputui run` is started."""
    stop_signal: Literal["auto", "SIGINT", "SIGTERM"] = "auto"
    """Signal that a request to stop sends to the processes of the command that train. `auto` sends SIGTERM to those
    that handle it, as scripts do that save when a cluster ends them, and SIGINT, as Ctrl-C does, to the others."""
    stop_grace_s: float = STOP_GRACE_S
    """Seconds from a request to stop until SIGTERM to all its processes, for a command that is still running."""
    exit_grace_s: float = EXIT_GRACE_S
    """Seconds in which the processes that the command has left in its process group may finish after its end; then they
    are ended. They have none if the command failed."""
    logs: list[str] = msgspec.field(default_factory=list)
    """Log files to read besides those that are found: paths in which `*` and `**` match any name and any directories,
    relative to the command's working directory."""
    tags: TagsConfig = msgspec.field(default_factory=TagsConfig)
    """What the tags of logged values mean."""
    console: ConsoleConfig = msgspec.field(default_factory=ConsoleConfig)
    """How values are read from the output."""


class ScriptRun(Table, frozen=True, kw_only=True):
    """The configuration of a run of such a command: what a file may contain."""

    script: ScriptConfig
    """A command of your own."""
    alerts: AlertsConfig = msgspec.field(default_factory=AlertsConfig)
    """Alerts: conditions on the run, and where a message goes when one begins to hold."""
    diagnosis: DiagnosisConfig = msgspec.field(default_factory=DiagnosisConfig)
    """Diagnosis: which findings make a run fail."""
    launch: LaunchConfig = msgspec.field(default_factory=LaunchConfig)
    """Several hosts: each starts the command, whose processes find each other by themselves."""


SCRIPT_TABLES: dict[str, type[Table]] = {
    "": ScriptRun,
    SCRIPT: ScriptConfig,
    f"{SCRIPT}.tags": TagsConfig,
    f"{SCRIPT}.console": ConsoleConfig,
    "alerts": AlertsConfig,
    "diagnosis": DiagnosisConfig,
    "launch": LaunchConfig,
}
"""The tables of such a file; the top of the file under an empty name."""


def is_script(tables: Mapping[str, Any]) -> bool:
    """Whether the content of a file is the configuration of a command."""
    return SCRIPT in tables


def script_name(command: Sequence[str]) -> str:
    """The name of what a command runs: `train` for `torchrun --nproc_per_node=2 train.py`, `pkg.train` for
    `python -m pkg.train`; else the name of the program."""
    for word, following in zip(command, [*command[1:], ""], strict=True):
        if word in ("-m", "--module") and _MODULE.fullmatch(following) and following not in LAUNCHERS:
            return following
        if PurePath(word).suffix in _SCRIPT_SUFFIXES and not word.startswith("-"):
            return PurePath(word).stem
    return PurePath(command[0]).name if command else ""


def recorded_name(config: Mapping[str, Any]) -> str:
    """`script_name` of the command in the recorded configuration of a run, which is untrusted; empty if it has none."""
    script = config.get(SCRIPT)
    command = script.get("command") if isinstance(script, Mapping) else None
    return script_name([str(word) for word in command]) if isinstance(command, list) else ""


def script_to_builtins(run: ScriptRun) -> dict[str, Any]:
    """The configuration as a dictionary, with all defaults."""
    tables: dict[str, Any] = msgspec.to_builtins(run)
    return tables
