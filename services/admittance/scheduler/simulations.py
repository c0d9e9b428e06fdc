"""The endpoint ``admit.api.simulate``: answers which decisions would follow from a change. Each
simulation runs in its own process.

To copy the bucket and to decide on the copy takes seconds, in which the scheduler would make no
decisions. The simulating process reads the bucket itself, decides with the scheduler's
configuration, and does not change the scheduler's state.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec
import structlog

from admittance.events.names import plain
from admittance.events.requests.whatif import Simulate, SimulationTask
from admittance.runtime.errors import BusUnavailable
from admittance.runtime.nats.micro import Parts, Turns
from admittance.runtime.process.settings import Settings
from admittance.scheduling.state.config import Config
from admittance.workload.limits import changed_limits, limits_of

PROGRAM: Final = ("-m", "admittance.whatif")
AT_ONCE: Final = 1
"""The most simulations that run at once. Each simulation takes a CPU core, and as much memory as
the scheduler."""
WAITING_MAX: Final = 4
NAMESPACE_MAX: Final = AT_ONCE + WAITING_MAX - 1
"""The most simulations that users of one namespace run or wait for, so that they leave a place to
others."""
SECONDS: Final = 120.0
"""Seconds in which a simulation request must be answered, including the wait for earlier
simulations. The command that asks for the simulation waits a little longer."""

log = structlog.get_logger()


class Simulations:
    """Answers simulation requests one after the other, namespaces in turn; at most WAITING_MAX
    further requests wait.
    ``program``: the Python arguments of the simulating process."""

    def __init__(
        self,
        settings: Settings,
        config: Config,
        *,
        program: Sequence[str] = PROGRAM,
        seconds: float = SECONDS,
    ) -> None:
        self._settings = settings
        self._config = msgspec.Raw(msgspec.json.encode(config))
        self._limits = changed_limits(limits_of(settings.configuration))
        self._program = program
        self._seconds = seconds
        self._turns = Turns(AT_ONCE, AT_ONCE)
        self._asked: Counter[str] = Counter()
        """For each namespace the simulations that run or wait; "" stands for admins."""

    async def simulate(self, data: bytes, subject: str) -> Parts:
        """Returns the answer to a simulation request, in as many messages as needed. Raises
        BusUnavailable if too many requests wait, or on timeout."""
        request = msgspec.json.decode(data or b"{}", type=Simulate)
        parts = subject.split(".")
        namespace = plain(parts[3]) if len(parts) > 3 else ""
        errand = SimulationTask(
            request=request, config=self._config, limits=self._limits, namespace=namespace
        )
        asked, of_namespace = self._asked.total(), self._asked[namespace]
        if asked >= AT_ONCE + WAITING_MAX:
            raise BusUnavailable(f"{asked} simulations run or wait already: try again soon")
        if namespace and of_namespace >= NAMESPACE_MAX:
            raise BusUnavailable(
                f"{of_namespace} simulations of namespace {namespace} run or wait already: "
                "try again soon"
            )
        self._asked[namespace] += 1
        try:
            async with asyncio.timeout(self._seconds), self._turns.of(namespace):
                return await self._run(msgspec.json.encode(errand))
        except TimeoutError:
            raise BusUnavailable(
                f"the simulation was not done after {self._seconds:g} s, and was stopped"
            ) from None
        finally:
            self._asked[namespace] -= 1
            self._asked += Counter()  # drops namespaces without simulations

    async def _run(self, errand: bytes) -> Parts:
        environ = self._settings.connection.environment(os.environ)
        environ["ADMIT_NATS_URL"] = self._settings.url
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *self._program,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environ,
            # With a session of its own, the simulating process does not get Ctrl-C at the terminal;
            # the scheduler's process gets it and ends the simulating process.
            start_new_session=True,
        )
        try:
            answer, _ = await process.communicate(errand)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        lines = answer.splitlines()
        if process.returncode or not lines:
            log.error("simulation_failed", status=process.returncode)
            raise RuntimeError(f"the simulation ended with status {process.returncode}")
        return Parts(tuple(msgspec.Raw(line) for line in lines))
