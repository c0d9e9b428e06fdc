"""Makes and cancels EC2 capacity reservations. A call to make a reservation is repeated while EC2
is busy or denies a right.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import structlog

from admittance.backoff import Backoff
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
"""How many threads make reservations. Other threads cancel and list reservations, so these calls
never wait until a reservation is made.
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
    """Keeps the provider's class inactive while EC2 refuses the provider's credentials or forbids a
    call that every request needs.

    EC2 does not say whether a policy forbids one reservation or all reservations. So the provider
    repeats, as a dry run, the call for a reservation that EC2 allowed before: if EC2 still allows
    this call, it forbids only the new reservation. ``threads``: the threads that make the dry runs.
    """

    def __init__(self, ec2: Ec2, threads: Threads, reasons: InactiveReasons) -> None:
        super().__init__(reasons)
        self._ec2 = ec2
        self._threads = threads
        self._allowed: Mapping[str, Any] | None = None
        """The arguments of the last reservation that EC2 allowed; a dry run with them probes the
        right to make reservations."""
        self._waiting: set[str] = set()
        """The ids of the requests that wait for the right to make reservations."""

    def deny(
        self, right: str, trouble: Ec2Error, *, probe: Callable[[], object] | None = None
    ) -> None:
        """Records that EC2 denies a right to the provider. ``probe``: a call that succeeds once EC2
        grants the right again.
        """
        self.lacks(
            right,
            f"EC2 does not allow us to {right}: {trouble}",
            partial(self._works, probe) if probe is not None else None,
        )

    def reserved(self, arguments: Mapping[str, Any]) -> None:
        """Records that EC2 allows this provider to make reservations. ``arguments``: the arguments
        of the call with which EC2 has just made a reservation."""
        self._allowed = arguments
        self.has(RESERVE)

    async def is_forbidden_for_request_only(self, request_id: str, trouble: Ec2Error) -> bool:
        """Whether EC2 forbids the reservation for this request only. If EC2 forbids all
        reservations, the provider's class is inactive until EC2 grants the right again, and the
        request must be tried again.
        """
        allowed = self._allowed
        if allowed is None:
            # No reservation has been allowed yet, so a probe has no arguments: only a repetition of
            # the request's call can show that EC2 grants the right.
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
        """Records that the request no longer waits for the right to make reservations, because it
        has ended or was cancelled."""
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
    """A reservation that EC2 has made for a request, and the number of instances that the request
    asked for."""

    reservation: Reservation
    instances: int


class ReservationMaker:
    """Makes reservations for requests. ``made``: the id of each reservation made, by the token of
    its request; EC2's listings may not have the reservation yet.
    """

    def __init__(self, ec2: Ec2, provisioning_class: str, rights: Ec2Rights) -> None:
        self._ec2 = ec2
        self._class = provisioning_class
        self._rights = rights
        self._threads = Threads(MAKING_THREADS)
        self._machines: dict[str, dict[str, int]] = {}
        self.made: dict[str, str] = {}

    async def make(self, request: Request, parameters: Parameters) -> Made | TooLarge:
        """Makes a reservation for the request; the reservation may not be active yet. Raises
        Ec2Error if EC2 refuses the reservation permanently.
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
        pods = [Pods(pod_set.name, pod_set.count, pod_set.requests) for pod_set in request.pod_sets]
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
            # The thread of the call stores the reservation's id, because the task that waits for
            # the call may be cancelled.
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
        """The reservation that an older version of the provider made for the request with another
        number of instances. Raises ``trouble`` if EC2 lists no such reservation.
        """

        async def is_final(trouble: Ec2Error) -> bool:
            self._rights.deny(LOOK, trouble)
            return False

        for reservation in await self._ask(request, lambda: self._ec2.ours(token), is_final):
            if reservation.costs:
                self.made[token] = reservation.id
                return reservation
        raise trouble

    async def _ask(
        self,
        request: Request,
        call: Callable[[], T],
        is_final: Callable[[Ec2Error], Awaitable[bool]],
    ) -> T:
        """Repeats the call until EC2 allows it, also while EC2 refuses the credentials, at most
        until the request's deadline. ``is_final``: a function that returns whether EC2 forbids the
        call for this request only. Raises Ec2Error if EC2 refuses the call permanently.
        """
        backoff = Backoff(PAUSE_MIN, PAUSE_MAX)
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
                pause = backoff.next()
                log.warning(
                    "reservation_tried_again", id=request.id, reason=str(trouble), seconds=pause
                )
                if not is_reported:
                    is_reported = await request.say(
                        Accepted(f"the call to EC2 is repeated: {trouble}")
                    )
            await asyncio.sleep(pause)


CANCELLING_THREADS: Final = 4


class ReservationCanceller:
    """Cancels reservations. ``made``: the ids of made reservations by token, from
    `ReservationMaker.made`. ``again_seconds``: time before a reservation that EC2 still lists is
    cancelled again, because a cancelled reservation may stay in listings for a while.
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
        """When each reservation was last cancelled, by the reservation's id."""

    async def free(self, cancellation: Cancellation) -> None:
        """Cancels all reservations of the cancelled request. Raises Ec2Error if EC2 does not cancel
        the reservations; then the caller must call this function again.
        """
        token = token_of(cancellation.id)
        known = {
            reservation.id
            for reservation in await self._threads.call(self._ec2.ours, token)
            if reservation.costs
        }
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
        self._cancelled = {identity: at for identity, at in self._cancelled.items() if at > since}
        return now - self._cancelled.get(reservation, float("-inf")) >= self._again_seconds

    async def sweep(self, reservation: str) -> None:
        """Cancels a reservation that EC2 still lists although the reservation's request was
        cancelled."""
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
