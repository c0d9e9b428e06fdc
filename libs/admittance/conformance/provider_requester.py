"""Sends requests to a provider, as the provisioning check does, and finds the faults of each status
that the provider publishes: wrong fields, or a status that cannot follow the request's earlier
statuses.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

from admittance.api.meta import ObjectMeta
from admittance.client.requests.queues.capacity import ask_provider
from admittance.conformance.requester import (
    Fault,
    ParsedMessage,
    ProgramKind,
    ReceivedMessage,
    Requester,
    delay_faults,
    missing,
    object_of,
    quoted,
    update_faults,
    workload_in,
    wrong_names,
    wrong_subject,
)
from admittance.events import reasons
from admittance.events.base import MESSAGE_MAX, too_long
from admittance.events.names import token
from admittance.events.provisioning import ProvisioningFailed, ProvisioningStatus
from admittance.events.requests.services import ProviderReply
from admittance.events.subjects import ALIVE_PROVISIONING, ASKED, PROVISIONING_FACTS
from admittance.events.system import ProviderAlive
from admittance.provisioning.records import (
    DETAILS_MAX,
    Record,
    RecordSpec,
    apply_status,
    request_id,
)
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.durables import provider_durables

WORDS: Final = tuple(word for word in PROVISIONING_FACTS if word not in ASKED)
FIELDS: Final = ("namespace", "name", "id")


class CapacityRequestKey(NamedTuple):
    """Identifies a capacity request that the conformance test sent. ``pod_sets``: the names of the
    pod sets of the request's workload.
    """

    provisioning_class: str
    namespace: str
    name: str
    uid: str
    check: str
    cycle: int
    attempt: int = 1
    pod_sets: tuple[str, ...] = ("main",)

    @property
    def id(self) -> str:
        """The id of the capacity request, by which the provider knows the request."""
        return request_id(self.uid, self.check, self.cycle, self.attempt)


class StatusMessage(NamedTuple):
    """A status that a provider published. ``word``: the word for the status in the subject of the
    message, such as provisioned.
    """

    word: str
    fact: ProvisioningStatus


def subject_for(request: CapacityRequestKey, word: str) -> str:
    """Returns the subject of a message about the request. ``word``: a status, or requested, or
    cancelled.
    """
    tail = f"{token(request.namespace)}.{token(request.name)}"
    return f"admit.provisioning.{word}.{token(request.provisioning_class)}.{tail}"


def parse_status(
    subject: str, data: bytes, request: CapacityRequestKey | None
) -> ParsedMessage[StatusMessage]:
    """Returns the decoded status in a message, and the faults of the message. ``request``: the
    request that the message is about; None if unknown.
    """
    content = object_of(data)
    if isinstance(content, Fault):
        return ParsedMessage(None, (content,))
    parts = subject.split(".")
    word = parts[2] if len(parts) > 2 else ""
    if word not in WORDS:
        why = f"published on {subject}: the statuses are {', '.join(WORDS)}"
        return ParsedMessage(None, (Fault("subject", why),))
    faults = missing(content, FIELDS)
    faults += delay_faults(content.get("retryAfter"), word, "failed")
    try:
        kind: Any = PROVISIONING_FACTS[word]
        fact: ProvisioningStatus = msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        if not faults:
            case = "details" if "$.details" in str(error) else "json"
            faults.append(Fault(case, f"sent {quoted(data)}: {error}"))
        return ParsedMessage(None, tuple(faults))
    faults += _details(fact)
    faults += wrong_subject(subject, None if request is None else subject_for(request, word))
    if request is None:
        return ParsedMessage(StatusMessage(word, fact), tuple(faults))
    faults += wrong_names(
        (
            ("id", fact.id, request.id),
            ("namespace", fact.namespace, request.namespace),
            ("name", fact.name, request.name),
            ("uid", fact.uid or request.uid, request.uid),
            (
                "provisioningClass",
                fact.provisioning_class or request.provisioning_class,
                request.provisioning_class,
            ),
        )
    )
    faults += update_faults(fact.pod_set_updates, request.pod_sets, word, needed="provisioned")
    return ParsedMessage(StatusMessage(word, fact), tuple(faults))


def _details(fact: ProvisioningStatus) -> list[Fault]:
    faults = []
    if why := _too_much(fact):
        faults.append(Fault("details", f"{why}: such a status is ignored"))
    if len(fact.message) > MESSAGE_MAX:
        why = f"sent a message of {len(fact.message)} characters: the maximum is {MESSAGE_MAX}"
        faults.append(Fault("details", why))
    return faults


def _too_much(fact: ProvisioningStatus) -> str:
    """Says which size limit the status of a provider exceeds; empty if the status exceeds
    no limit.
    """
    if len(fact.details) > DETAILS_MAX:
        return f"sent {len(fact.details)} details; the maximum is {DETAILS_MAX}"
    return too_long("details", fact.details) or too_long("podSetUpdates", fact.pod_set_updates)


class History:
    """The statuses that the provider has published for one request, and the record that the
    provisioning check would make from them.
    """

    def __init__(self, request: CapacityRequestKey) -> None:
        self._asked = request
        self._said: set[tuple[Any, ...]] = set()
        self._record = Record(
            api_version="",
            kind="",
            metadata=ObjectMeta(name=request.name, namespace=request.namespace),
            spec=RecordSpec(
                id=request.id,
                workload=request.name,
                uid=request.uid,
                check=request.check,
                cycle=request.cycle,
                attempt=request.attempt,
                provisioning_class_name=request.provisioning_class,
            ),
        )

    def add(self, status: StatusMessage, now: datetime) -> tuple[Fault, ...]:
        """Adds a status of the provider; returns a fault if the provisioning check would ignore the
        status. A repeated status is not a fault.
        """
        fact = status.fact
        content = (status.word, fact.seq, content_of(status))
        if fact.id != self._asked.id or content in self._said:
            return ()
        self._said.add(content)
        before = str(self._record.status.state)
        taken = apply_status(self._record, fact, now)
        self._record = taken.record
        if not taken.ignored or taken.ignored == "repeated answer":
            return ()
        if taken.ignored.startswith("its seq"):
            why = f"sent {status.word} with seq {fact.seq} after {before}: {taken.ignored}"
            return (Fault("seq", why),)
        if _too_much(fact):
            return ()  # `parse_status` reports a status above a size limit
        return (Fault("order", f"sent {status.word} after {before}: it is ignored"),)


def content_of(status: StatusMessage) -> tuple[Any, ...]:
    """Returns the content of a status without the time of publishing and the status number, so that
    repeats of one status have equal content.
    """
    fact = status.fact
    failed = fact if isinstance(fact, ProvisioningFailed) else None
    return (
        status.word,
        fact.id,
        fact.message,
        tuple(sorted(fact.details.items())),
        msgspec.json.encode(fact.pod_set_updates),
        failed.retryable if failed is not None else None,
        failed.retry_after if failed is not None else None,
    )


def reply_faults(
    request_id: str, data: bytes | None, expected: Collection[str], *, known: bool = True
) -> list[str]:
    """Says what is wrong with a provider's reply to a query about a request. ``expected``: the
    statuses that are valid in the reply. ``known`` False: the request was never sent, so the
    provider cannot know it.
    """
    query = f"to the query about {request_id} it replied"
    if data is None:
        return [f"{query} nothing, although it replied before"]
    try:
        reply = msgspec.json.decode(data, type=ProviderReply)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return [f"{query} {quoted(data)}: {error}"]
    if reply.error:
        return []
    faults = []
    if reply.id not in ("", request_id):
        faults.append(f"{query} about {reply.id}")
    if not known and reply.known:
        faults.append(f"{query} known: true; with known: false it gets the request again")
    if (reply.known or not known) and reply.status not in expected:
        may = " or ".join(repr(status) for status in sorted(expected))
        faults.append(f"{query} {reply.status!r} instead of {may}")
    return faults


CYCLE: Final = 7
DEADLINE: Final = timedelta(minutes=30)
QUERY_SECONDS: Final = 2.0
OWN: Final = ("admit.provisioning.requested.", "admit.provisioning.cancelled.")

ProviderAnswer = ReceivedMessage[CapacityRequestKey, StatusMessage]
KIND: Final = ProgramKind(
    "provider-test", provider_durables, "admit.provisioning.>", ALIVE_PROVISIONING, ProviderAlive
)


class RequestShape(NamedTuple):
    """The content that all requests of the test share. ``requests``: the quantity of each resource
    that one pod requests.
    """

    pods: int = 1
    requests: Mapping[str, str] = {"cpu": "1"}
    node_selector: Mapping[str, str] = {}
    parameters: Mapping[str, str] = {}


class ProviderRequester(Requester[CapacityRequestKey, StatusMessage]):
    """Sends capacity requests to one provider and records the messages that the provider sends."""

    def __init__(self, bus: Bus, provisioning_class: str, shape: RequestShape) -> None:
        super().__init__(bus, KIND, provisioning_class)
        self.shape = shape
        self._sent: dict[str, CapacityRequestKey] = {}
        self._payloads: dict[CapacityRequestKey, dict[str, Any]] = {}
        self._histories: dict[CapacityRequestKey, History] = {}
        self._newest: dict[str, CapacityRequestKey] = {}
        self.cancelled: set[CapacityRequestKey] = set()

    async def withdraw_all(self) -> None:
        left = [request for request in self._sent.values() if request not in self.cancelled]
        await self.cancel(*left, reason=reasons.FINISHED)

    # Requests. ----------------------------------------------------------------------------

    async def send(
        self,
        *names: str,
        attempt: int = 1,
        parameters: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> list[CapacityRequestKey]:
        """Sends one capacity request for each workload name in ``names``. ``parameters``: the
        parameters of these requests; None: those of the test's request shape. ``more``: fields that
        are added to each request, or replace the request's own.
        """
        keys = [self._add(name, attempt) for name in names]
        for key in keys:
            given = self.shape.parameters if parameters is None else parameters
            self._payloads[key] = {**self._request(key, given), **(more or {})}
        await self.send_again(*keys)
        return keys

    async def send_again(self, *requests: CapacityRequestKey) -> None:
        """Sends these capacity requests once more, unchanged."""
        await self._publish(
            "requested", [(request, self._payloads[request]) for request in requests]
        )

    async def cancel(self, *requests: CapacityRequestKey, reason: str) -> None:
        """Cancels requests."""
        self.cancelled.update(requests)
        await self._publish(
            "cancelled",
            [(request, {**self._common(request), "reason": reason}) for request in requests],
        )

    async def cancel_unknown(self, name: str) -> CapacityRequestKey:
        """Makes a request for the workload ``name``, and cancels the request without having sent
        it; `send_again` can send the request later.
        """
        request = self._add(name, 1)
        self._payloads[request] = self._request(request, self.shape.parameters)
        await self.cancel(request, reason=reasons.PREEMPTED)
        return request

    async def publish_garbage(self, name: str, messages: Iterable[bytes]) -> None:
        """Publishes messages that are not requests on the subject of the provider's requests."""
        subject = subject_for(self._request_for(name, 1), "requested")
        await self.publish((subject, data) for data in messages)

    async def query(self, request_id: str) -> bytes | None:
        """Asks the provider about a request. Returns the reply; None if the provider does not
        reply.
        """
        return await ask_provider(self._bus, self.program, request_id, QUERY_SECONDS)

    def _request_for(self, name: str, attempt: int) -> CapacityRequestKey:
        uid = f"uid-{self.namespace}-{name}"
        return CapacityRequestKey(
            self.program, self.namespace, name, uid, "provider-test", CYCLE + attempt - 1, attempt
        )

    def _add(self, name: str, attempt: int) -> CapacityRequestKey:
        request = self._request_for(name, attempt)
        self._sent[request.id] = request
        self._newest[name] = request
        self._histories.setdefault(request, History(request))
        return request

    def _common(self, request: CapacityRequestKey) -> dict[str, Any]:
        return {
            "namespace": request.namespace,
            "name": request.name,
            "uid": request.uid,
            "time": clock.now(),
            "id": request.id,
            "provisioningClass": request.provisioning_class,
            "check": request.check,
            "cycle": request.cycle,
            "attempt": request.attempt,
        }

    def _request(
        self, request: CapacityRequestKey, parameters: Mapping[str, str]
    ) -> dict[str, Any]:
        container = {
            "name": "c",
            "image": "i",
            "resources": {"requests": dict(self.shape.requests)},
        }
        spec = {"containers": [container], "nodeSelector": dict(self.shape.node_selector)}
        pods = {
            "name": "main",
            "names": ["main"],
            "count": self.shape.pods,
            "template": {"spec": spec},
        }
        return {
            **self._common(request),
            "podSets": [pods],
            "parameters": dict(parameters),
            "deadline": clock.now() + DEADLINE,
        }

    async def _publish(
        self, word: str, messages: list[tuple[CapacityRequestKey, dict[str, Any]]]
    ) -> None:
        await self.publish(
            (subject_for(request, word), msgspec.json.encode(payload))
            for request, payload in messages
        )

    # Answers. -----------------------------------------------------------------------------

    def words(self, *requests: CapacityRequestKey) -> list[str]:
        """The words of the statuses, such as provisioned, that the provider sent for these
        requests, in the order received.
        """
        return [
            answer.content.word
            for answer in self.answers_to(*requests)
            if answer.content is not None
        ]

    def concerns_test(self, subject: str, data: bytes) -> bool:
        """Whether a message is about a workload of this test and was not sent by the test."""
        return not subject.startswith(OWN) and super().concerns_test(subject, data)

    def _parse(
        self, subject: str, data: bytes, request: CapacityRequestKey | None
    ) -> ParsedMessage[StatusMessage]:
        content, faults = parse_status(subject, data, request)
        if content is not None and request is not None and request not in self.cancelled:
            faults += self._histories[request].add(content, clock.now())
        return ParsedMessage(content, faults)

    def _request_of(self, subject: str, data: bytes) -> CapacityRequestKey | None:
        """Finds the request that a status message is about: by the request id in the message, else
        by the workload's name in the subject or in the message.
        """
        content: Any = {}
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            content = msgspec.json.decode(data)
        if not isinstance(content, dict):
            content = {}
        by_id = self._sent.get(str(content.get("id")))
        if by_id is not None and content.get("name") in (None, by_id.name):
            return by_id
        return self._newest.get(workload_in(subject)) or self._newest.get(str(content.get("name")))
