"""What the engine, and no script, needs of tputui besides `tputui.reporting` and `tputui.config`.

The commands of tputui start processes of the engine and read what they print: exit codes, results of checks, and the
messages of a launcher of hosts and of a trial. Both look at the same machine, files and folders. The engine attaches
the observer of torch_xla by itself, and it starts processes of its own, whose journals and ends it reads.
"""

from __future__ import annotations

from tputui import __version__
from tputui.check_result import CheckResult, Option, Problem, TaskDescription
from tputui.config_diff import flatten
from tputui.csv_cells import cells as csv_cells
from tputui.environment import DEV, GOOGLE, PCI_DEVICES, installed, pci_chips, tpu_signs, version_problem
from tputui.exit_codes import ExitCode
from tputui.home_paths import expanded
from tputui.observers.sinks import ResettableTotal, Sink
from tputui.observers.sinks import is_disabled as is_observing_disabled
from tputui.observers.xla_observer import WARM_UP_RUNS, XlaObserver, follow_optimizers
from tputui.observers.xla_runtime import BEGUN, SCALAR_READS, MetricTotals, XlaRuntime
from tputui.telemetry import launch_messages, run_clock
from tputui.telemetry.codec import DamagedLine
from tputui.telemetry.codec import decode as decode_line
from tputui.telemetry.journal import SUFFIX as JOURNAL_SUFFIX
from tputui.telemetry.journal import LineSearch, Tail
from tputui.telemetry.launch_messages import HostFailed, LaunchFailed
from tputui.telemetry.layer_table import FILE as LAYER_TABLE_FILE
from tputui.telemetry.layer_table import LAYERS_MAX, Layer, LayerTable
from tputui.telemetry.layer_table import encode as encode_layers
from tputui.telemetry.layer_table import text as layers_text
from tputui.telemetry.merge import head_of
from tputui.telemetry.process_end import FOLLOWING, kind_of_end, signal_name, worker_exited
from tputui.telemetry.rundir import clear_half_written, is_alive, is_run, journal_paths, process_of, write_atomically
from tputui.trial_protocol import CONNECTION_VARIABLE, MESSAGE_BYTES_MAX, BlockOrder, BlockResult
from tputui.user_cache import SOURCE as DATA_SET_SOURCE
from tputui.user_cache import data_folder
