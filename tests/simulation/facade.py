"""Time and the bus of the real services, as the actors that are no services see them.

Users, admins, checks, providers and runners are actors on `kernel` and `server`. Until they speak
through connections of their own, these classes give them the same on virtual time and the simulated
nats-server.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

import msgspec

from admittance.events import subjects
from admittance.events.requests import Apply, ApplyReply, Delete, DeleteReply
from admittance.events.system import CheckAlive
from admittance.runtime.bus import streams
from simulation.kernel import Call, Future, Kernel
from simulation.loop import VirtualLoop
from simulation.mechanisms import Mechanisms
from simulation.nats import core
from simulation.nats.api import Api
from simulation.nats.stream import FENCE, Message
from simulation.nats.stream import Stream as NatsStream
from simulation.nats.subjects import header_block
from simulation.server import Server
from simulation.stream import Outgoing, Refused, Stored, Stream

AGAIN_SECONDS: Final = 0.5
BEAT_SECONDS: Final = 10.0

_encode = msgspec.json.Encoder().encode


class LoopKernel(Kernel):
    """Time and events on a `VirtualLoop`. ``at_rest`` tells in the end whether nothing will happen
    any more, since services never rest."""

    def __init__(self, rng: Random, loop: VirtualLoop) -> None:
        self.rng = rng
        self.loop = loop
        self.pending = 0
        """Events of actors that are to come."""
        self.at_rest: Callable[[], bool] = lambda: False

    @property
    def now(self) -> float:  # type: ignore[override]
        return self.loop.now

    @property
    def steps(self) -> int:  # type: ignore[override]
        return self.loop.steps

    def at(self, when: float, call: Call) -> None:
        self.pending += 1
        self.loop.at(when, self._call, call)

    def _call(self, call: Call) -> None:
        self.pending -= 1
        call()

    def run(self, until: float) -> bool:
        return self.loop.play(until, self.at_rest)


class StreamView(Stream):
    """A stream of the simulated server. ``prefix``: of its subjects, left out here; subjects that
    then begin with an underscore are the services' own, and left out, too."""

    def __init__(self, stream: NatsStream, prefix: str = "") -> None:
        self.messages: list[Stored] = []
        self.last: dict[str, Stored] = {}
        self.on_stored: list[Callable[[Stored], None]] = []
        self.on_whole: list[Callable[[], None]] = stream.on_whole
        self._stream = stream
        self._prefix = len(prefix)
        self._full_prefix = prefix
        stream.on_stored.append(self._on_stored)
        stream.on_removed.append(self._on_removed)

    def _on_stored(self, message: Message) -> None:
        subject = message.subject[self._prefix :]
        headers, time = message.headers, message.time
        stored = Stored(message.sequence, subject, message.data, headers, time)
        self.messages.append(stored)
        if not subject.startswith("_"):
            self.last[subject] = stored
            for told in self.on_stored:
                told(stored)

    def _on_removed(self, message: Message) -> None:
        subject = message.subject[self._prefix :]
        found = self.last.get(subject)
        if found is not None and found.sequence == message.sequence:
            del self.last[subject]

    def publish(self, message: Outgoing) -> int | Refused:
        subject = self._full_prefix + message.subject
        headers = dict(message.headers)
        answer = self._stream.publish(subject, message.data, header_block(headers), headers)
        assert answer is not None, "it is no part of a batch"
        error = answer.fields.get("error")
        if error is not None:
            return Refused(error["err_code"], FENCE in headers)
        return int(answer.fields["seq"])

    def expire(self, subject: str, sequence: int) -> None:
        found = self.last.get(subject)
        if found is not None and found.sequence == sequence and not found.gone:
            self._stream.expire_now(self._full_prefix + subject)


class ServerView(Server):
    """The simulated nats-server with all streams."""

    def __init__(self, kernel: LoopKernel, mechanisms: Mechanisms, acknowledged_by: str) -> None:
        """``acknowledged_by``: the consumers whose acknowledgements are told, by their prefix."""
        self.kernel = kernel
        self.nats = core.Server(kernel.loop, kernel.rng)
        self._api = Api(self.nats)
        for wanted in streams.all_streams():
            config = {"name": wanted.name, **wanted.required, **wanted.adjustable}
            self._api.create_stream(wanted.name, config)
        found = self.nats.streams
        found[subjects.STREAM].fences = mechanisms.fence_at_the_log
        self.log = StreamView(found[subjects.STREAM])
        self.bucket = StreamView(found[streams.KV_LOG], f"$KV.{subjects.BUCKET}.")
        self.claims = StreamView(found[streams.KV_CLAIMS], f"$KV.{subjects.CLAIMS}.")
        self.timers = StreamView(found[subjects.TIMERS])
        self.on_acknowledged: list[Callable[[int], None]] = []
        self.endpoints = {0: self._request}
        self._admin = _Admin(self.nats)
        self.beating: set[str] = set()
        """Controllers that send heartbeats themselves."""
        self._beats: dict[str, bytes] = {}
        self._late: list[Outgoing] = []

        def acked(name: str, sequence: int) -> None:
            if name.startswith(acknowledged_by):
                for told in self.on_acknowledged:
                    told(sequence)

        self.nats.on_acked.append(acked)

    def publish(self, message: Outgoing) -> int | Refused:
        """As an actor sees it: what the server does not take now is sent again until it does, in
        the order in which it was said."""
        if self._late or not self._takes():
            self._late.append(message)
            if len(self._late) == 1:
                self.kernel.after(AGAIN_SECONDS, self._send_late)
            return 0
        timer = message.subject.startswith(subjects.TIMER_AT)
        return (self.timers if timer else self.log).publish(message)

    def _takes(self) -> bool:
        return self.nats.up and not self.nats.streams[subjects.STREAM].full

    def _send_late(self) -> None:
        if not self._takes():
            self.kernel.after(AGAIN_SECONDS, self._send_late)
            return
        late, self._late = self._late, []
        for message in late:
            self.publish(message)

    def lose_timers(self) -> None:
        self.nats.streams[subjects.TIMERS].purge(subject=f"{subjects.TIMER_AT}>", below=0, keep=0)

    def lives(self, service: str, instance: str, alive: bool) -> None:
        """Has no effect: services have real heartbeats, and runners let claims expire."""

    def has_schedules(self) -> bool:
        """Whether the stream of timers has a schedule."""
        return any(subject.startswith(subjects.TIMER_AT) for subject in self.timers.last)

    def _request(self, manifests: list[dict[str, Any]], answer: Future) -> None:
        """What an admin asks of the workload-controller."""
        first = manifests[0]
        if "beat" in first:
            self._beat(**first["beat"])
            answer.settle("applied")
        elif "metadata" in first:
            objects = tuple(msgspec.Raw(_encode(one)) for one in manifests)
            self._admin.ask("admit.api.apply", Apply(objects=objects), ApplyReply, answer)
        else:
            kind, _, rest = first["delete"].partition(".")
            namespace, _, name = rest.rpartition(".")
            asked = Delete(kind=kind, namespace=namespace, name=name)
            self._admin.ask("admit.api.delete", asked, DeleteReply, answer)

    def _beat(self, check: str, active: bool) -> None:
        """From now on the controller of a check says that it is active, or that it is not."""
        found = self.bucket.last.get(f"admissioncheck.{check}")
        if found is not None and not found.gone:
            controller = msgspec.json.decode(found.data)["spec"]["controllerName"]
            if controller in self.beating:
                return
            began = controller not in self._beats
            self._beats[controller] = _encode(CheckAlive(active=active))
            if began:
                self._send_beats(f"{subjects.ALIVE_CHECK}{controller}", controller)

    def _send_beats(self, subject: str, controller: str) -> None:
        self.nats.publish(subject, "", self._beats[controller], b"")
        # Not an event of the kernel: it goes on when all is at rest.
        self.nats.loop.after(BEAT_SECONDS, self._send_beats, subject, controller)


class _Admin:
    """A client without a connection, that asks services."""

    def __init__(self, server: core.Server) -> None:
        self._server = server
        self._waiting: dict[str, tuple[type[Any], Future]] = {}
        self._asked = 0
        self._join()

    def _join(self) -> None:
        self._server.accept(self, self._join).receive(b"SUB _INBOX.admin.*  1\r\n")

    def ask(self, subject: str, request: Any, reply: type[Any], answer: Future) -> None:
        """Settles the answer with the outcome, or with why it was refused."""
        self._asked += 1
        inbox = f"_INBOX.admin.{self._asked}"
        self._waiting[inbox] = reply, answer
        self._server.publish(subject, inbox, _encode(request), b"")

    def on_message(self, sid: int, subject: str, reply: str, data: bytes, headers: bytes) -> None:
        kind, answer = self._waiting.pop(subject)
        if not data:
            answer.settle("no service answers")
            return
        found = msgspec.json.decode(data, type=kind)
        if getattr(found, "problems", ()):
            # It is wrong, and stays so: an admin does not ask for it again.
            answer.settle("absent")
        elif found.error and getattr(found, "outcome", "") not in DONE:
            answer.settle(found.error)
        else:
            answer.settle(getattr(found, "outcome", "applied"))

    def on_pong(self) -> None:
        return


DONE: Final = ("deleted", "absent", "deferred")
"""Outcomes of a deletion."""
