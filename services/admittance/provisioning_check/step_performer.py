"""Performs provisioning steps on the bus: writes the request record, then publishes the fact to the
provider, then reports the check's verdict. With this order of the writes, a crash between two of
them loses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from admittance.checks import AdmissionCheckController
from admittance.events.provisioning import ProvisioningRequested
from admittance.provisioning.core import ProvisioningCore
from admittance.provisioning.steps import RequestSlot, Step
from admittance.provisioning_check.bucket_watch import BucketWatch
from admittance.provisioning_check.messages import (
    fact_message,
    record_message,
    reference_of,
    verdict_of,
)
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.errors import AdmittanceError, BusRefused, BusUnavailable, TooBig
from admittance.runtime.telemetry.object_faults import faults

log = structlog.get_logger()


class StepPerformer:
    """Performs the steps that the core of the provisioning check returns. ``controller`` publishes
    verdicts; ``watch`` reads a request record again after a refused write."""

    def __init__(
        self,
        bus: Bus,
        core: ProvisioningCore,
        controller: AdmissionCheckController,
        watch: BucketWatch,
    ) -> None:
        self._bus = bus
        self._core = core
        self._controller = controller
        self._watch = watch
        self._repetitions: dict[str, int] = {}
        """For each request id: how often the request was sent again because its provider did not
        know the request."""

    def repeat(self, request_id: str) -> None:
        """Gives the request's next message another message id, so that the server does not drop the
        message as a duplicate."""
        self._repetitions[request_id] = self._repetitions.get(request_id, 0) + 1

    async def perform(self, steps: Sequence[Step]) -> set[int]:
        """Performs the steps concurrently and reports the outcome of each to the core. Returns the
        indexes of the steps that failed and must be decided again."""
        left: dict[int, Step] = dict(enumerate(steps))
        batch = StepBatch(left, dict.fromkeys(left, 0))
        await self._write(batch)
        await self._publish_facts(batch)
        await self._report(batch)
        for i, step in enumerate(steps):
            if i in batch.failed:
                self._core.failed(step)
            elif i in batch.cannot:
                self._core.cannot(step, batch.cannot[i])
            else:
                self._core.done(step, batch.revisions[i])
        return batch.failed

    async def _write(self, batch: StepBatch) -> None:
        def message_of(step: Step) -> Outgoing | None:
            return record_message(step.slot, step.write) if step.write is not None else None

        for i, step, outcome in await self._publish(batch, message_of):
            if isinstance(outcome, int):
                batch.revisions[i] = outcome
            elif isinstance(outcome, BusRefused):
                with suppress(BusUnavailable, BusRefused):
                    await self._watch.reread(step)

    async def _publish_facts(self, batch: StepBatch) -> None:
        def message_of(step: Step) -> Outgoing | None:
            fact = step.fact
            return (
                fact_message(fact, self._repetitions.get(fact.id, 0)) if fact is not None else None
            )

        for _, step, outcome in await self._publish(batch, message_of):
            fact = step.fact
            if fact is None or not isinstance(outcome, int):
                continue
            is_request = isinstance(fact, ProvisioningRequested)
            log.info("requested" if is_request else "cancelled", id=fact.id, workload=fact.name)
            if not is_request:
                self._repetitions.pop(fact.id, None)

    async def _report(self, batch: StepBatch) -> None:
        todo = {i: step for i, step in batch.left.items() if step.report is not None}

        async def one(step: Step) -> None:
            assert step.report is not None
            verdict = step.report.verdict
            for name in verdict.missing:
                log.warning("detail_missing", detail=name, workload=step.slot.workload)
            await self._controller.report(reference_of(step), verdict_of(verdict))

        outcomes = await asyncio.gather(*map(one, todo.values()), return_exceptions=True)
        for (i, step), outcome in zip(todo.items(), outcomes, strict=True):
            if isinstance(outcome, BusRefused):
                log.error("verdict_refused", workload=step.slot.workload, error=str(outcome))
            # The controller raises a plain RuntimeError until it serves the checks.
            if type(outcome) is RuntimeError or isinstance(outcome, BusUnavailable):
                batch.fail(i)
            elif isinstance(outcome, Exception):
                batch.end(i, outcome)
            elif outcome is not None:
                raise outcome

    async def _publish(
        self, batch: StepBatch, message_of: Callable[[Step], Outgoing | None]
    ) -> list[tuple[int, Step, int | BusRefused | BusUnavailable]]:
        """Publishes the message that ``message_of`` returns for each step, if any. Returns each
        publication's step and outcome.
        """
        messages: dict[int, Outgoing] = {}
        for i, step in list(batch.left.items()):
            try:
                message = message_of(step)
            except Exception as error:  # the step has a value that no message can carry
                batch.end(i, error)
                continue
            if message is not None:
                messages[i] = message
        if not messages:
            return []
        outcomes = await self._bus.publish_each(list(messages.values()))
        published = []
        for i, outcome in zip(messages, outcomes, strict=True):
            published.append((i, batch.left[i], outcome))
            if not isinstance(outcome, int):
                batch.end(i, outcome)
        return published


class StepBatch:
    """Steps that are being performed. ``left``: the steps that have not failed, by their index.
    ``cannot``: the errors of the steps that can never succeed, by the steps' index.
    """

    def __init__(self, left: dict[int, Step], revisions: dict[int, int]) -> None:
        self.left = left
        self.revisions = revisions
        self.failed: set[int] = set()
        self.cannot: dict[int, Exception] = {}

    def fail(self, number: int) -> None:
        """Ends a step that has failed for now: the core decides the step again later."""
        del self.left[number]
        self.failed.add(number)

    def end(self, number: int, error: Exception) -> None:
        """Ends a step that has failed with ``error``; the error decides whether the step's slot is
        blocked or the step is tried again."""
        if isinstance(error, BusUnavailable | BusRefused) and not isinstance(error, TooBig):
            # The step may succeed later, for instance when a full log has room again.
            self.fail(number)
            return
        if isinstance(error, AdmittanceError) and not isinstance(error, TooBig):
            raise error
        log_blocked(self.left.pop(number).slot, error)
        self.cannot[number] = error


def log_blocked(slot: RequestSlot, error: Exception) -> None:
    """Logs the error that blocks the slot of a capacity request; steps for other slots continue."""
    about = {"workload": f"{slot.namespace}/{slot.workload}", "check": slot.check}
    log.error("step_blocked", **about, error=str(error), exc_info=error)


def record_undecided(slot: RequestSlot, error: Exception) -> None:
    """Records an exception that the core raised while it decided about the slot."""
    about = f"capacity request of workload {slot.namespace}/{slot.workload}"
    faults.record("provisioning-check", "decide the next step", about, error)
