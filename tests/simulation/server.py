"""The bus in memory: the log, the timers, the bucket, the claims, and who is alive.

What is kept here outlives every process, as a server's store does.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, NamedTuple

from admittance.events.subjects import TIMER_AT
from simulation.kernel import START, Future, Kernel
from simulation.mechanisms import Mechanisms
from simulation.stream import MESSAGE_ID, Outgoing, Refused, Stored, Stream

SCHEDULE: Final = "Nats-Schedule"
TARGET: Final = "Nats-Schedule-Target"
LATE_SECONDS: Final = 0.25
"""Measured: schedules fire up to so much after their time, and never before."""


class Consumer(NamedTuple):
    """A reader's place on the log: everything up to ``floor`` is acknowledged."""

    generation: int
    number: int
    name: str
    floor: int


class Server:
    """Everything that is stored, and the order in which it was."""

    def __init__(self, kernel: Kernel, mechanisms: Mechanisms) -> None:
        self.kernel = kernel
        self.log = Stream(lambda: kernel.now, fences=mechanisms.fence_at_the_log)
        self.bucket = Stream(lambda: kernel.now)
        self.claims = Stream(lambda: kernel.now)
        self.timers = Stream(lambda: kernel.now)
        self.consumers: dict[str, Consumer] = {}
        self.places: dict[str, int] = {}
        """How far other readers of the log have come, by name."""
        self.endpoints: dict[int, Callable[[list[dict[str, Any]], Future], None]] = {}
        """Who answers ``admit.api.apply``."""
        self._on_deleted: dict[str, Callable[[], None]] = {}
        self.alive: set[tuple[str, str]] = set()
        self.on_alive: list[Callable[[str, str, bool], None]] = []
        self.on_acknowledged: list[Callable[[int], None]] = []

    def publish(self, message: Outgoing) -> int | Refused:
        """To the log, or to the timers, by its subject."""
        if not message.subject.startswith(TIMER_AT):
            return self.log.publish(message)
        before = self.timers.end
        outcome = self.timers.publish(message)
        if isinstance(outcome, int) and outcome > before:
            self._schedule(self.timers.last[message.subject])
        return outcome

    def _schedule(self, stored: Stored) -> None:
        at = datetime.fromisoformat(stored.headers[SCHEDULE].removeprefix("@at "))
        due = max((at - START).total_seconds(), self.kernel.now)

        def fire() -> None:
            # Replaced by a later one on the same subject: only that one fires.
            if self.timers.last.get(stored.subject) is stored:
                del self.timers.last[stored.subject]
                self.log.publish(Outgoing(stored.headers[TARGET], stored.data))

        self.kernel.at(due + self.kernel.rng.random() * LATE_SECONDS, fire)

    def purge(self, subject: str) -> None:
        """The schedule on that subject is no more."""
        self.timers.last.pop(subject, None)

    def lose_timers(self) -> None:
        """Every schedule is gone without a word, as after the limits of their stream."""
        self.timers.last.clear()

    def add_consumer(self, consumer: Consumer, on_deleted: Callable[[], None]) -> None:
        """A reader of the log, that outlives whoever made it."""
        self.consumers[consumer.name] = consumer
        self._on_deleted[consumer.name] = on_deleted

    def delete_consumer(self, name: str) -> None:
        """No such reader any more; whoever pulled from it is told."""
        if self.consumers.pop(name, None) is not None:
            self._on_deleted.pop(name)()

    def claim(self, message: Outgoing) -> int | Refused:
        """A write to the claims; when they end is for their holders' silence to say."""
        return self.claims.publish(message)

    def lives(self, service: str, instance: str, alive: bool) -> None:
        """A heartbeat came, or the last one ran out."""
        who = (service, instance)
        if (who in self.alive) == alive:
            return
        if alive:
            self.alive.add(who)
        else:
            self.alive.discard(who)
        for told in list(self.on_alive):
            told(service, instance, alive)


__all__ = ["MESSAGE_ID", "Consumer", "Server"]
