"""Why a training process ended, as it is reported to the other hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import PEER_LOST
from engine.launch.host_watch import failure_of, lost_host
from tputui.exit_codes import ExitCode
from tputui.telemetry import events as ev
from tputui.telemetry.reporter import Reporter

DECLARED = ev.TopologyDeclared(
    t=1.0, strategy="replica", device="CPU", num_cores=4, num_hosts=2, host_index=1, cores=[2, 3]
)
ENDED = ev.TrainingEnded(t=12.0, outcome="failed", step=7, reason="NaN at step 7")


def raised(error: str, t: float = 11.0) -> ev.FailureRaised:
    """A failure in the journal of the process."""
    return ev.FailureRaised(t=t, error=error, message="shard 7 is cut short", traceback="", phase="data", step=7)


def journal(run_dir: Path, *events: ev.Event) -> None:
    """The journal of the training process of host 1."""
    reporter = Reporter(run_dir, "worker", 1)
    for event in (DECLARED, *events):
        reporter.emit(event)
    reporter.close()


def test_an_exception_is_passed_on_with_its_place(tmp_path: Path) -> None:
    journal(tmp_path, raised("ValueError"), ENDED)
    failed = failure_of(tmp_path, 1, 0, ExitCode.FAILED, 77, 10.0)
    assert failed is not None
    assert failed.sentence.endswith(", rank 2 (core 2): ValueError: shard 7 is cut short")
    assert (failed.host_index, failed.pid, failed.code, failed.is_final) == (1, 77, 3, False)


def test_a_refusal_is_final(tmp_path: Path) -> None:
    journal(tmp_path, raised("Refused"))
    failed = failure_of(tmp_path, 1, 0, ExitCode.USAGE, 77, 10.0)
    assert failed is not None
    assert (failed.code, failed.is_final) == (2, True)


@pytest.mark.parametrize("returncode", [-9, 5])
def test_an_end_without_a_report_is_named_by_its_signal_or_code(tmp_path: Path, returncode: int) -> None:
    # What was reported in the generation before does not count.
    journal(tmp_path, raised("ValueError", t=5.0))
    failed = failure_of(tmp_path, 1, 1, returncode, 77, 10.0)
    assert failed is not None
    assert failed.error == ("SIGKILL" if returncode == -9 else "no error report")
    assert failed.who.endswith("rank 2 (core 2)")


def test_a_host_that_no_longer_answers_was_not_killed_as_far_as_is_known() -> None:
    lost = lost_host(1, "tpu-1", 0, 10.0)
    assert (lost.kind, lost.message) == ("exited", "has not answered for 10 s")


def test_a_stop_a_lost_host_and_an_end_of_all_hosts_are_no_failures_of_this_host(tmp_path: Path) -> None:
    cases: list[tuple[int, list[ev.Event]]] = [
        (ExitCode.STOPPED, []),
        (PEER_LOST, []),
        (ExitCode.FAILED, [raised("HostLost"), ENDED]),
        (ExitCode.FAILED, [ENDED]),
    ]
    for number, (returncode, events) in enumerate(cases):
        folder = tmp_path / str(number)
        folder.mkdir()
        journal(folder, *events)
        assert failure_of(folder, 1, 0, returncode, 77, 10.0) is None
