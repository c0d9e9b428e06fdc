"""Checks of `admit doctor`: whether admin ports are served, and whether services of Admittance
serve them.
"""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import Sequence
from typing import Final

from admittance.client.errors import BadInput
from admittance.doctor.finding import Finding, ok, wrong
from admittance.runtime.errors import SetupError
from admittance.runtime.process.admin import SERVER, address_of

SECONDS: Final = 3.0


def refuse_bad_addresses(addresses: Sequence[str]) -> None:
    """Raises BadInput for a text that is not ``HOST:PORT``."""
    for address in addresses:
        try:
            address_of(address)
        except SetupError as error:
            raise BadInput(f"--admin {address}: {error}") from None


async def admin_findings(addresses: Sequence[str]) -> list[Finding]:
    """A finding for each address ``HOST:PORT``: whether a service of Admittance serves its admin
    port there.
    """
    return [await asyncio.to_thread(_look, address) for address in addresses]


def _look(where: str) -> Finding:
    host, port = address_of(where)
    what = f"admin port {where}"
    connection = http.client.HTTPConnection(
        "127.0.0.1" if host == "0.0.0.0" else host, port, timeout=SECONDS
    )
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        server, text = answer.getheader("Server", ""), answer.read(4096).decode(errors="replace")
    except ConnectionRefusedError:
        todo = "start the process with this address (--admin or ADMIT_ADMIN), and read its log"
        return wrong(what, "no process serves it", todo)
    except (OSError, http.client.HTTPException) as error:
        return _foreign(what, port, str(error) or type(error).__name__)
    finally:
        connection.close()
    if not server.startswith(SERVER):
        return _foreign(what, port, f"status {answer.status}")
    if answer.status != http.HTTPStatus.OK:
        return wrong(what, "; ".join(text.split("\n")[:-1]), "look at the lines of these services")
    return ok(what, "answers, and its services are ready")


def _foreign(what: str, port: int, seen: str) -> Finding:
    return wrong(
        what,
        f"taken by another program ({seen}): a process with this address ends at its start",
        f"find the program with `ss -ltnp sport = :{port}` and end it, or give the process another "
        "address with --admin or ADMIT_ADMIN",
    )
