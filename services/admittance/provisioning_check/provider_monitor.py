"""Follows heartbeats of providers, sets checks active or inactive, and queries a provider that is
back for the state of its requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec
import structlog

from admittance.checks import AdmissionCheckController
from admittance.events.base import too_deep
from admittance.events.codec import Undecodable, encode
from admittance.events.names import BadToken, plain, token
from admittance.events.provisioning import ProvisioningStatus
from admittance.events.reader import Reader, Unreadable
from admittance.events.requests import ProviderQuery, ProviderReply
from admittance.events.subjects import ALIVE_PROVISIONING, PROVISIONING_FACTS
from admittance.events.system import ProviderAlive
from admittance.provisioning.core import ProvisioningCore
from admittance.provisioning.observed_state import Name, ProviderHeartbeats, slot_of
from admittance.provisioning.records import Record
from admittance.provisioning.steps import Slot
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import Refused, Unavailable
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import set_within

BEAT_MAX: Final = 64 * 1024
"""Larger heartbeats are ignored."""
CLASSES_MAX: Final = 10_000
"""Most classes followed; heartbeats of further classes are ignored."""
ANSWER_SECONDS: Final = 2.0
AT_ONCE: Final = 32
"""Concurrent queries to one provider."""
OVERSLEPT_SECONDS: Final = 5.0
"""A wake-up this late means that the process was suspended and missed heartbeats."""
PREFIX: Final = len(ALIVE_PROVISIONING)

log = structlog.get_logger()
_beat = Reader(ProviderAlive)
_reply = Reader(ProviderReply)


class AnswerHandler(Protocol):
    """Receives the answers to queries."""

    async def take(self, said: Sequence[ProvisioningStatus], /) -> object: ...

    async def note_unreadable(self, workload: Name, provisioning_class: str, why: str, /) -> None:
        """The answer cannot be decoded."""
        ...

    def send_again(self, slot: Slot, request_id: str, /) -> None:
        """The provider does not know that request."""
        ...


class ProviderMonitor:
    """``changed`` is called when a check becomes active or inactive. ``hearer`` gets the answers of
    providers to queries."""

    def __init__(
        self,
        bus: Bus,
        controller: AdmissionCheckController,
        core: ProvisioningCore,
        settings: Settings,
        changed: Callable[[], None],
        hearer: AnswerHandler,
    ) -> None:
        self._bus = bus
        self._controller = controller
        self._core = core
        self._changed = changed
        self._providing = ProviderHeartbeats(settings.beat_seconds)
        self._wake = asyncio.Event()
        self._back: dict[str, None] = {}
        self._troubles: dict[str, tuple[str, str]] = {}
        self._asking: set[asyncio.Task[None]] = set()
        self._hearer = hearer

    def look(self) -> None:
        """Checks or configurations changed: evaluate them again."""
        self._wake.set()

    async def run(self, loaded: asyncio.Event) -> None:
        """Listens until cancelled."""
        await loaded.wait()
        now = clock.monotonic()
        for check in self._core.observed.checks.values():
            conditions = check.status.conditions if check.status is not None else ()
            config = self._core.observed.config_of(check.metadata.name)
            if config is not None and any(one.reason == "ProviderDown" for one in conditions):
                self._providing.expect(config.provisioning_class_name, now)
        subscription = await self._bus.nc.listen(f"{ALIVE_PROVISIONING}*", self._on_beat)
        self._bus.reconnected.append(self._on_reconnected)
        try:
            while True:
                self._wake.clear()
                self._tell()
                now = clock.monotonic()
                loss = self._providing.next_loss(now)
                seconds = None if loss is None else max(0.05, loss - now)
                await set_within(self._wake, seconds)
                if seconds is not None and clock.monotonic() > now + seconds + OVERSLEPT_SECONDS:
                    self._on_reconnected()
        finally:
            self._bus.reconnected.remove(self._on_reconnected)
            await self._bus.nc.deafen(subscription)
            for task in self._asking:
                task.cancel()

    def _on_reconnected(self) -> None:
        self._providing.slept(clock.monotonic())
        self._wake.set()

    def _on_beat(self, subject: bytes, _reply: bytes, data: bytes, _headers: bytes) -> None:
        try:
            name = plain(subject[PREFIX:].decode())
            known = self._providing.knows(name)
            if len(data) > BEAT_MAX or not (data or known):
                return  # An empty message from an unknown class must not start its silence.
            beat = _beat(data) if data else ProviderAlive()
        except (Unreadable, UnicodeError, BadToken):
            return
        if not known and len(self._providing.classes()) >= CLASSES_MAX:
            return
        if self._providing.hear(name, beat, clock.monotonic()):
            self._back[name] = None
        self._wake.set()

    def _tell(self) -> None:
        """Reports checks that became active or inactive, and queries providers that are back."""
        observed, now = self._core.observed, clock.monotonic()
        for name in self._providing.classes():
            why = self._providing.trouble(name, now)
            if why is None:
                observed.down.pop(name, None)
            else:
                observed.down[name] = why
        for check in observed.checks:
            trouble = observed.trouble(check)
            told = (trouble.reason, trouble.message) if trouble is not None else ("", "")
            if self._troubles.get(check, ("", "")) == told:
                continue
            self._troubles[check] = told
            if trouble is None:
                self._controller.active(check)
            else:
                self._controller.inactive(trouble.message, reason=trouble.reason, check=check)
            log.info("check_active", check=check, active=trouble is None, why=told[1])
            observed.touch([check])
            self._changed()
        back, self._back = self._back, {}
        for name in back:
            records = self._core.records_of_class(name)
            if records:
                task = asyncio.create_task(self._ask(name, records), name=f"asking {name}")
                self._asking.add(task)
                task.add_done_callback(self._on_asked)

    def _on_asked(self, task: asyncio.Task[None]) -> None:
        self._asking.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            # The requests are in the provider's durable anyway.
            log.error("not_asked", task=task.get_name(), error=str(error), exc_info=error)

    async def _ask(self, provisioning_class: str, records: list[Record]) -> None:
        """Queries a provider that is back for the state of its requests, `AT_ONCE` at a time.
        Answers are applied in the order of the requests."""
        subject = f"admit.api.provider.{token(provisioning_class)}"
        for start in range(0, len(records), AT_ONCE):
            part = records[start : start + AT_ONCE]
            questions = [encode(ProviderQuery(id=one.spec.id)) for one in part]
            answers = await asyncio.gather(
                *(self._bus.request(subject, one, ANSWER_SECONDS) for one in questions),
                return_exceptions=True,
            )
            said: list[ProvisioningStatus] = []
            ended, unread = False, 0
            for record, answer in zip(part, answers, strict=True):
                if isinstance(answer, Unavailable | Refused):
                    # It does not answer queries: it will answer the requests in its durable.
                    ended = True
                    continue
                if isinstance(answer, BaseException):
                    raise answer
                try:
                    reply = reply_of(answer)
                    fact = status_of(record, reply)
                except Undecodable as error:
                    why = str(error)
                    log.warning("not_understood", provisioning_class=provisioning_class, why=why)
                    workload = record.metadata.namespace, record.spec.workload
                    await self._hearer.note_unreadable(workload, provisioning_class, why)
                    unread += 1
                    continue
                if reply.error:
                    continue
                if not reply.known:
                    self._hearer.send_again(slot_of(record), record.spec.id)
                elif fact is not None:
                    said.append(fact)
            if said:
                await self._hearer.take(said)
            if ended or unread == len(part):
                return


def reply_of(data: bytes) -> ProviderReply:
    """The provider's reply to a query. Raises Undecodable."""
    try:
        return _reply(data)
    except Unreadable as error:
        raise Undecodable(str(error)) from error


def status_of(record: Record, reply: ProviderReply) -> ProvisioningStatus | None:
    """The status that the reply repeats; None: it has none. Raises Undecodable."""
    kind = PROVISIONING_FACTS.get(reply.status)
    if kind is None or not issubclass(kind, ProvisioningStatus):
        return None
    if why := too_deep("podSetUpdates", [one.tolerations for one in reply.pod_set_updates]):
        raise Undecodable(why)
    told = msgspec.to_builtins(reply)
    fields = {name: value for name, value in told.items() if name not in ("status", "known")}
    common = {
        "namespace": record.metadata.namespace,
        "name": record.spec.workload,
        "uid": record.spec.uid,
        "provisioningClass": record.spec.provisioning_class_name,
        "id": record.spec.id,
    }
    return msgspec.convert({**fields, **common}, kind)
