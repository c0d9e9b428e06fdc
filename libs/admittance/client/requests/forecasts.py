"""Asks when waiting workloads are expected to start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from admittance.client.errors import BadInput, NoResponder, RequestFailed
from admittance.client.requests.link import Link
from admittance.events.requests.forecast import NAMES_MAX, Forecast, ForecastReply, StartForecast

ASK_SECONDS: Final = 2.0
BESIDE_SECONDS: Final = 0.35
"""How long a view waits for expected starts, which it shows beside other things."""


async def forecast(
    link: Link, workloads: Sequence[str], namespace: str | None = None
) -> ForecastReply:
    """When workloads are expected to start, by their names. ``namespace``: None: the names are
    ``namespace/name``. Raises NoResponder if no forecast process runs, and RequestFailed."""
    if len(workloads) > NAMES_MAX:
        raise BadInput(f"{len(workloads):,} workloads are more than {NAMES_MAX:,}: ask about fewer")
    return await _asked(link, workloads, namespace, ASK_SECONDS)


async def _asked(
    link: Link, workloads: Sequence[str], namespace: str | None, timeout: float
) -> ForecastReply:
    request = Forecast(workloads=tuple(workloads))
    reply = await link.ask("forecast", request, ForecastReply, namespace=namespace, timeout=timeout)
    if reply.error:
        raise RequestFailed(reply.error)
    return reply


async def starts_beside(
    link: Link, workloads: Sequence[str], namespace: str | None
) -> Mapping[str, StartForecast]:
    """The expected starts for a view that shows them beside other things; empty if no forecast
    process runs, or if it does not answer in time, or if the user may not ask."""
    if not workloads:
        return {}
    try:
        reply = await _asked(link, workloads[:NAMES_MAX], namespace, BESIDE_SECONDS)
    except (NoResponder, RequestFailed):
        return {}
    return reply.starts
