"""Makes and deletes the objects in the cluster for each request. A call is repeated while the API
server does not answer or a right is missing.

The PodTemplates are made first, then the ProvisioningRequest, which then becomes their owner.
Names of objects are derived from the request's id, so each of these steps can be repeated. A crash
may leave PodTemplates without an owner; the sweeper finds such templates by their label.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Any, Final, TypeVar

import structlog

from admittance.backoff import Backoff
from admittance.provider_kubernetes import objects
from admittance.provider_kubernetes.cluster import (
    REQUESTS,
    TEMPLATES,
    Cluster,
    ClusterDenied,
    ClusterUnavailable,
    Exists,
    Forbidden,
    Missing,
    Right,
    TemporarilyDenied,
    Unauthorized,
)
from admittance.provider_kubernetes.objects import ObjectIdentity, Seen, seen_of
from admittance.providers import Accepted, Failed, Request
from admittance.providers.builtin import INSTALLATION, REQUEST
from admittance.providers.health import InactiveReasons, MissingRights
from admittance.sdk.threads import run_to_completion

DELETING_SECONDS: Final = 0.5

PAUSE_MIN: Final = 0.2
PAUSE_MAX: Final = 10.0
LOGIN: Final = "login"

T = TypeVar("T")
OnWait = Callable[[str], Awaitable[object]]
log = structlog.get_logger()


class ClusterRights(MissingRights):
    """Calls the cluster, repeats a call while a right is missing, and keeps the provider's classes
    inactive until the right is there.

    A missing right to create objects in one namespace is an exception: while objects can be made in
    another namespace, the classes stay active, and only requests for the namespace without the
    right wait. A missing right to delete makes the classes inactive in any case: a provider that
    cannot free capacity must not obtain more."""

    def __init__(self, cluster: Cluster, reasons: InactiveReasons) -> None:
        super().__init__(reasons)
        self._cluster = cluster
        self._waiting: Counter[Right] = Counter()
        self._served: set[str] = set()
        """The cluster's namespaces where the provider has made an object and was not forbidden to
        make another since then."""

    def blocks(self, right: Hashable) -> bool:
        """Whether the lack of the right makes the provider's classes inactive."""
        return not (isinstance(right, Right) and right.verb == "create" and self._served)

    def serves(self, namespace: str) -> None:
        """Records that this provider has made an object in the namespace."""
        self._served.add(namespace)
        self.update()

    async def call(
        self, function: Callable[..., Awaitable[T]], *arguments: Any, on_wait: OnWait | None = None
    ) -> T:
        """Calls ``function`` until the cluster answers; returns the answer. ``on_wait`` is called
        with the reason if the call waits for a right. Raises Denied if the cluster refuses
        permanently.
        """
        backoff = Backoff(PAUSE_MIN, PAUSE_MAX)
        refused: dict[Right, None] = {}
        try:
            while True:
                pause = backoff.next()
                try:
                    answer = await run_to_completion(function(*arguments))
                except ClusterUnavailable as error:
                    wait = error.after if error.after is not None else pause
                    reason = str(error)
                    if isinstance(error, Unauthorized):
                        self.lacks(LOGIN, f"{self._cluster.server}: {reason}", self._is_logged_in)
                except Forbidden as error:
                    wait, reason = pause, str(error)
                    if error.right not in refused:
                        refused[error.right] = None
                        self._waiting[error.right] += 1
                    self._forbid(error.right, reason)
                else:
                    for right in refused:
                        self.has(right)
                    return answer
                log.warning("creation_tried_again", reason=reason, seconds=wait)
                if refused and on_wait is not None:
                    await on_wait(reason)
                    on_wait = None
                await asyncio.sleep(wait)
        finally:
            self._waiting -= Counter(list(refused))

    def _forbid(self, right: Right, reason: str) -> None:
        if right.verb == "create":
            self._served.discard(right.namespace)
        self.lacks(right, f"{self._cluster.server}: {reason}", partial(self._is_granted, right))

    async def _is_granted(self, right: Right) -> bool:
        try:
            return await self._cluster.has(right)
        except ClusterUnavailable as error:
            log.warning("rights_unknown", reason=str(error))
            return False
        except ClusterDenied:
            # The API server refuses to say whether the provider has the right. A request that waits
            # for the right will find out; if no request waits, the provider assumes that it has the
            # right again.
            return not self._waiting[right]

    async def _is_logged_in(self) -> bool:
        try:
            await self._cluster.has(Right("get", REQUESTS, ""))
        except ClusterUnavailable as error:
            log.warning("rights_unknown", reason=str(error))
            return False
        except ClusterDenied:
            pass
        return True


class NameTaken(Exception):
    """The cluster has an object with the wanted name that belongs to another request or
    installation."""


class ObjectMaker:
    """Makes and deletes the objects in the cluster for requests of this installation."""

    def __init__(self, cluster: Cluster, installation: str, rights: ClusterRights) -> None:
        self._cluster = cluster
        self._installation = installation
        self._rights = rights

    async def make(self, identity: ObjectIdentity, request: Request) -> Seen | Failed:
        """Makes all objects for the request in the cluster. Returns the ProvisioningRequest, or why
        the request failed. Raises Missing if the cluster does not have the kind
        ProvisioningRequest.
        """

        async def on_wait(reason: str) -> None:
            await request.say(Accepted(f"waits for a right in the cluster: {reason}"))

        try:
            for pod_set in request.pod_sets:
                template = objects.template_body(identity, pod_set.name, pod_set.manifest)
                await self._create(TEMPLATES, template, identity, on_wait)
            counts = [(pod_set.name, pod_set.count) for pod_set in request.pod_sets]
            body = objects.request_body(identity, counts, request.parameters)
            made = await self._create(REQUESTS, body, identity, on_wait)
            self._rights.serves(identity.namespace)
            adoption = objects.adoption_patch(identity.name, made["metadata"]["uid"])
            for pod_set in request.pod_sets:
                await self._adopt(identity, pod_set.name, adoption, on_wait)
        except (NameTaken, TemporarilyDenied) as error:
            return Failed(str(error))
        except ClusterDenied as error:
            if isinstance(error, Missing) and not error.reason:
                # A 404 without an API status means that the cluster lacks the kind
                # ProvisioningRequest, which `object_watch` reports.
                raise
            return Failed(str(error), retryable=False)
        return seen_of(made) or Failed(f"{identity.name} in the cluster has lost its labels")

    async def _create(
        self, kind: str, body: dict[str, Any], identity: ObjectIdentity, on_wait: OnWait
    ) -> dict[str, Any]:
        """Creates the object ``body`` and returns it; if an earlier attempt made the object,
        returns that one. Raises NameTaken if another request or installation has an object with the
        same name.
        """
        metadata = body["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        while True:
            try:
                return await self._rights.call(self._cluster.create, kind, body, on_wait=on_wait)
            except Exists:
                pass
            try:
                present = await self._rights.call(self._cluster.get, kind, namespace, name)
            except Missing:
                continue
            if not _is_ours(present, identity):
                raise NameTaken(
                    f"{body['kind']} {namespace}/{name} already exists and has another owner"
                )
            if not present["metadata"].get("deletionTimestamp"):
                return present
            await asyncio.sleep(DELETING_SECONDS)

    async def _adopt(
        self, identity: ObjectIdentity, pod_set: str, adoption: dict[str, Any], on_wait: OnWait
    ) -> None:
        place = identity.namespace, objects.template_name(identity.name, pod_set)
        try:
            merge = self._cluster.merge
            await self._rights.call(merge, TEMPLATES, *place, adoption, on_wait=on_wait)
        except Missing:
            log.warning("template_gone", name=place[1])

    async def is_there(self, seen: Seen) -> bool:
        """Whether the cluster still has the object ``seen`` with the same uid."""
        try:
            present = await self._rights.call(
                self._cluster.get, REQUESTS, seen.namespace, seen.name
            )
        except Missing:
            return False
        return bool(present["metadata"]["uid"] == seen.uid)

    async def delete(self, request_id: str, namespace: str) -> None:
        """Deletes all objects of the request in the namespace. Raises Denied if the cluster refuses
        a deletion permanently.
        """
        wanted = objects.selector(self._installation, request_id)
        for kind in (REQUESTS, TEMPLATES):
            present, _ = await self._rights.call(self._cluster.list, kind, namespace, wanted)
            for manifest in present:
                metadata = manifest["metadata"]
                if (metadata.get("annotations") or {}).get(REQUEST) == request_id:
                    name, uid = metadata["name"], metadata["uid"]
                    delete = self._cluster.delete
                    await self._rights.call(delete, kind, namespace, name, uid)


def _is_ours(manifest: dict[str, Any], identity: ObjectIdentity) -> bool:
    metadata = manifest.get("metadata") or {}
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    return (
        annotations.get(REQUEST) == identity.id
        and labels.get(INSTALLATION) == identity.installation
    )
