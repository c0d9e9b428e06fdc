"""The one that leads: reads the bucket and what providers say, does what follows, tells the checks.

The order of a step is the safety of it: the record is written first, then the provider is asked or
told, then the check is told; and what a provider said is acknowledged when all that has followed
from it is on the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

import msgspec
import structlog

from admittance.api.manifest import ManifestError, decode_object
from admittance.checks import AdmissionCheckController, Later, Request
from admittance.checks.service import Service
from admittance.events.codec import Undecodable, decode
from admittance.events.names import plain
from admittance.events.provisioning import ProvisioningRequested, ProvisioningStatus
from admittance.events.subjects import ASKED, CAPACITY, PROVISIONING_FACTS
from admittance.provisioning.records import Record
from admittance.provisioning_check.acts import Step
from admittance.provisioning_check.decide import Capacity
from admittance.provisioning_check.picture import CONTROLLER
from admittance.provisioning_check.providers import Providers
from admittance.provisioning_check.saying import (
    key_of,
    reference_of,
    stated,
    verdict_of,
    written,
)
from admittance.runtime import bucket, clock
from admittance.runtime.bucket import BucketReader, Entry
from admittance.runtime.bus import Bus
from admittance.runtime.consume import Bad, bury
from admittance.runtime.errors import AdmittanceError, Refused, Unavailable
from admittance.runtime.puller import Delivery, Puller
from admittance.runtime.settings import Settings
from admittance.workload import stored

SERVICE: Final = "provisioning-check"
PATTERNS: Final = (
    "admissioncheck.>",
    "provisioningrequestconfig.>",
    "flavor.>",
    f"{CAPACITY}.>",
)
FILTERS: Final = [
    f"admit.provisioning.{word}.>" for word in sorted(PROVISIONING_FACTS.keys() - ASKED)
]
AGAIN_SECONDS: Final = 0.2
"""After a step that did not succeed."""

log = structlog.get_logger()


class Keeper:
    """Keeps the requests equal to what reservations ask for."""

    def __init__(self, bus: Bus, settings: Settings, epoch: int) -> None:
        self._bus = bus
        self._settings = settings
        seconds = settings.provisioning_seconds
        self.core = Capacity(timedelta(seconds=seconds) if seconds else None)
        self.ready = False
        self._needed = asyncio.Event()
        """There are checks of ours, or requests: workloads are of interest."""
        self._loaded = asyncio.Event()
        self._changed = asyncio.Event()
        self._quiet = asyncio.Condition()
        self._stop = asyncio.Event()
        self._times: dict[str, int] = {}
        self._puller = Puller(bus, SERVICE, FILTERS, generation=epoch)
        self.controller = AdmissionCheckController(CONTROLLER)
        self.controller.check(self._judge)
        self._providers = Providers(bus, self.controller, self.core, settings, self._look)
        self._providers.take = self.take
        self._providers.unheard = self.unheard

    @property
    def lag(self) -> int:
        """Answers of providers that were not read yet."""
        return self._puller.pending

    async def run(self) -> None:
        """Works until cancelled. Raises what ends one of its parts, and Superseded."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch_objects(), name="objects")
                tasks.create_task(self._watch_workloads(), name="workloads")
                tasks.create_task(self._act(), name="acting")
                tasks.create_task(self._hear(), name="answers")
                tasks.create_task(self._providers.run(self._loaded), name="providers")
                tasks.create_task(self._serve_checks(), name="checks")
        except* AdmittanceError as group:
            raise group.exceptions[0] from None

    async def close(self) -> None:
        """Ends what was begun; requests stay as they are."""
        self.ready = False
        self._stop.set()
        await self._puller.close()

    async def _serve_checks(self) -> None:
        # Before that, nobody names the controller, and there is nothing to hear.
        await self._needed.wait()
        await Service(self.controller, self._bus, self._settings).run(self._stop)

    def _look(self) -> None:
        self._changed.set()

    async def _judge(self, request: Request) -> Later:
        """A check is asked: what follows is found in the bucket, by `Capacity`, now or after a
        restart."""
        log.debug("asked", workload=f"{request.namespace}/{request.name}", check=request.check)
        return Later()

    # The bucket. --------------------------------------------------------------------

    async def _watch_objects(self) -> None:
        reader = BucketReader(self._bus, PATTERNS)
        try:
            async for entries in reader.batches():
                for entry in entries:
                    self._read(entry)
                picture = self.core.picture
                if reader.loaded.is_set():
                    # Where nobody asks for capacity, workloads are not even read.
                    self.ready = True
                    if picture.checks or picture.records:
                        self._needed.set()
                self._changed.set()
        finally:
            await reader.close()

    async def _watch_workloads(self) -> None:
        await self._needed.wait()
        reader = BucketReader(self._bus, ("workload.>",))
        try:
            async for entries in reader.batches():
                for entry in entries:
                    self._read(entry)
                if reader.loaded.is_set() and not self._loaded.is_set():
                    self._loaded.set()
                    log.info("serving", requests=len(self.core.picture.records))
                self._changed.set()
        finally:
            await reader.close()

    def _read(self, entry: Entry) -> None:
        kind, _, tail = entry.key.partition(".")
        try:
            names = [plain(one) for one in tail.split(".")]
            if kind == "workload":
                workload = None if entry.value is None else stored.decode(entry.value)
                self.core.picture.workload((names[0], names[1]), workload)
            elif kind == CAPACITY:
                self._read_record((names[0], names[1]), entry)
            else:
                self._read_object(kind, names[0], entry)
        except (msgspec.MsgspecError, ManifestError, ValueError, IndexError) as error:
            # Written by hand.
            log.warning("unreadable", key=entry.key, error=str(error))

    def _read_record(self, name: tuple[str, str], entry: Entry) -> None:
        record = None if entry.value is None else msgspec.json.decode(entry.value, type=Record)
        self.core.picture.record(name, record, entry.revision)

    def _read_object(self, kind: str, name: str, entry: Entry) -> None:
        found: Any = None if entry.value is None else decode_object(entry.value).manifest
        picture = self.core.picture
        match kind:
            case "admissioncheck":
                picture.check(name, found)
            case "provisioningrequestconfig":
                picture.config(name, found)
            case "flavor":
                picture.flavor(name, found)
        self._providers.look()

    # Steps. -------------------------------------------------------------------------

    async def _act(self) -> None:
        await self._loaded.wait()
        while True:
            # Cleared first: what changes while steps are under way is seen by the next look.
            self._changed.clear()
            self.core.due(clock.now())
            failed = False
            while steps := list(self.core.steps(clock.now())):
                failed |= bool(await self._perform(steps))
                if failed:
                    break
            async with self._quiet:
                self._quiet.notify_all()
            if failed:
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            wake = self.core.wake()
            seconds = None if wake is None else max(0.0, (wake - clock.now()).total_seconds())
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), seconds)

    async def _perform(self, steps: Sequence[Step]) -> set[int]:
        """Does the steps, each in its order, all of them side by side: which of them failed."""
        left: dict[int, Step] = dict(enumerate(steps))
        revisions = dict.fromkeys(left, 0)
        failed = await self._write(left, revisions)
        failed += await self._state({i: one for i, one in left.items() if i not in failed})
        failed += await self._tell({i: one for i, one in left.items() if i not in failed})
        for i, step in left.items():
            if i in failed:
                self.core.failed(step)
            else:
                self.core.done(step, revisions[i])
        return set(failed)

    async def _write(self, steps: dict[int, Step], revisions: dict[int, int]) -> list[int]:
        todo = {i: (one.slot, one.write) for i, one in steps.items() if one.write is not None}
        messages = [written(slot, write) for slot, write in todo.values()]
        failed: list[int] = []
        for i, outcome in zip(todo, await self._publish(messages), strict=True):
            if isinstance(outcome, int):
                revisions[i] = outcome
                continue
            failed.append(i)
            if isinstance(outcome, Refused):
                await self._reload(steps[i])
        return failed

    async def _reload(self, step: Step) -> None:
        """Somebody else wrote that key, or it has a marker that we did not know of."""
        assert step.write is not None, "it was refused"
        with suppress(Unavailable, Refused):
            found = await bucket.get(self._bus, key_of(step.slot, step.write))
            revision = found.revision if found is not None else 0
            if found is not None and found.value is not None:
                self._read_record((step.slot.namespace, step.write.name), found)
            else:
                self.core.picture.marked(step.slot, step.write.name, revision)

    async def _state(self, steps: dict[int, Step]) -> list[int]:
        todo = {i: one.fact for i, one in steps.items() if one.fact is not None}
        messages = [stated(fact, self._times.get(fact.id, 0)) for fact in todo.values()]
        failed = []
        for (i, fact), outcome in zip(todo.items(), await self._publish(messages), strict=True):
            if not isinstance(outcome, int):
                failed.append(i)
                continue
            asked = isinstance(fact, ProvisioningRequested)
            log.info("requested" if asked else "cancelled", id=fact.id, workload=fact.name)
            if not asked:
                self._times.pop(fact.id, None)
        return failed

    async def _tell(self, steps: dict[int, Step]) -> list[int]:
        todo = {i: one for i, one in steps.items() if one.tell is not None}

        async def one(step: Step) -> None:
            assert step.tell is not None
            answer = step.tell.answer
            for name in answer.missing:
                log.warning("detail_missing", detail=name, workload=step.slot.workload)
            await self.controller.report(reference_of(step), verdict_of(answer))

        outcomes = await asyncio.gather(*map(one, todo.values()), return_exceptions=True)
        failed = []
        for i, outcome in zip(todo, outcomes, strict=True):
            if isinstance(outcome, RuntimeError | Unavailable):
                failed.append(i)  # The checks are not served yet, or the bus is away.
            elif isinstance(outcome, Refused):
                log.error("verdict_refused", workload=todo[i].slot.workload, error=str(outcome))
            elif outcome is not None:
                raise outcome
        return failed

    async def _publish(self, messages: list[Any]) -> Sequence[int | Refused | Unavailable]:
        if not messages:
            return []
        try:
            return await self._bus.publish_all(messages)
        except Unavailable as error:
            return [error] * len(messages)

    # What providers say. --------------------------------------------------------------------

    async def _hear(self) -> None:
        await self._loaded.wait()
        while True:
            batch = await self._puller.batch()
            bad: list[Bad] = []
            good: list[tuple[Delivery, ProvisioningStatus]] = []
            for delivery in batch:
                found = _status_of(delivery)
                if isinstance(found, str):
                    bad.append(Bad(delivery, found))
                else:
                    good.append((delivery, found))
            whys = await self._take_all([fact for _, fact in good])
            bad += [Bad(one, why) for (one, _), why in zip(good, whys, strict=True) if why]
            await bury(self._bus, SERVICE, bad)
            await self._settled()
            self._puller.note(batch[-1])

    async def take(self, fact: ProvisioningStatus) -> str:
        """What one answer leads to; why nobody can use it, or ""."""
        return (await self._take_all([fact]))[0]

    async def _take_all(self, said: Sequence[ProvisioningStatus]) -> list[str]:
        """The same of several in their order, side by side where they are about different
        requests."""
        whys = [""] * len(said)
        left = list(range(len(said)))
        while left:
            steps: dict[int, Step] = {}
            later: list[int] = []
            for i in left:
                step, why = self.core.heard(said[i], clock.now())
                if step is None and why == "busy":
                    later.append(i)
                    continue
                whys[i] = why
                if step is not None:
                    steps[i] = step
            failed = await self._perform(list(steps.values()))
            # Those records have moved: once more, as they are now.
            again = [i for number, i in enumerate(steps) if number in failed]
            left = sorted([*later, *again])
            self._changed.set()
            if again:
                await asyncio.sleep(AGAIN_SECONDS)
            elif left:
                await self._settled()
        for i, why in enumerate(whys):
            if why:
                log.info("ignored", id=said[i].id, workload=said[i].name, reason=why)
                whys[i] = why if self.core.is_foreign(said[i]) else ""
        return whys

    async def _settled(self) -> None:
        """Waits until nothing is left to be done of what is known so far."""
        while self.core.is_busy:
            self._changed.set()
            async with self._quiet:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._quiet.wait(), AGAIN_SECONDS)

    def unheard(self, request_id: str) -> None:
        """The provider has lost that request: it is asked once more."""
        self._times[request_id] = self._times.get(request_id, 0) + 1
        self.core.unheard(request_id)
        self._changed.set()


def _status_of(delivery: Delivery) -> ProvisioningStatus | str:
    """What a provider says; or why nobody can use it."""
    try:
        fact = decode(delivery.subject, delivery.data)
    except Undecodable as error:
        return str(error)
    return fact if isinstance(fact, ProvisioningStatus) else "no provider's answer"
