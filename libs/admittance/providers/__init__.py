"""Write a capacity provider, a program that obtains capacity before a workload starts and frees it
afterwards.

    pool = Provider("check-capacity.autoscaling.x-k8s.io")

    @pool.requested
    async def book(request):
        return Provisioned("here it is")

    @pool.cancelled
    async def free(cancellation):
        ...

    pool.run()

All public names are here. docs/providers.md describes the protocol.
"""

from __future__ import annotations

from admittance.events.shapes import PodSetUpdate
from admittance.providers.answers import (
    Accepted,
    BookingExpired,
    CapacityRevoked,
    Failed,
    Provisioned,
    Status,
)
from admittance.providers.provider import Provider
from admittance.providers.request import Cancellation, PodSet, Request

__all__ = [
    "Accepted",
    "BookingExpired",
    "Cancellation",
    "CapacityRevoked",
    "Failed",
    "PodSet",
    "PodSetUpdate",
    "Provider",
    "Provisioned",
    "Request",
    "Status",
]
