"""Performs steps on the bus. The order is what makes crashes safe: write the record, publish to the
provider, report to the check."""

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
    """Verdicts go through ``controller``; ``reading`` reads records again after a refused write."""

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
        """How often each request was sent again because its provider did not know it."""

    def again(self, request_id: str) -> None:
        """The request will be sent once more, with a new message id so that the bus does not drop
        it."""
        self._times[request_id] = self._times.get(request_id, 0) + 1

    async def perform(self, steps: Sequence[Step]) -> set[int]:
        """Performs the steps concurrently. Returns the numbers of those that failed and must be
        decided again. A step that can never succeed is reported to the core as `cannot`."""
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
            # A plain RuntimeError means that the checks are not served yet.
            if type(outcome) is RuntimeError or isinstance(outcome, Unavailable):
                doing.fails(i)
            elif isinstance(outcome, Exception):
                doing.ends(i, outcome)
            elif outcome is not None:
                raise outcome

    async def _publish(
        self, doing: StepBatch, made: Callable[[Step], Outgoing | None]
    ) -> list[tuple[int, Step, int | Refused | Unavailable]]:
        """Publishes the message made of each step, if there is one. Returns the outcomes."""
        messages: dict[int, Outgoing] = {}
        for i, step in list(doing.left.items()):
            try:
                message = made(step)
            except Exception as error:  # No message can be made of it.
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
    """Steps that are being performed. ``left``: steps that have not failed yet."""

    def __init__(self, left: dict[int, Step], revisions: dict[int, int]) -> None:
        self.left = left
        self.revisions = revisions
        self.failed: set[int] = set()
        self.cannot: dict[int, Exception] = {}

    def fails(self, number: int) -> None:
        """The step failed and may succeed later."""
        del self.left[number]
        self.failed.add(number)

    def ends(self, number: int, error: Exception) -> None:
        """The step failed; the error decides whether it may succeed later."""
        if isinstance(error, Unavailable | Refused) and not isinstance(error, TooBig):
            self.fails(number)  # For instance a full log, which may get room again.
            return
        if isinstance(error, AdmittanceError) and not isinstance(error, TooBig):
            raise error
        tell_left_aside(self.left.pop(number).slot, error)
        self.cannot[number] = error


def tell_left_aside(slot: Slot, error: Exception) -> None:
    """Logs the error of one slot; all others continue."""
    told = {"workload": f"{slot.namespace}/{slot.workload}", "check": slot.check}
    log.error("left_aside", **told, error=str(error), exc_info=error)
