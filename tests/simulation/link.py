"""A process's connection: in order, late, cut off, broken in the middle of what was sent.

What a process has sent arrives also when the process is paused or dead by then; when it dies, of
what was on its way only a beginning may arrive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from simulation.kernel import Call, Future, Kernel, Process
from simulation.stream import MESSAGE_ID, Outgoing, Refused, Stored, Stream

TIMEOUT = 10.0
"""Seconds that a publisher waits for acknowledgements, as in the bus of the runtime."""


class Unavailable(Exception):
    """No answer: what was asked may have happened, or may still happen."""


class _Way:
    """One direction: whatever the delays and the breaks, first in is first out."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._queue: deque[Call] = deque()
        self._last = 0.0
        self.down_until = 0.0

    def send(self, call: Call) -> None:
        """Have call done when what is sent now arrives."""
        link = self._link
        self._queue.append(call)
        self._last = max(self._last, link.kernel.now + link.delay())
        link.kernel.at(self._last, self._next)

    def _next(self) -> None:
        link = self._link
        if link.kernel.now < self.down_until:
            link.kernel.at(self.down_until, self._next)
        else:
            self._queue.popleft()()


class _Flight:
    __slots__ = ("count", "lost")

    def __init__(self, count: int) -> None:
        self.count = count
        self.lost = False


class Link:
    """The way between one process and the server; a new one for each life of a process."""

    def __init__(self, kernel: Kernel, process: Process) -> None:
        self.kernel = kernel
        self.process = process
        self.slow = 1.0
        self._out = _Way(self)
        self._in = _Way(self)
        self._air: list[_Flight] = []

    # Faults. ------------------------------------------------------------------------

    @property
    def is_deaf(self) -> bool:
        """Nothing comes in."""
        return self.kernel.now < self._in.down_until

    @property
    def is_mute(self) -> bool:
        """Nothing gets out."""
        return self.kernel.now < self._out.down_until

    def partition(self, seconds: float, *, mute: bool, deaf: bool, resets: bool) -> None:
        """Nothing gets out, or in, for so long. ``resets``: the connection breaks, and what is on
        its way is gone; else all of it arrives afterwards, when its sender may have given up."""
        until = self.kernel.now + seconds
        if mute:
            self._out.down_until = max(self._out.down_until, until)
        if deaf:
            self._in.down_until = max(self._in.down_until, until)
        if resets:
            for flight in self._air:
                flight.lost = True

    def died(self) -> None:
        """The process was killed: a beginning of what it sent arrives."""
        for flight in self._air:
            if flight.count and self.kernel.rng.random() < 0.5:
                flight.count = self.kernel.rng.randrange(flight.count)

    # Ways. --------------------------------------------------------------------------

    def delay(self) -> float:
        """Seconds to the server or back."""
        rng = self.kernel.rng
        delay = 0.0005 + rng.random() * 0.004
        if rng.random() < 0.03:
            delay += rng.random() * 1.5
        return delay * self.slow

    def outwards(self, call: Call) -> None:
        """Have call done when something sent now arrives at the server."""
        self._out.send(call)

    def inwards(self, call: Call) -> None:
        """Have call done when something that the server sends now arrives here."""
        self._in.send(call)

    # What a process asks. ----------------------------------------------------------------

    def publish_all(
        self, publish: Callable[[Outgoing], int | Refused], messages: Sequence[Outgoing]
    ) -> Any:
        """The outcome of each, in order; raises Unavailable as the bus of the runtime does: when
        there was no answer in time, or the connection broke under one without a message id."""
        outcomes: list[int | Refused | None] = [None] * len(messages)
        todo = list(range(len(messages)))
        while todo:
            future = self._send(publish, [messages[i] for i in todo])
            answered = yield future.signal, TIMEOUT
            if not answered:
                raise Unavailable
            again = []
            for i, outcome in zip(todo, future.value, strict=True):
                outcomes[i] = outcome
                if outcome is None:
                    if MESSAGE_ID not in messages[i].headers:
                        raise Unavailable
                    again.append(i)
            todo = again
        return outcomes

    def _send(
        self, publish: Callable[[Outgoing], int | Refused], messages: Sequence[Outgoing]
    ) -> Future:
        future = Future()
        outcomes: list[int | Refused | None] = []
        kernel = self.kernel
        # Pipelined, so that other publishers' messages come in between.
        cut = kernel.rng.randrange(len(messages)) if len(messages) > 1 else 0
        parts = [messages[:cut], messages[cut:]] if cut else [messages]

        def send(part: Sequence[Outgoing]) -> None:
            flight = _Flight(len(part))
            self._air.append(flight)

            def arrive() -> None:
                self._air.remove(flight)
                for number, message in enumerate(part):
                    if flight.lost or number >= flight.count:
                        outcomes.append(None)
                    else:
                        outcomes.append(publish(message))
                if len(outcomes) == len(messages):
                    self.inwards(lambda: future.settle(outcomes))

            self.outwards(arrive)

        for part in parts:
            send(part)
        return future

    def ask(self, question: Callable[[], Any]) -> Any:
        """What the server knows at the moment the question arrives. Raises Unavailable."""
        future = Future()

        def arrive() -> None:
            value = question()
            self.inwards(lambda: future.settle(value))

        self.outwards(arrive)
        answered = yield future.signal, TIMEOUT / 2
        if not answered:
            raise Unavailable
        return future.value


class Feed:
    """What a process hears of a stream: everything that it wants, in order, some time later.

    ``take`` is called by the process for each message.
    """

    def __init__(
        self,
        link: Link,
        stream: Stream,
        wants: Callable[[str], bool],
        take: Callable[[Stored], None],
    ) -> None:
        self._link = link
        self._stream = stream
        self._wants = wants
        self._take = take
        self.open = True
        stream.on_stored.append(self._stored)

    def _stored(self, stored: Stored) -> None:
        if self.open and self._wants(stored.subject):
            self.deliver(stored)

    def deliver(self, stored: Stored) -> None:
        """Sends one message on its way. A break only delays it: a reader reads on where it was."""
        link = self._link
        link.inwards(lambda: link.process.do(lambda: self._take(stored)))

    def close(self) -> None:
        """Nothing more is sent; what is on its way still arrives."""
        if self.open:
            self.open = False
            self._stream.on_stored.remove(self._stored)


__all__ = ["Feed", "Link", "Unavailable"]
