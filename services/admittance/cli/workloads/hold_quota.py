"""``admit hold-quota``: runs a command of this machine while it has quota, and devices."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from admittance.cli.commands.arguments import queues, timeout
from admittance.cli.commands.declare import argument, command, option
from admittance.cli.support import output, times
from admittance.cli.support.job_options import requests_of, time_limit
from admittance.cli.support.link import link
from admittance.cli.support.options import Call
from admittance.client.errors import BadInput

GRACE_SECONDS: Final = 30
LEASE_SECONDS: Final = 60


@command()
@argument("-- CMD...", "The command, which starts here once there is quota.", name="command")
@option(
    "--queue -q QUEUE",
    "The LocalQueue. Default: the only one of the namespace.",
    complete=queues,
)
@option("--name N", "Name of the workload. Default: generated.")
@option("--cpu QUANTITY", "How much it holds. Default: 1")
@option("--memory QUANTITY", "Default: 1Gi")
@option("--gpu QUANTITY", "Default: 0")
@option("--time SPAN", "Time limit, such as 90s, 2h or 1d.", name="limit")
@option("--priority P", "Priority; higher goes first. Default: 0", kind=int)
@option("--priority-class NAME", "A WorkloadPriorityClass instead of a priority.")
@option(
    "--lease SECONDS",
    f"After how many seconds the quota is free if this machine dies. Default: {LEASE_SECONDS}",
    kind=int,
    default=LEASE_SECONDS,
)
@option(
    "--grace SECONDS",
    f"How long after SIGTERM an evicted command is killed. Default: {GRACE_SECONDS}",
    kind=int,
    least=0,
    default=GRACE_SECONDS,
)
@option("--anyway", "Ask even if the queue does not exist or can never hold it.")
@timeout
async def hold_quota(
    call: Call,
    command: Sequence[str],
    queue: str | None,
    name: str | None,
    cpu: str | None,
    memory: str | None,
    gpu: str | None,
    limit: str | None,
    priority: int | None,
    priority_class: str | None,
    lease: int,
    grace: int,
    anyway: bool,
    timeout: str | None,
) -> int:
    """Run a command here while it has quota, and devices of this machine, such as a notebook.

    It finds its devices in CUDA_VISIBLE_DEVICES and ADMITTANCE_DEVICES. If its quota is taken away,
    it gets SIGTERM. The quota is free when it ends, and the exit status is that of the command.
    """
    from admittance.client.client import Client
    from admittance.runtime.process.child_process import ends_with_parent

    requests_of(cpu, memory, gpu)
    if shutil.which(command[0]) is None:
        raise BadInput(f"{command[0]}: there is no such command here")
    async with link(call) as bus:
        evicted: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        hold = Client(bus).hold_quota(
            queue,
            cpu=cpu,
            memory=memory,
            gpu=gpu,
            name=name,
            priority=priority,
            priority_class=priority_class,
            max_seconds=time_limit(limit, None),
            lease_seconds=lease,
            on_evicted=evicted.set_result,
            timeout=None if timeout is None else times.seconds_of(timeout, "--timeout"),
            anyway=anyway,
        )
        status = 0
        with suppress(SystemExit):
            async with hold as held:
                devices = ", ".join(f"{kind} {','.join(ids)}" for kind, ids in held.devices.items())
                output.note(f"workload {held.namespace}/{held.name} has quota {devices}".rstrip())
                environ = {**os.environ, **(held.environ() if held.runner else {})}
                process = await asyncio.create_subprocess_exec(
                    *ends_with_parent(command), env=environ
                )
                ended = await _end_of(process, evicted, grace)
                status = ended if ended >= 0 else 128 - ended
                # The workload has the exit code of the command.
                sys.exit(status)
        return status


async def _end_of(
    process: asyncio.subprocess.Process, evicted: asyncio.Future[str], grace: int
) -> int:
    """Waits for the command, which gets the signals of this process, and SIGTERM when its quota is
    lost."""

    def send(number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            process.send_signal(number)

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, send, number)
    # The terminal sends SIGINT to the command itself.
    at_terminal = sys.stdin is not None and sys.stdin.isatty()
    loop.add_signal_handler(signal.SIGINT, lambda: None if at_terminal else send(signal.SIGINT))
    ended = asyncio.create_task(process.wait())
    waiting: list[asyncio.Future[Any]] = [ended, evicted]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    if not ended.done():
        output.warn(f"the command must give its quota up: {evicted.result()}")
        send(signal.SIGTERM)
        await asyncio.wait([ended], timeout=grace)
        if not ended.done():
            send(signal.SIGKILL)
    return await ended
