"""Listens to heartbeats of providers, sets AdmissionChecks active or inactive, and asks a provider
that has restarted for the state of its requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import msgspec
import structlog

from admittance.checks import AdmissionCheckController
from admittance.events import reasons
from admittance.events.base import too_deep
from admittance.events.codec import Undecodable, encode
from admittance.events.names import BadToken, plain, token
from admittance.events.provisioning import ProvisioningStatus
from admittance.events.reader import Reader, Unreadable
from admittance.events.requests.services import (
    CLASSES_ASKED_MAX,
    ProviderQuery,
    ProviderReply,
    Providers,
    ProvidersReply,
)
from admittance.events.subjects import ALIVE_PROVISIONING, PROVISIONING_FACTS
from admittance.events.system import ProviderAlive
from admittance.provisioning.core import ProvisioningCore
from admittance.provisioning.observed_state import Name, ProviderHeartbeats, slot_of
from admittance.provisioning.records import Record
from admittance.provisioning.steps import RequestSlot
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import BusRefused, BusUnavailable
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import BackgroundTasks, set_within

HEARTBEAT_MAX: Final = 64 * 1024
"""The most bytes of a heartbeat; larger heartbeats are ignored."""
CLASSES_MAX: Final = 10_000
"""The most provisioning classes with heartbeats; heartbeats of further classes are ignored."""
ANSWER_SECONDS: Final = 2.0
IS_THERE_SECONDS: Final = 1.0
"""How long a provider has to answer that it is there."""
AT_ONCE: Final = 32
"""The most queries to one provider that are in flight at once."""
LATE_SECONDS: Final = 5.0
"""If the monitor wakes up later than planned by more than this time, the process was suspended and
has missed heartbeats.
"""
PREFIX: Final = len(ALIVE_PROVISIONING)

log = structlog.get_logger()
_read_heartbeat = Reader(ProviderAlive)
_read_reply = Reader(ProviderReply)


class AnswerHandler(Protocol):
    """Takes the answers of providers that the provider monitor has queried."""

    async def apply_answers(self, answers: Sequence[ProvisioningStatus], /) -> object: ...

    async def note_unreadable(self, workload: Name, provisioning_class: str, why: str, /) -> None:
        """Adds a note to the workload's capacity request that an answer of the provider cannot be
        decoded."""
        ...

    def send_again(self, slot: RequestSlot, request_id: str, /) -> None:
        """Sends a capacity request again, because the provider does not know the request."""
        ...


def _log_failed_query(task: asyncio.Task[Any], error: BaseException) -> None:
    # A failed query does no harm: the provider's durable consumer still has the requests.
    log.error("query_failed", task=task.get_name(), error=str(error), exc_info=error)


class ProviderMonitor:
    """Watches the providers by their heartbeats. ``changed``: a function that is called when an
    AdmissionCheck becomes active or inactive. ``handler``: the object that takes the providers'
    answers to queries.
    """

    def __init__(
        self,
        bus: Bus,
        controller: AdmissionCheckController,
        core: ProvisioningCore,
        settings: Settings,
        changed: Callable[[], None],
        handler: AnswerHandler,
    ) -> None:
        self._bus = bus
        self._controller = controller
        self._core = core
        self._changed = changed
        self._heartbeats = ProviderHeartbeats(settings.beat_seconds)
        self._wake = asyncio.Event()
        self._restarted: dict[str, None] = {}
        self._troubles: dict[str, tuple[str, str]] = {}
        self._queries = BackgroundTasks(_log_failed_query)
        self._handler = handler

    def reevaluate(self) -> None:
        """Causes all AdmissionChecks to be evaluated again; called when checks, configurations or
        flavors have changed."""
        self._wake.set()

    async def run(self, loaded: asyncio.Event) -> None:
        """Listens to heartbeats until cancelled."""
        await loaded.wait()
        now = clock.monotonic()
        for check in self._core.observed.checks.values():
            conditions = check.status.conditions if check.status is not None else ()
            config = self._core.observed.config_of(check.metadata.name)
            if config is not None and any(
                condition.reason == reasons.PROVIDER_DOWN for condition in conditions
            ):
                self._heartbeats.expect(config.provisioning_class_name, now)
        subscription = await self._bus.nc.listen(f"{ALIVE_PROVISIONING}*", self.on_heartbeat)
        self._bus.reconnected.append(self._on_reconnected)
        try:
            while True:
                self._wake.clear()
                self._report_changes()
                now = clock.monotonic()
                loss = self._heartbeats.next_loss(now)
                seconds = None if loss is None else max(0.05, loss - now)
                await set_within(self._wake, seconds)
                if seconds is not None and clock.monotonic() > now + seconds + LATE_SECONDS:
                    self._on_reconnected()
        finally:
            self._bus.reconnected.remove(self._on_reconnected)
            await self._bus.nc.unlisten(subscription)
            self._queries.cancel()

    def _on_reconnected(self) -> None:
        self._heartbeats.restart_limits(clock.monotonic())
        self._wake.set()

    def on_heartbeat(self, subject: bytes, _reply: bytes, data: bytes, _headers: bytes) -> None:
        """Records the heartbeat of a provider. An unreadable or too large heartbeat is ignored, as
        if it had not been sent.
        """
        try:
            name = plain(subject[PREFIX:].decode())
            known = self._heartbeats.knows(name)
            if len(data) > HEARTBEAT_MAX or not (data or known):
                return  # an empty message does not make a provisioning class known
            heartbeat = _read_heartbeat(data) if data else ProviderAlive()
        except (Unreadable, UnicodeError, BadToken):
            return
        if not known and len(self._heartbeats.classes()) >= CLASSES_MAX:
            return
        if self._heartbeats.record(name, heartbeat, clock.monotonic()):
            self._restarted[name] = None
        self._wake.set()

    def _report_changes(self) -> None:
        """Reports AdmissionChecks that became active or inactive, and queries providers that
        restarted.
        """
        observed, now = self._core.observed, clock.monotonic()
        for name in self._heartbeats.classes():
            why = self._heartbeats.trouble(name, now)
            if why is None:
                observed.down.pop(name, None)
            else:
                observed.down[name] = why
        for check in observed.checks:
            trouble = observed.trouble(check)
            reported = (trouble.reason, trouble.message) if trouble is not None else ("", "")
            if self._troubles.get(check, ("", "")) == reported:
                continue
            self._troubles[check] = reported
            if trouble is None:
                self._controller.active(check)
            else:
                self._controller.inactive(trouble.message, reason=trouble.reason, check=check)
            log.info("check_active", check=check, active=trouble is None, why=reported[1])
            observed.touch([check])
            self._changed()
        restarted, self._restarted = self._restarted, {}
        for name in restarted:
            records = self._core.records_of_class(name)
            if records:
                self._queries.start(self._query(name, records), name=f"query {name}")

    async def answering(self, data: bytes, _: str) -> ProvidersReply:
        """Answers for which classes a provider answers queries. People outside ask this service,
        because built-in providers are in its account and other providers in theirs."""
        asked = msgspec.json.decode(data, type=Providers)
        names = [name for name in dict.fromkeys(asked.classes) if name]
        if len(names) > CLASSES_ASKED_MAX:
            return ProvidersReply(error=f"at most {CLASSES_ASKED_MAX} classes at once")
        query = encode(ProviderQuery(id="is a provider there"))
        replies = await asyncio.gather(
            *(
                self._bus.request(f"admit.api.provider.{token(name)}", query, IS_THERE_SECONDS)
                for name in names
            ),
            return_exceptions=True,
        )
        there: list[str] = []
        for name, reply in zip(names, replies, strict=True):
            if isinstance(reply, BusUnavailable | BusRefused):
                continue
            if isinstance(reply, BaseException):
                raise reply
            there.append(name)
        return ProvidersReply(answering=tuple(there))

    async def _query(self, provisioning_class: str, records: list[Record]) -> None:
        """Queries a provider for the state of its requests, `AT_ONCE` requests at a time. The
        answers are applied in the order of ``records``, the records of these requests.
        """
        subject = f"admit.api.provider.{token(provisioning_class)}"
        for start in range(0, len(records), AT_ONCE):
            part = records[start : start + AT_ONCE]
            queries = [encode(ProviderQuery(id=record.spec.id)) for record in part]
            replies = await asyncio.gather(
                *(self._bus.request(subject, query, ANSWER_SECONDS) for query in queries),
                return_exceptions=True,
            )
            answers: list[ProvisioningStatus] = []
            is_away, unreadable = False, 0
            for record, message in zip(part, replies, strict=True):
                if isinstance(message, BusUnavailable | BusRefused):
                    # The provider serves no queries now: it will read the requests from its durable
                    # consumer and answer them.
                    is_away = True
                    continue
                if isinstance(message, BaseException):
                    raise message
                try:
                    reply = reply_of(message)
                    fact = status_of(record, reply)
                except Undecodable as error:
                    why = str(error)
                    log.warning("answer_unreadable", provisioning_class=provisioning_class, why=why)
                    workload = record.metadata.namespace, record.spec.workload
                    await self._handler.note_unreadable(workload, provisioning_class, why)
                    unreadable += 1
                    continue
                if reply.error:
                    continue
                if not reply.known:
                    self._handler.send_again(slot_of(record), record.spec.id)
                elif fact is not None:
                    answers.append(fact)
            if answers:
                await self._handler.apply_answers(answers)
            if is_away or unreadable == len(part):
                return


def reply_of(data: bytes) -> ProviderReply:
    """Decodes a provider's reply to a query. Raises Undecodable if the reply is not valid."""
    try:
        return _read_reply(data)
    except Unreadable as error:
        raise Undecodable(str(error)) from error


def status_of(record: Record, reply: ProviderReply) -> ProvisioningStatus | None:
    """The status of a request in the provider's reply; None if the provider has not given the
    request a status yet. Raises Undecodable if the status is not valid.
    """
    kind = PROVISIONING_FACTS.get(reply.status)
    if kind is None or not issubclass(kind, ProvisioningStatus):
        return None
    if why := too_deep("podSetUpdates", [update.tolerations for update in reply.pod_set_updates]):
        raise Undecodable(why)
    replied = msgspec.to_builtins(reply)
    fields = {name: value for name, value in replied.items() if name not in ("status", "known")}
    common = {
        "namespace": record.metadata.namespace,
        "name": record.spec.workload,
        "uid": record.spec.uid,
        "provisioningClass": record.spec.provisioning_class_name,
        "id": record.spec.id,
    }
    return msgspec.convert({**fields, **common}, kind)
