"""Makes and deletes the cluster's objects of a request; repeats calls while the cluster is away.

Order: first the templates, then the ProvisioningRequest, then its ownership of the templates. Names
follow from the request's id, so every step can be repeated. A template without an owner, left by a
crash, is found by its label."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import structlog

from admittance.provider_kubernetes import objects
from admittance.provider_kubernetes.cluster import (
    REQUESTS,
    TEMPLATES,
    Cluster,
    Denied,
    Exists,
    Missing,
    NotNow,
)
from admittance.provider_kubernetes.objects import ObjectIdentity, Seen, seen_of
from admittance.provider_kubernetes.rights import Rights, Told
from admittance.providers import Accepted, Failed, Request
from admittance.providers.builtin import INSTALLATION, REQUEST

DELETING_SECONDS: Final = 0.5

log = structlog.get_logger()


class Foreign(Exception):
    """An object of our name belongs to another request or installation."""


class Maker:
    """The objects of this installation."""

    def __init__(self, cluster: Cluster, installation: str, rights: Rights) -> None:
        self._cluster = cluster
        self._installation = installation
        self._rights = rights

    async def make(self, asked: ObjectIdentity, request: Request) -> Seen | Failed:
        """Makes all objects and returns the ProvisioningRequest; or why that failed for good.
        Raises Missing if the cluster does not have the kind."""

        async def told(reason: str) -> None:
            await request.say(Accepted(f"waits for a right in the cluster: {reason}"))

        try:
            for one in request.pod_sets:
                template = objects.template_body(asked, one.name, one.manifest)
                await self._create(TEMPLATES, template, asked, told)
            counts = [(one.name, one.count) for one in request.pod_sets]
            body = objects.request_body(asked, counts, request.parameters)
            made = await self._create(REQUESTS, body, asked, told)
            self._rights.serves(asked.namespace)
            adoption = objects.adoption(asked.name, made["metadata"]["uid"])
            for one in request.pod_sets:
                await self._adopt(asked, one.name, adoption, told)
        except (Foreign, NotNow) as error:
            return Failed(str(error))
        except Denied as error:
            if isinstance(error, Missing) and not error.reason:
                # Not an API answer: the kind is not installed; the watch reports that, too.
                raise
            return Failed(str(error), retryable=False)
        return seen_of(made) or Failed(f"{asked.name} in the cluster lacks our labels")

    async def _create(
        self, kind: str, body: dict[str, Any], asked: ObjectIdentity, told: Told
    ) -> dict[str, Any]:
        """The object, made now or before. Raises Foreign if the name is taken by another owner."""
        metadata = body["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        while True:
            try:
                return await self._rights.patiently(self._cluster.create, kind, body, told=told)
            except Exists:
                pass
            try:
                found = await self._rights.patiently(self._cluster.get, kind, namespace, name)
            except Missing:
                continue
            if not _is_ours(found, asked):
                there = f"{body['kind']} {namespace}/{name} already exists"
                raise Foreign(f"{there}, with another owner")
            if not found["metadata"].get("deletionTimestamp"):
                return found
            await asyncio.sleep(DELETING_SECONDS)

    async def _adopt(
        self, asked: ObjectIdentity, pod_set: str, adoption: dict[str, Any], told: Told
    ) -> None:
        place = asked.namespace, objects.template_name(asked.name, pod_set)
        try:
            merge = self._cluster.merge
            await self._rights.patiently(merge, TEMPLATES, *place, adoption, told=told)
        except Missing:
            log.warning("template_gone", name=place[1])

    async def is_there(self, seen: Seen) -> bool:
        """Whether the object with that uid still exists."""
        try:
            found = await self._rights.patiently(
                self._cluster.get, REQUESTS, seen.namespace, seen.name
            )
        except Missing:
            return False
        return bool(found["metadata"]["uid"] == seen.uid)

    async def delete(self, request_id: str, namespace: str) -> None:
        """Deletes all objects of the request in the namespace. Raises Denied."""
        wanted = objects.selector(self._installation, request_id)
        for kind in (REQUESTS, TEMPLATES):
            found, _ = await self._rights.patiently(self._cluster.list, kind, namespace, wanted)
            for manifest in found:
                metadata = manifest["metadata"]
                if (metadata.get("annotations") or {}).get(REQUEST) == request_id:
                    name, uid = metadata["name"], metadata["uid"]
                    delete = self._cluster.delete
                    await self._rights.patiently(delete, kind, namespace, name, uid)


def _is_ours(found: dict[str, Any], asked: ObjectIdentity) -> bool:
    metadata = found.get("metadata") or {}
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    return annotations.get(REQUEST) == asked.id and labels.get(INSTALLATION) == asked.installation
