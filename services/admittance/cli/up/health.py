"""Whether this machine's instance of a service is ready: the health check of a container.

``python -m admittance.cli.up.health scheduler`` ends with 0 when it is, else with 1 and a line that
says why. `admit doctor` looks at the whole deployment; this asks one process.

What it imports is most of its cost, a quarter of a second of a core: the containers of
`compose.yaml` look at a file instead (`runtime/process/health_file.py`).
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from typing import Final

from admittance.events.names import token
from admittance.runtime.bus.opening import open_connection
from admittance.runtime.errors import AdmittanceError
from admittance.runtime.process.health_query import trouble

DEFAULT_URL: Final = "nats://127.0.0.1:4222"
PATIENCE: Final = 5.0


async def ill(
    service: str, url: str, *, host: str, instance: str = "", creds: str | None = None
) -> str:
    """Why the service's instance on host is not ready; "" when it is. Raises SetupError.

    Every instance of every service answers; ours is the one that names itself after the host, or
    is ``instance``.
    """
    nc = await open_connection(
        url, name="admit-health", creds=creds, on_error=_ignored, on_lost=_ignored, on_back=_ignored
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
    """Whoever asks once does not wait for a connection to come back."""


def main() -> None:
    """The command. Exit status 0: ready."""
    if len(sys.argv) != 2:
        raise SystemExit("one argument is needed: the service's name")
    service = sys.argv[1]
    named = os.environ.get("ADMIT_INSTANCE")
    asking = ill(
        service,
        os.environ.get("ADMIT_NATS_URL") or DEFAULT_URL,
        host=socket.gethostname(),
        instance=token(named) if named else "",
        creds=os.environ.get("ADMIT_NATS_CREDS") or None,
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
