"""A service in a child process of `admit up`, so that its work never delays the services that share
the process of `admit up`, and has a processor of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import structlog

from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import AdmittanceError
from admittance.runtime.process.admin import UNIX, AdminPort
from admittance.runtime.process.child_process import ends_with_parent
from admittance.runtime.process.health import why_not_ready
from admittance.runtime.process.service import Service
from admittance.runtime.process.settings import Settings
from admittance.runtime.process.supervise import ServiceTask, Serving

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
    at_our_end: signal.Signals = signal.SIGTERM,
) -> None:
    """Runs ``python -m`` with the package of a service until this call is cancelled; then the
    process gets SIGTERM. It also ends when this process ends, even by SIGKILL. It gets the
    environment of this process with the server, login, instance and data folder of ``settings``,
    and no admin port, which belongs to this process.

    ``variables``: more of its environment. ``errand``: what it reads on standard input up to its
    end; a secret belongs here, since other users may see an environment. ``on_line``: gets each
    line of its standard output; without it the output goes to standard error. ``at_our_end``: the
    signal that the process gets when this process ends. Raises ChildEnded when the process ends by
    itself."""
    environ = {**_environment(settings), **(variables or {})}
    await run_module(
        service.name,
        service.package,
        environ,
        errand=errand,
        on_line=on_line,
        at_our_end=at_our_end,
    )


async def run_module(
    name: str,
    module: str,
    environ: Mapping[str, str],
    *,
    errand: bytes = b"",
    files: Sequence[int] = (),
    on_line: Callable[[str], None] | None = None,
    at_our_end: signal.Signals = signal.SIGTERM,
) -> None:
    """Runs ``python -m MODULE`` as `run_child` does. ``name``: in the log and in errors;
    ``files``: numbers of open files that the process inherits."""
    process = await asyncio.create_subprocess_exec(
        *ends_with_parent([sys.executable, "-m", module], at_our_end),
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


def child_task(
    service: Service,
    settings: Settings,
    *,
    variables: Mapping[str, str],
    serving: Serving,
    meanwhile: Callable[[], None],
    admin: AdminPort | None = None,
) -> ServiceTask:
    """The task that `supervise` runs for a service in a child process. ``serving``: waits until the
    service works. ``meanwhile``: called in a thread while the process starts. ``admin``: the admin
    port of this process, which also shows the metrics of the child and whether it is ready."""
    if admin is not None:
        admin.expect(settings.service)

    async def once(serves: asyncio.Event) -> None:
        bus = await Bus.connect(
            settings.url, name=f"admit-{settings.service}", access=settings.connection
        )
        with ExitStack() as stack:
            more = dict(variables)
            if admin is not None:
                port = Path(stack.enter_context(TemporaryDirectory(prefix="admit-"))) / "admin"
                more["ADMIT_ADMIN"] = f"{UNIX}{port}"
                stack.enter_context(admin.show_process(port))
                stack.enter_context(
                    admin.ready_if(settings.service, lambda: why_not_ready(bus, settings))
                )
            # Another `admit up` on the same data folder has the same name as a leader: after the
            # death of this process, nothing of it may go on.
            child = asyncio.ensure_future(
                run_child(service, settings, variables=more, at_our_end=signal.SIGKILL)
            )
            importing = asyncio.ensure_future(asyncio.to_thread(meanwhile))
            waiting = asyncio.ensure_future(serving(bus, settings))
            try:
                await asyncio.wait([child, waiting], return_when=asyncio.FIRST_COMPLETED)
                if not child.done():
                    waiting.result()
                    await importing
                    serves.set()
                await child
            finally:
                for task in (waiting, importing, child):
                    task.cancel()
                # The process gets the time that its orderly end takes.
                await asyncio.wait([waiting, importing, child])
                await bus.close()

    return ServiceTask(settings.service, once)


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
