"""Which end of a process of a command may be what ends the command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.supervise.harness import wait_for
from tputui.supervise.child_ends import HANDLED_S, ChildEnds

COMMAND = """
import subprocess, sys
fails = "import sys; sys.exit(len(sys.stdin.read()) + 7)"
child = subprocess.Popen([sys.executable, "-c", fails], stdin=subprocess.PIPE)
print(child.pid, flush=True)
input()
child.stdin.close()
input()
child.wait()
print("goes on", flush=True)
input()
"""


def test_the_end_of_a_process_is_forgotten_once_the_command_went_on_for_long(tmp_path: Path) -> None:
    command = subprocess.Popen(
        [sys.executable, "-c", COMMAND],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert command.stdin is not None
    assert command.stdout is not None
    try:
        pid = int(command.stdout.readline())
        ends = ChildEnds(command.pid, tmp_path / "log")
        ends.poll(0.0)
        command.stdin.write("\n")
        command.stdin.flush()

        def found() -> bool:
            ends.poll(0.0)
            return ends.first is not None

        wait_for(found, "the end of the child")
        assert ends.first is not None
        assert (ends.first.pid, ends.first.returncode) == (pid, 7)
        # Nobody has waited for it: the command may not know it yet.
        ends.poll(10 * HANDLED_S)
        assert ends.first is not None
        command.stdin.write("\n")
        command.stdin.flush()
        assert command.stdout.readline() == "goes on\n"
        ends.poll(11 * HANDLED_S)
        assert ends.first is not None
        ends.poll(12.5 * HANDLED_S)
        assert ends.first is None
    finally:
        command.kill()
        command.communicate()
