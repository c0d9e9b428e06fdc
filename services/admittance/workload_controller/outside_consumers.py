"""Makes the consumers of runners and of the telemetry service, which may not create consumers
themselves.

At each request the consumer is deleted and made again: messages that its reader has not
acknowledged are delivered again at once and in order, and messages that were sent to a lost
connection do not arrive late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from admittance.events.names import plain, token
from admittance.events.reading_requests import ConsumerReply, RunnerConsumer, TelemetryConsumer
from admittance.events.subjects import (
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
from admittance.runtime.bus import micro
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.durables import NO_CONSUMER, Consumers
from admittance.runtime.errors import Refused

ACK_WAIT_SECONDS: Final = 30.0
UNUSED_NANOSECONDS: Final = 30_000_000_000
"""Nanoseconds without a reader after which the server removes a runner's consumer of claims."""
KV_CLAIMS: Final = f"KV_{CLAIMS}"
READER: Final = "reader"
"""The key in the metadata of the telemetry service's consumer; its value is the instance that
reads."""


class OutsideConsumers:
    """Answers the requests of runners and of the telemetry service for consumers."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    def endpoints(self) -> Mapping[str, micro.Handler]:
        """The handler of each subject on which a consumer is requested."""
        return {
            f"{RUNNER_CONSUMER}*": self.of_runner,
            f"{RUNNER_CONSUMER}*.*": self.of_runner,
            TELEMETRY_CONSUMER: self.of_telemetry,
        }

    async def of_runner(self, data: bytes, subject: str) -> ConsumerReply:
        """Makes the consumer that a runner requests. Raises ValueError for a wrong request, and
        Refused or Unavailable if the consumer cannot be made.
        """
        request = msgspec.json.decode(data, type=RunnerConsumer)
        runner = subject.removeprefix(RUNNER_CONSUMER).partition(".")[0]
        name = f"{RUNNER_DURABLE}{token(plain(runner))}"
        namespaces = namespaces_of_consumer(subject)
        if request.stream == "log":
            return await self._of_log(name, request.after, runner_orders(namespaces))
        if request.stream == "claims":
            return await self._of_claims(name, request.after, _claims_of(namespaces))
        raise ValueError(f'stream "{request.stream}" must be log or claims')

    async def of_telemetry(self, data: bytes, _subject: str) -> ConsumerReply:
        """Makes the consumer of the telemetry service for the instance that requests it, unless
        another instance reads. Raises ValueError for a wrong request, and Refused or Unavailable if
        the consumer cannot be made.
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
        self,
        name: str,
        after: int | None,
        filters: Sequence[str],
        **settings: Any,
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
        self, name: str, after: int | None, claims: Sequence[str]
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
        }
        if after:
            config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": after + 1}
        await self._delete(KV_CLAIMS, name)
        made = await self._bus.api(
            f"CONSUMER.CREATE.{KV_CLAIMS}.{name}", {"stream_name": KV_CLAIMS, "config": config}
        )
        pending = int(made.get("num_pending", 0))
        return ConsumerReply(consumer=name, after=after or 0, pending=pending, last=last)

    async def _info(self, name: str) -> dict[str, Any]:
        """The server's information about a consumer of the log."""
        try:
            return await self._bus.api(f"CONSUMER.INFO.{STREAM}.{name}")
        except Refused as error:
            if error.code == NO_CONSUMER:
                raise _Missing from None
            raise

    async def _last(self, stream: str) -> int:
        info = await self._bus.api(f"STREAM.INFO.{stream}")
        return int(info["state"]["last_seq"])

    async def _delete(self, stream: str, name: str) -> None:
        try:
            await self._bus.api(f"CONSUMER.DELETE.{stream}.{name}")
        except Refused as error:
            if error.code != NO_CONSUMER:
                raise


def _floor(info: Mapping[str, Any]) -> int:
    """The sequence of the stream up to which the reader of a consumer has acknowledged the
    messages."""
    begun: int = info["config"].get("opt_start_seq", 1) - 1
    return max(int(info["ack_floor"]["stream_seq"]), begun)


def _claims_of(namespaces: Sequence[str]) -> list[str]:
    """The subjects that the consumer of a runner reads in the bucket of claims; the secret of
    message ids is not among them. ``namespaces`` empty: all."""
    spaces = [token(one) for one in namespaces] or ["*"]
    return [*(f"$KV.{CLAIMS}.{one}.*.*" for one in spaces), f"$KV.{CLAIMS}._runner.*"]


class _Missing(Exception):
    """The error that a consumer does not exist."""
