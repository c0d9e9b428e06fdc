"""Capacity reservations on the bus: one instance is active, the others stand by."""

from __future__ import annotations

import asyncio

from admittance.events.requests import HealthReply
from admittance.lease.domains import aws_domain
from admittance.provider_aws.ec2 import Ec2
from admittance.provider_aws.keeper import SERVICE, Keeper
from admittance.provider_aws.settings import AwsSettings
from admittance.runtime import micro
from admittance.runtime.alone import work_alone
from admittance.runtime.bus import Bus
from admittance.runtime.leading import Leading
from admittance.runtime.settings import Settings

__all__ = ["SERVICE", "run"]


async def run(
    bus: Bus, settings: Settings, *, stop: asyncio.Event, provisioning_class: str | None = None
) -> None:
    """Stands by until it is our turn, then reserves capacity; until stop is set. Raises SetupError
    when boto3 is missing, or its settings are wrong."""
    aws = AwsSettings.from_env(provisioning_class=provisioning_class)
    # It reads a good deal of files: not in the loop.
    ec2 = await asyncio.to_thread(Ec2.connect, aws.provisioning_class)
    leading = Leading(bus, SERVICE, settings.instance, ttl_seconds=settings.lease_seconds)
    keepers: list[Keeper] = []

    async def health(_: bytes, __: str) -> HealthReply:
        leads = tuple(leading.tenure.leads())
        keeper = keepers[-1] if leads and keepers else None
        return HealthReply(
            service=SERVICE,
            instance=settings.instance,
            ready=not leads or (keeper is not None and keeper.ready),
            leads=leads,
        )

    def begin(_: int) -> Keeper:
        keepers[:] = [Keeper(bus, settings, aws, ec2)]
        return keepers[-1]

    service = await micro.serve(
        bus, SERVICE, settings.instance, {}, everyone={"admit.api.health": health}
    )
    try:
        await work_alone(leading, aws_domain(aws.provisioning_class), begin, stop=stop)
    finally:
        await service.stop()
