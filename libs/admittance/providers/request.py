"""What a provider receives: requests for capacity and cancellations."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from admittance.api.pod_requests import needs
from admittance.api.pods import PodTemplate
from admittance.events.provisioning import ProvisioningRequested
from admittance.events.shapes import PodSetToProvision
from admittance.providers.answers import Status
from admittance.sdk.threads import from_thread


class Cancellation(msgspec.Struct, frozen=True, kw_only=True):
    """A cancelled request: free what was booked for it, if anything. It may be a request that this
    provider never received, and it may come twice."""

    id: str
    namespace: str
    name: str
    uid: str = ""
    reason: str = ""


class PodSet:
    """``count`` equal pods. Each needs ``requests`` (whole numbers: millicores of cpu, bytes,
    pieces). ``template``: the pod template, with the additions of flavors. ``names``: the pod sets
    requested together; ``name`` is the first."""

    def __init__(self, given: PodSetToProvision) -> None:
        self.name = given.name
        self.names = given.names or (given.name,)
        self.count = given.count
        self._raw = bytes(given.template)

    @property
    def template(self) -> PodTemplate:
        """The pod template as a Struct."""
        raw = self._raw if self._raw != b"null" else b"{}"
        return msgspec.json.decode(raw, type=PodTemplate)

    @property
    def manifest(self) -> dict[str, Any]:
        """The pod template as a dict, with the fields that Admittance does not read."""
        raw = self._raw if self._raw != b"null" else b"{}"
        found: dict[str, Any] = msgspec.json.decode(raw)
        return found

    @property
    def requests(self) -> Mapping[str, int]:
        """The resource requests of one pod."""
        raw = self._raw if self._raw != b"null" else b"{}"
        spec = b'{"podSets":[{"name":"main","count":1,"template":%b}]}' % raw
        (found,) = needs(spec).pod_sets
        return dict(found.requests)

    @property
    def node_selector(self) -> Mapping[str, str]:
        """Labels that nodes must have."""
        return self.template.spec.node_selector


class Request:
    """A request for capacity for one workload.

    ``id``: equal for all deliveries of the request: act once for each id. ``deadline``: a request
    that is not provisioned by then is cancelled. ``parameters``: those of the
    ProvisioningRequestConfig and the workload, as a dict of texts or the provider's Struct.
    ``last``: the provider's last status of it; None before the first.
    """

    def __init__(
        self,
        fact: ProvisioningRequested,
        say: Callable[[Status], Awaitable[bool]] | None = None,
        *,
        parameters: Any = None,
        last: str | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """``say``: publishes a status, in ``loop``. None: `say` collects it in ``said``."""
        self.id = fact.id
        self.namespace = fact.namespace
        self.name = fact.name
        self.uid = fact.uid
        self.check = fact.check
        self.cycle = fact.cycle
        self.attempt = fact.attempt
        self.deadline: datetime | None = fact.deadline
        self.provisioning_class = fact.provisioning_class
        self.pod_sets = tuple(map(PodSet, fact.pod_sets))
        self.parameters: Any = dict(fact.parameters) if parameters is None else parameters
        self.last = last
        self.said: list[Status] = []
        """The statuses of `say` without a bus, as in tests."""
        self._say = say
        self._loop = loop

    def total(self, resource: str) -> int:
        """The amount of a resource that all pods need together."""
        return sum(one.count * one.requests.get(resource, 0) for one in self.pod_sets)

    @property
    def pods(self) -> int:
        """The number of pods."""
        return sum(one.count for one in self.pod_sets)

    async def say(self, status: Status) -> bool:
        """Publishes a status while the work continues. False: the request was cancelled."""
        if self._say is None:
            self.said.append(status)
            return True
        return await self._say(status)

    def say_from_thread(self, status: Status) -> bool:
        """`say` for a plain function, which runs in a thread."""
        if self._say is None:
            self.said.append(status)
            return True
        return from_thread(self.say(status), self._loop)

    def __repr__(self) -> str:
        return f"Request({self.id!r}, {self.namespace}/{self.name}, attempt={self.attempt})"
