"""Performs commits step by step, as `admittance.workload_controller.commit_writer` does.

What is one ``await`` there is one ``yield from`` here, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from typing import Any, Final

from admittance.control.commit import Commit, LogMessage, Message, echo_put
from admittance.control.controller import Controller
from admittance.control.fold import fold
from admittance.events.subjects import DEADLETTER
from simulation.actors.puts import Puts
from simulation.actors.service import Service
from simulation.kernel import Killed
from simulation.link import Unavailable
from simulation.stream import MESSAGE_ID, Outgoing, Refused, Stored

DEAD: Final = f"{DEADLETTER}workload-controller"
ATTEMPTS: Final = 20


class Performing:
    """The commits of one leader."""

    def __init__(self, service: Service, controller: Controller) -> None:
        self._service = service
        self._server = service.server
        self._link = service.link
        self._controller = controller
        self._puts = Puts(service)

    def perform(self, batch: list[LogMessage]) -> Any:
        """One batch, in the order that is told in `admittance.control.commit`."""
        controller = self._controller
        process = self._service.process
        rest = batch
        attempts = 0
        loaded: dict[str, None] = {}
        while rest:
            now = process.now()
            for key in controller.missing(rest):
                loaded[key] = None
                yield from persist(partial(self.reload, key))
            commit = fold(controller, rest, now)
            self._told(commit)
            dead = [Outgoing(DEAD, one.reason.encode()) for one in commit.dead]
            yield from self.say(commit.notes, dead)
            done, unsure = yield from self._put(commit, now)
            if unsure:
                attempts += 1
                if attempts > ATTEMPTS:
                    raise RuntimeError(f"{len(unsure)} workloads keep moving under the batch")
                loaded |= dict.fromkeys(unsure)
                yield from self.say(done)
                continue
            yield from self.say(done)
            for key in (*loaded, *(put.key for put in commit.puts)):
                controller.outbox_published(key)
            yield from persist(partial(self._echo, commit))
            rest = commit.rest

    def _put(self, commit: Commit, now: datetime) -> Any:
        """What the puts that went through have to say, and the keys that must be decided anew."""
        controller = self._controller
        messages: list[Message] = []
        unsure: list[str] = []
        found = yield from self._puts.write(commit.puts)
        for put, outcome in found:
            if isinstance(outcome, int):
                messages += controller.committed(put, outcome, now)
                continue
            self._service.tell(f"put of {put.key} went wrong: {outcome}")
            yield from persist(partial(self.reload, put.key))
            messages += controller.outbox(put.key, now)
            unsure.append(put.key)
        return messages, unsure

    def load(self, entry: Stored) -> None:
        """What the bucket has of one object."""
        value = None if entry.gone else entry.data
        self._controller.load(entry.subject, value, entry.sequence, entry.headers)

    def reload(self, key: str) -> Any:
        """Reads one object anew."""
        entry = yield from self._link.ask(lambda: self._server.bucket.last.get(key))
        if entry is None:
            self._controller.workloads.gone(key)
        else:
            self.load(entry)

    def say(self, messages: Iterable[Message], more: Iterable[Outgoing] = ()) -> Any:
        """States them; raises Unavailable, or Killed when the log refuses."""
        outgoing = [*(_outgoing(message) for message in messages), *more]
        if not outgoing:
            return
        outcomes = yield from self._link.publish_all(self._server.publish, outgoing)
        for outcome in outcomes:
            if isinstance(outcome, Refused):
                raise Killed(f"the log refused: {outcome}")

    def _echo(self, commit: Commit) -> Any:
        puts = [Outgoing(*echo_put(echo)) for echo in commit.echoes]
        if puts:
            yield from self._link.publish_all(self._server.bucket.publish, puts)

    def _told(self, commit: Commit) -> None:
        service = self._service
        if service.story.keep:
            for sequence, outcome in sorted(commit.outcomes.items()):
                service.tell(f"fact {sequence} is {outcome.outcome}: {outcome.reason}")


def persist(handle: Callable[[], Any]) -> Any:
    """As `admittance.runtime.bus.messages.with_retries`: tries until the bus answers."""
    pause = 0.01
    for _ in range(ATTEMPTS):
        try:
            return (yield from handle())
        except Unavailable:
            yield pause
            pause = min(pause * 2, 1.0)
    raise Unavailable


def _outgoing(message: Message) -> Outgoing:
    headers = {MESSAGE_ID: message.id}
    return Outgoing(message.subject, message.data, headers)
