"""The provisioning check: reads the bucket and the answers of providers, performs the steps that
follow, reports verdicts. One instance is active, the others stand by."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

import structlog

from admittance.checks import AdmissionCheckController, Later, Request
from admittance.checks.controller import CheckService
from admittance.events.codec import Undecodable, decode
from admittance.events.names import BadToken
from admittance.events.provisioning import ProvisioningStatus
from admittance.events.subjects import ASKED, PROVISIONING_FACTS, address_of
from admittance.lease.lease_state import PROVISIONING_CHECK
from admittance.provisioning.core import BUSY, ProvisioningCore
from admittance.provisioning.observed_state import CONTROLLER, Name
from admittance.provisioning.steps import Slot, Step
from admittance.provisioning_check.bucket_watch import BucketWatch
from admittance.provisioning_check.provider_monitor import ProviderMonitor
from admittance.provisioning_check.step_performer import StepPerformer, tell_left_aside
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.messages import UnusableDelivery, publish_dead_letters
from admittance.runtime.bus.puller import Delivery, Puller
from admittance.runtime.leader.leader_elected_service import LeaderElectedService
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import parts, set_before

SERVICE: Final = "provisioning-check"
FILTERS: Final = [
    f"admit.provisioning.{word}.>" for word in sorted(PROVISIONING_FACTS.keys() - ASKED)
]
AGAIN_SECONDS: Final = 0.2
"""Pause after a failed step."""

log = structlog.get_logger()


class Reconciler:
    """Keeps one capacity request for each reservation that needs one.

    An answer of a provider is acknowledged when everything that follows from it is on the log."""

    def __init__(self, bus: Bus, settings: Settings, epoch: int) -> None:
        self._bus = bus
        self._settings = settings
        seconds = settings.provisioning_seconds
        patience = timedelta(seconds=seconds) if seconds else None
        self.core = ProvisioningCore(patience, tell_left_aside)
        self.core.observed.answers_read = False
        self._changed = asyncio.Event()
        self._quiet = asyncio.Condition()
        self._stop = asyncio.Event()
        self._puller = Puller(bus, SERVICE, FILTERS, generation=epoch)
        self.controller = AdmissionCheckController(CONTROLLER)
        self.controller.check(self._judge)
        self._providers = ProviderMonitor(
            bus, self.controller, self.core, settings, self._changed.set, self
        )
        self._reading = BucketWatch(
            bus, self.core.observed, self._changed.set, self._providers.look
        )
        self._performing = StepPerformer(bus, self.core, self.controller, self._reading)

    @property
    def ready(self) -> bool:
        """Whether the bucket has been read."""
        return self._reading.ready and not self._stop.is_set()

    @property
    def lag(self) -> int:
        """Answers of providers that have not been read yet."""
        return self._puller.pending

    async def run(self) -> None:
        """Works until cancelled. Raises what ends one of its parts, and Superseded."""
        async with parts() as tasks:
            tasks.create_task(self._reading.objects(), name="objects")
            tasks.create_task(self._reading.workloads(), name="workloads")
            tasks.create_task(self._act(), name="acting")
            tasks.create_task(self._hear(), name="answers")
            tasks.create_task(self._providers.run(self._reading.loaded), name="providers")
            tasks.create_task(self._serve_checks(), name="checks")

    async def close(self) -> None:
        """Stops all work; requests stay as they are."""
        self._stop.set()
        await self._puller.close()

    # Checks. ------------------------------------------------------------------------

    async def _serve_checks(self) -> None:
        # Without a check of this controller there is nothing to serve.
        await self._reading.needed.wait()
        await CheckService(self.controller, self._bus, self._settings).run(self._stop)

    async def _judge(self, request: Request) -> Later:
        """A check is requested. The verdict follows from the bucket through `ProvisioningCore`, now
        or after a restart."""
        log.debug("asked", workload=f"{request.namespace}/{request.name}", check=request.check)
        return Later()

    # Steps. -------------------------------------------------------------------------

    async def _act(self) -> None:
        await self._reading.loaded.wait()
        while True:
            # Cleared first, so that changes during the steps cause another round.
            self._changed.clear()
            self.core.due(clock.now())
            failed = False
            while steps := list(self.core.steps(clock.now())):
                failed |= bool(await self._performing.perform(steps))
                if failed:
                    break
            async with self._quiet:
                self._quiet.notify_all()
            if failed:
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            await set_before(self._changed, self.core.wake())

    async def _settled(self) -> None:
        """Waits until every step that follows from the known state is performed."""
        while self.core.is_busy:
            self._changed.set()
            async with self._quiet:
                with suppress(TimeoutError):
                    async with asyncio.timeout(AGAIN_SECONDS):
                        await self._quiet.wait()

    # Answers of providers. ------------------------------------------------------------

    async def _hear(self) -> None:
        await self._reading.loaded.wait()
        await self._puller.start()
        self._are_all_heard()
        while True:
            batch = await self._puller.batch()
            bad: list[UnusableDelivery] = []
            good: list[tuple[Delivery, ProvisioningStatus]] = []
            for delivery in batch:
                found = _status_of(delivery)
                if isinstance(found, str):
                    bad.append(UnusableDelivery(delivery, found))
                else:
                    good.append((delivery, found))
            await self._note(bad)
            whys = await self.take([fact for _, fact in good])
            bad += [
                UnusableDelivery(one, why) for (one, _), why in zip(good, whys, strict=True) if why
            ]
            await publish_dead_letters(self._bus, SERVICE, bad)
            await self._settled()
            self._puller.note(batch[-1])
            self._are_all_heard()

    async def _note(self, bad: Sequence[UnusableDelivery]) -> None:
        """Notes each unusable answer on the request that its subject names, where users look. All
        of them also become dead letters."""
        for one in bad:
            with suppress(BadToken):
                of = address_of(one.delivery.subject)
                await self.note_unreadable((of.namespace, of.name), of.detail, one.reason)

    async def note_unreadable(self, workload: Name, provisioning_class: str, why: str) -> None:
        """Notes on the workload's request that an answer of the class could not be decoded."""
        step = self.core.note_unreadable(workload, provisioning_class, why, clock.now())
        if step is not None:
            await self._performing.perform([step])

    def _are_all_heard(self) -> None:
        """Enables deadlines once all answers on the log are read: an answer published in time
        counts even if no leader was active then."""
        if not self.core.observed.answers_read and self._puller.idle:
            self.core.observed.answers_read = True
            self._changed.set()

    async def take(self, said: Sequence[ProvisioningStatus]) -> list[str]:
        """Applies answers in order, concurrently for different requests. Returns for each why it
        cannot be used, or ""."""
        whys = [""] * len(said)
        unread: set[int] = set()
        left = list(range(len(said)))
        while left:
            steps: dict[int, Step] = {}
            later: list[int] = []
            for i in left:
                try:
                    step, why = self.core.apply_status(said[i], clock.now())
                except Exception as error:
                    # A broken answer must not block the others.
                    step, why = None, f"it leads to nothing: {error}"
                    unread.add(i)
                    log.error("left_aside", id=said[i].id, workload=said[i].name, exc_info=error)
                if step is None and why == BUSY:
                    later.append(i)
                    continue
                whys[i] = why
                if step is not None:
                    steps[i] = step
            failed = await self._performing.perform(list(steps.values()))
            # Their records changed meanwhile: apply these answers again.
            again = [i for number, i in enumerate(steps) if number in failed]
            left = sorted([*later, *again])
            self._changed.set()
            if again:
                await asyncio.sleep(AGAIN_SECONDS)
            elif left:
                await self._settled()
        for i, why in enumerate(whys):
            if why:
                fact = said[i]
                log.info("ignored", id=fact.id, workload=fact.name, reason=why)
                if i in unread:
                    await self.note_unreadable(
                        (fact.namespace, fact.name), fact.provisioning_class, why
                    )
                whys[i] = why if i in unread or self.core.has_foreign_id(said[i]) else ""
        return whys

    def send_again(self, slot: Slot, request_id: str) -> None:
        """The provider does not know the request: it is sent once more."""
        self._performing.again(request_id)
        self.core.send_again(slot, request_id)
        self._changed.set()


def _status_of(delivery: Delivery) -> ProvisioningStatus | str:
    """The provider's answer; or why it cannot be used."""
    try:
        fact = decode(delivery.subject, delivery.data)
    except Undecodable as error:
        return str(error)
    return fact if isinstance(fact, ProvisioningStatus) else "no provider's answer"


__all__ = ["SERVICE", "run"]


async def run(bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
    """Runs the provisioning check while this instance leads, until stop is set."""

    def begin(epoch: int) -> Reconciler:
        return Reconciler(bus, settings, epoch)

    elected = LeaderElectedService(
        bus, settings, SERVICE, PROVISIONING_CHECK, begin, lag=lambda one: one.lag
    )
    await elected.run(stop)
