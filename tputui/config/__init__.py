"""The configuration of a run: frozen types, parsed strictly and checked in full before anything starts.

Pure: no device, no clock. The keys of `[model]`, and those of `[data]` that `DataConfig` does not list, belong to the
task; the engine checks them (`python -m engine.commands.describe`).
"""

from __future__ import annotations

from tputui.config.checks import EPOCHS_MAX, ConfigError, endpoint_of
from tputui.config.parsing import (
    BATCH_RIVALS,
    from_builtins,
    load,
    load_tables,
    parse,
    script_from_builtins,
    source_of_key,
    to_builtins,
    unknown_key,
    with_overrides,
)
from tputui.config.script import (
    SCRIPT,
    ScriptConfig,
    ScriptRun,
    is_script,
    recorded_name,
    script_name,
    script_to_builtins,
)
from tputui.config.tables import (
    OPTIMIZER_KEYS,
    RDZV_PORT,
    SCHEDULE_KEYS,
    TABLES,
    TASK_TABLES,
    AlertsConfig,
    DiagnosisConfig,
    LaunchConfig,
    OptimConfig,
    RunConfig,
    Table,
    class_doc,
    data_keys,
    default_values,
    field_docs,
    keys_by_name,
)
