"""A process that `supervise` keeps running beside the services of this process.

A child keeps what is slow to load, or busy, out of this process. It ends with this process, and is
started again after it ended.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from typing import Final

from admittance.runtime.errors import AdmittanceError
from admittance.runtime.process.supervise import ServiceTask

END_SECONDS: Final = 3.0
"""How long a child may take to end after SIGTERM, before it is killed."""


def child_task(
    name: str, command: Sequence[str], *, given: bytes = b"", files: Sequence[int] = ()
) -> ServiceTask:
    """The task of a child. ``command``: its command line, best by `ends_with_parent`; ``given``:
    what it reads from its input; ``files``: numbers of open files that it inherits. Its output and
    errors are those of this process."""

    async def run(serves: asyncio.Event) -> None:
        child = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, pass_fds=files
        )
        try:
            await _give(child, given)
            serves.set()
            status = await child.wait()
        finally:
            await _end(child)
        raise AdmittanceError(f"the process of {name} ended with status {status}")

    return ServiceTask(name, run)


async def _give(child: asyncio.subprocess.Process, given: bytes) -> None:
    assert child.stdin is not None
    child.stdin.write(given)
    child.stdin.close()


async def _end(child: asyncio.subprocess.Process) -> None:
    """Ends the child if it runs, and waits for its end, also while this task is cancelled."""
    if child.returncode is not None:
        return
    child.send_signal(signal.SIGTERM)
    ended = asyncio.ensure_future(child.wait())
    done, _ = await asyncio.wait([ended], timeout=END_SECONDS)
    if not done:
        child.kill()
        await ended
