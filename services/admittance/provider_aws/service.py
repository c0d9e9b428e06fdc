"""Makes reservations, waits for them, watches them, and cancels those not needed any more.

One instance is active, the others stand by. No state is kept that a crash could lose: tags name the
request of each reservation, and the store of statuses says which requests are cancelled. A listing
of EC2 every few seconds finds all reservations, whichever process made them. A call without an
answer is repeated with the same token and creates nothing new."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Final

import structlog

from admittance.events.names import token
from admittance.events.subjects import PROVIDERS
from admittance.lease.lease_state import aws_domain
from admittance.provider_aws.ec2 import Ec2, Ec2Error, failed
from admittance.provider_aws.parameters import Parameters, TooLarge, token_of
from admittance.provider_aws.reservation_calls import Canceller, Maker
from admittance.provider_aws.reservations import (
    Booking,
    Reservation,
    TrackedReservations,
    initial_answer,
)
from admittance.provider_aws.rights import CANCEL, LOOK, NOT_OURS, Rights
from admittance.provider_aws.settings import AwsSettings
from admittance.providers import (
    Accepted,
    Cancellation,
    CapacityRevoked,
    Failed,
    Request,
    Status,
)
from admittance.providers.builtin import provider_of
from admittance.providers.health import InactiveReasons
from admittance.providers.provider import ProviderService
from admittance.providers.status_store import read_status
from admittance.runtime import clock
from admittance.runtime.bus.bucket import Entry, apply_each, follow_bucket
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import AdmittanceError
from admittance.runtime.leader.leader_elected_service import LeaderElectedService
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import parts
from admittance.sdk.threads import Threads

SERVICE: Final = "provider-aws"

log = structlog.get_logger()


class Reconciler:
    """Keeps the reservations of one class equal to the requests."""

    def __init__(self, bus: Bus, settings: Settings, aws: AwsSettings, ec2: Ec2) -> None:
        self._bus = bus
        self._aws = aws
        self._ec2 = ec2
        self._provider = provider = provider_of(
            aws.provisioning_class, self.obtain, self.free, parameters=Parameters
        )
        self._service = ProviderService(provider, bus, settings)
        self._looking = Threads(1)
        self._rights = Rights(ec2, self._looking, InactiveReasons((provider,)))
        self._maker = Maker(ec2, aws.provisioning_class, self._rights)
        self._canceller = Canceller(
            ec2, self._rights, self._maker.made, again_seconds=aws.sweep_seconds
        )
        self.booked = TrackedReservations(aws.unseen_seconds)
        self._answers: dict[str, asyncio.Future[Status]] = {}
        self._beside: dict[str, asyncio.Task[None]] = {}
        self._loaded = asyncio.Event()
        self._stop = asyncio.Event()
        self.ready = False

    @property
    def trouble(self) -> str:
        """Why the class is not served now; "": it is."""
        return "" if self._provider.active else self._provider.message

    async def run(self) -> None:
        """Works until cancelled. Raises what ends one of its parts."""
        async with parts() as tasks:
            tasks.create_task(self._follow(), name="statuses")
            await self._loaded.wait()
            tasks.create_task(self._look(), name="reservations")
            tasks.create_task(self._service.run(self._stop), name="requests")

    async def close(self) -> None:
        """Stops all work; reservations stay."""
        self.ready = False
        self._stop.set()
        for task in self._beside.values():
            task.cancel()
        await asyncio.gather(*self._beside.values(), return_exceptions=True)

    # Stored statuses. -----------------------------------------------------------

    async def _follow(self) -> None:
        def apply(entries: Sequence[Entry]) -> None:
            apply_each(entries, self._read, bucket=PROVIDERS)

        pattern = f"{token(self._aws.provisioning_class)}.*"
        await follow_bucket(self._bus, (pattern,), apply, self._on_loaded, bucket=PROVIDERS)

    def _on_loaded(self, _: int) -> None:
        self._loaded.set()
        log.info("serving", provisioned=len(self.booked.here))

    def _read(self, entry: Entry) -> None:
        said = read_status(entry.value) if entry.value else None
        self.booked.kept(entry.key, said, clock.monotonic())

    # Obtaining and freeing. ---------------------------------------------------------------

    async def obtain(self, request: Request) -> Status:
        """Waits for an active reservation; returns why there is none otherwise."""
        try:
            made = await self._maker.make(request, request.parameters)
        except Ec2Error as trouble:
            return failed(trouble)
        if isinstance(made, TooLarge):
            return Failed(made.message, retryable=False)
        answer = initial_answer(made.reservation)
        if answer is not None:
            return answer
        return await self._until_active(
            request, Booking(request.id, made.reservation.id, made.instances)
        )

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

    async def free(self, cancellation: Cancellation) -> None:
        """Cancels the request's reservation. One made by another process that EC2 does not list yet
        is cancelled when it is listed. Raises Ec2Error: call it again."""
        self.booked.is_over(cancellation.id, clock.monotonic())
        await self._canceller.free(cancellation)

    # Looking. -----------------------------------------------------------------------------

    async def _look(self) -> None:
        last = float("-inf")
        while True:
            now = clock.monotonic()
            often = not self.ready or self._rights.lacking or self.booked.is_busy(now)
            if often or now - last >= self._aws.sweep_seconds:
                last = now
                await self._look_once()
                await self._rights.look()
            await asyncio.sleep(self._aws.poll_seconds)

    async def _look_once(self) -> None:
        asking = asyncio.ensure_future(self._looking.call(self._ec2.ours))
        try:
            listed = await asyncio.shield(asking)
        except Ec2Error as trouble:
            if trouble.fault in NOT_OURS:
                # Reported once when it begins, not at every listing.
                self.ready = True
                self._rights.lack(LOOK, trouble)
            else:
                log.warning("not_listed", reason=str(trouble))
        except asyncio.CancelledError:
            # A listing has no effect, so a cancelled one is not waited for.
            asking.cancel()
            await asyncio.sleep(0)
            asking.cancel()
            raise
        else:
            self.ready = True
            self._rights.have(LOOK)
            self._follow_up(listed)

    def _follow_up(self, listed: list[Reservation]) -> None:
        look = self.booked.look(listed, clock.monotonic())
        for request_id, answer in look.answers:
            waiting = self._answers.get(token_of(request_id))
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)
        for request_id, revoked in look.revoked:
            self._start(request_id, self._revoke(request_id, revoked))
        if not look.cancel:
            self._rights.have(CANCEL)
        for one in look.cancel:
            if self._canceller.is_due(one.id):
                self._start(one.id, self._canceller.sweep(one.id))

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        if name in self._beside:
            work.close()
            return
        task = self._beside[name] = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._beside.pop(name, None))

    async def _revoke(self, request_id: str, revoked: CapacityRevoked) -> None:
        # If this fails, the next listing reports it again.
        try:
            if await self._provider.report(request_id, revoked):
                log.warning("revoked", id=request_id, reason=revoked.message)
        except (RuntimeError, AdmittanceError) as error:
            log.warning("not_said_yet", id=request_id, reason=str(error))


__all__ = ["SERVICE", "run"]


async def run(
    bus: Bus, settings: Settings, *, stop: asyncio.Event, provisioning_class: str | None = None
) -> None:
    """Runs the provider while this instance leads, until stop is set. Raises SetupError if boto3 is
    missing or a setting is wrong."""
    aws = AwsSettings.from_env(provisioning_class=provisioning_class)
    # boto3 reads many files, so not in the event loop.
    ec2 = await asyncio.to_thread(Ec2.connect, aws.provisioning_class)

    def begin(_: int) -> Reconciler:
        return Reconciler(bus, settings, aws, ec2)

    domain = aws_domain(aws.provisioning_class)
    elected = LeaderElectedService(
        bus, settings, SERVICE, domain, begin, trouble=lambda one: one.trouble
    )
    await elected.run(stop)
