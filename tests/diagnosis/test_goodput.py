"""Goodput of families of runs, against the truth of the schedule that wrote them."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from msgspec.structs import replace

from tests.recorded import T0, manifest, opened, write_journal
from tputui.diagnosis.goodput import PARTS, TimeOfRun, goodput
from tputui.session import session
from tputui.session.family import family_goodput
from tputui.state.time_spent import Measured, TimeView
from tputui.telemetry import events as ev
from tputui.telemetry import rundir
from tputui.text import verdict_lines

STEPS_PER_EPOCH = 200
REPORT_STEPS = 10
STEP = (
    ("data", "data", 0.02),
    ("steps", "trace", 0.01),
    ("steps", "execute", 0.3),
    ("steps", "wait", 0.05),
    ("steps", "report", 0.002),
    ("other", "other", 0.001),
)
"""Part, section and maximum of the seconds of a step."""


class Schedule:
    """Writes runs that are killed and resumed at random, and counts where the time truly went."""

    def __init__(self, parent: Path, seed: int) -> None:
        self.truth: dict[str, float] = defaultdict(float)
        self.lost_steps = 0
        self.t = T0
        self._parent = parent
        self._random = random.Random(seed)
        self._saved: Saved | None = None

    def run(self, name: str, *, killed_at_step: int | None, total_steps: int) -> Path:
        """One run, from the newest checkpoint, if there is one, to its end or its death."""
        resumed = self._saved
        path = str(resumed.path) if resumed else None
        run_dir = rundir.create(self._parent, _manifest(name, self.t, path))
        supervisor: list[ev.Event] = [opened(self.t, "supervisor")]
        supervisor += [ev.RunStarted(t=self.t, run=name, config={}, argv=[], resumed_from=path)]
        worker: list[ev.Event] = [opened(self.t, "worker")]
        spent: dict[str, float] = defaultdict(float)
        at_save: dict[str, float] = defaultdict(float)
        self._pass(spent, "init", self._random.uniform(5, 60))
        step = saved_step = resumed.step if resumed else 0
        sections: dict[str, float] = defaultdict(float)
        is_killed = False
        while step < total_steps and not is_killed:
            epoch = step // STEPS_PER_EPOCH + 1
            sections.clear()
            worker.append(ev.EpochStarted(t=self.t, epoch=epoch, first_step=step + 1))
            self._section(sections, spent, "compile", "compile", self._random.uniform(0, 40))
            while step < epoch * STEPS_PER_EPOCH and not is_killed:
                for part, section, most in STEP:
                    self._section(sections, spent, part, section, self._random.uniform(0, most))
                step += 1
                if step % REPORT_STEPS == 0:
                    worker.append(_report(self.t, epoch, step, sections))
                is_killed = step == killed_at_step
            if not is_killed:
                self._section(sections, spent, "evaluation", "evaluate", self._random.uniform(1, 9))
            if not is_killed and (self._saved is None or self._random.random() < 0.7 or step == total_steps):
                self._section(sections, spent, "checkpoint", "save", self._random.uniform(0.5, 5))
                saved_step, at_save = step, spent.copy()
                self._saved = Saved(run_dir / "checkpoints" / f"step-{step}.pt", step)
                worker.append(_save(self.t, epoch, step, sections))
            if not is_killed:
                worker.append(_epoch_ended(self.t, epoch, step, sections))
        if is_killed:
            self._pass(spent, "steps", self._random.uniform(0, 3))  # A step that never ended.
            worker.append(ev.HeartbeatSent(t=self.t, phase="executing", phase_s=1.0, step=step, epoch=1))
            self._lose(spent, at_save, step // REPORT_STEPS * REPORT_STEPS - saved_step)
            supervisor.append(ev.RunEnded(t=self.t, outcome="failed", exit_code=3, reason="killed"))
        else:
            worker.append(ev.TrainingEnded(t=self.t, outcome="done", step=step, reason=""))
            self._pass(spent, "other", self._random.uniform(0, 2))
            supervisor.append(ev.RunEnded(t=self.t, outcome="done", exit_code=0, reason=""))
        for part, seconds in spent.items():
            self.truth[part] += seconds
        write_journal(run_dir / "worker-0.jsonl", worker)
        write_journal(run_dir / "supervisor-0.jsonl", supervisor)
        return run_dir

    def wait(self) -> None:
        """Time until the next run is started."""
        self._pass(self.truth, "downtime", self._random.uniform(10, 4_000))

    def _lose(self, spent: dict[str, float], at_save: dict[str, float], steps: int) -> None:
        lost_s = math.fsum(seconds - at_save[part] for part, seconds in spent.items() if part != "init")
        for part in [*spent]:
            if part != "init":
                spent[part] = at_save[part]
        spent["lost"] += lost_s
        self.lost_steps += max(0, steps)

    def _section(
        self, sections: dict[str, float], spent: dict[str, float], part: str, section: str, seconds: float
    ) -> None:
        sections[section] += seconds
        self._pass(spent, part, seconds)

    def _pass(self, spent: dict[str, float], part: str, seconds: float) -> None:
        spent[part] += seconds
        self.t += seconds


class Saved(NamedTuple):
    path: Path
    step: int


def _manifest(name: str, t: float, checkpoint: str | None) -> rundir.Manifest:

    return msgspec.structs.replace(manifest(name), created=t, resume_from=checkpoint)


def _report(t: float, epoch: int, step: int, sections: dict[str, float]) -> ev.ProgressReported:
    return ev.ProgressReported(
        t=t, epoch=epoch, epoch_step=step % STEPS_PER_EPOCH or STEPS_PER_EPOCH, step=step, step_s=0.2,
        examples_per_s=320.0, lr=0.1, report_steps=10, sections_s=dict(sections),
    )  # fmt: skip


def _save(t: float, epoch: int, step: int, sections: dict[str, float]) -> ev.CheckpointSaved:
    return ev.CheckpointSaved(
        t=t, path=f"checkpoints/step-{step}.pt", step=step, epoch=epoch, bytes=10, seconds=1.0, reason="epoch",
        sections_s=dict(sections),
    )  # fmt: skip


def _epoch_ended(t: float, epoch: int, step: int, sections: dict[str, float]) -> ev.EpochEnded:
    return ev.EpochEnded(
        t=t, epoch=epoch, step=step, train={}, valid={}, train_s=1.0, valid_s=1.0, sections_s=dict(sections), lr=0.1,
        best=False,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_parts_of_killed_and_resumed_runs_match_the_schedule(tmp_path: Path, seed: int) -> None:
    schedule, kills = Schedule(tmp_path, seed), random.Random(seed)
    step = 0
    for index in range(kills.randint(1, 4)):
        step += kills.randint(STEPS_PER_EPOCH + 1 if index == 0 else 50, 700)
        schedule.run(f"try-{index}", killed_at_step=step, total_steps=3_000)
        schedule.wait()
        step = schedule._saved.step if schedule._saved else 0
    run_dir = schedule.run("last", killed_at_step=None, total_steps=3_000)
    found = family_goodput(run_dir, session.load(run_dir))
    wall_s = schedule.t - T0
    assert found.wall_s == pytest.approx(wall_s, rel=1e-9)
    assert math.fsum(found.parts_s.values()) == pytest.approx(found.wall_s, rel=1e-12)
    assert {part: round(seconds, 3) for part, seconds in found.parts_s.items()} == {
        part: pytest.approx(schedule.truth[part], abs=wall_s / 1_000) for part in PARTS
    }
    assert found.lost_steps == schedule.lost_steps


def _trained(name: str, began: float, ended: bool, condition: str, resumed: str | None = None) -> TimeOfRun:
    """A run of 100 s that spent all of its time on steps."""
    time = TimeView(
        began=began, first_step=1, until=began + 100, sections_s={"execute": 100.0}, newest_s={}, newest_wall_s=0.0,
        newest_steps=0, newest_execute_s=None,
        saves={"last.pt": Measured(t=began + 100, step=10, sections_s={"execute": 100.0})},
    )  # fmt: skip
    on_purpose = condition in ("done", "stopped")
    return TimeOfRun(
        name, began, began + 100, time, 10, ended, condition == "done", resumed, ended_on_purpose=on_purpose
    )


@pytest.mark.parametrize(
    ("condition", "downtime_s"), [("done", 0.0), ("stopped", 0.0), ("failed", 5_000.0), ("lost", 5_000.0)]
)
def test_only_time_without_a_run_that_was_wanted_is_downtime(condition: str, downtime_s: float) -> None:
    first = _trained("a", T0, ended=True, condition=condition)
    second = _trained("b", T0 + 5_100, ended=True, condition="done", resumed="/runs/a/checkpoints/last.pt")
    found = goodput([first, second._replace(time=second.time and replace(second.time, first_step=11))])
    assert found.parts_s["downtime"] == pytest.approx(downtime_s)
    assert found.wall_s == pytest.approx(200 + downtime_s)
    assert math.fsum(found.parts_s.values()) == pytest.approx(found.wall_s)
    assert found.share == pytest.approx(200 / found.wall_s)


@pytest.mark.parametrize("engine", [False, True])
def test_a_command_without_known_steps_has_no_goodput(tmp_path: Path, engine: bool) -> None:
    config = {"task": "digits", "data": {}} if engine else {"script": {"command": ["python", "train.py"]}}
    run_dir = rundir.create(tmp_path, replace(_manifest("script", T0, None), config=config))
    ended = ev.RunEnded(t=T0 + 15, outcome="failed" if engine else "done", exit_code=0, reason="")
    write_journal(run_dir / "supervisor-0.jsonl", [opened(T0, "supervisor"), ended])
    found = family_goodput(run_dir, session.load(run_dir))
    assert found.wall_s == pytest.approx(15)
    if engine:
        assert found.share == 0.0
        assert found.parts_s["init"] == pytest.approx(15)
        return
    assert (found.share, found.parts_s, found.reason) == (None, {}, "the command reported no steps")
    assert verdict_lines.goodput_line(found) == "not available: the command reported no steps"
    text = "\n".join(verdict_lines.goodput_blocks(found, 3.6))
    assert "%" not in text
    assert "cost 0.01 at 3.60 an hour" in text


def test_runs_whose_clocks_disagree_have_no_negative_part() -> None:
    """The second run begins, by its clock, before the first one."""
    first = TimeOfRun("a", T0, T0 + 100, None, 0, True, False)
    second = TimeOfRun("b", T0 - 30, T0 - 10, None, 0, True, False, "/runs/a/checkpoints/last.pt")
    for runs in ([first, second], [second, first]):
        found = goodput(runs)
        assert min(found.parts_s.values()) >= 0
        assert math.fsum(found.parts_s.values()) == pytest.approx(found.wall_s)
        assert found.share is not None
        assert 0 <= found.share <= 1


@pytest.mark.parametrize("sections", [{"data": 2.0, "other": 8.0}, {"data": 1.0, "execute": 8.0, "other": 1.0}])
def test_a_script_that_measures_no_execution_spends_the_rest_of_its_loop_on_steps(
    tmp_path: Path, sections: dict[str, float]
) -> None:
    run_dir = rundir.create(tmp_path, _manifest("script", T0, None))
    begun = ev.EpochStarted(t=T0 + 5, epoch=1, first_step=1)
    done = ev.TrainingEnded(t=T0 + 15, outcome="done", step=20, reason="")
    write_journal(
        run_dir / "worker-0.jsonl", [opened(T0, "worker"), begun, _epoch_ended(T0 + 15, 1, 20, sections), done]
    )
    ended = ev.RunEnded(t=T0 + 15, outcome="done", exit_code=0, reason="")
    write_journal(run_dir / "supervisor-0.jsonl", [opened(T0, "supervisor"), ended])
    found = family_goodput(run_dir, session.load(run_dir))
    assert found.parts_s["steps"] == pytest.approx(8.0)
    assert found.share == pytest.approx(8.0 / 15)
