"""A simulated pod: the steps of synchronous training on many hosts, and the faults that a seed plants in it.

Every host computes a step, waits for the slowest one and exchanges gradients with it. Times are in seconds since the
start of the run on the clock of the first host. Nothing is random beyond the seed.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np

STEP_S = 0.045
"""Compute time of a step, so that a report, ten times a second, covers about two."""
DATA_S = 0.002
EXCHANGE_S = 0.003
CORES_PER_HOST = 8
SLOWER = 0.10
"""The straggler takes this share longer."""
BLOCK_STEPS = 256
_PLAIN_SPREAD = 0.008
"""Standard deviation between hosts: chips of one kind differ by about a percent."""
_STEP_SPREAD = 0.02
_DRIFT = 0.006
_DRIFT_KEPT = 0.98
"""Slow changes of the speed of a host, as by its temperature or neighbours."""
_HICCUP_SHARE = 1 / 20_000
"""Steps of a host that take several times as long, as by garbage collection."""
_SKEW_S = 0.004
SKEWED_S = 90.0
"""The worst clock of the pod is off by up to this much; a few others by some seconds."""


class Partition(NamedTuple):
    """The journals of a host do not reach the viewer for a while; training goes on."""

    host: int
    begin_s: float
    end_s: float


class Restart(NamedTuple):
    """A host fails, and the launcher restarts the processes of all hosts, which resume from the newest checkpoint."""

    host: int
    t: float
    takes_s: float


class Faults(NamedTuple):
    """What is planted in a pod."""

    straggler: int | None = None
    """A host that takes `SLOWER` longer for each step ..."""
    part: Literal["compute", "data"] = "compute"
    """... in this part of it ..."""
    straggler_from_s: float = 0.0
    """... from this time on."""
    nan_core: int | None = None
    """A core whose loss becomes NaN ..."""
    nan_from_s: float = 0.0
    """... at this time."""
    partition: Partition | None = None
    restart: Restart | None = None
    missing: int | None = None
    """A host that never joins, so that training never begins."""


class Steps(NamedTuple):
    """Consecutive steps of one generation."""

    first: int
    ends: np.ndarray
    """[steps] time at which each step ended."""
    compute_s: np.ndarray
    """[steps, hosts]"""
    data_s: np.ndarray
    """[steps, hosts]"""
    wait_s: np.ndarray
    """[steps, hosts]"""
    losses: np.ndarray
    """[steps, cores] float32"""


def planted(seed: int, num_hosts: int, seconds: float) -> Faults:
    """The faults of a pod by its seed: every kind of them except a host that is missing."""
    random = np.random.default_rng([seed, 1])
    straggler, silent, failing, bad = (int(host) for host in random.permutation(max(num_hosts, 4))[:4] % num_hosts)
    restart_t = float(random.uniform(0.25, 0.35)) * seconds
    begin_s = float(random.uniform(0.45, 0.5)) * seconds
    return Faults(
        straggler=straggler,
        part="compute" if random.random() < 0.7 else "data",
        straggler_from_s=float(random.uniform(0.0, 0.2)) * seconds,
        nan_core=bad * CORES_PER_HOST + int(random.integers(CORES_PER_HOST)),
        nan_from_s=float(random.uniform(0.6, 0.8)) * seconds,
        partition=Partition(silent, begin_s, begin_s + 0.2 * seconds) if num_hosts > 1 else None,
        restart=Restart(failing, restart_t, 0.05 * seconds) if num_hosts > 1 else None,
    )


class PodModel:
    """The times and losses of all steps, one block after the other."""

    def __init__(self, seed: int, num_hosts: int, faults: Faults, step_s: float = STEP_S) -> None:
        self.num_hosts = num_hosts
        self.num_cores = num_hosts * CORES_PER_HOST
        self.faults = faults
        self._random = np.random.default_rng([seed, 2])
        self.step_s = step_s
        self._plain = 1.0 + _PLAIN_SPREAD * np.clip(self._random.standard_normal(num_hosts), -2.0, 2.0)
        self._drift = np.zeros(num_hosts)
        self.skews_s = self._skews()
        """[hosts] seconds by which each clock is ahead of that of the first host."""

    def block(self, first: int, begin_s: float) -> Steps:
        """The next steps, of which `first` begins at `begin_s`."""
        shape = (BLOCK_STEPS, self.num_hosts)
        random, faults = self._random, self.faults
        noise = np.exp(_STEP_SPREAD * random.standard_normal(shape))
        hiccups = np.where(random.random(shape) < _HICCUP_SHARE, random.uniform(2.0, 5.0, shape), 1.0)
        compute_s = self.step_s * self._plain * (1.0 + self._drifts()) * noise * hiccups
        data_s = DATA_S * random.gamma(2.0, 0.5, shape)
        # The time of the start is close enough to choose the steps that the straggler is slow in.
        estimated_s = begin_s + self.step_s * np.arange(BLOCK_STEPS)
        if faults.straggler is not None:
            slow = estimated_s >= faults.straggler_from_s
            if faults.part == "compute":
                compute_s[slow, faults.straggler] *= 1.0 + SLOWER
            else:
                data_s[slow, faults.straggler] += SLOWER * self.step_s
        ready_s = compute_s + data_s
        wait_s = ready_s.max(axis=1, keepdims=True) - ready_s
        ends = begin_s + np.cumsum(ready_s.max(axis=1) + EXCHANGE_S)
        return Steps(first, ends, compute_s, data_s, wait_s, self._losses(first, ends))

    @staticmethod
    def loss_at(step: float) -> float:
        """Mean loss of a step."""
        return 2.3 * math.exp(-step / 2_000) + 0.3

    def _drifts(self) -> np.ndarray:
        """[steps, hosts] relative changes of the compute time."""
        drifts = np.empty((BLOCK_STEPS, self.num_hosts))
        pushes = _DRIFT * math.sqrt(1.0 - _DRIFT_KEPT**2) * self._random.standard_normal(drifts.shape)
        for step in range(BLOCK_STEPS):
            self._drift = _DRIFT_KEPT * self._drift + pushes[step]
            drifts[step] = self._drift
        return drifts

    def _losses(self, first: int, ends: np.ndarray) -> np.ndarray:
        level = np.array([self.loss_at(first + row) for row in range(BLOCK_STEPS)])
        noise = 1.0 + 0.05 * self._random.standard_normal((BLOCK_STEPS, self.num_cores))
        losses = (level[:, None] * noise).astype("<f4")
        if self.faults.nan_core is not None:
            losses[ends >= self.faults.nan_from_s, self.faults.nan_core] = np.nan
        return losses

    def _skews(self) -> np.ndarray:
        """Clocks that are kept by NTP, but for one in ten."""
        random = self._random
        skews = _SKEW_S * random.standard_normal(self.num_hosts)
        off = random.random(self.num_hosts) < 0.1
        skews[off] += random.uniform(-5.0, 5.0, int(off.sum()))
        skews[int(random.integers(self.num_hosts))] = random.uniform(-SKEWED_S, SKEWED_S)
        skews[0] = 0.0
        return skews
