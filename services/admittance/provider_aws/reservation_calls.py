"""Makes and cancels EC2 capacity reservations. Calls are repeated while EC2 is busy or denies a
right.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import structlog

from admittance.provider_aws.ec2 import Ec2, Ec2Error, ErrorCause
from admittance.provider_aws.parameters import (
    Parameters,
    Pods,
    TooLarge,
    creation_arguments,
    instances,
    machine_of,
    token_of,
)
from admittance.provider_aws.reservations import Reservation
from admittance.providers import Accepted, Cancellation, Request
from admittance.providers.health import InactiveReasons, MissingRights
from admittance.runtime import clock
from admittance.sdk.threads import Threads

PAUSE_MIN: Final = 0.5
PAUSE_MAX: Final = 15.0
MAKING_THREADS: Final = 16
"""Threads for making reservations; cancelling and listing have their own threads, so they never
wait for these.
"""

T = TypeVar("T")
log = structlog.get_logger()


LOOK: Final = "look"
CANCEL: Final = "cancel"
RESERVE: Final = "reserve"
MACHINES: Final = "describe instance types"
NOT_OURS: Final = (ErrorCause.CREDENTIALS, ErrorCause.FORBIDDEN)
"""Causes of EC2 errors that concern the provider, not one request."""
UNKNOWN: Final = (*NOT_OURS, ErrorCause.LATER)


class Ec2Rights(MissingRights):
    """Keeps the provider's class inactive while EC2 refuses the credentials or forbids a basic
    call.

    EC2 does not say whether a policy forbids one reservation or all. So the arguments of a
    reservation that was allowed before are tried as a dry run: if EC2 still allows them, only the
    new request is forbidden. ``threads``: the threads in which the dry runs run.
    """

    def __init__(self, ec2: Ec2, threads: Threads, reasons: InactiveReasons) -> None:
        super().__init__(reasons)
        self._ec2 = ec2
        self._threads = threads
        self._allowed: Mapping[str, Any] | None = None
        """The arguments of the last reservation that EC2 allowed, for a probe of the right to
        reserve."""
        self._waiting: set[str] = set()
        """Ids of the requests that wait for the right to reserve."""

    def deny(
        self, right: str, trouble: Ec2Error, *, probe: Callable[[], object] | None = None
    ) -> None:
        """Records that EC2 denies a right to the provider. ``probe``: a call that works again once
        the right is back.
        """
        self.lacks(
            right,
            f"EC2 does not allow us to {right}: {trouble}",
            partial(self._works, probe) if probe is not None else None,
        )

    def reserved(self, arguments: Mapping[str, Any]) -> None:
        """Records that EC2 allows this provider to make reservations, and the arguments with which
        one was made."""
        self._allowed = arguments
        self.has(RESERVE)

    async def is_forbidden_for_request_only(self, request_id: str, trouble: Ec2Error) -> bool:
        """Whether EC2 forbids the reservation for this request only. If EC2 forbids all
        reservations, the class is inactive until the right is back, and the request must be tried
        again.
        """
        allowed = self._allowed
        if allowed is None:
            # EC2 has allowed no reservation yet whose arguments a probe could use, so only the
            # request itself can show that the right is back.
            self._waiting.add(request_id)
            self.deny(RESERVE, trouble)
            return False

        def probe() -> None:
            self._ec2.try_out(allowed)

        if await self._works(probe):
            return True
        self.deny(RESERVE, trouble, probe=probe)
        return False

    def end_waiting(self, request_id: str) -> None:
        """Records that the request has ended or was cancelled."""
        if request_id in self._waiting:
            self._waiting.discard(request_id)
            if not self._waiting and self._allowed is None:
                self.has(RESERVE)

    async def _works(self, probe: Callable[[], object]) -> bool:
        try:
            await self._threads.call(probe)
        except Ec2Error as trouble:
            return trouble.fault not in UNKNOWN
        return True


class Made(NamedTuple):
    """A reservation that EC2 has made, and the number of instances requested."""

    reservation: Reservation
    instances: int


class ReservationMaker:
    """``made``: the ids of made reservations by token. EC2's listings may not have these
    reservations yet.
    """

    def __init__(self, ec2: Ec2, provisioning_class: str, rights: Ec2Rights) -> None:
        self._ec2 = ec2
        self._class = provisioning_class
        self._rights = rights
        self._threads = Threads(MAKING_THREADS)
        self._machines: dict[str, dict[str, int]] = {}
        self.made: dict[str, str] = {}

    async def make(self, request: Request, parameters: Parameters) -> Made | TooLarge:
        """Makes a reservation for the request; it may not be active yet. Raises Ec2Error if EC2
        refuses the reservation permanently.
        """
        try:
            count = await self._count(request, parameters)
            if isinstance(count, TooLarge):
                return count
            made = await self._reserve(request, parameters, count)
        finally:
            self._rights.end_waiting(request.id)
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

            async def is_final(trouble: Ec2Error) -> bool:
                self._rights.deny(MACHINES, trouble, probe=describe)
                return False

            machine = self._machines[type_] = await self._ask(request, describe, is_final)
            self._rights.has(MACHINES)
        pods = [Pods(one.name, one.count, one.requests) for one in request.pod_sets]
        return instances(pods, machine, type_)

    async def _reserve(self, request: Request, parameters: Parameters, count: int) -> Reservation:
        arguments = creation_arguments(
            parameters,
            count,
            request_id=request.id,
            provisioning_class=self._class,
            namespace=request.namespace,
            name=request.name,
        )
        token = arguments["ClientToken"]

        def create() -> Reservation:
            made = self._ec2.create(arguments)
            # The id is stored in the thread, because the waiting task may be cancelled during the
            # call.
            self.made[token] = made.id
            return made

        async def is_final(trouble: Ec2Error) -> bool:
            return await self._rights.is_forbidden_for_request_only(request.id, trouble)

        try:
            made = await self._ask(request, create, is_final)
        except Ec2Error as trouble:
            if trouble.code != "IdempotentParameterMismatch":
                raise
            return await self._found(request, token, trouble)
        self._rights.reserved(arguments)
        return made

    async def _found(self, request: Request, token: str, trouble: Ec2Error) -> Reservation:
        """The reservation that an older version of the provider made with another number of
        instances. Raises ``trouble`` if there is none.
        """

        async def is_final(trouble: Ec2Error) -> bool:
            self._rights.deny(LOOK, trouble)
            return False

        for one in await self._ask(request, lambda: self._ec2.ours(token), is_final):
            if one.costs:
                self.made[token] = one.id
                return one
        raise trouble

    async def _ask(
        self,
        request: Request,
        call: Callable[[], T],
        is_final: Callable[[Ec2Error], Awaitable[bool]],
    ) -> T:
        """Repeats the call until EC2 answers, also while EC2 refuses the credentials; the deadline
        of the request ends it. ``is_final``: returns whether a forbidden call is forbidden for this
        request only. Raises Ec2Error if EC2 refuses the call permanently.
        """
        pause = PAUSE_MIN
        is_reported = False
        while True:
            try:
                return await self._threads.call(call)
            except Ec2Error as trouble:
                if trouble.fault is ErrorCause.CREDENTIALS:
                    self._rights.deny(LOOK, trouble)
                elif trouble.fault is ErrorCause.FORBIDDEN:
                    if await is_final(trouble):
                        raise
                elif trouble.fault is not ErrorCause.LATER:
                    raise
                log.warning(
                    "reservation_tried_again", id=request.id, reason=str(trouble), seconds=pause
                )
                if not is_reported:
                    is_reported = await request.say(
                        Accepted(f"the call to EC2 is repeated: {trouble}")
                    )
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_MAX)


CANCELLING_THREADS: Final = 4


class ReservationCanceller:
    """``made`` is that of `ReservationMaker`. ``again_seconds``: a cancelled reservation may stay
    in listings for a while; it is not cancelled again before this time.
    """

    def __init__(
        self, ec2: Ec2, rights: Ec2Rights, made: dict[str, str], *, again_seconds: float
    ) -> None:
        self._ec2 = ec2
        self._rights = rights
        self._made = made
        self._again_seconds = again_seconds
        self._threads = Threads(CANCELLING_THREADS)
        self._cancelled: dict[str, float] = {}
        """When each reservation was last cancelled, by its id."""

    async def free(self, cancellation: Cancellation) -> None:
        """Cancels all reservations of the cancelled request. Raises Ec2Error if EC2 does not cancel
        the reservations; then the call must be repeated.
        """
        token = token_of(cancellation.id)
        known = {one.id for one in await self._threads.call(self._ec2.ours, token) if one.costs}
        if token in self._made:
            known.add(self._made[token])
        for reservation in sorted(known):
            await self._cancel(reservation, cancellation.reason)
        self._made.pop(token, None)

    def is_due(self, reservation: str) -> bool:
        """Whether the reservation may be cancelled again: not if it was cancelled within the last
        ``again_seconds``.
        """
        now = clock.monotonic()
        since = now - 10 * self._again_seconds
        self._cancelled = {one: at for one, at in self._cancelled.items() if at > since}
        return now - self._cancelled.get(reservation, float("-inf")) >= self._again_seconds

    async def sweep(self, reservation: str) -> None:
        """Cancels a reservation that a listing of EC2 shows although its request was cancelled."""
        try:
            await self._cancel(reservation, "its request was cancelled")
        except Ec2Error as trouble:
            log.warning(
                "reservation_not_cancelled_yet", reservation=reservation, reason=str(trouble)
            )

    async def _cancel(self, reservation: str, reason: str) -> None:
        try:
            await self._threads.call(self._ec2.cancel, reservation)
        except Ec2Error as trouble:
            if trouble.fault in NOT_OURS:
                # A provider without the right to cancel reservations must not make reservations.
                self._rights.deny(CANCEL, trouble)
            raise
        self._rights.has(CANCEL)
        self._cancelled[reservation] = clock.monotonic()
        log.info("cancelled", reservation=reservation, reason=reason)
