"""The process that mirrors a run for a viewer: `python -m tputui.remote`, with JSON on its command line: the address
of the run, and whether all steps of a report but the last are left out.

Prints a line of JSON when the mirror can be opened, and another one when it has everything that the hosts had. Ends
when the viewer closes its end of the standard input. If another process mirrors the same run, waits until it can take
the place of that one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from typing import Any

import msgspec

from tputui.exit_codes import ExitCode
from tputui.remote import link
from tputui.remote.address import RunAddress
from tputui.remote.mirror import Mirror, MirrorFull, MirrorLock, mirror_dir_of
from tputui.remote.mirroring import Mirroring
from tputui.remote.opening import Ready, Synced
from tputui.remote.ssh_command import InvalidProgram, remote_command

LOCK_POLL_S = 0.2
PROBLEMS_NAMED = 3


def main(arguments: list[str]) -> ExitCode:
    return asyncio.run(_mirror(*msgspec.json.decode(arguments[-1], type=tuple[RunAddress, bool])))


async def _mirror(address: RunAddress, summary: bool) -> ExitCode:
    left = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, lambda: None if os.read(0, 4_096) else left.set())
    work = asyncio.create_task(_work(address, summary))
    leaving = asyncio.create_task(left.wait())
    await asyncio.wait((work, leaving), return_when=asyncio.FIRST_COMPLETED)
    asyncio.get_running_loop().remove_reader(0)
    leaving.cancel()
    work.cancel()
    try:
        return await work
    except asyncio.CancelledError:
        return ExitCode.DONE


async def _work(address: RunAddress, summary: bool) -> ExitCode:
    try:
        run_dir = mirror_dir_of(address, os.environ, summary=summary)
        remote_command(os.environ)
        lock = MirrorLock(run_dir)
        is_shown = False
        while not lock.acquire():
            links = link.read(run_dir)
            if links is not None and (links.synced or links.gave_up) and not is_shown:
                is_shown = True
                _report(Ready(run_dir=str(run_dir)))
                _report(Synced(problems=[host.reason for host in links.hosts if host.reason]))
            await asyncio.sleep(LOCK_POLL_S)
        mirror = Mirror(run_dir)
        mirroring = Mirroring(address, mirror, os.environ, summary=summary)
        running = asyncio.create_task(mirroring.run())
        try:
            return await _report_progress(mirroring, running, str(run_dir), is_shown=is_shown)
        finally:
            running.cancel()
            try:
                await asyncio.gather(running, return_exceptions=True)
            finally:
                # Also if the viewer leaves meanwhile, which cancels this.
                mirror.remove_if_empty()
    except (OSError, MirrorFull, InvalidProgram) as error:
        _report(Ready(error=f"{address}: it cannot be mirrored: {_reason(error)}"))
        return ExitCode.USAGE


async def _report_progress(
    mirroring: Mirroring, running: asyncio.Task[None], run_dir: str, *, is_shown: bool
) -> ExitCode:
    """Reports when the mirror can be opened and when it is whole, then mirrors on."""
    await _unless_ended(mirroring.ready(), running)
    if not mirroring.is_reached and not is_shown:
        named, more = mirroring.problems[:PROBLEMS_NAMED], len(mirroring.problems) - PROBLEMS_NAMED
        _report(Ready(error="; ".join(named) + (f"; and {more} more hosts" if more > 0 else "")))
        return ExitCode.USAGE
    if not is_shown:
        _report(Ready(run_dir=run_dir))
    try:
        await _unless_ended(mirroring.synced(), running)
        if not is_shown:
            is_shown = True
            _report(Synced(problems=mirroring.problems))
        await running
    except (MirrorFull, OSError) as error:
        reason = f"the mirror cannot be written: {_reason(error)}"
        mirroring.give_up(reason)
        if not is_shown:
            # There will be no more, and a command may wait for it.
            _report(Synced(problems=[reason]))
        # Until the viewer leaves, it shows why.
        await asyncio.Event().wait()
    return ExitCode.DONE


def _reason(error: Exception) -> str:
    if not isinstance(error, OSError):
        return str(error)
    return f"{f'{error.filename}: ' if error.filename else ''}{error.strerror or error}"


async def _unless_ended(work: Any, running: asyncio.Task[None]) -> None:
    """Waits for some work. Raises what ended the mirroring meanwhile."""
    task = asyncio.ensure_future(work)
    await asyncio.wait((task, running), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        task.cancel()
        await running


def _report(reply: Ready | Synced) -> None:
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(msgspec.json.encode(reply).decode() + "\n")
        sys.stdout.flush()
    # The viewer reads this pipe only until then, and a full one would block.
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
