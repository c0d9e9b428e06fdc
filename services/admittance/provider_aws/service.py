"""Makes EC2 capacity reservations for requests, waits until they are active, watches them, and
cancels reservations that no request needs any more.

A crash loses no state: tags name the request of each reservation, and the store of requests has the
cancelled requests. The provider lists the reservations at EC2 every few seconds, so it finds
reservations of earlier processes. A call to create a reservation that got no answer is repeated
with the same token, so it creates no second reservation.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final

import msgspec
import structlog

from admittance.api.fields.names import name_error
from admittance.events.names import token
from admittance.events.subjects import PROVIDERS
from admittance.lease import service_domain
from admittance.provider_aws.ec2 import STEPS, Ec2, Ec2Error, failed_answer
from admittance.provider_aws.parameters import Parameters, TooLarge, token_of
from admittance.provider_aws.reservation_calls import (
    CANCEL,
    LOOK,
    NOT_OURS,
    Ec2Rights,
    ReservationCanceller,
    ReservationMaker,
)
from admittance.provider_aws.reservations import (
    Booking,
    Reservation,
    TrackedReservations,
    initial_answer,
)
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
from admittance.runtime.errors import AdmittanceError, SetupError
from admittance.runtime.leader.leader_elected_service import LeaderElectedService
from admittance.runtime.process.settings import Settings, number
from admittance.runtime.tasks import BackgroundTasks, task_group
from admittance.runtime.telemetry.object_faults import faults
from admittance.sdk.threads import Threads

SERVICE: Final = STEPS.service

DEFAULT_CLASS: Final = "ec2-capacity-reservation.admittance.dev"
SECONDS_MIN: Final = 0.05
LISTING: Final = "list reservations"
LISTINGS_MAX: Final = 3
"""After so many listings in a row without an answer the class is inactive."""

log = structlog.get_logger()


class AwsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the EC2 provider from ``ADMIT_AWS_*``, in addition to the settings of every
    service and of boto3.

    ``poll_seconds``: time between two listings of reservations while the provider has reservations;
    ``sweep_seconds``: time between two listings while it has none. ``unseen_seconds``: a
    reservation that EC2 does not list for this long counts as gone; EC2 documents delays of up to
    five minutes.
    """

    provisioning_class: str = DEFAULT_CLASS
    poll_seconds: float = 5.0
    sweep_seconds: float = 60.0
    unseen_seconds: float = 300.0

    @classmethod
    def from_env(
        cls, env: Mapping[str, str] | None = None, *, provisioning_class: str | None = None
    ) -> AwsSettings:
        """Reads the settings from environment variables. Raises a SetupError that names a wrong
        variable."""
        env = os.environ if env is None else env
        name = provisioning_class or env.get("ADMIT_AWS_CLASS") or DEFAULT_CLASS
        # A class with an invalid name is refused: no ProvisioningRequestConfig can name the class,
        # and a * or ? in the name would be a wildcard in EC2's filters.
        if complaint := name_error(name):
            raise SetupError(f"ADMIT_AWS_CLASS: {complaint}")
        return cls(
            provisioning_class=name,
            poll_seconds=number(env, "ADMIT_AWS_POLL_SECONDS", 5.0, least=SECONDS_MIN),
            sweep_seconds=number(env, "ADMIT_AWS_SWEEP_SECONDS", 60.0, least=SECONDS_MIN),
            unseen_seconds=number(env, "ADMIT_AWS_UNSEEN_SECONDS", 300.0, least=SECONDS_MIN),
        )


def _record_failure(task: asyncio.Task[Any], error: BaseException) -> None:
    # The next listing of EC2 starts the task again.
    faults.record(SERVICE, "change a reservation", task.get_name(), error)


class AwsReconciler:
    """Makes and cancels the reservations of one provisioning class as the requests need them."""

    def __init__(self, bus: Bus, settings: Settings, aws: AwsSettings, ec2: Ec2) -> None:
        self._bus = bus
        self._aws = aws
        self._ec2 = ec2
        self._provider = provider = provider_of(
            STEPS, aws.provisioning_class, self.obtain, self.free, parameters=Parameters
        )
        self._service = ProviderService(provider, bus, settings)
        self._threads = Threads(1)
        self._reasons = InactiveReasons((provider,))
        self._rights = Ec2Rights(ec2, self._threads, self._reasons)
        self._maker = ReservationMaker(ec2, aws.provisioning_class, self._rights)
        self._canceller = ReservationCanceller(
            ec2, self._rights, self._maker.made, again_seconds=aws.sweep_seconds
        )
        self.booked = TrackedReservations(aws.unseen_seconds)
        self._waiting: dict[str, asyncio.Future[Status]] = {}
        self._tasks = BackgroundTasks(_record_failure)
        self._loaded = asyncio.Event()
        self._stop = asyncio.Event()
        self._failed = 0
        """How many listings in a row got no answer."""
        self.ready = False

    @property
    def trouble(self) -> str:
        """Why the provisioning class is inactive; "" if it is active."""
        return "" if self._provider.active else self._provider.message

    async def run(self) -> None:
        """Serves requests and lists reservations until cancelled. Raises the error of the first
        task that fails."""
        async with task_group() as tasks:
            tasks.create_task(self._read_statuses(), name="statuses")
            await self._loaded.wait()
            tasks.create_task(self._list_periodically(), name="reservations")
            tasks.create_task(self._service.run(self._stop), name="requests")

    async def close(self) -> None:
        """Stops all work of this instance; the reservations at EC2 stay."""
        self.ready = False
        self._stop.set()
        await self._tasks.end()

    # Stored statuses. -----------------------------------------------------------

    async def _read_statuses(self) -> None:
        def apply(entries: Sequence[Entry]) -> None:
            apply_each(entries, self._read, service=SERVICE, bucket=PROVIDERS)

        pattern = f"{token(self._aws.provisioning_class)}.*"
        await follow_bucket(self._bus, (pattern,), apply, self._on_loaded, bucket=PROVIDERS)

    def _on_loaded(self, _: int) -> None:
        self._loaded.set()
        log.info("serving", provisioned=len(self.booked.here))

    def _read(self, entry: Entry) -> None:
        status = read_status(entry.value) if entry.value else None
        self.booked.status_changed(entry.key, status, clock.monotonic())

    # Obtaining and freeing. ---------------------------------------------------------------

    async def obtain(self, request: Request) -> Status:
        """Makes a reservation for the request and waits until the reservation is active. Returns
        Failed if the reservation does not become active.
        """
        try:
            outcome = await self._maker.make(request, request.parameters)
        except Ec2Error as trouble:
            return failed_answer(trouble)
        if isinstance(outcome, TooLarge):
            return Failed(outcome.message, retryable=False)
        answer = initial_answer(outcome.reservation)
        if answer is not None:
            return answer
        return await self._until_active(
            request, Booking(request.id, outcome.reservation.id, outcome.instances)
        )

    async def _until_active(self, request: Request, booking: Booking) -> Status:
        request_token = token_of(request.id)
        answer: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        self._waiting[request_token] = answer
        self.booked.begin_waiting(booking, clock.monotonic())
        try:
            await request.say(
                Accepted(f"capacity reservation {booking.reservation} is not yet active")
            )
            return await answer
        finally:
            self._waiting.pop(request_token, None)
            self.booked.end_waiting(request.id)

    async def free(self, cancellation: Cancellation) -> None:
        """Cancels the EC2 reservation of the cancelled request. A reservation that another process
        made and that EC2 does not list yet is cancelled once EC2 lists it. Raises Ec2Error if EC2
        does not cancel the reservation; then the caller must call this function again.
        """
        self.booked.end(cancellation.id, clock.monotonic())
        await self._canceller.free(cancellation)

    # Listing EC2. -----------------------------------------------------------------------------

    async def _list_periodically(self) -> None:
        last = float("-inf")
        while True:
            now = clock.monotonic()
            often = not self.ready or self._reasons or self.booked.is_busy(now)
            if often or now - last >= self._aws.sweep_seconds:
                last = now
                await self._list()
                await self._rights.look()
            await asyncio.sleep(self._aws.poll_seconds)

    async def _list(self) -> None:
        listing = asyncio.ensure_future(self._threads.call(self._ec2.ours))
        try:
            listed = await asyncio.shield(listing)
        except Ec2Error as trouble:
            if trouble.fault in NOT_OURS:
                self.ready = True
                self._rights.deny(LOOK, trouble)
                return
            log.warning("listing_failed", reason=str(trouble))
            self._failed += 1
            if self._failed >= LISTINGS_MAX:
                self._reasons.begin(LISTING, f"EC2 does not list its reservations: {trouble}")
        except asyncio.CancelledError:
            # A listing changes nothing at EC2, so the process does not wait for the end of a
            # cancelled listing.
            listing.cancel()
            await asyncio.sleep(0)
            listing.cancel()
            raise
        except Exception as error:
            self._report_bad_list(error)
        else:
            self.ready = True
            self._failed = 0
            self._rights.has(LOOK)
            try:
                self._act_on(listed)
            except Exception as error:
                self._report_bad_list(error)
            else:
                self._reasons.end(LISTING)

    def _report_bad_list(self, error: Exception) -> None:
        # An unexpected reservation must not end the process: the next process would read the same
        # list.
        reason = faults.record(SERVICE, "read reservations", "EC2", error)
        self._reasons.begin(LISTING, f"EC2's list of reservations: {reason}")

    def _act_on(self, listed: list[Reservation]) -> None:
        observation = self.booked.observe(listed, clock.monotonic())
        faults.record_all(SERVICE, observation.errors)
        for request_id, answer in observation.answers:
            waiting = self._waiting.get(token_of(request_id))
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)
        for request_id, revoked in observation.revoked:
            self._start(request_id, self._revoke(request_id, revoked))
        if not observation.cancel:
            self._rights.has(CANCEL)
        for reservation in observation.cancel:
            if self._canceller.is_due(reservation.id):
                self._start(reservation.id, self._canceller.sweep(reservation.id))

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        if name in self._tasks:
            work.close()
            return
        self._tasks.start(work, name=name, key=name)

    async def _revoke(self, request_id: str, revoked: CapacityRevoked) -> None:
        # If the report of the revocation fails, it is repeated after the next listing of EC2.
        try:
            if await self._provider.report(request_id, revoked):
                log.warning("revoked", id=request_id, reason=revoked.message)
        except (RuntimeError, AdmittanceError) as error:
            log.warning("revocation_not_published_yet", id=request_id, reason=str(error))


__all__ = ["SERVICE", "run"]


async def run(
    bus: Bus, settings: Settings, *, stop: asyncio.Event, provisioning_class: str | None = None
) -> None:
    """Runs the EC2 provider while this instance leads, until ``stop`` is set. Raises SetupError if
    boto3 is missing or a setting is wrong.
    """
    aws = AwsSettings.from_env(provisioning_class=provisioning_class)
    # The EC2 client is made in a thread, because boto3 reads many files.
    ec2 = await asyncio.to_thread(Ec2.connect, aws.provisioning_class)

    def begin(_: int) -> AwsReconciler:
        return AwsReconciler(bus, settings, aws, ec2)

    domain = service_domain(SERVICE, aws.provisioning_class)
    elected = LeaderElectedService(
        bus, settings, SERVICE, domain, begin, trouble=lambda reconciler: reconciler.trouble
    )
    await elected.run(stop)
