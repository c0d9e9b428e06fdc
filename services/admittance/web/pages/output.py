"""Reads the end of the output of a job for a page."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Final

from admittance.client import Client
from admittance.client.errors import NotAllowed, RequestFailed
from admittance.web.views.details.output import Tails
from admittance.workload.phase import Phase

RUNS: Final = frozenset({Phase.ADMITTED, Phase.RUNNING, Phase.EVICTING})
"""The phases in which a job may print."""


async def read_output(
    client: Client, namespace: str, name: str, lines: int, *, previous: int = 0, seconds: float
) -> tuple[Tails, str]:
    """The ends of the outputs of the pods, and why there is none. ``seconds``: after this time it
    is read no further. Raises NotAllowed."""
    tails, why = Tails(), ""
    try:
        async with asyncio.timeout(seconds):
            pieces = client.logs(name, tail=lines, previous=previous, namespace=namespace)
            async with aclosing(pieces):
                async for piece in pieces:
                    tails.add(piece)
    except NotAllowed:
        raise
    except TimeoutError:
        why = f"No runner answered within {seconds:g} s."
    except RequestFailed as error:
        why = f"{error}."
    if not tails.texts and not why:
        why = "It has printed nothing yet."
    return tails, "" if tails.texts else why
