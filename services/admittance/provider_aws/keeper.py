"""The one that leads: makes reservations, waits for them, watches them, and cancels what nobody
needs any more.

Nothing is kept here that a crash could lose. Which request a reservation is for, its tags say; that
a request was taken back, the store of the helper says, which is followed as it changes. So whatever
was made, and by whomever, is found by the look at EC2 that is taken every few seconds. A call that
EC2 heard and we no answer to is made again with the same token, and makes nothing new.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import msgspec
import structlog

from admittance.events.names import token
from admittance.events.subjects import PROVIDERS
from admittance.peers.threads import Threads
from admittance.provider_aws.booked import Booked, Booking
from admittance.provider_aws.ec2 import Ec2
from admittance.provider_aws.faults import Fault, Trouble, failed
from admittance.provider_aws.instances import Pods, TooLarge, instances, machine_of
from admittance.provider_aws.parameters import Parameters, creation, token_of
from admittance.provider_aws.reservations import Reservation, before
from admittance.provider_aws.settings import AwsSettings
from admittance.providers import (
    Accepted,
    Cancellation,
    CapacityRevoked,
    Failed,
    Provider,
    Request,
    Status,
)
from admittance.providers.service import Service
from admittance.providers.store import Said
from admittance.runtime import clock
from admittance.runtime.bucket import BucketReader, Entry
from admittance.runtime.bus import Bus
from admittance.runtime.errors import AdmittanceError
from admittance.runtime.settings import Settings

SERVICE: Final = "provider-aws"
PAUSE_MIN: Final = 0.5
PAUSE_MAX: Final = 15.0
MAKING: Final = 16
"""Threads that make reservations; others, so that nothing waits behind those, cancel and look."""
CANCELLING: Final = 4
NOT_OURS: Final = (Fault.CREDENTIALS, Fault.FORBIDDEN)
"""Of calls that are made for no request in particular."""

T = TypeVar("T")
log = structlog.get_logger()


class Keeper:
    """All reservations of one class."""

    def __init__(self, bus: Bus, settings: Settings, aws: AwsSettings, ec2: Ec2) -> None:
        self._bus = bus
        self._aws = aws
        self._ec2 = ec2
        self._making = Threads(MAKING)
        self._cancelling = Threads(CANCELLING)
        self._looking = Threads(1)
        self.booked = Booked(aws.unseen_seconds)
        self._made: dict[str, str] = {}
        """Reservations by token: lists of EC2 may not have them yet."""
        self._cancelled: dict[str, float] = {}
        """When reservations were cancelled last: lists may have them still."""
        self._answers: dict[str, asyncio.Future[Status]] = {}
        self._machines: dict[str, dict[str, int]] = {}
        self._beside: dict[str, asyncio.Task[None]] = {}
        self._troubles: set[str] = set()
        """What EC2 does not let us do."""
        self._loaded = asyncio.Event()
        self._stop = asyncio.Event()
        self.ready = False
        self._unlisted = ""
        """Why EC2 did not list them the last time."""
        self._provider = provider = Provider(aws.provisioning_class, parameters=Parameters)
        provider.requested(self.obtain)
        provider.cancelled(self.free)
        self._service = Service(provider, bus, settings)

    @property
    def trouble(self) -> str:
        """Why the class is not provided at the moment; "": it is."""
        return "" if self._provider.active else self._provider.message

    async def run(self) -> None:
        """Works until cancelled. Raises what ends one of its parts."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._follow(), name="statuses")
                await self._loaded.wait()
                tasks.create_task(self._look(), name="reservations")
                tasks.create_task(self._service.run(self._stop), name="requests")
        except* AdmittanceError as group:
            raise group.exceptions[0] from None

    async def close(self) -> None:
        """Ends what was begun; reservations stay."""
        self.ready = False
        self._stop.set()
        for task in self._beside.values():
            task.cancel()
        await asyncio.gather(*self._beside.values(), return_exceptions=True)

    # What was said of requests. -----------------------------------------------------------

    async def _follow(self) -> None:
        reader = BucketReader(
            self._bus, (f"{token(self._aws.provisioning_class)}.*",), bucket=PROVIDERS
        )
        try:
            async for entries in reader.batches():
                for entry in entries:
                    self._read(entry)
                if reader.loaded.is_set() and not self._loaded.is_set():
                    self._loaded.set()
                    log.info("serving", provisioned=len(self.booked.here))
        finally:
            await reader.close()

    def _read(self, entry: Entry) -> None:
        try:
            said = msgspec.json.decode(entry.value, type=Said) if entry.value else None
        except msgspec.MsgspecError as error:
            log.error("status_not_understood", key=entry.key, reason=str(error))
            return
        self.booked.kept(entry.key, said, clock.monotonic())

    # Obtaining. ---------------------------------------------------------------------------

    async def obtain(self, request: Request) -> Status:
        """A reservation that is active, or why there is none."""
        parameters: Parameters = request.parameters
        try:
            count = await self._count(request, parameters)
            if isinstance(count, TooLarge):
                return Failed(count.message, retryable=False)
            made = await self._reserve(request, parameters, count)
        except Trouble as trouble:
            return failed(trouble)
        log.info("reserved", id=request.id, reservation=made.id, state=made.state, count=count)
        answer = before(made)
        if answer is not None:
            return answer
        return await self._until_active(request, Booking(request.id, made.id, count))

    async def _count(self, request: Request, parameters: Parameters) -> int | TooLarge:
        if parameters.instance_count is not None:
            return parameters.instance_count
        type_ = parameters.instance_type
        machine = self._machines.get(type_)
        if machine is None:
            described = await self._ask(
                request, lambda: self._ec2.instance_type(type_), self._making
            )
            machine = self._machines[type_] = machine_of(described)
        pods = [Pods(one.name, one.count, one.requests) for one in request.pod_sets]
        return instances(pods, machine, type_)

    async def _reserve(self, request: Request, parameters: Parameters, count: int) -> Reservation:
        arguments = creation(
            parameters,
            count,
            request_id=request.id,
            provisioning_class=self._aws.provisioning_class,
            namespace=request.namespace,
            name=request.name,
        )
        mine = arguments["ClientToken"]

        def create() -> Reservation:
            made = self._ec2.create(arguments)
            # Noted in the thread: whoever waits for the answer may have been cancelled meanwhile.
            self._made[mine] = made.id
            return made

        try:
            return await self._ask(request, create, self._making)
        except Trouble as trouble:
            if trouble.code != "IdempotentParameterMismatch":
                raise
            # Made by an older version of us, which counted otherwise.
            for one in await self._ask(request, lambda: self._ec2.ours(mine), self._making):
                if one.costs:
                    self._made[mine] = one.id
                    return one
            raise

    async def _until_active(self, request: Request, booking: Booking) -> Status:
        mine = token_of(request.id)
        answer: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        self._answers[mine] = answer
        self.booked.waits(booking, clock.monotonic())
        try:
            await request.say(
                Accepted(f"capacity reservation {booking.reservation} is not yet active")
            )
            return await answer
        finally:
            self._answers.pop(mine, None)
            self.booked.waits_no_more(request.id)

    async def _ask(self, request: Request, call: Callable[[], T], threads: Threads) -> T:
        """What EC2 answers, however long it is busy or out of reach: the deadline of the request
        ends that. Raises Trouble for what does not pass."""
        pause = PAUSE_MIN
        told = False
        while True:
            try:
                return await threads.call(call)
            except Trouble as trouble:
                if trouble.fault is Fault.CREDENTIALS:
                    self._unwell("look", trouble)
                elif trouble.fault is not Fault.LATER:
                    raise
                log.warning("asked_again", id=request.id, reason=str(trouble), seconds=pause)
                if not told:
                    told = await request.say(Accepted(f"EC2 is asked again: {trouble}"))
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_MAX)

    # Freeing. -----------------------------------------------------------------------------

    async def free(self, cancellation: Cancellation) -> None:
        """Its reservation is cancelled, if there is one. One that EC2 does not list yet, and that
        another process made, is cancelled when it appears. Raises Trouble: to be called again."""
        mine = token_of(cancellation.id)
        self.booked.is_over(cancellation.id, clock.monotonic())
        known = {one.id for one in await self._cancelling.call(self._ec2.ours, mine) if one.costs}
        if mine in self._made:
            known.add(self._made[mine])
        for reservation in sorted(known):
            await self._cancel(reservation, cancellation.reason)
        self._made.pop(mine, None)

    async def _cancel(self, reservation: str, reason: str) -> None:
        try:
            await self._cancelling.call(self._ec2.cancel, reservation)
        except Trouble as trouble:
            if trouble.fault in NOT_OURS:
                # Who cannot cancel must make no more, either.
                self._unwell("cancel", trouble)
            raise
        self._well("cancel")
        self._cancelled[reservation] = clock.monotonic()
        log.info("cancelled", reservation=reservation, reason=reason)

    # Looking. -----------------------------------------------------------------------------

    async def _look(self) -> None:
        last = float("-inf")
        while True:
            now = clock.monotonic()
            often = not self.ready or self._troubles or self.booked.is_busy(now)
            if often or now - last >= self._aws.sweep_seconds:
                last = now
                await self._look_once()
            await asyncio.sleep(self._aws.poll_seconds)

    async def _look_once(self) -> None:
        asking = asyncio.ensure_future(self._looking.call(self._ec2.ours))
        try:
            listed = await asyncio.shield(asking)
        except Trouble as trouble:
            # Once: it is looked every few seconds.
            if str(trouble) != self._unlisted:
                self._unlisted = str(trouble)
                log.warning("not_listed", reason=str(trouble))
            if trouble.fault in NOT_OURS:
                self.ready = True
                self._unwell("look", trouble)
        except asyncio.CancelledError:
            # Cancelled once it would wait for its thread; what only looks is not waited for.
            asking.cancel()
            await asyncio.sleep(0)
            asking.cancel()
            raise
        else:
            self.ready = True
            self._unlisted = ""
            self._well("look")
            self._follow_up(listed)

    def _follow_up(self, listed: list[Reservation]) -> None:
        now = clock.monotonic()
        look = self.booked.look(listed, now)
        for request_id, answer in look.answers:
            waiting = self._answers.get(token_of(request_id))
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)
        for request_id, revoked in look.revoked:
            self._start(request_id, self._revoke(request_id, revoked))
        if not look.cancel:
            self._well("cancel")
        for one in look.cancel:
            if now - self._cancelled.get(one.id, float("-inf")) >= self._aws.sweep_seconds:
                self._start(one.id, self._sweep(one.id))
        since = now - 10 * self._aws.sweep_seconds
        self._cancelled = {one: at for one, at in self._cancelled.items() if at > since}

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        if name in self._beside:
            work.close()
            return
        task = self._beside[name] = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._beside.pop(name, None))

    async def _revoke(self, request_id: str, revoked: CapacityRevoked) -> None:
        # Said until it is heard: as long as the store says otherwise, the next look comes back.
        try:
            if await self._provider.report(request_id, revoked):
                log.warning("revoked", id=request_id, reason=revoked.message)
        except (RuntimeError, AdmittanceError) as error:
            log.warning("not_said_yet", id=request_id, reason=str(error))

    async def _sweep(self, reservation: str) -> None:
        try:
            await self._cancel(reservation, "its request was taken back")
        except Trouble as trouble:
            log.warning("not_cancelled_yet", reservation=reservation, reason=str(trouble))

    # Whether EC2 lets us. -----------------------------------------------------------------

    def _unwell(self, what: str, trouble: Trouble) -> None:
        """Nobody's request is at fault: the class is inactive until ``what`` works again."""
        if what not in self._troubles:
            log.error("inactive", what=what, reason=str(trouble))
        self._troubles.add(what)
        if self._provider.active:
            self._provider.inactive(f"EC2 does not let us {what}: {trouble}")

    def _well(self, what: str) -> None:
        self._troubles.discard(what)
        if not self._troubles and not self._provider.active:
            log.info("active")
            self._provider.ready()
