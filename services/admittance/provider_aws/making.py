"""Reservations are made: how many instances, by which call, and again as long as EC2 is busy."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeVar

import structlog

from admittance.provider_aws.ec2 import Ec2
from admittance.provider_aws.faults import Fault, Trouble
from admittance.provider_aws.instances import Pods, TooLarge, instances, machine_of
from admittance.provider_aws.parameters import Parameters, creation
from admittance.provider_aws.reservations import Reservation
from admittance.provider_aws.rights import LOOK, MACHINES, Rights
from admittance.providers import Accepted, Request
from admittance.sdk.threads import Threads

PAUSE_MIN: Final = 0.5
PAUSE_MAX: Final = 15.0
MAKING: Final = 16
"""Threads that make reservations; others, so that nothing waits behind those, cancel and look."""

T = TypeVar("T")
log = structlog.get_logger()


class Made(NamedTuple):
    """A reservation, and how many instances were asked for."""

    reservation: Reservation
    instances: int


class Maker:
    """``made``: reservations by token: lists of EC2 may not have them yet."""

    def __init__(self, ec2: Ec2, provisioning_class: str, rights: Rights) -> None:
        self._ec2 = ec2
        self._class = provisioning_class
        self._rights = rights
        self._threads = Threads(MAKING)
        self._machines: dict[str, dict[str, int]] = {}
        self.made: dict[str, str] = {}

    async def make(self, request: Request, parameters: Parameters) -> Made | TooLarge:
        """A reservation that need not be active yet. Raises Trouble for what does not pass."""
        try:
            count = await self._count(request, parameters)
            if isinstance(count, TooLarge):
                return count
            made = await self._reserve(request, parameters, count)
        finally:
            self._rights.waits_no_more(request.id)
        log.info("reserved", id=request.id, reservation=made.id, state=made.state, count=count)
        return Made(made, count)

    async def _count(self, request: Request, parameters: Parameters) -> int | TooLarge:
        if parameters.instance_count is not None:
            return parameters.instance_count
        type_ = parameters.instance_type
        machine = self._machines.get(type_)
        if machine is None:

            def describe() -> dict[str, int]:
                return machine_of(self._ec2.instance_type(type_))

            async def denied(trouble: Trouble) -> bool:
                self._rights.lack(MACHINES, trouble, probe=describe)
                return False

            machine = self._machines[type_] = await self._ask(request, describe, denied)
            self._rights.have(MACHINES)
        pods = [Pods(one.name, one.count, one.requests) for one in request.pod_sets]
        return instances(pods, machine, type_)

    async def _reserve(self, request: Request, parameters: Parameters, count: int) -> Reservation:
        arguments = creation(
            parameters,
            count,
            request_id=request.id,
            provisioning_class=self._class,
            namespace=request.namespace,
            name=request.name,
        )
        mine = arguments["ClientToken"]

        def create() -> Reservation:
            made = self._ec2.create(arguments)
            # Noted in the thread: whoever waits for the answer may have been cancelled meanwhile.
            self.made[mine] = made.id
            return made

        async def denied(trouble: Trouble) -> bool:
            return await self._rights.is_own_matter(request.id, trouble)

        try:
            made = await self._ask(request, create, denied)
        except Trouble as trouble:
            if trouble.code != "IdempotentParameterMismatch":
                raise
            return await self._found(request, mine, trouble)
        self._rights.reserved(arguments)
        return made

    async def _found(self, request: Request, mine: str, trouble: Trouble) -> Reservation:
        """What an older version of us made, which counted otherwise. Raises trouble without one."""

        async def denied(trouble: Trouble) -> bool:
            self._rights.lack(LOOK, trouble)
            return False

        for one in await self._ask(request, lambda: self._ec2.ours(mine), denied):
            if one.costs:
                self.made[mine] = one.id
                return one
        raise trouble

    async def _ask(
        self, request: Request, call: Callable[[], T], denied: Callable[[Trouble], Awaitable[bool]]
    ) -> T:
        """What EC2 answers, however long it is busy, out of reach, or not for us: the deadline of
        the request ends that. ``denied``: what is forbidden is forbidden to this request alone.
        Raises Trouble for what does not pass."""
        pause = PAUSE_MIN
        told = False
        while True:
            try:
                return await self._threads.call(call)
            except Trouble as trouble:
                if trouble.fault is Fault.CREDENTIALS:
                    self._rights.lack(LOOK, trouble)
                elif trouble.fault is Fault.FORBIDDEN:
                    if await denied(trouble):
                        raise
                elif trouble.fault is not Fault.LATER:
                    raise
                log.warning("asked_again", id=request.id, reason=str(trouble), seconds=pause)
                if not told:
                    told = await request.say(Accepted(f"EC2 is asked again: {trouble}"))
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_MAX)
