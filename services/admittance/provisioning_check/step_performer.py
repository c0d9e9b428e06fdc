"""Does steps on the bus. The order is the safety of it: the record is written first, then the
provider is asked or told, then the check is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from admittance.checks import AdmissionCheckController
from admittance.events.provisioning import ProvisioningRequested
from admittance.provisioning.core import ProvisioningCore
from admittance.provisioning.steps import Slot, Step
from admittance.provisioning_check.bucket_watch import BucketWatch
from admittance.provisioning_check.messages import reference_of, stated, verdict_of, written
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.errors import AdmittanceError, Refused, TooBig, Unavailable

log = structlog.get_logger()


class StepPerformer:
    """Verdicts go through ``controller``; ``reading`` looks at what was refused."""

    def __init__(
        self,
        bus: Bus,
        core: ProvisioningCore,
        controller: AdmissionCheckController,
        reading: BucketWatch,
    ) -> None:
        self._bus = bus
        self._core = core
        self._controller = controller
        self._reading = reading
        self._times: dict[str, int] = {}
        """How often requests had to be said again since their provider did not know them."""

    def again(self, request_id: str) -> None:
        """That request will be said once more: it is no repetition that the bus may leave out."""
        self._times[request_id] = self._times.get(request_id, 0) + 1

    async def perform(self, steps: Sequence[Step]) -> set[int]:
        """Does the steps, each in its order, all of them side by side: which of them failed, and
        are to be done once more. What nobody can ever do is left aside."""
        left: dict[int, Step] = dict(enumerate(steps))
        doing = StepBatch(left, dict.fromkeys(left, 0))
        await self._write(doing)
        await self._state(doing)
        await self._tell(doing)
        for i, step in enumerate(steps):
            if i in doing.failed:
                self._core.failed(step)
            elif i in doing.cannot:
                self._core.cannot(step, doing.cannot[i])
            else:
                self._core.done(step, doing.revisions[i])
        return doing.failed

    async def _write(self, doing: StepBatch) -> None:
        def made(step: Step) -> Outgoing | None:
            return written(step.slot, step.write) if step.write is not None else None

        for i, step, outcome in await self._publish(doing, made):
            if isinstance(outcome, int):
                doing.revisions[i] = outcome
            elif isinstance(outcome, Refused):
                with suppress(Unavailable, Refused):
                    await self._reading.again(step)

    async def _state(self, doing: StepBatch) -> None:
        def made(step: Step) -> Outgoing | None:
            fact = step.fact
            return stated(fact, self._times.get(fact.id, 0)) if fact is not None else None

        for _, step, outcome in await self._publish(doing, made):
            fact = step.fact
            if fact is None or not isinstance(outcome, int):
                continue
            asked = isinstance(fact, ProvisioningRequested)
            log.info("requested" if asked else "cancelled", id=fact.id, workload=fact.name)
            if not asked:
                self._times.pop(fact.id, None)

    async def _tell(self, doing: StepBatch) -> None:
        todo = {i: one for i, one in doing.left.items() if one.tell is not None}

        async def one(step: Step) -> None:
            assert step.tell is not None
            answer = step.tell.answer
            for name in answer.missing:
                log.warning("detail_missing", detail=name, workload=step.slot.workload)
            await self._controller.report(reference_of(step), verdict_of(answer))

        outcomes = await asyncio.gather(*map(one, todo.values()), return_exceptions=True)
        for (i, step), outcome in zip(todo.items(), outcomes, strict=True):
            if isinstance(outcome, Refused):
                log.error("verdict_refused", workload=step.slot.workload, error=str(outcome))
            # A bare RuntimeError: the checks are not served yet.
            if type(outcome) is RuntimeError or isinstance(outcome, Unavailable):
                doing.fails(i)
            elif isinstance(outcome, Exception):
                doing.ends(i, outcome)
            elif outcome is not None:
                raise outcome

    async def _publish(
        self, doing: StepBatch, made: Callable[[Step], Outgoing | None]
    ) -> list[tuple[int, Step, int | Refused | Unavailable]]:
        """Publishes what is made of each step, if anything is: what became of it."""
        messages: dict[int, Outgoing] = {}
        for i, step in list(doing.left.items()):
            try:
                message = made(step)
            except Exception as error:  # Nothing that the bus takes.
                doing.ends(i, error)
                continue
            if message is not None:
                messages[i] = message
        if not messages:
            return []
        outcomes: Sequence[int | Refused | Unavailable]
        try:
            outcomes = await self._bus.publish_all(list(messages.values()))
        except Unavailable as error:
            outcomes = [error] * len(messages)
        found = []
        for i, outcome in zip(messages, outcomes, strict=True):
            found.append((i, doing.left[i], outcome))
            if not isinstance(outcome, int):
                doing.ends(i, outcome)
        return found


class StepBatch:
    """Steps that are under way. ``left``: those that nothing has become of yet."""

    def __init__(self, left: dict[int, Step], revisions: dict[int, int]) -> None:
        self.left = left
        self.revisions = revisions
        self.failed: set[int] = set()
        self.cannot: dict[int, Exception] = {}

    def fails(self, number: int) -> None:
        """Perhaps it goes better the next time."""
        del self.left[number]
        self.failed.add(number)

    def ends(self, number: int, error: Exception) -> None:
        """Perhaps it goes better the next time, or never: as the error says."""
        if isinstance(error, Unavailable | Refused) and not isinstance(error, TooBig):
            self.fails(number)  # Such as a full log, in which somebody will make room.
            return
        if isinstance(error, AdmittanceError) and not isinstance(error, TooBig):
            raise error
        tell_left_aside(self.left.pop(number).slot, error)
        self.cannot[number] = error


def tell_left_aside(slot: Slot, error: Exception) -> None:
    """Logs what is wrong with one slot, while all others go on."""
    told = {"workload": f"{slot.namespace}/{slot.workload}", "check": slot.check}
    log.error("left_aside", **told, error=str(error), exc_info=error)
