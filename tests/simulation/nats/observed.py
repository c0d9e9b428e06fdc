"""The simulated nats-server and its streams, as observers and the environment see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from admittance.events import subjects
from admittance.events.requests.manifests import Apply, ApplyReply, Delete, DeleteReply
from admittance.runtime.bus import streams
from simulation.nats import core
from simulation.nats.api import Api
from simulation.nats.messages import Message
from simulation.nats.stream import FENCE
from simulation.nats.stream import Stream as NatsStream
from simulation.nats.subjects import header_block
from simulation.virtual_time.kernel import Kernel

MESSAGE_ID: Final = "Nats-Msg-Id"
OPERATION: Final = "KV-Operation"
MARKER: Final = "Nats-Marker-Reason"
NO_HEADERS: Final[Mapping[str, str]] = {}


class Outgoing(NamedTuple):
    """A message to a stream."""

    subject: str
    data: bytes
    headers: Mapping[str, str] = NO_HEADERS


class Stored(NamedTuple):
    """A message as a stream keeps it. ``time``: seconds of the virtual clock."""

    sequence: int
    subject: str
    data: bytes
    headers: Mapping[str, str]
    time: float

    @property
    def gone(self) -> bool:
        """Whether it is the marker of a key that was deleted or has expired."""
        return self.headers.get(OPERATION) in ("DEL", "PURGE") or MARKER in self.headers


class PublishRefused(NamedTuple):
    """The server refused a message. ``fenced``: by an expectation about another subject."""

    code: int
    fenced: bool = False


class Stream:
    """``messages`` are all that were ever stored, ``last`` the newest of each subject that is still
    there. ``on_stored`` is called with each message, ``on_whole`` when a message that goes alone is
    stored, or all of a batch are.

    ``prefix``: of its subjects, left out here; subjects that then begin with an underscore are the
    services' own, and left out, too.
    """

    def __init__(self, stream: NatsStream, prefix: str = "") -> None:
        self.messages: list[Stored] = []
        self.last: dict[str, Stored] = {}
        self.on_stored: list[Callable[[Stored], None]] = []
        self.on_whole: list[Callable[[], None]] = stream.on_whole
        self._stream = stream
        self._prefix = prefix
        stream.on_stored.append(self._on_stored)
        stream.on_removed.append(self._on_removed)

    def _on_stored(self, message: Message) -> None:
        subject = message.subject[len(self._prefix) :]
        headers, time = message.headers, message.time
        stored = Stored(message.sequence, subject, message.data, headers, time)
        self.messages.append(stored)
        if not subject.startswith("_"):
            self.last[subject] = stored
            for callback in self.on_stored:
                callback(stored)

    def _on_removed(self, message: Message) -> None:
        subject = message.subject[len(self._prefix) :]
        kept = self.last.get(subject)
        if kept is not None and kept.sequence == message.sequence:
            del self.last[subject]

    def publish(self, message: Outgoing) -> int | PublishRefused:
        """The message's sequence, that of the first with its id, or why it was refused."""
        subject = self._prefix + message.subject
        headers = dict(message.headers)
        answer = self._stream.publish(subject, message.data, header_block(headers), headers)
        assert answer is not None, "it is no part of a batch"
        error = answer.fields.get("error")
        if error is not None:
            return PublishRefused(error["err_code"], FENCE in headers)
        return int(answer.fields["seq"])


AGAIN_SECONDS: Final = 0.5
ACKNOWLEDGING: Final = "workload-controller-"
"""The consumers with observed acknowledgements, by their prefix."""
DONE: Final = ("deleted", "absent", "deferred")
"""Outcomes of a deletion."""

Answered = Callable[[str], None]

_encode = msgspec.json.Encoder().encode


class Server:
    """``nats`` is what services connect to. ``on_acknowledged`` is called with each sequence of the
    log that the workload-controller acknowledges, ``on_beat`` with a controller of checks that is
    to be active, or is not."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.nats = core.Server(kernel.loop, kernel.rng)
        api = Api(self.nats)
        for wanted in streams.all_streams():
            config = {"name": wanted.name, **wanted.required, **wanted.adjustable}
            api.create_stream(wanted.name, config)
        by_name = self.nats.streams
        self.log = Stream(by_name[subjects.STREAM])
        self.bucket = Stream(by_name[streams.KV_LOG], f"$KV.{subjects.BUCKET}.")
        self.claims = Stream(by_name[streams.KV_CLAIMS], f"$KV.{subjects.CLAIMS}.")
        self.timers = Stream(by_name[subjects.TIMERS])
        self.on_acknowledged: list[Callable[[int], None]] = []
        self.on_beat: Callable[[str, bool], None] = lambda *_: None
        self._admin = _Admin(self.nats)
        self._late: list[Outgoing] = []
        self.nats.on_acked.append(self._acked)

    def _acked(self, name: str, sequence: int) -> None:
        if name.startswith(ACKNOWLEDGING):
            for callback in self.on_acknowledged:
                callback(sequence)

    def publish(self, message: Outgoing) -> int | PublishRefused:
        """Publishes messages in order; a message that the server does not accept is sent again
        until it does."""
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
        """Removes every schedule without a word, as the limits of their stream do."""
        self.nats.streams[subjects.TIMERS].purge(subject=f"{subjects.TIMER_AT}>", below=0, keep=0)

    def has_schedules(self) -> bool:
        """Whether the stream of timers has a schedule."""
        return any(subject.startswith(subjects.TIMER_AT) for subject in self.timers.last)

    def request(self, manifests: list[dict[str, Any]], answered: Answered) -> None:
        """Sends a request of an admin to the workload-controller; ``answered`` gets the outcome."""
        first = manifests[0]
        if "beat" in first:
            self._beat(**first["beat"])
            answered("applied")
        elif "machine" in first:
            self._change_machine(dict(first["machine"]), answered)
        elif "metadata" in first:
            objects = tuple(msgspec.Raw(_encode(manifest)) for manifest in manifests)
            self._admin.ask("admit.api.apply", Apply(objects=objects), ApplyReply, answered)
        else:
            kind, _, rest = first["delete"].partition(".")
            namespace, _, name = rest.rpartition(".")
            asked = Delete(kind=kind, namespace=namespace, name=name)
            self._admin.ask("admit.api.delete", asked, DeleteReply, answered)

    def _change_machine(self, change: dict[str, Any], answered: Answered) -> None:
        """Changes the spec of a stored Runner, as `admit cordon` and `admit drain` do."""
        stored = self.bucket.last.get(f"runner.{change.pop('name')}")
        if stored is None or stored.gone:
            answered("the machine is not announced yet")
            return
        value = msgspec.json.decode(stored.data)
        value.pop("status", None)
        value["spec"] = {**value.get("spec", {}), **change}
        asked = Apply(objects=(msgspec.Raw(_encode(value)),))
        self._admin.ask("admit.api.apply", asked, ApplyReply, answered)

    def _beat(self, check: str, active: bool) -> None:
        """Makes the heartbeats of a check's controller say that it is active, or not active."""
        stored = self.bucket.last.get(f"admissioncheck.{check}")
        if stored is not None and not stored.gone:
            controller = msgspec.json.decode(stored.data)["spec"]["controllerName"]
            self.on_beat(controller, active)


class _Admin:
    """A client without a connection, that asks services."""

    def __init__(self, server: core.Server) -> None:
        self._server = server
        self._waiting: dict[str, tuple[type[Any], Answered]] = {}
        self._asked = 0
        self._join()

    def _join(self) -> None:
        self._server.accept(self, self._join).receive(b"SUB _INBOX.admin.*  1\r\n")

    def ask(self, subject: str, request: Any, reply: type[Any], answered: Answered) -> None:
        """Has ``answered`` called with the outcome, or with the reason of a refusal."""
        self._asked += 1
        inbox = f"_INBOX.admin.{self._asked}"
        self._waiting[inbox] = reply, answered
        self._server.publish(subject, inbox, _encode(request), b"")

    def on_message(self, sid: int, subject: str, reply: str, data: bytes, headers: bytes) -> None:
        kind, answered = self._waiting.pop(subject)
        if not data:
            answered("no service answers")
            return
        decoded = msgspec.json.decode(data, type=kind)
        if getattr(decoded, "problems", ()):
            # It is wrong, and stays so: an admin does not ask for it again.
            answered("absent")
        elif decoded.error and getattr(decoded, "outcome", "") not in DONE:
            answered(decoded.error)
        else:
            answered(getattr(decoded, "outcome", "applied"))

    def on_pong(self) -> None:
        return
