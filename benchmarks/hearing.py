"""Jobs that run until they have to end or stop; records every admission."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from admittance.bench.load import Publisher
from admittance.runtime import clock
from admittance.runtime.errors import SetupError
from admittance.runtime.tasks import set_within

PATIENCE: Final = 120.0
"""Without anything new for so long, it is over."""


class _Said(msgspec.Struct, frozen=True):
    name: str
    revision: int = 0


_said = msgspec.json.Decoder(_Said)


class Jobs:
    """A runner whose jobs never end by themselves, and stop as soon as they are evicted.

    ``admissions``: how often each was admitted, by name. ``last``: the last admitted one, and when,
    in monotonic seconds. Facts told twice count once.
    """

    def __init__(self, publisher: Publisher, namespace: str = "default") -> None:
        self._publisher = publisher
        self._namespace = namespace
        self._revisions: dict[str, int] = {}
        self._stopped: dict[str, int] = {}
        self._moved = asyncio.Event()
        self.admissions: dict[str, int] = {}
        self.evicted_at = 0.0
        self.last: tuple[str, float] = ("", 0.0)

    def hear(self, subject: bytes, _reply: bytes, data: bytes, _headers: bytes) -> None:
        """A message on ``admit.workload.{admitted,evicted}.<ns>.<name>``."""
        said = _said.decode(data)
        if subject.startswith(b"admit.workload.admitted."):
            self._admitted(said)
        elif self._stopped.get(said.name, 0) < said.revision:
            self._stopped[said.name] = said.revision
            self.evicted_at = clock.monotonic()
            self.say("stopped", said.name, said.revision)

    def _admitted(self, said: _Said) -> None:
        if said.revision <= self._revisions.get(said.name, 0):
            return
        self._revisions[said.name] = said.revision
        self.admissions[said.name] = self.admissions.get(said.name, 0) + 1
        self.last = said.name, clock.monotonic()
        self._moved.set()

    def end(self, name: str) -> float:
        """The job ends; when, in monotonic seconds."""
        self.say("finished", name, self._revisions[name])
        return clock.monotonic()

    def say(self, what: str, name: str, revision: int) -> None:
        """States a fact of a runner. Names of a plan need no escape in JSON."""
        data = f'{{"namespace":"{self._namespace}","name":"{name}","revision":{revision}}}'
        self._publisher.publish(f"admit.workload.{what}.{self._namespace}.{name}", data.encode())

    async def reach(self, count: int) -> None:
        """Waits until there were so many admissions. Raises SetupError when nothing moves."""
        while (now := sum(self.admissions.values())) < count:
            self._moved.clear()
            if not await set_within(self._moved, PATIENCE):
                raise SetupError(
                    f"{now} admissions of {count}, and nothing moved for {PATIENCE:.0f} s"
                )
