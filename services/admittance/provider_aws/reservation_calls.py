"""Makes and cancels reservations, repeating calls while EC2 is busy."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeVar

import structlog

from admittance.provider_aws.ec2 import Ec2, Ec2Error, Fault
from admittance.provider_aws.parameters import (
    Parameters,
    Pods,
    TooLarge,
    creation,
    instances,
    machine_of,
    token_of,
)
from admittance.provider_aws.reservations import Reservation
from admittance.provider_aws.rights import CANCEL, LOOK, MACHINES, NOT_OURS, Rights
from admittance.providers import Accepted, Cancellation, Request
from admittance.runtime import clock
from admittance.sdk.threads import Threads

PAUSE_MIN: Final = 0.5
PAUSE_MAX: Final = 15.0
MAKING: Final = 16
"""Threads that make reservations. Cancelling and listing have their own threads, so they never wait
for these."""

T = TypeVar("T")
log = structlog.get_logger()


class Made(NamedTuple):
    """A reservation, and the number of instances requested."""

    reservation: Reservation
    instances: int


class Maker:
    """``made``: ids of reservations by token; listings of EC2 may not have them yet."""

    def __init__(self, ec2: Ec2, provisioning_class: str, rights: Rights) -> None:
        self._ec2 = ec2
        self._class = provisioning_class
        self._rights = rights
        self._threads = Threads(MAKING)
        self._machines: dict[str, dict[str, int]] = {}
        self.made: dict[str, str] = {}

    async def make(self, request: Request, parameters: Parameters) -> Made | TooLarge:
        """Makes a reservation, which may not be active yet. Raises Ec2Error if EC2 refuses for
        good."""
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

            async def denied(trouble: Ec2Error) -> bool:
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
            # Noted in the thread, because the waiting task may have been cancelled meanwhile.
            self.made[mine] = made.id
            return made

        async def denied(trouble: Ec2Error) -> bool:
            return await self._rights.is_forbidden_for_request_only(request.id, trouble)

        try:
            made = await self._ask(request, create, denied)
        except Ec2Error as trouble:
            if trouble.code != "IdempotentParameterMismatch":
                raise
            return await self._found(request, mine, trouble)
        self._rights.reserved(arguments)
        return made

    async def _found(self, request: Request, mine: str, trouble: Ec2Error) -> Reservation:
        """The reservation made by an older version with another number of instances. Raises
        ``trouble`` if there is none."""

        async def denied(trouble: Ec2Error) -> bool:
            self._rights.lack(LOOK, trouble)
            return False

        for one in await self._ask(request, lambda: self._ec2.ours(mine), denied):
            if one.costs:
                self.made[mine] = one.id
                return one
        raise trouble

    async def _ask(
        self, request: Request, call: Callable[[], T], denied: Callable[[Ec2Error], Awaitable[bool]]
    ) -> T:
        """Repeats the call until EC2 answers, also while credentials are refused; the deadline of
        the request ends it. ``denied``: returns whether a forbidden call is forbidden for this
        request only. Raises Ec2Error if EC2 refuses for good."""
        pause = PAUSE_MIN
        told = False
        while True:
            try:
                return await self._threads.call(call)
            except Ec2Error as trouble:
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


CANCELLING: Final = 4
"""Threads that cancel reservations."""


class Canceller:
    """``made``: see `Maker`. ``again_seconds``: a cancelled reservation may stay in listings for a
    while; it is not cancelled again before this time."""

    def __init__(
        self, ec2: Ec2, rights: Rights, made: dict[str, str], *, again_seconds: float
    ) -> None:
        self._ec2 = ec2
        self._rights = rights
        self._made = made
        self._again_seconds = again_seconds
        self._threads = Threads(CANCELLING)
        self._cancelled: dict[str, float] = {}
        """When each reservation was last cancelled."""

    async def free(self, cancellation: Cancellation) -> None:
        """Cancels the reservations of the request. Raises Ec2Error: call it again."""
        mine = token_of(cancellation.id)
        known = {one.id for one in await self._threads.call(self._ec2.ours, mine) if one.costs}
        if mine in self._made:
            known.add(self._made[mine])
        for reservation in sorted(known):
            await self._cancel(reservation, cancellation.reason)
        self._made.pop(mine, None)

    def is_due(self, reservation: str) -> bool:
        """Whether the reservation was not cancelled recently."""
        now = clock.monotonic()
        since = now - 10 * self._again_seconds
        self._cancelled = {one: at for one, at in self._cancelled.items() if at > since}
        return now - self._cancelled.get(reservation, float("-inf")) >= self._again_seconds

    async def sweep(self, reservation: str) -> None:
        """Cancels a reservation of a cancelled request."""
        try:
            await self._cancel(reservation, "its request was cancelled")
        except Ec2Error as trouble:
            log.warning("not_cancelled_yet", reservation=reservation, reason=str(trouble))

    async def _cancel(self, reservation: str, reason: str) -> None:
        try:
            await self._threads.call(self._ec2.cancel, reservation)
        except Ec2Error as trouble:
            if trouble.fault in NOT_OURS:
                # A provider that cannot cancel must not make reservations.
                self._rights.lack(CANCEL, trouble)
            raise
        self._rights.have(CANCEL)
        self._cancelled[reservation] = clock.monotonic()
        log.info("cancelled", reservation=reservation, reason=reason)
