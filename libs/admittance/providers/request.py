"""What a provider is asked."""

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
    """Free what was booked for that request, if anything was: it may be one that nobody here has
    heard of, and it may come twice."""

    id: str
    namespace: str
    name: str
    uid: str = ""
    reason: str = ""


class PodSet:
    """Pods of one shape: ``count`` of them, each needs ``requests`` (whole numbers: thousandths of
    cpu, bytes, pieces). ``template``: the pod template, with what flavors add to it. ``names``: the
    pod sets that are asked for together, of which ``name`` is the first."""

    def __init__(self, given: PodSetToProvision) -> None:
        self.name = given.name
        self.names = given.names or (given.name,)
        self.count = given.count
        self._raw = bytes(given.template)

    @property
    def template(self) -> PodTemplate:
        """Typed."""
        raw = self._raw if self._raw != b"null" else b"{}"
        return msgspec.json.decode(raw, type=PodTemplate)

    @property
    def manifest(self) -> dict[str, Any]:
        """The template as it was written, with every field that Admittance does not read."""
        raw = self._raw if self._raw != b"null" else b"{}"
        found: dict[str, Any] = msgspec.json.decode(raw)
        return found

    @property
    def requests(self) -> Mapping[str, int]:
        """Of one pod."""
        raw = self._raw if self._raw != b"null" else b"{}"
        spec = b'{"podSets":[{"name":"main","count":1,"template":%b}]}' % raw
        (found,) = needs(spec).pod_sets
        return dict(found.requests)

    @property
    def node_selector(self) -> Mapping[str, str]:
        """Labels that the nodes must have."""
        return self.template.spec.node_selector


class Request:
    """Capacity that is asked for, for one workload.

    ``id``: the same for the same request, however often it is heard: act once for each.
    ``deadline``: what is not provisioned by then is taken back. ``parameters``: of the
    ProvisioningRequestConfig and the workload, as text or as the Struct that the provider was
    given. ``last``: what was said of it before; None: nothing, so it may be new.
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
        """``say``: where `say` goes, in ``loop``; None: into ``said``."""
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
        """What was said of it without a bus, as in tests."""
        self._say = say
        self._loop = loop

    def total(self, resource: str) -> int:
        """How much of a resource all pods need together."""
        return sum(one.count * one.requests.get(resource, 0) for one in self.pod_sets)

    @property
    def pods(self) -> int:
        """How many pods."""
        return sum(one.count for one in self.pod_sets)

    async def say(self, status: Status) -> bool:
        """Says so now, and goes on. False: the request was taken back meanwhile."""
        if self._say is None:
            self.said.append(status)
            return True
        return await self._say(status)

    def say_from_thread(self, status: Status) -> bool:
        """`say`, for a function that is a plain one and so runs in a thread."""
        if self._say is None:
            self.said.append(status)
            return True
        return from_thread(self.say(status), self._loop)

    def __repr__(self) -> str:
        return f"Request({self.id!r}, {self.namespace}/{self.name}, attempt={self.attempt})"
