"""A stream: what it takes and refuses, what expires, and the schedules in it."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from math import inf
from typing import TYPE_CHECKING, Any, Final

import msgspec

from simulation.nats.messages import Message, SubjectIndex
from simulation.nats.subjects import Matches, header_block, matching
from simulation.virtual_time.loop import START, VirtualLoop

if TYPE_CHECKING:
    from simulation.nats.consumer import Consumer

EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
FENCE: Final = "Nats-Expected-Last-Subject-Sequence-Subject"
MESSAGE_ID: Final = "Nats-Msg-Id"
TTL: Final = "Nats-TTL"
MARKER: Final = "Nats-Marker-Reason"
SCHEDULE: Final = "Nats-Schedule"
BATCH: Final = "Nats-Batch-Id"
BATCH_NUMBER: Final = "Nats-Batch-Sequence"
BATCH_COMMIT: Final = "Nats-Batch-Commit"
BATCH_SECONDS: Final = 10.0
"""After which a batch without its commit is given up."""
BATCHES_OPEN: Final = 50
SCHEDULE_LATE_SECONDS: Final = 0.08
"""How late a schedule may fire."""
DOWN_SECONDS: Final = 0.1
"""How soon what is due is tried again while the server is down."""
COPY_SECONDS: Final = 0.002
"""How late a message of a source is copied."""

_NEVER: Final = "0001-01-01T00:00:00Z"

_json = msgspec.json.Encoder().encode


class Answer:
    """An answer of JetStream: its fields, or why it refuses."""

    __slots__ = ("fields",)

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def encoded(self) -> bytes:
        return _json(self.fields)


class Refusal(Exception):
    """JetStream refuses a request. ``code``: as HTTP has them; ``err_code``: its own."""

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(description)
        self.error = {"code": code, "err_code": err_code, "description": description}


Batch = list[tuple[str, bytes, bytes, Mapping[str, str]]]


class Stream:
    """``full`` True: it refuses messages as a full disk does. ``fences`` False takes the check of
    fences out, to show what it is good for. ``on_stored`` is called with each message, ``on_whole``
    after a message that was published alone, and after a batch, ``on_removed`` with each message
    that is taken away."""

    fences = True
    keeps_replaced = False
    """It may have to `lose` its newest messages."""

    def __init__(
        self, loop: VirtualLoop, late: Callable[[], float], config: dict[str, Any]
    ) -> None:
        """``late``: a number from 0 to 1, by which a schedule is late."""
        self.name: str = config["name"]
        self.full = False
        self.up = True
        """Whether the stream's server runs; otherwise no message is copied, expires or fires."""
        self.store_seconds = 0.0
        """Virtual seconds that storing a message takes."""
        self.busy_until = 0.0
        self._replaced: dict[int, Message] = {}
        self.consumers: dict[str, Consumer] = {}
        self.copies: list[tuple[Matches, Stream]] = []
        """The streams that this one is a source of."""
        self.on_stored: list[Callable[[Message], None]] = []
        self.on_removed: list[Callable[[Message], None]] = []
        self.on_whole: list[Callable[[], None]] = []
        self.last: dict[str, Message] = {}
        """The newest message of each subject."""
        self.loop = loop
        self._late = late
        self._messages: list[Message | None] = []
        self._index = SubjectIndex()
        self._times: list[float] = []
        """The time at which each message was stored, including removed messages."""
        self._newest: Message | None = None
        self._first = 1
        """No message is there before this sequence."""
        self._count = 0
        self._bytes = 0
        self._ids: dict[str, tuple[float, int]] = {}
        self._batches: dict[str, tuple[float, Batch]] = {}
        self._expiry: dict[str, float] = {}
        """When the newest message of a subject expires; infinity: never, after all."""
        self._wakes: dict[str, float] = {}
        """The time of the next check whether the message of a subject has expired."""
        self._readers: dict[str, tuple[Consumer, ...]] = {}
        self.config: dict[str, Any] = {}
        self.configure(config)

    def configure(self, config: Mapping[str, Any]) -> None:
        """Takes settings over, with the server's defaults for those that are missing."""
        merged = {**_DEFAULTS, **self.config, **config}
        # As the server does, which leaves some settings out where they are off.
        self.config = {k: v for k, v in merged.items() if v or k not in _LEFT_OUT}
        self.takes = matching(self.config["subjects"])
        self._only_last = self.config["max_msgs_per_subject"] == 1
        self._marker_seconds = self.config["subject_delete_marker_ttl"] // 1_000_000_000
        self._dedupe_seconds = self.config["duplicate_window"] / 1e9

    # What is there. -----------------------------------------------------------------------

    @property
    def end(self) -> int:
        """The sequence of the newest message."""
        return len(self._messages)

    def has(self, message: Message) -> bool:
        """Whether the message is still there."""
        return self._messages[message.sequence - 1] is message

    def at(self, sequence: int) -> Message | None:
        """The message with this sequence."""
        return self._messages[sequence - 1] if 0 < sequence <= self.end else None

    def since(self, sequence: int, *, time: float = 0.0) -> Iterator[Message]:
        """All messages from a sequence and from a time on."""
        begin = max(sequence, self._first) - 1
        if time:
            begin = max(begin, bisect_left(self._times, time))
        for at in range(begin, self.end):
            message = self._messages[at]
            if message is not None:
                yield message

    def under(self, pattern: str, sequence: int, *, time: float = 0.0) -> Iterator[Message]:
        """The messages under a pattern of subjects, from a sequence and from a time on."""
        matches = matching([pattern])
        listed = None if self._only_last else self._index.since(pattern, sequence)
        for message in self.since(sequence, time=time) if listed is None else listed:
            if matches(message.subject) and message.time >= time and self.has(message):
                yield message

    def info(self, subjects: str = "") -> dict[str, Any]:
        """The answer to STREAM.INFO. ``subjects``: count the messages of these."""
        first = next(self.since(1), None)
        self._first = first.sequence if first is not None else self.end + 1
        state: dict[str, Any] = {
            "messages": self._count,
            "bytes": self._bytes,
            "first_seq": first.sequence if first is not None else self.end and self.end + 1,
            "first_ts": first.stamp if first is not None else _NEVER,
            "last_seq": self.end,
            "last_ts": self._newest.stamp if self._newest is not None else _NEVER,
            "consumer_count": len(self.consumers),
        }
        if self.last:
            state["num_subjects"] = len(self.last)
        if subjects:
            matches, counts = matching([subjects]), dict[str, int]()
            for message in self.since(1):
                if matches(message.subject):
                    counts[message.subject] = counts.get(message.subject, 0) + 1
            if counts:
                state["subjects"] = counts
        return {"config": self.config, "created": START.isoformat(), "state": state}

    # Taking messages. ---------------------------------------------------------------------

    def publish(
        self, subject: str, data: bytes, raw: bytes, headers: Mapping[str, str]
    ) -> Answer | None:
        """Stores a message; the acknowledgement or refusal. None: the message is part of a batch,
        and nothing is said before its commit."""
        try:
            if BATCH in headers:
                return self._add_to_batch(subject, data, raw, headers)
            # In this order, as measured: a repetition is refused if its expectation is stale.
            self._check(subject, headers)
            known = self._known(headers)
            if known:
                return Answer(stream=self.name, seq=known, duplicate=True)
            sequence = self.store(subject, data, raw, headers)
        except Refusal as refusal:
            return Answer(error=refusal.error, stream=self.name, seq=0)
        self._tell_whole()
        return Answer(stream=self.name, seq=sequence)

    def _check(self, subject: str, headers: Mapping[str, str]) -> None:
        if self.full:
            raise Refusal(503, 10077, "maximum bytes exceeded")
        if TTL in headers and not _DURATION.fullmatch(headers[TTL]):
            raise Refusal(400, 10165, "invalid per-message TTL")
        if TTL in headers and not self.config.get("allow_msg_ttl"):
            raise Refusal(400, 10166, "per-message TTL is disabled")
        if SCHEDULE in headers and not self.config.get("allow_msg_schedules"):
            raise Refusal(400, 10188, "message schedules is disabled")
        expected = headers.get(EXPECTED)
        if expected is None:
            if FENCE in headers:
                raise Refusal(400, 10193, "missing sequence for expected last sequence per subject")
            return
        fence = headers.get(FENCE)
        if fence is not None and not self.fences:
            return
        last = self.last.get(fence or subject)
        sequence = last.sequence if last is not None else 0
        if sequence != int(expected):
            raise Refusal(400, 10071, f"wrong last sequence: {sequence}")

    def _known(self, headers: Mapping[str, str]) -> int:
        """The sequence of an earlier message with the same id."""
        identity = headers.get(MESSAGE_ID)
        earlier = self._ids.get(identity) if identity is not None else None
        if earlier is None or self.loop.now - earlier[0] >= self._dedupe_seconds:
            return 0
        return earlier[1]

    def _add_to_batch(
        self, subject: str, data: bytes, raw: bytes, headers: Mapping[str, str]
    ) -> Answer | None:
        if not self.config.get("allow_atomic"):
            raise Refusal(400, 10174, "atomic publish is disabled")
        number, now = int(headers[BATCH_NUMBER]), self.loop.now
        for name in [n for n, (at, _) in self._batches.items() if now - at > BATCH_SECONDS]:
            del self._batches[name]
        identity = headers[BATCH]
        if number == 1 and len(self._batches) >= BATCHES_OPEN:
            raise Refusal(429, 10210, "atomic publish too many inflight")
        _, held = self._batches.pop(identity, (now, []))
        if number != len(held) + 1:
            raise Refusal(400, 10176, "atomic publish batch is incomplete")
        held.append((subject, data, raw, headers))
        if BATCH_COMMIT not in headers:
            self._batches[identity] = (now, held)
            return None
        for said, _, _, its in held:
            self._check(said, its)
            if self._known(its):
                raise Refusal(400, 10201, "atomic publish batch contains duplicate message id")
        sequence = 0
        for message in held:
            sequence = self.store(*message)
        self._tell_whole()
        return Answer(stream=self.name, seq=sequence, batch=identity, count=len(held))

    def _tell_whole(self) -> None:
        for callback in self.on_whole:
            callback()

    def store(self, subject: str, data: bytes, raw: bytes, headers: Mapping[str, str]) -> int:
        """Stores a message whatever it expects; its sequence."""
        now = self.loop.now
        message = Message(self.end + 1, subject, data, raw, headers, now)
        if self._only_last and subject in self.last:
            if self.keeps_replaced:
                self._replaced[self.last[subject].sequence] = self.last[subject]
            self.remove(self.last[subject])
        self._messages.append(message)
        if not self._only_last:
            self._index.add(message)
        self._times.append(now)
        self._count += 1
        self._bytes += _size(message)
        self.last[subject] = self._newest = message
        if subject in self._expiry:
            self._expiry[subject] = inf
        if headers:
            if MESSAGE_ID in headers:
                self._ids[headers[MESSAGE_ID]] = (now, message.sequence)
            if TTL in headers:
                self._expire_at(subject, now + _seconds(headers[TTL]))
            if SCHEDULE in headers:
                self._schedule(message)
        for callback in self.on_stored:
            callback(message)
        for consumer in self._readers_of(subject):
            consumer.on_stored(message)
        for matches, target in self.copies:
            if matches(subject):
                self.loop.after(COPY_SECONDS, self._copy, message, target)
        return message.sequence

    def _copy(self, message: Message, target: Stream) -> None:
        if not self.up:
            self.loop.after(DOWN_SECONDS, self._copy, message, target)
            return
        source = f"{self.name} {message.sequence} > > {message.subject}"
        headers = {**message.headers, "Nats-Stream-Source": source}
        target.store(message.subject, message.data, header_block(headers), headers)

    # Losing messages. ---------------------------------------------------------------------

    def remove(self, message: Message) -> None:
        """Takes a message away."""
        self._messages[message.sequence - 1] = None
        self._count -= 1
        self._bytes -= _size(message)
        if self.last.get(message.subject) is message:
            del self.last[message.subject]
        for consumer in self._readers_of(message.subject):
            consumer.on_removed(message.sequence)
        for callback in self.on_removed:
            callback(message)

    def purge(self, *, subject: str, below: int, keep: int) -> int:
        """Takes messages away; how many."""
        matches = matching([subject or ">"])
        messages = [
            m for m in self.since(1) if matches(m.subject) and (not below or m.sequence < below)
        ]
        gone = messages[: len(messages) - keep] if keep else messages
        for message in gone:
            self.remove(message)
        return len(gone)

    def lose(self, since: float) -> None:
        """Removes what was stored since then and restores what it replaced, as after a loss of
        unsynced data."""
        end = self.end
        while self._messages:
            message = self._messages[-1]
            known = message or self._replaced.get(self.end)
            if known is not None and known.time <= since:
                break
            if message is not None:
                self.remove(message)
            self._messages.pop()
            self._times.pop()
        if self.end == end:
            return
        for sequence, old in sorted(self._replaced.items(), reverse=True):
            if sequence <= self.end and old.subject not in self.last:
                self._messages[sequence - 1] = self.last[old.subject] = old
                self._count += 1
                self._bytes += _size(old)
        self._newest = next((m for m in reversed(self._messages) if m is not None), None)
        self._ids = {name: entry for name, entry in self._ids.items() if entry[1] <= self.end}
        self._index = SubjectIndex(self.since(1))
        for consumer in self.consumers.values():
            consumer.on_lost()

    def crashed(self) -> None:
        """The server was killed: what is only in memory is lost."""
        self.up = False
        self._batches.clear()
        for consumer in list(self.consumers.values()):
            if consumer.config.get("mem_storage"):
                self.drop(consumer)
            else:
                consumer.crashed()

    def expire_at(self, subject: str, when: float) -> None:
        """Has the newest message of a subject expire then; infinity: never."""
        last = self.last.get(subject)
        if last is not None and last.data:
            self._expire_at(subject, when)

    def _expire_at(self, subject: str, when: float) -> None:
        # One timer for each key, however often it is renewed.
        self._expiry[subject] = when
        if when < self._wakes.get(subject, inf):
            self._wakes[subject] = when
            self.loop.at(when, self._look_whether_expired, subject, when)

    def _look_whether_expired(self, subject: str, at: float) -> None:
        if self._wakes.get(subject) != at:
            return
        if not self.up:
            at = self._wakes[subject] = self.loop.now + DOWN_SECONDS
            self.loop.at(at, self._look_whether_expired, subject, at)
            return
        del self._wakes[subject]
        when = self._expiry.get(subject, inf)
        if when > self.loop.now:
            if when < inf:
                self._expire_at(subject, when)
        else:
            self.expire_now(subject)

    def expire_now(self, subject: str) -> None:
        """Has the newest message of a subject expire."""
        self._expiry.pop(subject, None)
        message = self.last.get(subject)
        if message is None:
            return
        if MARKER in message.headers or not self._marker_seconds:
            self.remove(message)
            return
        age = _shown(self._marker_seconds)
        headers = {MARKER: "MaxAge", TTL: age, "Nats-Rollup": "sub"}
        self.store(subject, b"", header_block(headers), headers)

    def _schedule(self, message: Message) -> None:
        word, _, text = message.headers[SCHEDULE].partition(" ")
        if word != "@at":
            return
        at = (datetime.fromisoformat(text.replace("Z", "+00:00")) - START).total_seconds()
        late = self._late() * SCHEDULE_LATE_SECONDS
        self.loop.at(max(at, self.loop.now) + late, self._fire, message)

    def _fire(self, message: Message) -> None:
        if self.last.get(message.subject) is not message:
            return
        if not self.up:
            self.loop.after(DOWN_SECONDS, self._fire, message)
            return
        self.remove(message)
        headers = {k: v for k, v in message.headers.items() if not k.startswith("Nats-")}
        headers |= {"Nats-Scheduler": message.subject, "Nats-Schedule-Next": "purge"}
        target = message.headers["Nats-Schedule-Target"]
        self.store(target, message.data, header_block(headers), headers)

    # Consumers. ---------------------------------------------------------------------------

    def add(self, consumer: Consumer) -> None:
        self.consumers[consumer.name] = consumer
        self._readers.clear()

    def drop(self, consumer: Consumer) -> None:
        if self.consumers.get(consumer.name) is consumer:
            del self.consumers[consumer.name]
            self._readers.clear()
            consumer.close()

    def _readers_of(self, subject: str) -> tuple[Consumer, ...]:
        readers = self._readers.get(subject)
        if readers is None:
            readers = tuple(c for c in self.consumers.values() if c.wants(subject))
            self._readers[subject] = readers
        return readers


def _size(message: Message) -> int:
    return len(message.subject) + len(message.data) + len(message.raw)


def _seconds(duration: str) -> float:
    """The seconds of a duration as Go writes it, such as 1h0m0s; a number alone is seconds."""
    match = _DURATION.fullmatch(duration)
    assert match is not None, "it was checked"
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds


def _shown(seconds: int) -> str:
    """Seconds as Go writes them."""
    hours, minutes = seconds // 3600, seconds // 60 % 60
    rest = f"{seconds % 60}s"
    return f"{hours}h{minutes}m{rest}" if hours else f"{minutes}m{rest}" if minutes else rest


_DURATION: Final = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?(?<=.)")
_LEFT_OUT: Final = ("allow_atomic", "allow_msg_schedules", "allow_msg_ttl")
_DEFAULTS: Final[Mapping[str, Any]] = {
    "retention": "limits",
    "storage": "file",
    "discard": "old",
    "max_consumers": -1,
    "max_msgs": -1,
    "max_bytes": -1,
    "max_age": 0,
    "max_msgs_per_subject": -1,
    "max_msg_size": -1,
    "num_replicas": 1,
    "duplicate_window": 120_000_000_000,
    "subject_delete_marker_ttl": 0,
    "allow_direct": False,
    "allow_rollup_hdrs": False,
    "deny_delete": False,
    "deny_purge": False,
}
