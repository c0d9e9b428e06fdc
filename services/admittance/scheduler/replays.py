"""The endpoint ``admit.api.replay``: decides a decision on the log again."""

from __future__ import annotations

from typing import Final

import msgspec

from admittance.events.requests.replays import Replay, ReplayTask
from admittance.events.subjects import namespace_of_request
from admittance.runtime.nats.micro import Parts
from admittance.scheduler.errands import Errands

PROGRAM: Final = ("-m", "admittance.replay")


class Replays:
    """Answers questions for replays."""

    def __init__(self, errands: Errands) -> None:
        self._errands = errands

    async def replay(self, data: bytes, subject: str) -> Parts:
        """The answer about one decision, in one message. Raises BusUnavailable if too many
        questions wait, or on timeout."""
        request = msgspec.json.decode(data or b"{}", type=Replay)
        namespace = namespace_of_request(subject)
        task = ReplayTask(request=request, namespace=namespace)
        return await self._errands.answer(PROGRAM, task, namespace, "replay")
