"""The provisioning check: reads the bucket and the answers of providers, performs the steps that
the core derives from these, and reports verdicts.
"""

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
from admittance.lease import service_domain
from admittance.provisioning.core import BUSY, ProvisioningCore
from admittance.provisioning.observed_state import CONTROLLER, Name
from admittance.provisioning.steps import RequestSlot, Step
from admittance.provisioning_check.bucket_watch import BucketWatch
from admittance.provisioning_check.provider_monitor import ProviderMonitor
from admittance.provisioning_check.status_relay import StatusRelay
from admittance.provisioning_check.step_performer import StepPerformer, record_undecided
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.messages import UnusableDelivery, publish_dead_letters
from admittance.runtime.bus.puller import Delivery, Puller
from admittance.runtime.leader.leader_elected_service import LeaderElectedService
from admittance.runtime.nats import micro
from admittance.runtime.process.admin import show_metrics
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import cancel_and_wait, set_before, task_group
from admittance.runtime.telemetry.metrics import Counter, Gauges, gauge
from admittance.runtime.telemetry.object_faults import faults

SERVICE: Final = "provisioning-check"
FILTERS: Final = [
    f"admit.provisioning.{word}.>" for word in sorted(PROVISIONING_FACTS.keys() - ASKED)
]
AGAIN_SECONDS: Final = 0.2
"""Seconds after a failed step before the core decides again which steps are due."""

log = structlog.get_logger()


class ProvisioningReconciler:
    """Keeps one capacity request for each quota reservation that needs capacity.

    A provider's answer is acknowledged once all writes that follow from the answer are on the log.
    ``unusable``: the counter of answers that became dead letters.
    """

    def __init__(
        self, bus: Bus, settings: Settings, epoch: int, unusable: Counter | None = None
    ) -> None:
        self._bus = bus
        self._settings = settings
        seconds = settings.provisioning_seconds
        time_limit = timedelta(seconds=seconds) if seconds else None
        self.core = ProvisioningCore(time_limit, record_undecided)
        self.core.observed.answers_read = False
        self._changed = asyncio.Event()
        self._steps_done = asyncio.Condition()
        self._stop = asyncio.Event()
        self._unusable = unusable or unusable_answers()
        self._puller = Puller(bus, SERVICE, FILTERS, generation=epoch)
        self.controller = AdmissionCheckController(CONTROLLER)
        self.controller.check(self._on_check_requested)
        self._providers = ProviderMonitor(
            bus, self.controller, self.core, settings, self._changed.set, self
        )
        self._watch = BucketWatch(
            bus, self.core.observed, self._changed.set, self._providers.reevaluate
        )
        self._serving: micro.Serving | None = None
        self._performer = StepPerformer(bus, self.core, self.controller, self._watch)

    @property
    def ready(self) -> bool:
        """Whether the whole bucket has been read."""
        return self._watch.ready and not self._stop.is_set()

    @property
    def lag(self) -> int:
        """How many answers of providers on the log are not read yet."""
        return self._puller.pending

    async def run(self) -> None:
        """Watches the bucket, reads answers and performs steps until cancelled. Raises the error of
        the first task that fails, and Superseded if another instance has become leader."""
        async with task_group() as tasks:
            tasks.create_task(self._watch.objects(), name="objects")
            tasks.create_task(self._watch.workloads(), name="workloads")
            tasks.create_task(self._perform_steps(), name="acting")
            tasks.create_task(self._read_answers(), name="answers")
            tasks.create_task(self._providers.run(self._watch.loaded), name="providers")
            tasks.create_task(self._serve_checks(), name="checks")
            self._serving = await micro.serve(
                self._bus.nc,
                SERVICE,
                self._settings.instance,
                {"admit.api.providers": self._providers.answering},
            )

    async def close(self) -> None:
        """Stops all work of this instance; capacity requests stay as they are."""
        self._stop.set()
        if self._serving is not None:
            await self._serving.stop()
        await self._puller.close()

    # Checks. ------------------------------------------------------------------------

    async def _serve_checks(self) -> None:
        # The service waits for the first AdmissionCheck of this controller, because it has no check
        # to serve before.
        await self._watch.needed.wait()
        await CheckService(self.controller, self._bus, self._settings).run(self._stop)

    async def _on_check_requested(self, request: Request) -> Later:
        """Answers a request to the admission check with `Later`: the service derives the verdict
        from the bucket, not from this request."""
        log.debug("asked", workload=f"{request.namespace}/{request.name}", check=request.check)
        return Later()

    # Steps. -------------------------------------------------------------------------

    async def _perform_steps(self) -> None:
        await self._watch.loaded.wait()
        while True:
            # The event ``_changed`` is cleared before the steps, so that a change during the steps
            # causes another round.
            self._changed.clear()
            self.core.mark_overdue(clock.now())
            failed = False
            while steps := list(self.core.steps(clock.now())):
                failed |= bool(await self._performer.perform(steps))
                if failed:
                    break
            async with self._steps_done:
                self._steps_done.notify_all()
            if failed:
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            await set_before(self._changed, self.core.next_deadline())

    async def _settle(self) -> None:
        """Waits until the service has performed all steps that follow from the observed state."""
        while self.core.is_busy:
            self._changed.set()
            async with self._steps_done:
                with suppress(TimeoutError):
                    async with asyncio.timeout(AGAIN_SECONDS):
                        await self._steps_done.wait()

    # Answers of providers. ------------------------------------------------------------

    async def _read_answers(self) -> None:
        await self._watch.loaded.wait()
        await self._puller.start()
        self._note_all_read()
        while True:
            batch = await self._puller.batch()
            bad: list[UnusableDelivery] = []
            good: list[tuple[Delivery, ProvisioningStatus]] = []
            for delivery in batch:
                status = _status_of(delivery)
                if isinstance(status, str):
                    bad.append(UnusableDelivery(delivery, status))
                else:
                    good.append((delivery, status))
            await self._note_unusable(bad)
            whys = await self.apply_answers([fact for _, fact in good])
            bad += [
                UnusableDelivery(delivery, why)
                for (delivery, _), why in zip(good, whys, strict=True)
                if why
            ]
            self._unusable.add((), len(bad))
            await publish_dead_letters(self._bus, SERVICE, bad)
            await self._settle()
            self._puller.ack_soon(batch[-1])
            self._note_all_read()

    async def _note_unusable(self, bad: Sequence[UnusableDelivery]) -> None:
        """Notes each unusable answer on the capacity request that the answer's subject names,
        because users look at the request.
        """
        for delivery in bad:
            with suppress(BadToken):
                to = address_of(delivery.delivery.subject)
                await self.note_unreadable((to.namespace, to.name), to.detail, delivery.reason)

    async def note_unreadable(self, workload: Name, provisioning_class: str, why: str) -> None:
        """Notes on the workload's capacity request that an answer of the provider could not be
        decoded.
        """
        step = self.core.note_unreadable(workload, provisioning_class, why, clock.now())
        if step is not None:
            await self._performer.perform([step])

    def _note_all_read(self) -> None:
        """Allows deadlines of requests to pass once all answers on the log are read: an answer that
        was published in time counts, also if no leader was active at that time.
        """
        if not self.core.observed.answers_read and self._puller.idle:
            self.core.observed.answers_read = True
            self._changed.set()

    async def apply_answers(self, answers: Sequence[ProvisioningStatus]) -> list[str]:
        """Applies the answers in their order, concurrently for different requests. Returns for each
        answer the reason why it becomes a dead letter; "" if it does not become one.
        """
        whys = [""] * len(answers)
        broken: set[int] = set()
        left = list(range(len(answers)))
        while left:
            steps: dict[int, Step] = {}
            later: list[int] = []
            for i in left:
                try:
                    step, why = self.core.apply_status(answers[i], clock.now())
                except Exception as error:
                    # One answer that cannot be applied must not block the other answers.
                    step, why = None, f"it cannot be applied: {error}"
                    broken.add(i)
                    about = f"answer {answers[i].id} about workload {answers[i].name}"
                    faults.record(SERVICE, "apply an answer", about, error)
                if step is None and why == BUSY:
                    later.append(i)
                    continue
                whys[i] = why
                if step is not None:
                    steps[i] = step
            failed = await self._performer.perform(list(steps.values()))
            # The steps of these answers failed, because other writers changed the records
            # meanwhile; the answers are applied again.
            again = [i for number, i in enumerate(steps) if number in failed]
            left = sorted([*later, *again])
            self._changed.set()
            if again:
                await asyncio.sleep(AGAIN_SECONDS)
            elif left:
                await self._settle()
        for i, why in enumerate(whys):
            if why:
                fact = answers[i]
                log.info("answer_ignored", id=fact.id, workload=fact.name, reason=why)
                if i in broken:
                    await self.note_unreadable(
                        (fact.namespace, fact.name), fact.provisioning_class, why
                    )
                whys[i] = why if i in broken or self.core.has_foreign_id(fact) else ""
        return whys

    def send_again(self, slot: RequestSlot, request_id: str) -> None:
        """Publishes a capacity request once more, because its provider does not know the
        request."""
        self._performer.repeat(request_id)
        self.core.send_again(slot, request_id)
        self._changed.set()


def _status_of(delivery: Delivery) -> ProvisioningStatus | str:
    """The provider's answer in a delivered message, or a text that says why the message cannot be
    used."""
    try:
        fact = decode(delivery.subject, delivery.data)
    except Undecodable as error:
        return str(error)
    return fact if isinstance(fact, ProvisioningStatus) else "not an answer of a provider"


__all__ = ["SERVICE", "run"]

REQUESTS: Final = gauge(
    "capacity_requests",
    "Capacity requests that are stored, by their state",
    ("provisioning_class", "state"),
)


def unusable_answers() -> Counter:
    """The counter of answers that became dead letters."""
    about = "Answers of providers that cannot be used, each a dead letter"
    return Counter("unusable_capacity_answers", about, ())


async def run(bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
    """Runs the provisioning check while this instance leads, until ``stop`` is set."""
    unusable = unusable_answers()

    def begin(epoch: int) -> ProvisioningReconciler:
        return ProvisioningReconciler(bus, settings, epoch, unusable)

    elected = LeaderElectedService(
        bus, settings, SERVICE, service_domain(SERVICE), begin, lag=lambda service: service.lag
    )

    def gauges() -> dict[str, dict[tuple[str, ...], float]]:
        work = elected.work
        return {REQUESTS.name: work.core.counts()} if work is not None else {}

    async with show_metrics(settings, Gauges((REQUESTS,), gauges), unusable), task_group() as tasks:
        relaying = tasks.create_task(StatusRelay(bus, SERVICE).run(), name="statuses")
        await elected.run(stop)
        await cancel_and_wait(relaying)
