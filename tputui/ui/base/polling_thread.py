"""The base class of the threads that poll files or processes for a screen."""

from __future__ import annotations

import threading


class PollingThread:
    """Calls `poll` until stopped, then `close`. Textual starts and joins it: `run_worker(thread.run, thread=True)`."""

    def __init__(self) -> None:
        self._awake = threading.Event()
        self._stopped = threading.Event()

    def poll(self) -> float | None:
        """Does one round of work; returns the seconds until the next one, None to wait for `wake`."""
        raise NotImplementedError

    def close(self) -> None:
        """Releases what the thread holds; called in the thread, also after an error."""

    def run(self) -> None:
        """The body of the thread."""
        try:
            while True:
                # In this order: a wake-up during `poll` ends the wait after it, and a stop before it is seen here.
                self._awake.clear()
                if self._stopped.is_set():
                    return
                self._awake.wait(self.poll())
        finally:
            self.close()

    def wake(self) -> None:
        """Ends the current wait; callable from any thread."""
        self._awake.set()

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """Ends the thread after the current round; callable from any thread."""
        self._stopped.set()
        self._awake.set()
