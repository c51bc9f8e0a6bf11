"""What a program calls to report its training: `start`, and the parts of a reporter of one's own.

Most scripts need `tputui.start()` and the `Run` that it returns, and nothing else. A framework with processes, threads
and checkpoints of its own puts the parts together: a `Reporter` writes the journal, a `ReportedProcess` its heartbeats,
the receipts of requests and the end, `Progress` is what it is doing, a `SectionTimer` measures the parts of a step, and
`events` are the types of all lines of a journal. The engine does so, and has no other way to report.
"""

from __future__ import annotations

from tputui.reporting.best_epoch import BestEpoch
from tputui.reporting.failures import failure_of, located, one_line, printable, text_of
from tputui.reporting.process_exit import close_journal
from tputui.reporting.progress import Progress
from tputui.reporting.reported_process import ReportedProcess
from tputui.reporting.request_server import RequestServer
from tputui.reporting.run import Run
from tputui.reporting.section_timer import TRACE_PARTS, SectionTimer
from tputui.reporting.stacks import dump_on_signal as dump_stacks_on_signal
from tputui.reporting.start import start
from tputui.reporting.step_times import Collections, StepTimes
from tputui.reporting.step_trace import StepTracer
from tputui.telemetry import events
from tputui.telemetry.files import becoming, open_new, read_small, write_all
from tputui.telemetry.files import write as write_file
from tputui.telemetry.meters import AverageMeter, logged_meters, newly_logged, without_split
from tputui.telemetry.redaction import masked_text
from tputui.telemetry.reporter import Reporter
from tputui.telemetry.requests import STRENGTH, Request
from tputui.telemetry.requests import submit as submit_request
from tputui.telemetry.rundir import CHECKPOINTS, MANIFEST, RUN_DIR_VARIABLE, Manifest, RunNotFound, held, read_manifest

__all__ = [
    "CHECKPOINTS",
    "MANIFEST",
    "RUN_DIR_VARIABLE",
    "STRENGTH",
    "TRACE_PARTS",
    "AverageMeter",
    "BestEpoch",
    "Collections",
    "Manifest",
    "Progress",
    "ReportedProcess",
    "Reporter",
    "Request",
    "RequestServer",
    "Run",
    "RunNotFound",
    "SectionTimer",
    "StepTimes",
    "StepTracer",
    "becoming",
    "close_journal",
    "dump_stacks_on_signal",
    "events",
    "failure_of",
    "held",
    "located",
    "logged_meters",
    "masked_text",
    "newly_logged",
    "one_line",
    "open_new",
    "printable",
    "read_manifest",
    "read_small",
    "start",
    "submit_request",
    "text_of",
    "without_split",
    "write_all",
    "write_file",
]
