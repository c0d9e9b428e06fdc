"""The capacity requests and the cancellations that a provider receives."""

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
    """The cancellation of a capacity request: the provider must free the request's booking. The
    provider may never have received the request, and the same cancellation may arrive twice.
    """

    id: str
    namespace: str
    name: str
    uid: str = ""
    reason: str = ""


class PodSet:
    """A pod set of a capacity request: ``count`` equal pods, each with the resource requests
    ``requests`` (whole numbers: millicores of cpu, bytes, pieces). ``template``: the pod template,
    with the labels and tolerations of the assigned flavors added. ``names``: the pod sets of the
    workload that were merged into this pod set; ``name`` is the first of them.
    """

    def __init__(self, given: PodSetToProvision) -> None:
        self.name = given.name
        self.names = given.names or (given.name,)
        self.count = given.count
        raw = bytes(given.template)
        self._raw = raw if raw != b"null" else b"{}"

    @property
    def template(self) -> PodTemplate:
        """The pod template of the pod set, as a Struct."""
        return msgspec.json.decode(self._raw, type=PodTemplate)

    @property
    def manifest(self) -> dict[str, Any]:
        """The pod template of the pod set as a dict, also with fields that Admittance does not
        read.
        """
        decoded: dict[str, Any] = msgspec.json.decode(self._raw)
        return decoded

    @property
    def requests(self) -> Mapping[str, int]:
        """The resource requests of one pod of the pod set."""
        spec = b'{"podSets":[{"name":"main","count":1,"template":%b}]}' % self._raw
        (pod_set,) = needs(spec).pod_sets
        return dict(pod_set.requests)

    @property
    def node_selector(self) -> Mapping[str, str]:
        """The node selector of the pod set: labels that the nodes of its pods must have."""
        return self.template.spec.node_selector


class Request:
    """A request for capacity for one workload.

    ``id``: identifies the request; all deliveries of one request have the same id, so the provider
    must book once for each id. ``deadline``: a request that is not provisioned by this time is
    cancelled. ``parameters``: the parameters from the ProvisioningRequestConfig and the workload,
    as a dict of texts or the provider's Struct. ``last``: the word of the provider's last status of
    the request, or None.
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
        """``say``: publishes a status of the request, in the event loop ``loop``; None: the
        statuses are collected in ``said``.
        """
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
        """The statuses that `say` got, if the request was made without a function that publishes
        statuses, as in tests.
        """
        self._say = say
        self._loop = loop

    def total(self, resource: str) -> int:
        """The amount of a resource that all pods of the request need together."""
        return sum(pod_set.count * pod_set.requests.get(resource, 0) for pod_set in self.pod_sets)

    @property
    def pods(self) -> int:
        """The number of pods in all pod sets of the request."""
        return sum(pod_set.count for pod_set in self.pod_sets)

    async def say(self, status: Status) -> bool:
        """Publishes a status of the request while the provider continues to work on the request.
        Returns False if the request was cancelled.
        """
        if self._say is None:
            self.said.append(status)
            return True
        return await self._say(status)

    def say_from_thread(self, status: Status) -> bool:
        """Like `say`, but called from a plain function, which runs in a thread."""
        if self._say is None:
            self.said.append(status)
            return True
        return from_thread(self.say(status), self._loop)

    def __repr__(self) -> str:
        return f"Request({self.id!r}, {self.namespace}/{self.name}, attempt={self.attempt})"
