"""How the workload-controller reads the log: behind what is acknowledged, in place of the older."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from admittance.control.commit import LogMessage
from admittance.events import subjects
from admittance.workload_controller.commit_writer import log_message
from simulation.actors.alone import Superseded
from simulation.actors.service import Service
from simulation.kernel import Signal
from simulation.link import Feed
from simulation.server import Consumer
from simulation.stream import Stored

BATCH: Final = 1000


def wants(subject: str) -> bool:
    """The filters of the shell."""
    _, thing, what, *_ = subject.split(".", 3)
    match thing:
        case "workload":
            return what in subjects.INPUTS
        case "check":
            return what == "reported"
        case "timer":
            return what == "due"
        case "lease":
            return what == "barrier"
    return thing == "object"


class LogReader:
    """The consumers of one epoch. ``floor``: all up to there is dealt with."""

    def __init__(self, service: Service, epoch: int) -> None:
        self._service = service
        self._server = service.server
        self._epoch = epoch
        self._link = service.link
        self._round = 0
        self._newest = 0
        self._name = ""
        self._buffer: list[LogMessage] = []
        self._come = Signal()
        self._deleted = False
        self._feeds: list[Feed] = []
        self.floor = 0

    def close(self) -> None:
        """Hears no more."""
        for feed in self._feeds:
            feed.close()

    def make_behind(self) -> Any:
        """A new consumer behind the acknowledged floor, in place of all older ones."""
        consumers = self._server.consumers
        found = yield from self._link.ask(lambda: sorted(consumers.values()))
        if any(one.generation > self._epoch for one in found):
            raise Superseded
        if found and not self._round:
            newest = found[-1]
            self.floor = max(self.floor, newest.floor)
            if newest.generation == self._epoch:
                self._round = newest.number
        self._round += 1
        self._name = f"{self._epoch}-{self._round}"
        self._deleted = False
        yield from self._link.ask(self._create)
        for one in found:
            yield from self._link.ask(partial(self._server.delete_consumer, one.name))

    def _create(self) -> None:
        feed = Feed(self._link, self._server.log, wants, self._heard)
        self._feeds.append(feed)
        name = self._name
        consumer = Consumer(self._epoch, self._round, name, self.floor)
        self._server.add_consumer(consumer, lambda: self._end_of(feed, name))
        for stored in self._server.log.messages[self.floor :]:
            if wants(stored.subject):
                feed.deliver(stored)

    def _end_of(self, feed: Feed, name: str) -> None:
        feed.close()

        def take() -> None:
            if self._name == name:
                self._deleted = True
                self._come.set()

        self._link.inwards(lambda: self._service.process.do(take))

    def _heard(self, stored: Stored) -> None:
        if stored.sequence <= self._newest:
            return
        self._newest = stored.sequence
        time = self._service.kernel.time(stored.time - self._service.kernel.now)
        self._buffer.append(
            log_message(stored.sequence, stored.subject, stored.data, stored.headers, time)
        )
        self._come.set()

    def batch(self) -> Any:
        """What was heard, at least one message; behind a new consumer if ours was deleted."""
        while not self._buffer:
            if self._deleted:
                yield from self.make_behind()
            self._come.clear()
            yield self._come
        batch, self._buffer = self._buffer[:BATCH], self._buffer[BATCH:]
        return batch

    def ack(self, through: int) -> None:
        """The server hears that all up to there is dealt with."""
        consumer = self._server.consumers.get(self._name)
        if consumer is not None:
            for told in self._server.on_acknowledged:
                told(through)
            floor = max(consumer.floor, through)
            self._server.consumers[self._name] = consumer._replace(floor=floor)
