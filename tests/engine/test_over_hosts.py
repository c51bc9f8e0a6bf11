"""A run on several hosts trains as on one: the same losses, meters, receipts and checkpoints.

The hosts are processes of this machine that exchange over the loopback device, each with a run directory of its own.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import run_plan
from engine.errors import Refused
from engine.process import hardware
from tests import forked
from tests.engine.curve_task import DIES_SAVING, NUM_VALID, SAVES_AFTER, STOP_AT, STOP_RUN
from tests.engine.hostcheck import NUM_HOSTS, RANKS_EACH
from tests.engine.non_finite_task import late
from tests.engine.processes import on_cores
from tests.engine.test_strategies import CURVE, STEPS, TOLERANCE, rank_events
from tests.engine.workers import DIGITS, Run, make
from tests.ports import reserved_port
from tputui import config
from tputui.telemetry import events as ev
from tputui.telemetry import requests

pytestmark = pytest.mark.xla

HERE = Path(__file__).parent
CWD = HERE.parents[1]
SMALL = ["epochs=2", "model.channels=4", "device.strategy=replica"]
"""The digits, smaller."""
ONE_CORE = ["device.cores=1", "device.strategy=replica"]
LONG = [*ONE_CORE, "epochs=1000000", "checkpoint.every_epochs=1"]


class Hosts:
    """The workers of a run on several hosts."""

    def __init__(
        self,
        parent: Path,
        text: str,
        overrides: list[str],
        *,
        resume: Path | None = None,
        of_last: tuple[str, ...] = (),
    ) -> None:
        """`resume` is given to the first host only, whose directory has the checkpoint; `of_last` are settings of the
        last host."""
        self.runs: list[Run] = []
        for host, source in enumerate([resume, None]):
            folder = parent / f"host-{host}"
            folder.mkdir(parents=True)
            made = make(folder, "run", [*overrides, *(of_last if host else ())], text=text, cwd=CWD, resume_from=source)
            self.runs.append(Run(made.dir, host))

    def start(
        self,
        environ: dict[str, str] | None = None,
        *,
        generation: int = 0,
        of_first: dict[str, str] | None = None,
    ) -> None:
        """Starts the workers with the variables that torchrun sets; `environ` is for the last one."""
        port = reserved_port()
        for run in self.runs:
            contract = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            contract |= {"RANK": str(run.host), "TORCHELASTIC_RESTART_COUNT": str(generation)}
            run.start(contract | ((environ if run.host else of_first) or {}), num_hosts=2)

    def codes(self) -> list[int]:
        """Exit codes of all workers, once they have ended."""
        return [run.finish() for run in self.runs]

    def log(self) -> str:
        """What all workers have printed."""
        return "\n".join(run.log.read_text() for run in self.runs)


@contextlib.contextmanager
def ending(*runs: Run) -> Iterator[None]:
    """Leaves no process behind."""
    try:
        yield
    finally:
        for run in runs:
            run.stop_if_alive()


def joined(runs: list[Run], metric: str = "loss") -> dict[int, list[float]]:
    """Values of the cores of all hosts by step."""
    parts = [run.steps(metric) for run in runs]
    assert all(part.keys() == parts[0].keys() for part in parts)
    return {step: [value for part in parts for value in part[step]] for step in parts[0]}


@pytest.fixture(scope="module")
def exchanges() -> dict[str, Any]:
    """The results of exchanges between hosts that are threads of one process."""
    done = forked.run("tests.engine.hostcheck", cwd=CWD, env={"TORCH_CPP_LOG_LEVEL": "FATAL"})
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, list[Run]]:
    """The digits on four cores of one host, and on two cores of each of two."""
    parent = tmp_path_factory.mktemp("digits")
    one = make(parent, "one", [*SMALL, "device.cores=4"], text=DIGITS.read_text(), cwd=CWD)
    two = Hosts(parent / "two", DIGITS.read_text(), [*SMALL, "device.cores=2"])
    with ending(one, *two.runs):
        requests.submit(two.runs[1].dir, "trace", by="test", now=time.time(), steps=3)
        two.start()
        assert two.codes() == [0, 0], two.log()
        one.start()
        assert one.finish() == 0, one.log.read_text()
    return one, two.runs


@pytest.mark.slow
def test_losses_of_two_hosts_equal_those_of_one(digits: tuple[Run, list[Run]]) -> None:
    one, two = digits
    expected, found = one.losses(), joined(two)
    assert found.keys() == expected.keys()
    for step, row in expected.items():
        assert found[step] == pytest.approx(row, rel=TOLERANCE), step


@pytest.mark.slow
def test_plan_and_epochs_are_those_of_one_host(digits: tuple[Run, list[Run]]) -> None:
    one, (first, second) = digits
    expected = one.one(ev.TrainingPlanned)
    for run in (first, second):
        plan = run.one(ev.TrainingPlanned)
        assert (plan.global_batch, plan.steps_per_epoch, plan.lr, plan.lr_rule) == (
            (expected.global_batch, expected.steps_per_epoch, expected.lr, expected.lr_rule)
        )
    for epoch, reference in zip(first.all(ev.EpochEnded), one.all(ev.EpochEnded), strict=True):
        assert epoch.valid["loss"].count == reference.valid["loss"].count
        assert epoch.best == reference.best
        for split, other in ((epoch.train, reference.train), (epoch.valid, reference.valid)):
            assert split["loss"].avg == pytest.approx(other["loss"].avg, rel=1e-4)


@pytest.mark.slow
def test_each_host_records_its_own_cores_and_the_first_one_the_rest(digits: tuple[Run, list[Run]]) -> None:
    _, (first, second) = digits
    topologies = [run.one(ev.TopologyDeclared) for run in (first, second)]
    assert [(each.host_index, each.num_hosts, each.num_cores) for each in topologies] == [(0, 2, 4), (1, 2, 4)]
    assert [each.cores for each in topologies] == [[0, 1], [2, 3]]
    for rank, run in ((1, first), (3, second)):
        opened, declared = rank_events(run, rank)[0], rank_events(run, rank)
        assert isinstance(opened, ev.JournalOpened)
        assert opened.host_index == run.host
        assert [event.cores for event in declared if isinstance(event, ev.TopologyDeclared)] == [[rank]]
    only_first = (ev.EpochStarted, ev.EpochEnded, ev.MetersReported, ev.ProgressReported, ev.CheckpointSaved)
    assert all(first.all(kind) for kind in only_first)
    assert not any(second.all(kind) for kind in only_first)
    assert not list((second.dir / "checkpoints").iterdir())
    assert [run.events()[-1].__class__ for run in (first, second)] == [ev.TrainingEnded] * 2


@pytest.mark.slow
def test_each_host_reports_its_pace_and_the_compute_time_of_its_cores(digits: tuple[Run, list[Run]]) -> None:
    one, two = digits
    assert not one.all(ev.HostPaceMeasured)
    for run in two:
        paces = run.all(ev.HostPaceMeasured)
        assert sum(pace.steps for pace in paces) == len(run.losses())
        assert [pace.step for pace in paces][-1] == max(run.losses())
        for pace in paces[1:]:
            assert pace.data_s is not None
            assert pace.compute_s is not None
            assert pace.wait_s is not None
            assert pace.compute_s > 0
            assert pace.wait_s > 0
            assert pace.compute_s + pace.wait_s + pace.data_s < 1.2 * pace.step_s + 0.01
    assert joined(two, ev.COMPUTE_METRIC).keys() == joined(two).keys()


@pytest.mark.slow
def test_each_host_profiles_the_same_steps(digits: tuple[Run, list[Run]]) -> None:
    written = [run.one(ev.TraceWritten) for run in digits[1]]
    assert {(each.step, each.steps) for each in written} == {(written[0].step, 3)}
    first = written[0].step - 2
    assert [each.path for each in written] == [f"traces/step-{first:08d}", f"traces/step-{first:08d}-host-1"]
    for run, each in zip(digits[1], written, strict=True):
        assert run.one(ev.RequestApplied).path == each.path
        assert list((run.dir / each.path).glob("plugins/profile/*/*.xplane.pb"))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Run]]:
    """A run on one core of two hosts that is stopped by a request to the second; resumed on one host and on two."""
    parent = tmp_path_factory.mktemp("stopped")
    whole = make(parent, "whole", ["device.cores=2", "device.strategy=replica"], text=CURVE, cwd=CWD)
    two = Hosts(parent / "two", CURVE, ONE_CORE)
    with ending(whole, *two.runs):
        two.start({STOP_AT: "6", STOP_RUN: str(two.runs[1].dir)})
        whole.start()
        assert two.codes() == [4, 4], two.log()
        assert whole.finish() == 0, whole.log.read_text()
    last = two.runs[0].dir / "checkpoints" / "last.pt"
    one = make(parent, "one", ["device.cores=2", "device.strategy=replica"], text=CURVE, cwd=CWD, resume_from=last)
    again = Hosts(parent / "again", CURVE, ONE_CORE, resume=last)
    with ending(one, *again.runs):
        one.start()
        again.start()
        assert one.finish() == 0, one.log.read_text()
        assert again.codes() == [0, 0], again.log()
    return {"whole": [whole], "two": two.runs, "one": [one], "again": again.runs}


@pytest.mark.slow
def test_request_to_any_host_is_applied_by_all_at_the_same_step(stopped: dict[str, list[Run]]) -> None:
    first, second = stopped["two"]
    receipts = [run.one(ev.RequestApplied) for run in (first, second)]
    assert receipts[0].request == receipts[1].request
    assert receipts[0].step == receipts[1].step > 0
    for run in (first, second):
        assert run.one(ev.RequestSeen).request == receipts[0].request
        ended = run.one(ev.TrainingEnded)
        assert (ended.outcome, ended.step) == ("stopped", receipts[0].step)
        assert not run.all(ev.FailureRaised)
    assert first.one(ev.CheckpointSaved).reason == "stop"
    assert not second.all(ev.CheckpointSaved)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["one", "again"])
def test_run_resumes_on_another_number_of_hosts_where_it_stopped(stopped: dict[str, list[Run]], name: str) -> None:
    whole, before, after = (joined(stopped[each]) for each in ("whole", "two", name))
    assert 0 < max(before) < STEPS
    assert min(after) == max(before) + 1
    found = before | after
    assert found.keys() == whole.keys()
    for step, row in whole.items():
        assert found[step] == pytest.approx(row, rel=TOLERANCE), step
    for run in stopped[name]:
        assert not any("resumed with other settings" in event.text for event in run.all(ev.WarningRaised))
    ended = stopped[name][0].all(ev.EpochEnded)[-1]
    assert ended.valid["loss"].count == NUM_VALID


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Hosts]:
    """Runs on one core of two hosts: `killed` loses its second host, is restarted, and then stopped at once."""
    parent = tmp_path_factory.mktemp("broken")
    killed = Hosts(parent / "killed", CURVE, LONG)
    example = Hosts(parent / "example", CURVE, [*ONE_CORE, "data.break_at=200"])
    differs = Hosts(parent / "differs", CURVE, ONE_CORE, of_last=("optim.lr=0.02",))
    non_finite = CURVE.replace("curve_task:CurveTask", "non_finite_task:NonFiniteTask")
    nan = Hosts(parent / "nan", non_finite, [*ONE_CORE, f"data.at={late(2).example}", "non_finite.policy=stop"])
    every = [run for hosts in (killed, example, differs, nan) for run in hosts.runs]
    with ending(*every):
        killed.start()
        killed.runs[0].wait_for(ev.EpochEnded)
        killed.runs[1].kill(9)
        assert killed.codes() == [3, -9], killed.log()
        killed.start(generation=1)
        example.start()
        differs.start()
        nan.start()
        assert nan.codes() == [3, 3], nan.log()
        assert example.codes() == [3, 3], example.log()
        assert differs.codes() == [2, 2], differs.log()
        killed.runs[0].wait_for(ev.TrainingPlanned, lambda plan: plan.first_step > 1)
        killed.runs[0].wait_for(ev.MetersReported, lambda event: event.t > time.time() - 1)
        requests.submit(killed.runs[1].dir, "stacks", by="test", now=time.time())
        killed.runs[0].wait_for(ev.RequestApplied)
        requests.submit(killed.runs[1].dir, "stop_now", by="test", now=time.time())
        assert killed.codes() == [4, 4], killed.log()
    return {"killed": killed, "example": example, "differs": differs, "nan": nan}


@pytest.mark.slow
def test_lost_host_is_named_at_once(broken: dict[str, Hosts]) -> None:
    first, second = broken["killed"].runs
    failure = first.one(ev.FailureRaised)
    assert (failure.error, failure.process) == ("HostLost", "worker-1")
    assert failure.message == "host 1 (127.0.0.1) has ended without a report: its process was killed"
    last_beat = [event.t for event in second.all(ev.HeartbeatSent) if event.t < failure.t][-1]
    assert failure.t - last_beat < 20
    assert first.all(ev.TrainingEnded)[0].reason == failure.message


@pytest.mark.slow
@pytest.mark.parametrize("is_late", [False, True])
def test_epoch_whose_save_another_host_did_not_survive_is_recorded(tmp_path: Path, *, is_late: bool) -> None:
    """Late: the first host begins to write when it has reported that the other one is lost."""
    hosts = Hosts(tmp_path, CURVE, [*ONE_CORE, "epochs=2"])
    after = {SAVES_AFTER: str(hosts.runs[0].dir / "worker-0.jsonl")} if is_late else {}
    with ending(*hosts.runs):
        hosts.start({DIES_SAVING: "1"}, of_first=after)
        assert hosts.codes() == [3, -9], hosts.log()
        hosts.start(generation=1)
        assert hosts.codes() == [0, 0], hosts.log()
    first = hosts.runs[0]
    plans = first.all(ev.TrainingPlanned)
    assert plans[1].first_step > 1, "it continues from what the first host had saved"
    assert [event.epoch for event in first.all(ev.EpochEnded)] == [1, 2]
    saved = first.all(ev.CheckpointSaved)
    assert (saved[0].epoch, saved[0].best, saved[0].step) == (1, True, plans[1].first_step - 1)


@pytest.mark.slow
def test_restarted_run_continues_from_its_last_checkpoint_in_the_same_journals(broken: dict[str, Hosts]) -> None:
    first, second = broken["killed"].runs
    for run in (first, second):
        assert [event.generation for event in run.all(ev.JournalOpened)] == [0, 1]
    saved = [event for event in first.all(ev.CheckpointSaved) if event.t < first.one(ev.FailureRaised).t][-1]
    for run in (first, second):
        began = [plan.first_step for plan in run.all(ev.TrainingPlanned)]
        assert began == [1, saved.step + 1]


@pytest.mark.slow
def test_request_that_cannot_wait_reaches_all_hosts(broken: dict[str, Hosts]) -> None:
    for run in broken["killed"].runs:
        assert [event.kind for event in run.all(ev.RequestSeen)] == ["stacks", "stop_now"]
        assert [event.kind for event in run.all(ev.RequestApplied)] == ["stacks", "stop_now"]
        assert len(run.all(ev.StacksTaken)) == 1
        assert run.all(ev.TrainingEnded)[-1].outcome == "stopped"


@pytest.mark.slow
def test_failure_on_one_host_is_reported_by_the_others_with_its_error(broken: dict[str, Hosts]) -> None:
    own, other = (
        next(run for run in broken["example"].runs if run.one(ev.FailureRaised).error == error)
        for error in ("DatasetError", "HostLost")
    )
    failure = other.one(ev.FailureRaised)
    assert failure.process == f"worker-{own.host}"
    assert "the file is cut short" in failure.message
    assert failure.message.startswith(f"host {own.host} (127.0.0.1) failed: DatasetError")


@pytest.mark.slow
def test_nan_on_any_host_ends_all_at_the_same_step_and_is_one_failure(broken: dict[str, Hosts]) -> None:
    first, second = broken["nan"].runs
    found, place = first.one(ev.NonFiniteFound), late(2)
    assert (found.step, found.cores) == (place.step, [place.core])
    assert first.one(ev.FailureRaised).kind == "non_finite"
    assert not second.all(ev.FailureRaised)
    ends = [run.one(ev.TrainingEnded) for run in (first, second)]
    assert ends[0].step == ends[1].step >= place.step
    assert ends[0].reason == ends[1].reason


@pytest.mark.slow
def test_hosts_with_different_configurations_are_refused(broken: dict[str, Hosts]) -> None:
    for run in broken["differs"].runs:
        message = run.one(ev.FailureRaised).message
        assert "host 1 was started with another configuration than host 0: optim.lr 0.02 instead of 0.01" in message


def test_collectives_are_over_all_ranks_of_all_hosts(exchanges: dict[str, Any]) -> None:
    found = [each for host in exchanges["exchanged"] for each in host]
    ranks = range(NUM_HOSTS * RANKS_EACH)
    leaders = sum(1 << rank for rank in ranks if rank % RANKS_EACH == 0)
    assert len({each["mean"] for each in found}) == 1, "bitwise equal on all ranks"
    for each in found:
        assert each["error"] < 1e-6
        assert each["byte"] == each["combined"] == leaders
        assert each["gathered"] == [[rank, 10 * rank] for rank in ranks]
        assert each["wide"] == [list(ranks), [10 * rank for rank in ranks]]
        assert each["flags"] == [rank % 2 == 0 for rank in ranks]
        assert each["broadcast"] == ["from 0", "", "x" * 70_000 + "0"]
        assert each["collected"] == ["h" * rank for rank in ranks if rank % RANKS_EACH == 0]


def test_a_host_that_is_late_is_waited_for_and_one_that_ended_is_named(exchanges: dict[str, Any]) -> None:
    assert exchanges["late"] == [7, 7, 7]
    first, second, third = exchanges["gone"]
    assert second == "failed"
    for sentence, waited_s in (first, third):
        assert sentence == "host 1 (127.0.0.1) failed: rank 3 (core 3): ValueError: boom"
        assert waited_s < 20.0, "it is not waited for until a timeout"
    assert exchanges["relayed"] == [[["1"], True], []]


def test_hosts_that_do_not_come_are_named(exchanges: dict[str, Any]) -> None:
    text = "PeerLost: only 2 of 3 hosts joined; missing: host 2"
    assert exchanges["forgotten"] == [text, text, None]
    assert str(exchanges["no_first"][1]).startswith("PeerLost: host 0 does not answer at 127.0.0.1:")


@pytest.mark.parametrize(
    ("overrides", "machine", "words"),
    [
        ([], hardware.Machine("CPU", 0, 0, "made up"), '"spmd" on 4 hosts is one program over all their cores'),
        (
            ["device.cores=[2]", "device.strategy=replica"],
            hardware.Machine("CPU", 0, 0, "x"),
            "names a core of one host",
        ),
        (["device.cores=1"], hardware.Machine("TPU", 4, 2, None), "a slice trains on all 8 TPU cores of each host"),
    ],
)
def test_cores_that_cannot_train_over_hosts_are_refused(
    overrides: list[str], machine: hardware.Machine, words: str
) -> None:
    with pytest.raises(Refused, match=words.replace("[", r"\[")):
        run_plan.make(config.parse(CURVE, "test.toml", overrides), machine, "test.toml", 4)


def test_lightning_over_hosts_is_refused_in_one_sentence_whatever_the_strategy() -> None:
    machine, source = hardware.Machine("CPU", 0, 0, "made up"), "lit.toml"
    for strategy in ("spmd", "replica"):
        overrides = ["task=lightning", f"device.strategy={strategy}", "model.module=engine.tasks.lit_digits:LitDigits"]
        with pytest.raises(Refused) as refused:
            run_plan.make(config.parse(CURVE, source, overrides), machine, source, 2)
        assert [f"{problem.key}: {problem.message}" for problem in refused.value.problems] == [
            'task: "lightning" has a loop of its own, which trains on one host; the run has 2'
        ]


def test_sizes_of_a_run_are_those_of_all_hosts() -> None:
    checked = config.parse(CURVE, "test.toml", ['device.cores="all"', "optim.lr_scaling=linear"])
    plan = run_plan.make(checked, hardware.Machine("TPU", 4, 2, None, chip="TPU v3"), "test.toml", 4)
    assert (plan.config.num_cores, plan.config.global_batch, plan.config.batch_per_core) == (32, 32, 1)
    assert plan.config.scaled_lr == pytest.approx(32 * 0.01)
    assert plan.num_processes == 1
    replica = config.parse(CURVE, "test.toml", ["device.cores=2", "device.strategy=replica"])
    assert run_plan.make(replica, hardware.Machine("CPU", 0, 0, "x"), "test.toml", 4).num_processes == 2


@pytest.mark.slow
def test_mesh_over_hosts_trains_as_the_mesh_of_one() -> None:
    """On one host, the only number that CPU devices allow."""
    found = on_cores("tests.engine.spmdcheck")
    one, over = found["spmd"], found["over_hosts"]
    assert over["losses"] == one["losses"]
    assert (over["scores"], over["valid"]) == (one["scores"], one["valid"])
    assert over["compiles"] == 0
    # A mesh names devices by their numbers.
    assert found["devices"] == [5, 4]
    assert over["reports"][-1] == one["reports"][-1] == len(over["losses"])
    assert over["paces"] == len(over["losses"])
    assert 0 < over["exchanges"] < len(over["losses"]), "not one for each step and evaluation batch"
