"""Makes the consumers of runners, which may not create consumers themselves.

A consumer is made anew at each request: what the runner has not acknowledged is delivered again at
once and in order, and nothing arrives that was sent to a lost connection.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import msgspec

from admittance.events.names import plain, token
from admittance.events.reading_requests import RunnerConsumer, RunnerConsumerReply
from admittance.events.subjects import CLAIMS, RUNNER_DURABLE, RUNNER_ORDERS, STREAM
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.durables import NO_CONSUMER, Consumers
from admittance.runtime.errors import Refused

ACK_WAIT_SECONDS: Final = 30.0
UNUSED_NANOSECONDS: Final = 30_000_000_000
"""Nanoseconds without a reader after which the server removes a runner's consumer of claims."""
CLAIM_SUBJECTS: Final = [f"$KV.{CLAIMS}.*.*.*", f"$KV.{CLAIMS}._runner.*"]
"""The subjects that the consumer of a runner reads in the bucket of claims; the secret of message
ids is not among them."""
KV_CLAIMS: Final = f"KV_{CLAIMS}"


class RunnerConsumers:
    """Answers requests for consumers of runners."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def handle(self, data: bytes, subject: str) -> RunnerConsumerReply:
        """Makes the consumer that the request names. Raises ValueError for a wrong request, and
        Refused or Unavailable.
        """
        request = msgspec.json.decode(data, type=RunnerConsumer)
        name = f"{RUNNER_DURABLE}{token(plain(subject.rsplit('.', 1)[1]))}"
        if request.stream == "log":
            return await self._of_log(name, request.after)
        if request.stream == "claims":
            return await self._of_claims(name, request.after)
        raise ValueError(f'stream "{request.stream}" must be log or claims')

    async def _of_log(self, name: str, after: int | None) -> RunnerConsumerReply:
        consumers = Consumers(self._bus, STREAM, name, RUNNER_ORDERS, ack_wait=ACK_WAIT_SECONDS)
        last = await self._last(STREAM)
        if after is None:
            # Runners of earlier versions made their consumers themselves, with a number each.
            numbered = await consumers.generations()
            floors = [floor for *_, floor in numbered]
            with suppress(_Missing):
                floors.append(await self._floor(name))
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
            },
        )
        return RunnerConsumerReply(consumer=name, after=after, pending=pending, last=last)

    async def _of_claims(self, name: str, after: int | None) -> RunnerConsumerReply:
        last = await self._last(KV_CLAIMS)
        config: dict[str, Any] = {
            "name": name,
            "ack_policy": "none",
            "filter_subjects": CLAIM_SUBJECTS,
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
        return RunnerConsumerReply(consumer=name, after=after or 0, pending=pending, last=last)

    async def _floor(self, name: str) -> int:
        """The sequence up to which the consumer of the log is acknowledged."""
        try:
            info = await self._bus.api(f"CONSUMER.INFO.{STREAM}.{name}")
        except Refused as error:
            if error.code == NO_CONSUMER:
                raise _Missing from None
            raise
        begun: int = info["config"].get("opt_start_seq", 1) - 1
        return max(int(info["ack_floor"]["stream_seq"]), begun)

    async def _last(self, stream: str) -> int:
        info = await self._bus.api(f"STREAM.INFO.{stream}")
        return int(info["state"]["last_seq"])

    async def _delete(self, stream: str, name: str) -> None:
        try:
            await self._bus.api(f"CONSUMER.DELETE.{stream}.{name}")
        except Refused as error:
            if error.code != NO_CONSUMER:
                raise


class _Missing(Exception):
    """The runner has no such consumer."""
