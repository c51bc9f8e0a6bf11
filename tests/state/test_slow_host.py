"""The host that is named as slower than the others: none in a healthy run, the slow one within seconds."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, SupportsIndex

import pytest
from msgspec.structs import replace

from tputui.state.slow_host import SlowHosts
from tputui.state.snapshot import SlowHostView
from tputui.telemetry.events import HostPaceMeasured

COMPUTE_S, DATA_S, STEP_S = 0.008, 0.001, 0.01
REPORT_STEPS = 10
REPORTS = 32
SEEDS = 30

Paces = dict[int, list[HostPaceMeasured]]


def paces(
    num_hosts: int,
    seed: int,
    *,
    slower: Mapping[int, float] | None = None,
    late: Mapping[int, float] | None = None,
    scatter: float = 0.03,
    reports: int = REPORTS,
) -> Paces:
    """The reports of hosts that each report at their own steps; `slower` computes longer, `late` waits for batches."""
    chance = random.Random(seed)
    found: Paces = {}
    for host in range(num_hosts):
        first, of_host = 1 + host % REPORT_STEPS, list[HostPaceMeasured]()
        compute_s = COMPUTE_S + STEP_S * (slower or {}).get(host, 0.0)
        data_s = DATA_S + STEP_S * (late or {}).get(host, 0.0)
        for _ in range(reports):
            noise = chance.gauss(1.0, scatter)
            last = first + REPORT_STEPS - 1
            of_host.append(
                HostPaceMeasured(
                    t=0.0,
                    step=last,
                    steps=REPORT_STEPS,
                    step_s=STEP_S,
                    data_s=data_s * noise,
                    compute_s=compute_s * noise,
                )
            )
            first += REPORT_STEPS
        found[host] = of_host
    return found


def named(found: Mapping[int, Sequence[HostPaceMeasured]], every: int = 4) -> list[SlowHostView | None]:
    """The slow host after every few reports, as a viewer that follows the run sees it."""
    hosts = SlowHosts()
    names = {host: f"vm-{host}" for host in found}
    longest = max(map(len, found.values()))
    return [
        hosts.find({host: reports[:until] for host, reports in found.items()}, names)
        for until in range(every, longest + 1, every)
    ]


def test_scatter_of_three_percent_names_no_host_of_256() -> None:
    for seed in range(SEEDS):
        assert set(named(paces(256, seed), every=16)) == {None}, seed


def test_host_that_is_ten_percent_slower_is_always_the_one_that_is_named() -> None:
    for seed in range(SEEDS):
        slow = seed * 7 % 256
        found = named(paces(256, seed, slower={slow: 0.10}), every=16)
        assert {view.index for view in found if view is not None} == {slow}, seed
        assert found[-1] is not None


def test_host_near_the_limit_stays_named() -> None:
    for seed in range(SEEDS):
        views = named(paces(16, seed, slower={5: 0.065}, reports=2 * REPORTS), every=1)
        since = next(place for place, view in enumerate(views) if view is not None)
        assert {view.index if view is not None else None for view in views[since:]} == {5}, seed


@pytest.mark.parametrize("num_hosts", [2, 3, 4, 16])
def test_few_hosts_need_no_majority(num_hosts: int) -> None:
    for seed in range(20):
        assert set(named(paces(num_hosts, seed))) == {None}
        found = named(paces(num_hosts, seed, slower={1: 0.2}))
        assert found[-1] is not None
        assert {view.index for view in found if view is not None} == {1}


def test_view_names_the_part_the_amount_and_who_waits() -> None:
    view = named(paces(8, 1, slower={3: 0.2}, scatter=0.01))[-1]
    assert view is not None
    assert (view.index, view.name, view.part, view.waiting) == (3, "vm-3", "compute", 7)
    assert view.seconds == pytest.approx(0.2 * STEP_S, rel=0.1)
    assert view.share == pytest.approx(0.2 * STEP_S / (COMPUTE_S + DATA_S), rel=0.1)
    view = named(paces(8, 1, late={5: 0.5}, scatter=0.01))[-1]
    assert view is not None
    assert (view.index, view.part) == (5, "data")


def test_host_is_named_after_ten_reports_and_forgotten_after_it_recovered() -> None:
    slow, fast = paces(8, 1, slower={3: 0.2}, scatter=0.01), paces(8, 2, scatter=0.01, reports=60)
    both = {host: [*slow[host], *(replace(pace, step=pace.step + 320) for pace in fast[host])] for host in slow}
    found = named(both, every=1)
    first = next(index for index, view in enumerate(found) if view is not None)
    assert first <= 20
    assert found[31] is not None
    assert found[-1] is None


def test_hiccup_of_a_few_reports_names_no_host() -> None:
    found = paces(8, 1, scatter=0.01)
    found[2] = [replace(pace, data_s=0.02) if 12 <= index < 18 else pace for index, pace in enumerate(found[2])]
    assert set(named(found, every=1)) == {None}


def test_host_that_reads_late_is_named_if_only_waiting_for_batches_is_measured() -> None:
    found = {
        host: [replace(pace, compute_s=None) for pace in reports]
        for host, reports in paces(8, 1, late={5: 0.2}).items()
    }
    view = named(found)[-1]
    assert view is not None
    assert (view.index, view.part) == (5, "data")
    assert view.share == pytest.approx(0.2, rel=0.2)


def test_host_without_reports_and_a_silent_one_do_not_matter() -> None:
    found = paces(8, 1, slower={3: 0.2})
    found[6], found[7] = [], found[7][:5]
    view = named(found)[-1]
    assert view is not None
    assert view.index == 3


def test_rows_that_were_kept_equal_those_made_anew() -> None:
    # A host is silent for a while, and another one joins late.
    found = paces(8, 3, slower={3: 0.2})
    kept, names = SlowHosts(), {host: f"vm-{host}" for host in found}
    for until in range(1, REPORTS + 1):
        shown = {host: reports[:until] for host, reports in found.items()}
        shown[6] = found[6][: until if until > 28 else min(until, 6)]
        shown[5] = found[5][10:until]
        assert kept.find(shown, names) == SlowHosts().find(shown, names)


def test_rows_that_a_returning_host_changes_are_made_again_a_few_at_a_time() -> None:
    found = paces(8, 3, slower={3: 0.2})
    hosts, names = SlowHosts(), {host: f"vm-{host}" for host in found}
    for until in range(1, REPORTS + 1):
        hosts.find({**{host: reports[:until] for host, reports in found.items()}, 6: found[6][:2]}, names, 4)
        assert not hosts.is_behind
    view, calls = hosts.find(found, names, 4), 1
    while hosts.is_behind:
        view, calls = hosts.find(found, names, 4), calls + 1
        assert calls < 20
    assert calls > 3
    assert view == SlowHosts().find(found, names) is not None


def test_steps_that_were_trained_again_between_two_snapshots_are_judged_anew() -> None:
    before, after = paces(8, 3), paces(8, 4, slower={3: 0.2})
    kept, names = SlowHosts(), {host: f"vm-{host}" for host in before}
    kept.find(before, names)
    cut = {host: [*before[host][:8], *after[host][8:]] for host in before}
    assert kept.find(cut, names) == SlowHosts().find(cut, names) is not None


class Read(list[HostPaceMeasured]):
    """Reports that count how often one of them is read."""

    reads = 0

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        Read.reads += 1
        return super().__getitem__(index)


def test_a_silent_host_does_not_make_all_rows_anew() -> None:
    found = paces(64, 1, reports=48)
    hosts, names, reads = SlowHosts(), {host: "" for host in found}, list[int]()
    for until in range(40, 48):
        shown = {host: Read(reports[: until if host != 6 else 5]) for host, reports in found.items()}
        Read.reads = 0
        hosts.find(shown, names)
        reads.append(Read.reads)
    assert max(reads[1:]) < reads[0] / 5
