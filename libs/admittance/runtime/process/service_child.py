"""A service in a child process of `admit up`, so that its work never delays the services that share
the process of `admit up`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import structlog

from admittance.runtime.errors import AdmittanceError
from admittance.runtime.process.child_process import ends_with_parent
from admittance.runtime.process.service import Service
from admittance.runtime.process.settings import Settings

END_SECONDS: Final = 5.0
"""Seconds from SIGTERM to SIGKILL. A service ends 4 s after SIGTERM by itself."""

log = structlog.get_logger()


class ChildEnded(AdmittanceError):
    """The process of a service ended without being asked to."""


async def run_child(
    service: Service,
    settings: Settings,
    *,
    variables: Mapping[str, str] | None = None,
    errand: bytes = b"",
    on_line: Callable[[str], None] | None = None,
) -> None:
    """Runs ``python -m`` with the package of a service until this call is cancelled; then the
    process gets SIGTERM. It also ends when this process ends, even by SIGKILL. It gets the
    environment of this process with the server, login, instance and data folder of ``settings``,
    and no admin port, which belongs to this process.

    ``variables``: more of its environment. ``errand``: what it reads on standard input up to its
    end; a secret belongs here, since other users may see an environment. ``on_line``: gets each
    line of its standard output; without it the output goes to standard error. Raises ChildEnded
    when the process ends by itself."""
    environ = {**_environment(settings), **(variables or {})}
    await run_module(service.name, service.package, environ, errand=errand, on_line=on_line)


async def run_module(
    name: str,
    module: str,
    environ: Mapping[str, str],
    *,
    errand: bytes = b"",
    files: Sequence[int] = (),
    on_line: Callable[[str], None] | None = None,
) -> None:
    """Runs ``python -m MODULE`` as `run_child` does. ``name``: in the log and in errors;
    ``files``: numbers of open files that the process inherits."""
    process = await asyncio.create_subprocess_exec(
        *ends_with_parent([sys.executable, "-m", module]),
        stdin=asyncio.subprocess.PIPE,
        stdout=sys.stderr.fileno() if on_line is None else asyncio.subprocess.PIPE,
        env=dict(environ),
        pass_fds=files,
        # In a session of its own the process does not get Ctrl-C at the terminal: this process
        # gets it, and ends its services in their order.
        start_new_session=True,
    )
    log.info("service_process_started", service=name, pid=process.pid)
    try:
        assert process.stdin is not None
        with suppress(BrokenPipeError, ConnectionResetError):
            process.stdin.write(errand)
            await process.stdin.drain()
        process.stdin.close()
        if on_line is not None and process.stdout is not None:
            async for line in process.stdout:
                on_line(line.decode(errors="replace").rstrip("\n"))
        status = await process.wait()
    finally:
        await _end(process)
    raise ChildEnded(f"the process of {name} ended with status {status}")


def _environment(settings: Settings) -> dict[str, str]:
    environ = settings.connection.environment(os.environ)
    environ.pop("ADMIT_ADMIN", None)
    environ |= {"ADMIT_NATS_URL": settings.url, "ADMIT_INSTANCE": settings.instance}
    if settings.data_dir is not None:
        environ["ADMIT_DATA_DIR"] = str(settings.data_dir)
    return environ


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.terminate()
    ended = asyncio.ensure_future(process.wait())
    try:
        await asyncio.wait([ended], timeout=END_SECONDS)
    finally:
        if not ended.done():
            with suppress(ProcessLookupError):
                process.kill()
    await ended
