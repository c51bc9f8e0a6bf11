"""Blocks of steps on the orders of `tputui try`: what their time contains, and the end of the connection."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import msgspec
import pytest

from engine.errors import Stopped
from engine.loop.step_blocks import StepBlocks, from_environment
from tputui.trial_protocol import CONNECTION_VARIABLE, BlockOrder, BlockResult

STEP_S = 0.5
EVALUATION_S = 40.0


class Loop:
    """A loop with epochs of four steps on a clock of its own, as ours and Lightning's call the blocks."""

    def __init__(self, connection: socket.socket) -> None:
        self.now = 100.0
        self.compile_s = 0.0
        self.waits = 0
        self.step = 0
        self.blocks = StepBlocks(connection, 64, self._wait, lambda: self.compile_s, lambda: self.now)

    def _wait(self) -> None:
        self.waits += 1

    def run(self, steps: int) -> None:
        """Trains steps, each after a boundary, and evaluates after every fourth one."""
        for _ in range(steps):
            if self.step % 4 == 0:
                self.blocks.begin_epoch()
            self.blocks.at_boundary()
            self.now += STEP_S
            self.step += 1
            if self.step % 4 == 0:
                self.blocks.entered("evaluate")
                self.blocks.entered("report")
                self.now += EVALUATION_S
                self.blocks.entered("other")


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(5.0)
        yield ours, theirs


def send(end: socket.socket, skip: int, steps: int) -> None:
    end.sendall(msgspec.json.encode(BlockOrder(skip=skip, steps=steps)) + b"\n")


def received(end: socket.socket) -> BlockResult:
    return msgspec.json.decode(end.recv(4096), type=BlockResult)


def test_a_block_has_the_time_of_its_steps_without_evaluations(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    loop = Loop(theirs)
    send(ours, skip=1, steps=6)
    send(ours, skip=0, steps=2)
    loop.run(8)
    assert received(ours) == BlockResult(steps=6, examples=6 * 64, seconds=6 * STEP_S, compile_s=0.0)
    loop.compile_s = 0.2
    send(ours, skip=0, steps=1)
    loop.run(2)
    assert received(ours) == BlockResult(steps=2, examples=128, seconds=2 * STEP_S, compile_s=0.2)
    assert loop.waits == 5


def test_a_closed_connection_stops_training(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    loop = Loop(theirs)
    send(ours, skip=0, steps=1)
    loop.run(1)
    ours.close()
    with pytest.raises(Stopped):
        loop.run(1)


def test_without_the_variable_there_are_no_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CONNECTION_VARIABLE, raising=False)
    assert from_environment(64, lambda: None, lambda: 0.0) is None
