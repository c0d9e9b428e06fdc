"""Makes the consumers of runners and of the telemetry service, which may not create consumers
themselves, and removes what a runner leaves that is gone for good.

At each request the consumer is deleted and made again: messages that its reader has not
acknowledged are delivered again at once and in order, and messages that were sent to a lost
connection do not arrive late. A copy of a request, which a runner sends when no answer has come for
a second, leaves the consumer that the request has made, whichever instance gets the copy: else a
hundred runners that start at once would take away each other's answers, and their copies would keep
the server busy for good.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, Final

import msgspec
import structlog

from admittance.events.names import plain, token
from admittance.events.reader import Unreadable
from admittance.events.requests.manifests import DeleteReply
from admittance.events.requests.reading import (
    AnnouncedReply,
    AnnouncedRunner,
    ConsumerReply,
    RunnerConsumer,
    TelemetryConsumer,
)
from admittance.events.stored.formats import read_announcement
from admittance.events.stored.machines import OF_RUNNERS, key_of_runner
from admittance.events.subjects import (
    ANNOUNCED_RUNNERS,
    CLAIMS,
    RUNNER_CONSUMER,
    RUNNER_DURABLE,
    STREAM,
    TELEMETRY_CONSUMER,
    TELEMETRY_DURABLE,
    TELEMETRY_FILTERS,
    namespaces_of_consumer,
    runner_orders,
)
from admittance.events.system import RunnerAnnouncement
from admittance.runtime.bus.bucket import delete_message
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.durables import NO_CONSUMER, Consumers, list_consumers
from admittance.runtime.bus.history import next_from_leader
from admittance.runtime.errors import BusRefused
from admittance.runtime.nats import micro

ACK_WAIT_SECONDS: Final = 30.0
UNUSED_NANOSECONDS: Final = 30_000_000_000
"""Nanoseconds without a reader after which the server removes a runner's consumer of claims."""
KV_CLAIMS: Final = f"KV_{CLAIMS}"
MARKER_SECONDS: Final = 3600.0
"""Seconds for which a deleted key of a runner leaves a mark."""
READER: Final = "reader"
"""The key in the metadata of the telemetry service's consumer; its value is the instance that
reads."""
REQUEST: Final = "request"
"""The key in the metadata of a runner's consumer; its value is the id of the request that made
it."""
MAKING_MAX: Final = 8
"""The most consumers of runners that are made at the same time: the server handles one request of
its API after another, and requests of services must not wait behind those of all runners."""
log = structlog.get_logger()


class OutsideConsumers:
    """Answers the requests of runners and of the telemetry service for consumers."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._making: dict[tuple[str, bytes], asyncio.Task[ConsumerReply]] = {}
        self._answered: dict[tuple[str, str], tuple[str, ConsumerReply]] = {}
        """The id of the last request for each consumer (stream, name), and the answer."""
        self._places = asyncio.Semaphore(MAKING_MAX)

    def endpoints(self) -> Mapping[str, micro.Handler]:
        """The handler of each subject on which a consumer is requested."""
        return {
            f"{RUNNER_CONSUMER}*": self.of_runner,
            f"{RUNNER_CONSUMER}*.*": self.of_runner,
            TELEMETRY_CONSUMER: self.of_telemetry,
            "admit.api.runners": self.announced,
        }

    async def announced(self, _data: bytes, _subject: str) -> AnnouncedReply:
        """The runners that have announced themselves. Raises BusRefused or BusUnavailable."""
        runners = [
            AnnouncedRunner(
                runner=runner,
                consumer=announcement.consumer,
                since=at,
                older=not announcement.placement,
            )
            for runner, (announcement, at) in (await self._announcements()).items()
        ]
        return AnnouncedReply(runners=tuple(sorted(runners, key=lambda runner: runner.runner)))

    async def remove_runner(self, name: str, user: str) -> tuple[DeleteReply, Collection[str]]:
        """Deletes the consumer and the announcements of a runner, unless a program reads the
        consumer. ``name``: the part after ``runner-`` in the name of the consumer, or the name of
        the runner's data folder. ``user``: the user that requests it. Returns also the names that
        the runner's object may have. Raises BusRefused or BusUnavailable.
        """
        known = {
            runner: announcement.consumer
            for runner, (announcement, _) in (await self._announcements()).items()
            if name in (runner, announcement.consumer)
        }
        consumers = {
            f"{RUNNER_DURABLE}{token(consumer)}" for consumer in (name, *known.values()) if consumer
        }
        infos = [
            info
            for info in await list_consumers(self._bus, STREAM)
            if info["name"] in consumers or _numbered(info["name"]) in consumers
        ]
        for info in infos:
            if info.get("num_waiting") or info.get("push_bound"):
                error = (
                    f"runner {name} reads {info['name']}: stop it first; a runner that was "
                    "killed seems to read for another half a minute"
                )
                return DeleteReply(error=error), ()
        for info in infos:
            await self._delete(STREAM, info["name"])
        for runner in known:
            key = f"{ANNOUNCED_RUNNERS}.{token(runner)}"
            await self._bus.publish(delete_message(key, expected=None, bucket=CLAIMS))
        runners = {consumer for consumer in (name, *known.values()) if consumer}
        if not infos and not known:
            return DeleteReply(outcome="absent"), runners
        log.info("runner_deleted", runner=name, consumers=len(infos), user=user)
        return DeleteReply(outcome="deleted"), runners

    async def forget_machine(self, runner: str) -> None:
        """Deletes what a runner has said about its machine. Raises BusRefused or BusUnavailable."""
        keys = [key_of_runner(first, runner) for first in OF_RUNNERS]
        await self._bus.publish_all(
            [
                delete_message(key, expected=None, bucket=CLAIMS, ttl_seconds=MARKER_SECONDS)
                for key in keys
            ]
        )

    async def _announcements(self) -> dict[str, tuple[RunnerAnnouncement, datetime]]:
        """The announcements by runner, with their times; one that cannot be read counts as
        empty."""
        start = f"$KV.{CLAIMS}.{ANNOUNCED_RUNNERS}."
        announcements: dict[str, tuple[RunnerAnnouncement, datetime]] = {}
        after = 0
        while message := await next_from_leader(self._bus, KV_CLAIMS, after, f"{start}*"):
            after = message.sequence
            if not message.data:
                continue  # the mark of a deletion
            try:
                one = read_announcement(message.data)
            except Unreadable:
                one = RunnerAnnouncement()
            announcements[message.subject.removeprefix(start)] = one, message.time
        return announcements

    async def of_runner(self, data: bytes, subject: str) -> ConsumerReply:
        """Makes the consumer that a runner requests. Copies of a request get the same answer.
        Raises ValueError for a wrong request, and BusRefused or BusUnavailable if the consumer
        cannot be made.
        """
        copies = subject, data
        making = self._making.get(copies)
        if making is None:
            making = asyncio.create_task(self._of_runner(data, subject), name=f"consumer {subject}")
            self._making[copies] = making
            making.add_done_callback(partial(self._made, copies))
        return await asyncio.shield(making)

    def _made(self, copies: tuple[str, bytes], making: asyncio.Task[ConsumerReply]) -> None:
        del self._making[copies]
        if not making.cancelled():
            making.exception()  # those that wait for the answer report it

    async def _of_runner(self, data: bytes, subject: str) -> ConsumerReply:
        request = msgspec.json.decode(data, type=RunnerConsumer)
        if request.stream not in ("log", "claims"):
            raise ValueError(f'stream "{request.stream}" must be log or claims')
        stream = STREAM if request.stream == "log" else KV_CLAIMS
        runner = subject.removeprefix(RUNNER_CONSUMER).partition(".")[0]
        name = f"{RUNNER_DURABLE}{token(plain(runner))}"
        namespaces = namespaces_of_consumer(subject)
        async with self._places:
            last, reply = self._answered.get((stream, name), ("", None))
            if reply is not None and last and last == request.id:
                return reply
            reply = await self._made_before(stream, name, request) if request.id else None
            metadata = {REQUEST: request.id}
            if reply is not None:
                pass
            elif stream == STREAM:
                orders = runner_orders(namespaces)
                reply = await self._of_log(name, request.after, orders, metadata=metadata)
            else:
                claims = _claims_of(namespaces)
                reply = await self._of_claims(name, request.after, claims, metadata=metadata)
        self._answered[stream, name] = request.id, reply
        return reply

    async def _made_before(
        self, stream: str, name: str, request: RunnerConsumer
    ) -> ConsumerReply | None:
        """The answer to a request that an instance of this service has carried out; None: none has.
        The runner has not read from the consumer, since it has no answer yet."""
        try:
            info = await self._info(name, stream)
        except _Missing:
            return None
        if info["config"].get("metadata", {}).get(REQUEST) != request.id:
            return None
        return ConsumerReply(
            consumer=name,
            after=info["config"].get("opt_start_seq", 1) - 1,
            pending=int(info.get("num_pending", 0)),
            last=await self._last(stream),
        )

    async def of_telemetry(self, data: bytes, _subject: str) -> ConsumerReply:
        """Makes the consumer of the telemetry service for the instance that requests it, unless
        another instance reads. Raises ValueError for a wrong request, and BusRefused or
        BusUnavailable if the consumer cannot be made.
        """
        request = msgspec.json.decode(data, type=TelemetryConsumer)
        after = request.after
        with suppress(_Missing):
            info = await self._info(TELEMETRY_DURABLE)
            reader = info["config"].get("metadata", {}).get(READER, "")
            if reader != request.instance:
                # An instance that reads always has a pull request open. The pull requests of an
                # instance that has ended expire after seconds.
                if info["num_waiting"]:
                    return ConsumerReply(reader=reader)
                after = None
        metadata = {READER: request.instance}
        return await self._of_log(TELEMETRY_DURABLE, after, TELEMETRY_FILTERS, metadata=metadata)

    async def _of_log(
        self, name: str, after: int | None, filters: Sequence[str], **settings: Any
    ) -> ConsumerReply:
        consumers = Consumers(self._bus, STREAM, name, filters, ack_wait=ACK_WAIT_SECONDS)
        last = await self._last(STREAM)
        if after is None:
            # Consumers with numbers in their names are those that runners of earlier versions made
            # themselves.
            numbered = await consumers.generations()
            floors = [floor for *_, floor in numbered]
            with suppress(_Missing):
                floors.append(_floor(await self._info(name)))
            after = min(max(floors, default=last), last)
            for _, _, old, _ in numbered:
                await self._delete(STREAM, old)
        after = max(0, after)
        await self._delete(STREAM, name)
        pending = await consumers.create(
            name,
            {
                "ack_policy": "all",
                "deliver_policy": "by_start_sequence",
                "opt_start_seq": after + 1,
                **settings,
            },
        )
        return ConsumerReply(consumer=name, after=after, pending=pending, last=last)

    async def _of_claims(
        self, name: str, after: int | None, claims: Sequence[str], **settings: Any
    ) -> ConsumerReply:
        last = await self._last(KV_CLAIMS)
        config: dict[str, Any] = {
            "name": name,
            "ack_policy": "none",
            "filter_subjects": [*claims],
            "inactive_threshold": UNUSED_NANOSECONDS,
            "mem_storage": True,
            "num_replicas": 1,
            "max_waiting": 512,
            "deliver_policy": "last_per_subject",
            **settings,
        }
        if after:
            config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": after + 1}
        await self._delete(KV_CLAIMS, name)
        made = await self._bus.api(
            f"CONSUMER.CREATE.{KV_CLAIMS}.{name}", {"stream_name": KV_CLAIMS, "config": config}
        )
        pending = int(made.get("num_pending", 0))
        return ConsumerReply(consumer=name, after=after or 0, pending=pending, last=last)

    async def _info(self, name: str, stream: str = STREAM) -> dict[str, Any]:
        """The server's information about a consumer."""
        try:
            return await self._bus.api(f"CONSUMER.INFO.{stream}.{name}")
        except BusRefused as error:
            if error.code == NO_CONSUMER:
                raise _Missing from None
            raise

    async def _last(self, stream: str) -> int:
        info = await self._bus.api(f"STREAM.INFO.{stream}")
        return int(info["state"]["last_seq"])

    async def _delete(self, stream: str, name: str) -> None:
        try:
            await self._bus.api(f"CONSUMER.DELETE.{stream}.{name}")
        except BusRefused as error:
            if error.code != NO_CONSUMER:
                raise


def _numbered(name: str) -> str:
    """The consumer's name without generation and number, which consumers that runners of earlier
    versions made have at their ends."""
    stem, *numbers = name.rsplit("-", 2)
    return stem if len(numbers) == 2 and all(number.isdecimal() for number in numbers) else ""


def _floor(info: Mapping[str, Any]) -> int:
    """The sequence of the stream up to which the reader of a consumer has acknowledged the
    messages."""
    begun: int = info["config"].get("opt_start_seq", 1) - 1
    return max(int(info["ack_floor"]["stream_seq"]), begun)


def _claims_of(namespaces: Sequence[str]) -> list[str]:
    """The subjects that the consumer of a runner reads in the bucket of claims; the secret of
    message ids is not among them. ``namespaces`` empty: all."""
    spaces = [token(namespace) for namespace in namespaces] or ["*"]
    return [*(f"$KV.{CLAIMS}.{space}.*.*" for space in spaces), f"$KV.{CLAIMS}._runner.*"]


class _Missing(Exception):
    """The error that a consumer does not exist."""
