"""Keeps the log below ``ADMIT_LOG_BYTES``: the active workload-controller removes its oldest part,
once the sums of usage have it.

Of what is removed, only the fact `Admitted` of a workload that is still admitted is needed: a
runner reads it when it starts the job, perhaps again. So these facts are published again before
they are removed, with the same bytes; a runner recognises a repeated fact by its revision. A leader
whose epoch is removed takes its domain again with its next decision, as after the age limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import structlog

from admittance.control.controller import Controller
from admittance.events.base import HEADER_MSG_ID, HEADER_SCHEMA, HEADER_TRACE
from admittance.events.names import token
from admittance.events.reader import BROKEN
from admittance.events.shapes import Finding
from admittance.events.subjects import STREAM
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.durables import list_consumers
from admittance.runtime.bus.history import StoredMessage, last, next_from_leader, pages_of_last
from admittance.runtime.errors import AdmittanceError, BusRefused, BusUnavailable
from admittance.runtime.telemetry.findings import NOTE, OK, WRONG, size_of
from admittance.runtime.telemetry.logger import LogThrottle
from admittance.runtime.telemetry.metrics import gauge
from admittance.runtime.telemetry.object_faults import faults
from admittance.usage.retention import PATIENCE, LogConsumer, LogSize, removal
from admittance.workload.conditions import Type, is_true
from admittance.workload_controller.usage.summarizer import SERVICE, UsageSummarizer

CHECK_SECONDS: Final = 30.0
STEP: Final = 20_000
"""How many sequences one request removes: the server writes nothing to the log meanwhile. It
removes them one by one only by age or by subject; the first part of a stream goes in blocks."""
STEP_PAUSE_SECONDS: Final = 0.05
PURGE_SECONDS: Final = 30.0
ROUNDS_MAX: Final = 20
KEPT_HEADERS: Final = (HEADER_SCHEMA, HEADER_TRACE)

LOG_BYTES: Final = gauge("log_bytes", "Bytes of the log, while ADMIT_LOG_BYTES bounds them")
LOG_BOUND: Final = gauge("log_bound_bytes", "The bound ADMIT_LOG_BYTES of the log, if it is set")

log = structlog.get_logger()


class LogRetention:
    """The retention of one leader. ``bound``: the most bytes of the log. ``floor``: returns the
    sequence up to which the workload-controller has acknowledged everything."""

    def __init__(
        self,
        bus: Bus,
        bound: int,
        usage: UsageSummarizer,
        floor: Callable[[], int],
        controller: Controller,
    ) -> None:
        self.bound = bound
        self.size: LogSize | None = None
        self._bus = bus
        self._usage = usage
        self._floor = floor
        self._controller = controller
        self._held_by = ""
        self._throttle = LogThrottle()

    async def run(self) -> None:
        """Compares the log with its bound until it is cancelled. An error ends no leader."""
        while True:
            try:
                await self.check()
            except (BusRefused, BusUnavailable) as error:
                if self._throttle.due(clock.monotonic()):
                    log.warning("log_not_compacted", reason=str(error))
            except AdmittanceError:
                raise
            except Exception as error:
                faults.record(SERVICE, "bound the log", f"stream {STREAM}", error)
            await asyncio.sleep(CHECK_SECONDS)

    async def check(self) -> None:
        """Removes what the log has too much. Raises BusRefused or BusUnavailable."""
        for _ in range(ROUNDS_MAX):
            size = self.size = await self._size()
            if size.bytes <= self.bound:
                self._held_by = ""
                return
            counted = await self._usage.counted(size.last)
            removed = self._usage.store.position.compacted
            needed = min(counted, self._floor()) + 1
            decided = removal(size, self.bound, removed, needed, await self._readers())
            self._held_by = decided.held_by
            begun = max(removed, size.first - 1)
            if decided.through <= begun:
                return
            await self._carry(decided.through)
            await self._note(decided.through)
            for through in range(begun + STEP, decided.through + STEP, STEP):
                request = {"seq": min(through, decided.through) + 1}
                await self._bus.api(f"STREAM.PURGE.{STREAM}", request, timeout=PURGE_SECONDS)
                await asyncio.sleep(STEP_PAUSE_SECONDS)
            log.info("log_compacted", through=decided.through, bytes=size.bytes, bound=self.bound)

    async def _size(self) -> LogSize:
        state = (await self._bus.api(f"STREAM.INFO.{STREAM}"))["state"]
        return LogSize(state["bytes"], state["messages"], state["first_seq"], state["last_seq"])

    async def _readers(self) -> list[LogConsumer]:
        return [
            LogConsumer(str(info["name"]), _floor(info))
            for info in await list_consumers(self._bus, STREAM)
            if not str(info["name"]).startswith(f"{SERVICE}-")
            and (info.get("num_pending") or info.get("num_ack_pending"))
        ]

    async def _note(self, through: int) -> None:
        """Stores what is removed next: then `admit events` says that events are missing, not that
        they never were."""
        following = await next_from_leader(self._bus, STREAM, through)
        await self._usage.compacted(through, clock.now() if following is None else following.time)

    async def _carry(self, through: int) -> None:
        """Publishes the facts `Admitted` up to ``through`` of workloads that are admitted again."""
        admitted = self._admitted()
        left = dict(admitted)
        async for page in pages_of_last(self._bus, list(admitted)):
            await self._publish_again(page, through, admitted)
            for message in page:
                if _revision(message.data) == admitted[message.subject]:
                    del left[message.subject]
        # A replica that lags does not have the newest facts.
        for subject in left:
            newest = await last(self._bus, subject)
            if newest is not None:
                await self._publish_again([newest], through, admitted)

    async def _publish_again(
        self, messages: Sequence[StoredMessage], through: int, admitted: Mapping[str, int]
    ) -> None:
        again = [
            self._again(message)
            for message in messages
            if message.sequence <= through and _revision(message.data) == admitted[message.subject]
        ]
        for outcome in await self._bus.publish_all(again):
            if isinstance(outcome, BusRefused):
                raise outcome

    def _admitted(self) -> dict[str, int]:
        """The revision of the admission of each admitted workload, by the subject of its fact."""
        revisions: dict[str, int] = {}
        for _, known in self._controller.workloads.items():
            workload = known.workload
            if workload is None or not is_true(workload, Type.ADMITTED):
                continue
            if not is_true(workload, Type.FINISHED):
                meta = workload.metadata
                tail = f"{token(meta.namespace)}.{token(meta.name)}"
                revision = workload.status.admitted_revision
                revisions[f"admit.workload.admitted.{tail}"] = revision
        return revisions

    def _again(self, message: StoredMessage) -> Outgoing:
        identity = self._controller.message_builder.identity(f"carried/{message.sequence}")
        kept = {name: message.headers[name] for name in KEPT_HEADERS if name in message.headers}
        return Outgoing(message.subject, message.data, {HEADER_MSG_ID: identity, **kept})

    def findings(self) -> list[Finding]:
        """The finding of `admit doctor` about the size of the log."""
        if self.size is None:
            return []
        text = f"{size_of(self.size.bytes)}, bounded at {size_of(self.bound)} (ADMIT_LOG_BYTES)"
        until = self._usage.store.position.compacted_until
        if until is not None:
            text += f"; facts from before {until:%Y-%m-%dT%H:%M:%SZ} are removed"
        what = "size of the log"
        if not self._held_by or self.size.bytes <= self.bound:
            return [Finding(state=OK, what=what, found=text)]
        late = self.size.bytes > PATIENCE * self.bound
        return [
            Finding(
                state=WRONG if late else NOTE,
                what=what,
                found=f"{text}; consumer {self._held_by} has not read what would be removed",
                todo="start the program that reads it; when the log has reached twice its bound, "
                "facts are removed that it has not read: "
                "docs/operations.md#memory-and-disk-of-the-server",
            )
        ]


def sizes_of_log(retention: LogRetention | None) -> dict[str, dict[tuple[str, ...], float]]:
    """The values of the gauges `LOG_BYTES` and `LOG_BOUND`; none while the log has no bound."""
    if retention is None or retention.size is None:
        return {}
    return {LOG_BYTES.name: {(): retention.size.bytes}, LOG_BOUND.name: {(): retention.bound}}


class _Revised(msgspec.Struct):
    revision: int = 0


_revised: Final = msgspec.json.Decoder(_Revised)


def _revision(data: bytes) -> int:
    """The revision that a fact names; -1 if it cannot be read."""
    try:
        return _revised.decode(data).revision
    except BROKEN:
        return -1


def _floor(info: Mapping[str, Any]) -> int:
    """The sequence up to which a consumer needs no message."""
    if info.get("num_ack_pending"):
        return int(info["ack_floor"]["stream_seq"])
    return max(int(info["ack_floor"]["stream_seq"]), int(info["delivered"]["stream_seq"]))
