"""What a Mac lacks, taken from the Python processes that find this module on their path: every one imports it first.

Hides `/proc` and the calls that only Linux has, and says that the system is another. This is not a Mac: its own calls
are missing, and the library of C and the terminal are those of Linux.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import select
import signal
import socket
import sys
import sysconfig
import urllib.request  # noqa: F401 - on a Mac it asks the system for proxies, by a module that is missing here
from collections.abc import Callable
from typing import Any

READS = ("open", "stat", "lstat", "readlink", "listdir", "scandir")
OF_LINUX: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (os, ("O_DIRECT", "O_TMPFILE", "copy_file_range", "eventfd", "memfd_create", "pidfd_open", "pipe2", "splice",
          "posix_fadvise", "prlimit", "sched_getaffinity", "sched_setaffinity", "setns", "unshare", "waitid")),
    (select, ("epoll",)),
    (signal, ("SIGRTMAX", "SIGRTMIN", "pidfd_send_signal", "sigtimedwait", "sigwaitinfo")),
    (socket, ("AF_NETLINK", "SO_PEERCRED", "TCP_KEEPIDLE", "TCP_USER_TIMEOUT")),
)  # fmt: skip


def outside_proc(read: Callable[..., Any]) -> Callable[..., Any]:
    """The function for paths, with nothing in `/proc`."""

    def checked(path: Any = ".", *others: Any, **named: Any) -> Any:
        if not isinstance(path, int) and (os.fsdecode(path) + "/").startswith("/proc/"):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return read(path, *others, **named)

    return checked


sysconfig.get_config_vars()  # of this Python, by the name of its system
for name in READS:
    setattr(os, name, outside_proc(getattr(os, name)))
builtins.open = io.open = outside_proc(io.open)
for module, names in OF_LINUX:
    for name in names:
        module.__dict__.pop(name, None)
sys.platform = "darwin"
