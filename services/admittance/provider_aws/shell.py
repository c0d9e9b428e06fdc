"""Capacity reservations on the bus: one instance is active, the others stand by."""

from __future__ import annotations

import asyncio

from admittance.lease.domains import aws_domain
from admittance.provider_aws.ec2 import Ec2
from admittance.provider_aws.keeper import SERVICE, Keeper
from admittance.provider_aws.settings import AwsSettings
from admittance.runtime.bus.bus import Bus
from admittance.runtime.leader.leader_elected_service import Alone
from admittance.runtime.process.settings import Settings

__all__ = ["SERVICE", "run"]


async def run(
    bus: Bus, settings: Settings, *, stop: asyncio.Event, provisioning_class: str | None = None
) -> None:
    """Stands by until it is our turn, then reserves capacity; until stop is set. Raises SetupError
    when boto3 is missing, or its settings are wrong."""
    aws = AwsSettings.from_env(provisioning_class=provisioning_class)
    # It reads a good deal of files: not in the loop.
    ec2 = await asyncio.to_thread(Ec2.connect, aws.provisioning_class)

    def begin(_: int) -> Keeper:
        return Keeper(bus, settings, aws, ec2)

    domain = aws_domain(aws.provisioning_class)
    alone = Alone(bus, settings, SERVICE, domain, begin, trouble=lambda keeper: keeper.trouble)
    await alone.run(stop)
