"""The request-reply endpoints of the active workload-controller that write manifests, and the
endpoint that says whether a fact is applied. The module `reading_endpoints` has the endpoints that
only read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec
import structlog
from msgspec.structs import replace

from admittance.api.kinds import KINDS, kind_named
from admittance.api.meta import with_user
from admittance.control.manifests.planned_writes import (
    planned_deletion,
    planned_writes,
    users_of_object,
)
from admittance.control.manifests.proposals import (
    changed_since,
    proposal,
    refusal_reasons,
    warnings_about,
)
from admittance.control.user_requests.folder_views import (
    FolderSights,
    runners_of_other_flavors,
)
from admittance.control.user_requests.runner_rules import AnnouncedRunners
from admittance.doctor.kept_values import why_kept
from admittance.events.codec import encode
from admittance.events.names import plain, token
from admittance.events.reader import Unreadable
from admittance.events.requests.history import Settled, SettledReply
from admittance.events.requests.manifests import Apply, ApplyReply, Delete, DeleteReply
from admittance.events.requests.reading import Runners, RunnersReply
from admittance.events.subjects import (
    CAPACITY,
    USER_REQUESTS,
    namespace_of_request,
    object_key,
    workload_key,
)
from admittance.provisioning.records import read_record
from admittance.quota.references import Sharing
from admittance.runtime import clock
from admittance.runtime.bus import bucket, history
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import StaleRevision
from admittance.runtime.nats import micro
from admittance.workload.bucket_reader import names_of
from admittance.workload_controller.check_heartbeats import HeartbeatListener
from admittance.workload_controller.endpoints.events_endpoint import CompactedUntil, OutcomeOf
from admittance.workload_controller.endpoints.outside_consumers import OutsideConsumers
from admittance.workload_controller.endpoints.reading_endpoints import reading_endpoints
from admittance.workload_controller.manifest_writer import ManifestWriter

SERVICE: Final = "workload-controller"
log = structlog.get_logger()


class Endpoints:
    """Serves the endpoints of one leader of the workload-controller. Manifests are written under
    the lock of `ManifestWriter`, between two batches of facts. ``outcome``: see `OutcomeOf`.
    ``manifest_bytes``: the most bytes of an applied manifest. ``sharing``: what the configuration
    has. ``more``: handlers of further endpoints, by subject.
    """

    def __init__(
        self,
        bus: Bus,
        instance: str,
        manifests: ManifestWriter,
        heartbeats: HeartbeatListener,
        settled: Callable[[int], Awaitable[SettledReply]],
        outcome: OutcomeOf,
        runners: AnnouncedRunners,
        sights: FolderSights,
        manifest_bytes: int,
        sharing: Sharing,
        more: Mapping[str, micro.Handler],
        compacted_until: CompactedUntil,
    ) -> None:
        self._bus = bus
        self._instance = instance
        self._manifests = manifests
        self._heartbeats = heartbeats
        self._wait_settled = settled
        self._outcome = outcome
        self._runners = runners
        self._sights = sights
        self._manifest_bytes = manifest_bytes
        self._sharing = sharing
        self._more = more
        self._compacted_until = compacted_until
        self._service: micro.Serving | None = None

    async def start(self) -> None:
        """Starts to answer requests to the endpoints."""
        self._service = await micro.serve(
            self._bus.nc,
            SERVICE,
            self._instance,
            {
                "admit.api.apply": self._apply,
                "admit.api.apply.*": self._apply,
                "admit.api.delete": self._delete,
                "admit.api.delete.*": self._delete,
                f"{USER_REQUESTS}*.apply": self._apply,
                f"{USER_REQUESTS}*.apply.*": self._apply,
                f"{USER_REQUESTS}*.delete": self._delete,
                f"{USER_REQUESTS}*.delete.*": self._delete,
                "admit.api.runners.*": self._runners_of,
                "admit.api.settled": self._settled,
                "admit.api.settled.*": self._settled,
                **reading_endpoints(self._bus, self._outcome, self._family, self._compacted_until),
                **self._more,
            },
        )

    async def stop(self) -> None:
        """Stops answering requests."""
        if self._service is not None:
            await self._service.stop()
            self._service = None

    def _family(self, namespace: str, name: str) -> list[str]:
        """The names of all workloads in the workload's family: the parent and its variants."""
        return self._manifests.controller.workloads.family_names(namespace, name)

    async def _runners_of(self, data: bytes, subject: str) -> RunnersReply:
        request = msgspec.json.decode(data, type=Runners)
        namespace = namespace_of_request(subject)
        user, manifest = request.user, bytes(request.workload or b"")
        if request.folder is not None:
            left_out = self._of_other_flavors(namespace, request.queue)
            views = self._sights.views(user, namespace, request.folder, clock.now(), left_out)
            return RunnersReply(folder=views)
        if request.name:
            key = workload_key(namespace, request.name)
            workload = self._manifests.controller.workloads.get(key).workload
            if workload is None:
                return RunnersReply(error=f'workload "{request.name}" does not exist')
            user = workload.status.submitted_by
            manifest = msgspec.json.encode({"spec": workload.spec})
        elif not manifest:
            raise ValueError("the request has neither name, workload nor folder")
        refusal = self._runners.refusal(user, namespace, manifest)
        return RunnersReply() if refusal is None else RunnersReply(**refusal._asdict())

    def _of_other_flavors(self, namespace: str, queue: str) -> frozenset[str]:
        controller = self._manifests.controller
        runners = controller.objects.of_kind(KINDS["Runner"].prefix)
        return runners_of_other_flavors(controller.catalog, runners, namespace, queue)

    # Manifests. ---------------------------------------------------------------------

    async def _apply(self, data: bytes, subject: str) -> ApplyReply:
        request = msgspec.json.decode(data, type=Apply)
        user, namespace = _origin(subject)
        if request.expected and len(request.expected) != len(request.objects):
            return ApplyReply(error="expected has not one revision for each object")
        if problems := self._too_large(request.objects):
            return ApplyReply(error=problems[0], problems=tuple(problems))
        proposed = proposal(enumerate(request.objects, 1), namespace)
        if proposed.problems:
            return ApplyReply(error=proposed.problems[0], problems=tuple(proposed.problems))
        await self._manifests.caught_up.wait()
        async with self._manifests.lock:
            objects = self._manifests.controller.objects
            planned = self._heartbeats.known(
                planned_writes(objects, proposed.manifests, now=clock.now(), user=user)
            )
            if request.expected and (changed := changed_since(objects, planned, request.expected)):
                return ApplyReply(error="; ".join(changed))
            limits = self._manifests.controller.queues.limits
            problems = refusal_reasons(objects, planned, limits)
            if problems:
                return ApplyReply(error=problems[0], problems=tuple(problems))
            try:
                results = await self._manifests.write(planned, user=user)
            except StaleRevision:
                return ApplyReply(error="an object changed at the same moment: apply again")
            more = [
                warnings_about(write, self._manifests.controller, self._sharing)
                for write in planned
            ]
        return ApplyReply(
            results=tuple(
                replace(told, warnings=(*warnings, *of_references))
                for told, warnings, of_references in zip(
                    results, proposed.warnings, more, strict=True
                )
            )
        )

    async def _delete(self, data: bytes, subject: str) -> DeleteReply:
        request = msgspec.json.decode(data, type=Delete)
        user, namespace = _origin(subject)
        if namespace and namespace != request.namespace:
            raise ValueError(
                f"the request names namespace {request.namespace}, but its subject {namespace}"
            )
        if request.stored:
            if namespace:
                raise ValueError("a stored key is deleted by a request for all namespaces")
            await self._manifests.caught_up.wait()
            async with self._manifests.lock:
                return await delete_value(self._bus, self._manifests, request.stored, user)
        if request.kind.lower() in RUNNER_KINDS:
            if namespace or request.namespace:
                raise ValueError("a runner has no namespace")
            return await self._delete_runner(request.name, user)
        if request.kind.lower() in REQUEST_KINDS:
            reply = await delete_request(
                self._bus, request.namespace, request.name, clock.now(), user
            )
            if reply.outcome != "absent":
                return reply
        kind = kind_named(request.kind)
        prefix = kind.token if kind is not None else request.kind.lower()
        key = object_key(prefix, request.namespace, request.name)
        await self._manifests.caught_up.wait()
        async with self._manifests.lock:
            deletion = planned_deletion(self._manifests.controller, key, now=clock.now(), user=user)
            if deletion.mark is not None:
                await self._manifests.write([deletion.mark], user=user)
            if deletion.unneeded is not None:
                await self._manifests.remove(key, deletion.unneeded, user=user)
        return deletion.reply

    async def _delete_runner(self, name: str, user: str) -> DeleteReply:
        """Deletes what a runner left, and its object. ``name``: as for
        `OutsideConsumers.remove_runner`."""
        consumers = OutsideConsumers(self._bus)
        reply, runners = await consumers.remove_runner(name, user)
        if reply.error:
            return reply
        await self._manifests.caught_up.wait()
        async with self._manifests.lock:
            for runner in runners:
                key = object_key(KINDS["Runner"].token, "", runner)
                kept = self._manifests.controller.objects.get(key)
                if kept is not None:
                    # Before the object: placement stores it again as long as it is announced.
                    await consumers.forget_machine(runner)
                    await self._manifests.remove(key, kept, user=user)
                    reply = DeleteReply(outcome="deleted")
        return reply

    def _too_large(self, objects: Sequence[msgspec.Raw]) -> list[str]:
        most = self._manifest_bytes
        return [
            f"object {number}: the manifest has {len(raw):,} bytes, {most:,} are allowed"
            for number, raw in enumerate(objects, 1)
            if len(raw) > most
        ]

    # The log. -----------------------------------------------------------------------

    async def _settled(self, data: bytes, subject: str) -> SettledReply:
        request = msgspec.json.decode(data, type=Settled)
        reply = await self._wait_settled(request.sequence)
        namespace = namespace_of_request(subject)
        if not namespace or (reply.outcome == "applied" and not reply.message):
            return reply
        # A request for one namespace learns nothing about a fact of another namespace, because the
        # reply describes the fact.
        fact = await history.message_at(self._bus, request.sequence)
        is_own = fact is not None and token(namespace) in fact.subject.split(".")[-2:-1]
        return reply if is_own else SettledReply()


def _origin(subject: str) -> tuple[str, str]:
    """The user and the namespace that the subject of a request names, ``admit.api.<what>[.<ns>]``
    or ``admit.api.user.<user>.<what>[.<ns>]``; "" for a part that the subject does not have."""
    if not subject.startswith(USER_REQUESTS):
        return "", namespace_of_request(subject)
    user, _, *within = subject.removeprefix(USER_REQUESTS).split(".")
    return plain(user), plain(within[0]) if within else ""


REQUEST_KINDS: Final = frozenset({CAPACITY, f"{CAPACITY}.autoscaling.x-k8s.io"})
"""The names of the kind of provisioning requests that a request to delete may use, in lower
case."""


RUNNER_KINDS: Final = frozenset(KINDS["Runner"].words)


DELETE_ATTEMPTS: Final = 10
"""The most attempts to mark a provisioning request for deletion: an attempt fails if the
provisioning check writes the request's record at the same moment."""


DEFERRED: Final = "the provisioning check cancels the request first"


async def delete_request(
    bus: Bus, namespace: str, name: str, now: datetime, user: str = ""
) -> DeleteReply:
    """Marks the provisioning request with the name ``name`` for deletion. ``user``: the user that
    requests the deletion. Raises BusUnavailable or BusRefused if the mark cannot be stored.
    """
    key = object_key(CAPACITY, namespace, name)
    for _ in range(DELETE_ATTEMPTS):
        entry = await bucket.get(bus, key)
        if entry is None or entry.value is None:
            return DeleteReply(outcome="absent")
        try:
            record = read_record(key, entry.value)
        except Unreadable:
            # Another program wrote this unreadable request record, so the record is deleted
            # immediately.
            message, outcome = bucket.delete_message(key, expected=entry.revision), "deleted"
        else:
            if record.metadata.deletion_timestamp is not None:
                return DeleteReply(outcome="deferred", error=DEFERRED)
            meta = replace(with_user(record.metadata, user), deletion_timestamp=now)
            going = replace(record, metadata=meta)
            message = bucket.put_message(key, encode(going), expected=entry.revision)
            outcome = "deferred"
        try:
            await bus.publish(message)
        except StaleRevision:
            continue
        log.info("request_deleted", namespace=namespace, name=name, user=user)
        return DeleteReply(outcome=outcome, error=DEFERRED if outcome == "deferred" else "")
    return DeleteReply(error="the request record changes all the time: delete it again")


# Stored values. -------------------------------------------------------------------------


async def delete_value(bus: Bus, manifests: ManifestWriter, key: str, user: str) -> DeleteReply:
    """Deletes the value at the key, for the user ``user``. The caller holds the lock of
    ``manifests``. Raises BusRefused or BusUnavailable if the deletion cannot be stored."""
    entry = await bucket.get(bus, key)
    if entry is None or entry.value is None:
        return DeleteReply(outcome="absent")
    if kept := why_kept(entry.key, entry.value or b""):
        return DeleteReply(error=kept)
    controller = manifests.controller
    if controller.workloads.get(key).workload is not None:
        # The leader has read the workload before its value was damaged.
        return DeleteReply(
            error=f"{key}: the workload-controller still has the workload, and its next change "
            "repairs the value; `admit delete workload` deletes it"
        )
    if controller.objects.get(key) is not None:
        prefix = key.partition(".")[0]
        _, name = names_of(key)
        if users := users_of_object(controller, prefix, name):
            return DeleteReply(error=f"{key} is still in use by {', '.join(users[:5])}")
    try:
        await manifests.remove_value(key, entry.revision, user=user)
    except StaleRevision:
        return DeleteReply(error=f"{key} changed at the same moment: delete it again")
    return DeleteReply(outcome="deleted")
