"""The configuration of a run: frozen types, parsed strictly and checked in full before anything starts.

Pure: no device, no clock. The keys of `[model]`, and those of `[data]` that `DataConfig` does not list, belong to the
task; the engine checks them (`python -m engine.commands.describe`).
"""

from __future__ import annotations

from tputui.config.parsing import (
    BATCH_RIVALS,
    ConfigError,
    from_builtins,
    load,
    parse,
    source_of_key,
    to_builtins,
    unknown_key,
)
from tputui.config.tables import (
    OPTIMIZER_KEYS,
    SCHEDULE_KEYS,
    TABLES,
    TASK_TABLES,
    OptimConfig,
    RunConfig,
    Table,
    data_keys,
    default_values,
    keys_by_name,
)

__all__ = [
    "BATCH_RIVALS",
    "OPTIMIZER_KEYS",
    "SCHEDULE_KEYS",
    "TABLES",
    "TASK_TABLES",
    "ConfigError",
    "OptimConfig",
    "RunConfig",
    "Table",
    "data_keys",
    "default_values",
    "from_builtins",
    "keys_by_name",
    "load",
    "parse",
    "source_of_key",
    "to_builtins",
    "unknown_key",
]
