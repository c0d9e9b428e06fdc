"""Reads the state of admissions from the bucket, and the last ``admitted`` facts of workloads from
the log."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

import msgspec

from admittance.events.codec import Undecodable, decode
from admittance.events.facts import Admitted
from admittance.events.names import token
from admittance.events.placement import runners_of
from admittance.events.reader import SetAside, Unreadable
from admittance.events.requests.base import Reply, Request
from admittance.events.requests.history import Events, EventsReply
from admittance.events.requests.reading import (
    ConsumerReply,
    Objects,
    ObjectsReply,
    RunnerConsumer,
)
from admittance.events.subjects import BUCKET, runner_consumer, workload_key
from admittance.runtime import chance
from admittance.runtime.bus.bucket import Entry, get_directly
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.history import StoredMessage, last_by_direct_get
from admittance.runtime.bus.outside_reads import (
    FirstPart,
    list_objects,
    objects_subject,
    request_in_parts,
)
from admittance.runtime.bus.pull_consumer import MadeConsumer
from admittance.runtime.errors import BusUnavailable
from admittance.runtime.telemetry.logger import log_set_aside
from admittance.runtime.telemetry.object_faults import faults
from admittance.runtime.telemetry.tracing import extract
from admittance.workload.bucket_reader import names_of, read
from admittance.workload.stored import StoredWorkload, head

R = TypeVar("R", bound=Reply)
_encode = msgspec.json.Encoder().encode


class AdmissionState(enum.Enum):
    """The state of one admission of a workload."""

    CURRENT = "current"
    EVICTED = "evicted"
    """The workload was evicted, and the workload-controller waits until the workload's job has
    stopped."""
    OVER = "over"
    """The admission has ended: the workload is finished, released, admitted again later, or
    deleted.
    """


class AdmissionView(NamedTuple):
    """The newest admission of a workload: the revision of the admission (0 if the workload has no
    admission), its state, the revision of the eviction if the workload was evicted, the workload's
    uid, and the ids of the runners to which it is assigned; empty: any runner may start it.
    ``held``: a program holds the quota itself, and no runner starts a job.
    """

    revision: int
    state: AdmissionState
    evicted: int = 0
    uid: str = ""
    runners: tuple[str, ...] = ()
    held: bool = False


def view(workload: StoredWorkload, revision: int) -> AdmissionView:
    """The newest admission of a workload that is stored with the revision ``revision``.

    The bucket gives a revision only at the write, so a workload names the revision of its admission
    (``admitted_revision``) only from its next write on; until then the revision of the workload
    itself is the revision of the admission.
    """
    status = workload.status
    uid = workload.metadata.uid
    true = {each.type for each in status.conditions if each.status == "True"}
    if "Admitted" not in true:
        return AdmissionView(0, AdmissionState.OVER, uid=uid)
    admitted = status.admitted_revision or revision
    runners = runners_of(status.placement)
    held = head(workload).lease_duration_seconds is not None
    if "Finished" in true:
        return AdmissionView(admitted, AdmissionState.OVER, 0, uid, runners, held)
    if "Evicted" in true:
        evicted = status.evicted_revision or revision
        return AdmissionView(admitted, AdmissionState.EVICTED, evicted, uid, runners, held)
    return AdmissionView(admitted, AdmissionState.CURRENT, 0, uid, runners, held)


def view_of(seen: AdmissionView | None, revision: int) -> AdmissionView:
    """The state of a workload's admission at ``revision``; an older admission than the newest is
    over. ``seen``: the workload's newest admission, None if the workload does not exist.
    """
    if seen is None or seen.revision != revision:
        return AdmissionView(revision, AdmissionState.OVER)
    return seen


ASK_AGAIN_SECONDS: Final = 1.0
"""How often a request without an answer is sent again."""
REQUESTS_MAX: Final = 100
"""The most requests to the bus that are in flight at the same time."""


class AdmissionReader:
    """Reads the states of admissions. ``namespaces``: the namespaces of the runner; empty means
    all. Every method raises BusUnavailable if the bus does not answer."""

    def __init__(self, bus: Bus, namespaces: Sequence[str] = ()) -> None:
        self.bus = bus
        self.namespaces = tuple(namespaces)
        self._unanswered: dict[tuple[str, int | None], str] = {}
        """The ids of the requests for consumers that have no answer yet."""

    async def view(self, namespace: str, name: str, *, at_least: int = 0) -> AdmissionView | None:
        """The newest admission of a workload; None if the workload does not exist. ``at_least``: a
        revision that the workload has had: a replica of the bucket that lags is read again, because
        without the newest admission the workload's job would seem to be over."""
        entry = await get_directly(self.bus, workload_key(namespace, name), at_least=at_least)
        if entry is None or entry.value is None:
            return None
        return _view(entry)

    async def is_gone(self, namespace: str, name: str, uid: str) -> bool:
        """Whether the workload with this uid does not exist; a replica that lags may say so of a
        new one."""
        entry = await get_directly(self.bus, workload_key(namespace, name))
        if entry is None or entry.value is None:
            return True
        try:
            return read(entry.key, entry.value).metadata.uid != uid
        except Unreadable:
            return False

    async def views(self, admissions: Sequence[tuple[str, str, int]]) -> list[AdmissionView]:
        """The present state of each admission (namespace, name, revision)."""
        views: list[AdmissionView] = []
        for start in range(0, len(admissions), REQUESTS_MAX):
            part = admissions[start : start + REQUESTS_MAX]
            results = await asyncio.gather(
                *(self.view(ns, name, at_least=revision) for ns, name, revision in part)
            )
            views += [
                view_of(seen, revision)
                for seen, (_, _, revision) in zip(results, part, strict=True)
            ]
        return views

    async def all_views(self) -> dict[tuple[str, str], AdmissionView]:
        """The newest admission of every workload that is or was admitted, by namespace and name."""
        views = {}
        for entry in await self._workloads():
            # Most workloads of a long queue were never admitted, so their entries are not decoded.
            if entry.value is None or b'"Admitted"' not in entry.value:
                continue
            seen = _view(entry)
            if seen is not None and seen.revision:
                views[names_of(entry.key)] = seen
        return views

    async def _workloads(self) -> list[Entry]:
        entries: list[Entry] = []
        for namespace in self.namespaces or (None,):
            ask = partial(self._ask_objects, objects_subject(namespace))
            entries += await list_objects(self.bus, ask, "workload")
        return entries

    async def last_admitted(
        self, namespace: str, name: str, fits: Callable[[int], bool] = lambda _: True
    ) -> tuple[Admitted, str] | None:
        """The workload's newest ``admitted`` fact on the log with a revision that ``fits`` accepts,
        and the fact's trace. Skips messages that cannot be read or have another revision: if such a
        message hid an older fact, the job would never start.
        """
        subject = f"admit.workload.admitted.{token(namespace)}.{token(name)}"
        newest = await last_by_direct_get(self.bus, subject)
        if newest is None:
            return None
        admitted = _admitted(newest, fits)
        if admitted is not None:
            return admitted
        after = 0
        while True:
            request = Events(workload=name, after=after)
            page = await self._ask(f"admit.api.events.{token(namespace)}", request, EventsReply)
            for entry in page.entries:
                if entry.subject == subject:
                    said = StoredMessage(
                        entry.sequence, entry.time, entry.subject, bytes(entry.data)
                    )
                    admitted = _admitted(said, fits) or admitted
            if page.complete or page.covered() <= after:
                return admitted
            after = page.covered()

    async def make_consumer(self, runner: str, stream: str, after: int | None) -> MadeConsumer:
        """Asks the workload-controller to delete this runner's consumer and to make it again.
        ``stream``: the stream of the consumer, ``log`` or ``claims``. A request without an answer
        in time has the same id when it is sent again: the controller may be busy with it, and a
        new id would make it begin anew."""
        subject = runner_consumer(runner, self.namespaces)
        need = stream, after
        request = RunnerConsumer(
            stream=stream, after=after, id=self._unanswered.get(need) or chance.token_hex(6)
        )
        self._unanswered[need] = request.id
        made = await self._ask(subject, request, ConsumerReply)
        self._unanswered.pop(need, None)
        return MadeConsumer(made.consumer, made.after, made.pending, made.last)

    async def _ask_objects(
        self, subject: str, request: Objects, on_first: FirstPart
    ) -> list[ObjectsReply]:
        data = _encode(request)
        parts = await request_in_parts(self.bus, subject, data, ObjectsReply, on_first=on_first)
        if parts[0].error:
            raise BusUnavailable(
                f"the workload-controller did not list objects ({subject}): {parts[0].error}"
            )
        return parts

    async def _ask(self, subject: str, request: Request, reply: type[R]) -> R:
        answer = await self.bus.request(subject, _encode(request), every=ASK_AGAIN_SECONDS)
        answered = msgspec.json.decode(answer, type=reply)
        if answered.error:
            raise BusUnavailable(
                f"the workload-controller refused the request {subject}: {answered.error}"
            )
        return answered


def _admitted(said: StoredMessage, fits: Callable[[int], bool]) -> tuple[Admitted, str] | None:
    try:
        fact = decode(said.subject, said.data)
    except Undecodable:
        return None
    if not isinstance(fact, Admitted) or not fits(fact.revision):
        return None
    return fact, extract(said.headers)


def _view(entry: Entry) -> AdmissionView | None:
    try:
        return view(read(entry.key, entry.value or b""), entry.revision)
    except Unreadable as error:
        # A workload that cannot be decoded is skipped; the workload-controller treats the workload
        # as unreadable, too.
        log_set_aside(SetAside(f"KV_{BUCKET}", entry.key, entry.revision, str(error)))
        return None
    except Exception as error:
        faults.record("runner", "read a workload", entry.key, error)
        return None
