"""Sends requests to a provider, as the provisioning check does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, NamedTuple

import msgspec

from admittance.conformance.faults import ParsedMessage
from admittance.conformance.providers.messages import (
    CapacityRequestKey,
    History,
    StatusMessage,
    parse_status,
    subject_for,
)
from admittance.conformance.requester import (
    ProgramKind,
    ReceivedMessage,
    Requester,
    workload_in,
)
from admittance.events.codec import encode
from admittance.events.names import token
from admittance.events.requests import ProviderQuery
from admittance.events.subjects import ALIVE_PROVISIONING
from admittance.events.system import ProviderAlive
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.durables import provider_durables
from admittance.runtime.errors import Unavailable

CYCLE: Final = 7
DEADLINE: Final = timedelta(minutes=30)
QUERY_SECONDS: Final = 2.0
OWN: Final = ("admit.provisioning.requested.", "admit.provisioning.cancelled.")

ProviderAnswer = ReceivedMessage[CapacityRequestKey, StatusMessage]
KIND: Final = ProgramKind(
    "provider-test", provider_durables, "admit.provisioning.>", ALIVE_PROVISIONING, ProviderAlive
)


class RequestShape(NamedTuple):
    """The content that all requests of the test share. ``requests``: the quantities by resource of
    each pod.
    """

    pods: int = 1
    requests: Mapping[str, str] = {"cpu": "1"}
    node_selector: Mapping[str, str] = {}
    parameters: Mapping[str, str] = {}


class ProviderRequester(Requester[CapacityRequestKey, StatusMessage]):
    """Sends requests to one provider and records its messages."""

    def __init__(self, bus: Bus, provisioning_class: str, shape: RequestShape) -> None:
        super().__init__(bus, KIND, provisioning_class)
        self.shape = shape
        self._sent: dict[str, CapacityRequestKey] = {}
        self._payloads: dict[CapacityRequestKey, dict[str, Any]] = {}
        self._histories: dict[CapacityRequestKey, History] = {}
        self._newest: dict[str, CapacityRequestKey] = {}
        self.cancelled: set[CapacityRequestKey] = set()

    async def withdraw_all(self) -> None:
        left = [one for one in self._sent.values() if one not in self.cancelled]
        await self.cancel(*left, reason="Finished")

    # Requests. ----------------------------------------------------------------------------

    async def send(
        self,
        *names: str,
        attempt: int = 1,
        parameters: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> list[CapacityRequestKey]:
        """Sends requests for workloads with these names. ``parameters``: replace the parameters of
        the shape. ``more``: further fields of the requests.
        """
        keys = [self._add(name, attempt) for name in names]
        for one in keys:
            given = self.shape.parameters if parameters is None else parameters
            self._payloads[one] = {**self._request(one, given), **(more or {})}
        await self.send_again(*keys)
        return keys

    async def send_again(self, *requests: CapacityRequestKey) -> None:
        """Sends these capacity requests once more, unchanged."""
        await self._publish("requested", [(one, self._payloads[one]) for one in requests])

    async def cancel(self, *requests: CapacityRequestKey, reason: str) -> None:
        """Cancels requests."""
        self.cancelled.update(requests)
        await self._publish(
            "cancelled", [(one, {**self._common(one), "reason": reason}) for one in requests]
        )

    async def cancel_unknown(self, name: str) -> CapacityRequestKey:
        """Cancels a request that was not sent; `send_again` sends it afterwards."""
        request = self._add(name, 1)
        self._payloads[request] = self._request(request, self.shape.parameters)
        await self.cancel(request, reason="Preempted")
        return request

    async def publish_garbage(self, name: str, messages: Iterable[bytes]) -> None:
        """Publishes bytes on the subject of capacity requests."""
        subject = subject_for(self._request_for(name, 1), "requested")
        await self.publish((subject, data) for data in messages)

    async def query(self, request_id: str) -> bytes | None:
        """The reply to a query about a request; None if nothing replies."""
        subject = f"admit.api.provider.{token(self.program)}"
        try:
            return await self._bus.request(
                subject, encode(ProviderQuery(id=request_id)), QUERY_SECONDS
            )
        except Unavailable:
            return None

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
            (subject_for(one, word), msgspec.json.encode(payload)) for one, payload in messages
        )

    # Answers. -----------------------------------------------------------------------------

    def words(self, *requests: CapacityRequestKey) -> list[str]:
        """The status words that the provider sent for these requests, in order."""
        return [one.content.word for one in self.answers_to(*requests) if one.content is not None]

    def concerns_test(self, subject: str, data: bytes) -> bool:
        """Whether a message is about this test; also False for messages that the test itself
        sent.
        """
        return not subject.startswith(OWN) and super().concerns_test(subject, data)

    def _parse(
        self, subject: str, data: bytes, request: CapacityRequestKey | None
    ) -> ParsedMessage[StatusMessage]:
        content, faults = parse_status(subject, data, request)
        if content is not None and request is not None and request not in self.cancelled:
            faults += self._histories[request].add(content, clock.now())
        return ParsedMessage(content, faults)

    def _request_of(self, subject: str, data: bytes) -> CapacityRequestKey | None:
        """Finds the request by the id in the message, else by the workload in the subject or in the
        message.
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
