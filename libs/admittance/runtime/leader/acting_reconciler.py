"""`ActingReconciler`: watches the bucket, and publishes the acts of a core (`admittance.acts`).

The variant-controller and the array-controller are such services. One instance is active; the
others stand by. A stale leader does no harm: its facts are requests, and the workload-controller
applies the rules itself before it grants a request.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import ClassVar, Final, Generic, Protocol, TypeVar

import structlog

from admittance.acts import STUCK, Act
from admittance.backoff import Backoff
from admittance.events.base import HEADER_MSG_ID, HEADER_SCHEMA, SCHEMA_VERSION, Fact
from admittance.events.codec import encode
from admittance.events.subjects import WorkloadName, subject_of, workload_name
from admittance.object_errors import ObjectError
from admittance.runtime import clock
from admittance.runtime.bus.bucket import Entry, apply_each, follow_bucket
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.messages import known_secret, message_id
from admittance.runtime.errors import AdmittanceError, BusRefused, BusUnavailable, is_temporary
from admittance.runtime.nats import micro
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import set_before, task_group, until_returned
from admittance.runtime.telemetry.logger import LogThrottle
from admittance.runtime.telemetry.object_faults import faults
from admittance.runtime.telemetry.tracing import extract, inject, trace_id

SECRET_PAUSE_SECONDS: Final = 0.5

log = structlog.get_logger()


class ActingCore(Protocol):
    """A core that computes acts for parents of workloads, such as families and arrays."""

    @property
    def unreadable(self) -> Mapping[WorkloadName, str]:
        """The parents with acts that cannot be computed, each with the reason."""

    def acts(self, now: datetime) -> list[Act]:
        """Returns the acts to publish now, in order."""

    def stated(self, fact: Fact, sequence: int) -> None:
        """Records that the log has stored the act at ``sequence``."""

    def failed(self, fact: Fact, now: datetime) -> None:
        """Records that publishing the act failed, or that the outcome is unknown."""

    def wake(self) -> datetime | None:
        """Returns when to call `acts` next if nothing changes until then; None: never."""

    def __contains__(self, name: object) -> bool: ...

    def __len__(self) -> int: ...


Core = TypeVar("Core", bound=ActingCore)


class ActingReconciler(ABC, Generic[Core]):
    """Publishes the acts of ``core``. ``epoch``: the epoch of this instance's leadership.
    ``stated`` counts this instance's facts that the bus has acknowledged.

    A subclass says: ``service``, its name; ``patterns``, the keys of the bucket that it reads;
    ``parent``, the word for a parent of workloads, ``child`` for one of its workloads;
    ``events``: the log event of each kind of fact, of those that are logged."""

    service: ClassVar[str]
    patterns: ClassVar[tuple[str, ...]]
    parent: ClassVar[str]
    parents: ClassVar[str]
    child: ClassVar[str]
    events: ClassVar[Mapping[type[Fact], str]]

    def __init__(
        self, bus: Bus, settings: Settings, core: Core, epoch: int, errors: list[ObjectError]
    ) -> None:
        self._errors = errors
        self._bus = bus
        self._settings = settings
        self.core = core
        self.stated = 0
        self.ready = False
        self._epoch = epoch
        self._serial = 0
        self._traces: dict[tuple[str, str], str] = {}
        self._logged_unreadable: set[WorkloadName] = set()
        self._loaded = asyncio.Event()
        self._changed = asyncio.Event()
        self._serving: micro.Serving | None = None
        self._throttle = LogThrottle()

    @abstractmethod
    def apply(self, entry: Entry) -> None:
        """Applies an entry of the bucket to the core."""

    @abstractmethod
    def set_aside(self, entry: Entry) -> None:
        """Records in the core that an entry of the bucket cannot be read."""

    @abstractmethod
    def parent_of(self, fact: Fact) -> WorkloadName | None:
        """The parent that an act is about; None: the core does not know it any more."""

    async def prepare(self) -> None:
        """Called before acts are computed."""

    @abstractmethod
    def endpoints(self) -> Mapping[str, micro.Handler]:
        """The requests that the active instance answers, by subject."""

    async def run(self) -> None:
        """Watches the bucket and publishes facts until cancelled. Raises the error of the first
        task that fails."""
        async with task_group() as tasks:
            tasks.create_task(self._watch(), name="bucket")
            tasks.create_task(self._publish_acts(), name="ordering")

    async def close(self) -> None:
        """Stops answering requests."""
        self.ready = False
        serving, self._serving = self._serving, None
        if serving is not None:
            await serving.stop()

    # The bucket. --------------------------------------------------------------------

    async def _watch(self) -> None:
        await follow_bucket(self._bus, self.patterns, self._apply_batch, self._on_loaded)

    def _apply_batch(self, entries: Sequence[Entry]) -> None:
        apply_each(entries, self.apply, self.set_aside, service=self.service)
        self._changed.set()

    def _on_loaded(self, revision: int) -> None:
        self._loaded.set()
        log.info(f"{self.parents}_known", through=revision, **{self.parents: len(self.core)})

    def trace(self, entry: Entry) -> None:
        """Keeps the trace of a parent for the facts about its workloads."""
        name = workload_name(entry.key)
        context = extract(entry.headers)
        if context and name in self.core:
            self._traces[name] = context
        elif name in self._traces and name not in self.core:
            del self._traces[name]

    # Orders. ------------------------------------------------------------------------

    async def _publish_acts(self) -> None:
        # Nothing is published before the whole bucket is read: until then workloads may seem to
        # have no parent.
        await self._loaded.wait()
        secret = await self._secret()
        while True:
            # The event ``_changed`` is cleared before publishing, so that a change of the bucket
            # during publishing causes another round.
            self._changed.clear()
            await self.prepare()
            while acts := self.core.acts(clock.now()):
                await self._publish(acts, secret)
            faults.record_all(self.service, self._errors)
            self._errors.clear()
            self._log_unreadable()
            if self._serving is None:
                await self._serve()
            await set_before(self._changed, self.core.wake())

    def _log_unreadable(self) -> None:
        unreadable = self.core.unreadable
        for name in unreadable.keys() - self._logged_unreadable:
            log.warning(
                f"{self.parent}_unreadable",
                namespace=name.namespace,
                error=unreadable[name],
                **{self.parent: name.name},
            )
        self._logged_unreadable = set(unreadable)

    async def _secret(self) -> bytes:
        throttle = LogThrottle()

        def failed(error: AdmittanceError, _: float) -> None:
            if not is_temporary(error):
                raise error
            if throttle.due(clock.monotonic()):
                log.warning("secret_missing", error=str(error))

        backoff = Backoff(SECRET_PAUSE_SECONDS, SECRET_PAUSE_SECONDS)
        return await until_returned(
            lambda: known_secret(self._bus), backoff, failed, on=(BusUnavailable, BusRefused)
        )

    async def _serve(self) -> None:
        self._serving = await micro.serve(
            self._bus.nc, self.service, self._settings.instance, self.endpoints()
        )
        self.ready = True
        log.info("serving", **{self.parents: len(self.core)})

    async def _publish(self, acts: list[Act], secret: bytes) -> None:
        now = clock.now()
        messages: list[Outgoing] = []
        said: list[Act] = []
        for act in acts:
            try:
                messages.append(self._message(act, secret))
                said.append(act)
            except Exception as error:
                about = f"workload {act.fact.namespace}/{act.fact.name}"
                faults.record(self.service, f"publish an act of {self.parents}", about, error)
                self.core.failed(act.fact, now)
        outcomes = await self._bus.publish_each(messages)
        now = clock.now()
        failed: dict[str, int] = {}
        for act, outcome in zip(said, outcomes, strict=True):
            if isinstance(outcome, int):
                self.stated += 1
                self._throttle = LogThrottle()
                self.core.stated(act.fact, outcome)
                continue
            self.core.failed(act.fact, now)
            failed[str(outcome)] = failed.get(str(outcome), 0) + 1
        if failed and self._throttle.due(clock.monotonic()):
            for reason, count in failed.items():
                log.warning("facts_not_published", error=reason, count=count)

    def _message(self, act: Act, secret: bytes) -> Outgoing:
        fact = act.fact
        parent = self.parent_of(fact)
        trace = self._traces.get(parent, "") if parent is not None else ""
        event = self.events.get(type(fact))
        if event is not None:
            log.log(
                logging.WARNING if act.tries >= STUCK else logging.INFO,
                event,
                namespace=fact.namespace,
                why=act.why,
                trace=trace_id(trace),
                **{self.parent: parent.name if parent is not None else "", self.child: fact.name},
                **({"without_effect": act.tries} if act.tries else {}),
            )
        # Each fact gets a new message id: the bus drops a message that the client sends twice after
        # a lost connection, but keeps a fact that is published again because it had no effect.
        self._serial += 1
        said = message_id(secret, self.service, self._epoch, self._serial)
        headers = {HEADER_MSG_ID: said, HEADER_SCHEMA: SCHEMA_VERSION}
        return Outgoing(subject_of(fact), encode(fact), inject(headers, trace))
