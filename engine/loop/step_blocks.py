"""`StepBlocks`: trains in blocks of steps on the orders of `tputui try`, and measures the pace of each block."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable

import msgspec

from engine.errors import Stopped
from tputui.engine_api import CONNECTION_VARIABLE, MESSAGE_BYTES_MAX, BlockOrder, BlockResult

BETWEEN_EPOCHS = ("evaluate", "save")
"""Sections that stop the clock until the next epoch begins."""


class StepBlocks:
    """Blocks of steps that are measured from an idle device to an idle device. Used by the loop's thread."""

    def __init__(
        self,
        connection: socket.socket,
        global_batch: int,
        wait: Callable[[], None],
        compiled_s: Callable[[], float],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`wait` waits until the device is idle; `compiled_s` returns the seconds inside the compiler so far."""
        self._connection = connection
        self._received = b""
        self._global_batch = global_batch
        self._wait = wait
        self._compiled_s = compiled_s
        self._clock = clock
        self._order: BlockOrder | None = None
        self._left = 0
        """Steps of the block that are left."""
        self._seconds = 0.0
        self._since: float | None = None
        """When the clock was started; None if it is stopped."""
        self._compiled_before = 0.0

    def at_boundary(self) -> None:
        """Between two steps: reports a block that is complete, and waits for the next one.

        Raises `Stopped` if the connection is closed.
        """
        if self._order is not None:
            self._left -= 1
            if self._left == 0:
                self._report(self._order)
        if self._left == 0:
            self._order = self._next_order()
            self._left = self._order.skip + self._order.steps
        if self._order is not None and self._left == self._order.steps:
            self._wait()
            self._seconds, self._since, self._compiled_before = 0.0, self._clock(), self._compiled_s()

    def entered(self, section: str) -> None:
        """The loop enters a section: an evaluation or a save stops the clock."""
        if section in BETWEEN_EPOCHS:
            self._stop_clock()

    def begin_epoch(self) -> None:
        """Continues the clock, if some steps of the block that is measured are left."""
        if self._order is not None and 0 < self._left <= self._order.steps and self._since is None:
            self._since = self._clock()

    def _stop_clock(self) -> None:
        if self._since is not None:
            self._seconds += self._clock() - self._since
            self._since = None

    def _report(self, order: BlockOrder) -> None:
        self._wait()
        self._stop_clock()
        compile_s = self._compiled_s() - self._compiled_before
        examples = order.steps * self._global_batch
        result = BlockResult(steps=order.steps, examples=examples, seconds=self._seconds, compile_s=compile_s)
        self._send(msgspec.json.encode(result) + b"\n")

    def _next_order(self) -> BlockOrder:
        while b"\n" not in self._received:
            try:
                more = self._connection.recv(MESSAGE_BYTES_MAX)
            except OSError:
                more = b""
            if not more:
                raise Stopped(ENDED)
            self._received += more
        line, _, self._received = self._received.partition(b"\n")
        return msgspec.json.decode(line, type=BlockOrder)

    def _send(self, line: bytes) -> None:
        try:
            self._connection.sendall(line)
        except OSError:
            raise Stopped(ENDED) from None


ENDED = "tputui try, which measures this run, has ended"


def from_environment(global_batch: int, wait: Callable[[], None], compiled_s: Callable[[], float]) -> StepBlocks | None:
    """The blocks of this process if `tputui try` started it, else None."""
    number = os.environ.pop(CONNECTION_VARIABLE, None)
    if number is None:
        return None
    return StepBlocks(socket.socket(fileno=int(number)), global_batch, wait, compiled_s)
