"""The endpoint ``admit.api.simulate``: answers which decisions would follow from a change.

A simulating process copies the bucket and decides on the copy with the scheduler's configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from admittance.events.requests.whatif import Simulate, SimulationTask
from admittance.events.subjects import namespace_of_request
from admittance.runtime.nats.micro import Parts
from admittance.runtime.process.settings import Settings
from admittance.scheduler.errands import Errands
from admittance.scheduling.state.config import Config
from admittance.workload.limits import changed_limits, limits_of

PROGRAM: Final = ("-m", "admittance.whatif")


class Simulations:
    """Answers simulation requests. ``program``: the Python arguments of the simulating process."""

    def __init__(
        self,
        settings: Settings,
        config: Config,
        errands: Errands,
        *,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        self._config = msgspec.Raw(msgspec.json.encode(config))
        self._limits = changed_limits(limits_of(settings.configuration))
        self._errands = errands
        self._program = program

    async def simulate(self, data: bytes, subject: str) -> Parts:
        """Returns the answer to a simulation request, in as many messages as needed. Raises
        BusUnavailable if too many requests wait, or on timeout."""
        request = msgspec.json.decode(data or b"{}", type=Simulate)
        namespace = namespace_of_request(subject)
        task = SimulationTask(
            request=request, config=self._config, limits=self._limits, namespace=namespace
        )
        return await self._errands.answer(self._program, task, namespace, "simulation")
