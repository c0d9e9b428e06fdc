"""Answers that take seconds: each is made by a process of its own.

In the scheduler's own process such an answer would keep it from its decisions. The process reads
the bus itself, with the scheduler's login, and writes nothing to it.
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

from admittance.runtime.errors import BusUnavailable
from admittance.runtime.nats.micro import Parts, Turns
from admittance.runtime.process.settings import Settings

AT_ONCE: Final = 1
"""The most processes that run at once. Each takes a CPU core, and as much memory as the scheduler.
"""
WAITING_MAX: Final = 4
NAMESPACE_MAX: Final = AT_ONCE + WAITING_MAX - 1
"""The most questions that users of one namespace have running or waiting, so that they leave a
place to others."""
SECONDS: Final = 120.0
"""Seconds in which a question must be answered, including the wait for earlier ones. The client
waits a little longer."""

log = structlog.get_logger()


class Errands:
    """Answers questions one after the other, namespaces in turn; at most WAITING_MAX further ones
    wait."""

    def __init__(self, settings: Settings, *, seconds: float = SECONDS) -> None:
        self._settings = settings
        self._seconds = seconds
        self._turns = Turns(AT_ONCE, AT_ONCE)
        self._asked: Counter[str] = Counter()
        """For each namespace the questions that run or wait; "" stands for admins."""

    async def answer(
        self, program: Sequence[str], task: msgspec.Struct, namespace: str, what: str
    ) -> Parts:
        """The answer of the process with the Python arguments ``program``, which reads the task.
        ``what``: a noun for the question, such as simulation. Raises BusUnavailable if too many
        questions wait, or on timeout."""
        asked, of_namespace = self._asked.total(), self._asked[namespace]
        if asked >= AT_ONCE + WAITING_MAX:
            raise BusUnavailable(
                f"{asked} simulations and replays run or wait already: try again soon"
            )
        if namespace and of_namespace >= NAMESPACE_MAX:
            raise BusUnavailable(
                f"{of_namespace} simulations and replays of namespace {namespace} run or wait "
                "already: try again soon"
            )
        self._asked[namespace] += 1
        try:
            async with asyncio.timeout(self._seconds), self._turns.of(namespace):
                return await self._run(program, msgspec.json.encode(task), what)
        except TimeoutError:
            raise BusUnavailable(
                f"the {what} was not done after {self._seconds:g} s, and was stopped"
            ) from None
        finally:
            self._asked[namespace] -= 1
            self._asked += Counter()  # drops namespaces without questions

    async def _run(self, program: Sequence[str], task: bytes, what: str) -> Parts:
        environ = self._settings.connection.environment(os.environ)
        environ["ADMIT_NATS_URL"] = self._settings.url
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *program,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environ,
            # With a session of its own, the process does not get Ctrl-C at the terminal; the
            # scheduler's process gets it and ends this one.
            start_new_session=True,
        )
        try:
            answer, _ = await process.communicate(task)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        lines = answer.splitlines()
        if process.returncode or not lines:
            log.error(f"{what}_failed", status=process.returncode)
            raise RuntimeError(f"the {what} ended with status {process.returncode}")
        return Parts(tuple(msgspec.Raw(line) for line in lines))
