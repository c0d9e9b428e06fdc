"""Health check of a container: whether this machine's instance of a service is ready.

``python -m admittance.cli.up.health scheduler`` exits with 0 if the service is ready, else with 1
and a line that says why. `admit doctor` checks the whole deployment, this module one process.

Importing this module costs a quarter of a second of CPU, so the containers of `compose.yaml` check
a file instead (`runtime/process/health.py`).
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from typing import Final

from admittance.events.names import token
from admittance.runtime.bus.opening import open_connection
from admittance.runtime.connection_options import (
    NO_OPTIONS,
    BadOptions,
    ConnectionOptions,
    connection_options,
    server_url,
)
from admittance.runtime.errors import AdmittanceError
from admittance.runtime.process.health_query import trouble

PATIENCE: Final = 5.0


async def why_not_ready(
    service: str, url: str, *, host: str, instance: str = "", access: ConnectionOptions = NO_OPTIONS
) -> str:
    """Why the service's instance on host is not ready; "" if it is ready.

    Raises SetupError. Of all instances that answer, only the one that is named ``instance``, or
    after the host, counts.
    """
    nc = await open_connection(
        url,
        name="admit-health",
        access=access,
        on_error=_ignored,
        on_lost=_ignored,
        on_back=_ignored,
    )
    ours = f"{token(host)}-"
    try:
        return await trouble(
            nc,
            service,
            lambda name: name == instance or name.startswith(ours),
            seconds=PATIENCE,
        )
    finally:
        await nc.close()


async def _ignored(*_: object) -> None:
    """Ignores the loss of the connection: a single request does not wait for a reconnect."""


def main() -> None:
    """Runs the check; the exit status is 0 if the service is ready."""
    if len(sys.argv) != 2:
        raise SystemExit("give one argument: the name of the service")
    service = sys.argv[1]
    named = os.environ.get("ADMIT_INSTANCE")
    try:
        access, url = connection_options(), server_url()
    except BadOptions as error:
        raise SystemExit(str(error)) from None
    asking = why_not_ready(
        service,
        url,
        host=socket.gethostname(),
        instance=token(named) if named else "",
        access=access,
    )
    try:
        reason = asyncio.run(asking)
    except AdmittanceError as error:
        reason = str(error)
    if reason:
        sys.stderr.write(f"{reason}\n")
        raise SystemExit(1)


if __name__ == "__main__":
    main()
