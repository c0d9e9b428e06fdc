"""Does steps on the bus. The order is the safety of it: the record is written first, then the
provider is asked or told, then the check is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import structlog

from admittance.checks import AdmissionCheckController
from admittance.events.provisioning import ProvisioningRequested
from admittance.provisioning_check.acts import Step
from admittance.provisioning_check.decide import Capacity
from admittance.provisioning_check.reading import Reading
from admittance.provisioning_check.saying import reference_of, stated, verdict_of, written
from admittance.runtime.bus import Bus
from admittance.runtime.errors import Refused, TooBig, Unavailable

log = structlog.get_logger()


class Performing:
    """Verdicts go through ``controller``; ``reading`` looks at what was refused."""

    def __init__(
        self, bus: Bus, core: Capacity, controller: AdmissionCheckController, reading: Reading
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
        """Does the steps, each in its order, all of them side by side: which of them failed."""
        left: dict[int, Step] = dict(enumerate(steps))
        revisions = dict.fromkeys(left, 0)
        failed = await self._write(left, revisions)
        failed |= await self._state({i: one for i, one in left.items() if i not in failed})
        failed |= await self._tell({i: one for i, one in left.items() if i not in failed})
        for i, step in left.items():
            if i in failed:
                self._core.failed(step)
            else:
                self._core.done(step, revisions[i])
        return failed

    async def _write(self, steps: dict[int, Step], revisions: dict[int, int]) -> set[int]:
        todo = {i: (one.slot, one.write) for i, one in steps.items() if one.write is not None}
        messages = [written(slot, write) for slot, write in todo.values()]
        failed: set[int] = set()
        for i, outcome in zip(todo, await self._publish(messages), strict=True):
            if isinstance(outcome, int):
                revisions[i] = outcome
                continue
            failed.add(i)
            if isinstance(outcome, Refused):
                with suppress(Unavailable, Refused):
                    await self._reading.again(steps[i])
        return failed

    async def _state(self, steps: dict[int, Step]) -> set[int]:
        todo = {i: one.fact for i, one in steps.items() if one.fact is not None}
        messages = [stated(fact, self._times.get(fact.id, 0)) for fact in todo.values()]
        failed: set[int] = set()
        for (i, fact), outcome in zip(todo.items(), await self._publish(messages), strict=True):
            if not isinstance(outcome, int):
                failed.add(i)
                continue
            asked = isinstance(fact, ProvisioningRequested)
            log.info("requested" if asked else "cancelled", id=fact.id, workload=fact.name)
            if not asked:
                self._times.pop(fact.id, None)
        return failed

    async def _tell(self, steps: dict[int, Step]) -> set[int]:
        todo = {i: one for i, one in steps.items() if one.tell is not None}

        async def one(step: Step) -> None:
            assert step.tell is not None
            answer = step.tell.answer
            for name in answer.missing:
                log.warning("detail_missing", detail=name, workload=step.slot.workload)
            await self._controller.report(reference_of(step), verdict_of(answer))

        outcomes = await asyncio.gather(*map(one, todo.values()), return_exceptions=True)
        failed: set[int] = set()
        for i, outcome in zip(todo, outcomes, strict=True):
            if isinstance(outcome, RuntimeError | Unavailable):
                failed.add(i)  # The checks are not served yet, or the bus is away.
            elif isinstance(outcome, Refused):
                log.error("verdict_refused", workload=todo[i].slot.workload, error=str(outcome))
                if not isinstance(outcome, TooBig):
                    failed.add(i)  # The log is full: somebody will make room.
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
