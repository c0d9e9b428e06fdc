"""Validates manifests before they are applied or deleted, and makes the messages about them. The
module is pure.

The endpoints and the what-if computation use the same functions. The process that writes a manifest
also publishes the message about the manifest. But the process may end before it publishes the
message, or may get no answer to a write of the manifest that succeeded. A new leader therefore
publishes messages about manifests that the log lacks. A leader also publishes the messages about
manifests that it finds in the bucket and did not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from admittance.api.checks import MACHINES_CHECK, AdmissionCheck, Foreign, PriorityClass
from admittance.api.fields.limits import FLAVOR_VARIANTS_MAX
from admittance.api.fields.problems import FORBIDDEN, ManifestError, Problem
from admittance.api.kinds import KINDS, OBJECT_KINDS, SUBMITTED_KINDS
from admittance.api.manifests import Manifest, our_kind, token_of
from admittance.api.meta import APPLIED_BY, ObjectMeta, with_user
from admittance.api.queues import ClusterQueue, Cohort, conflicts
from admittance.api.reading.manifest import Document, accept, duplicates, encode
from admittance.api.reading.objects import with_field_warnings
from admittance.api.runners import Runner
from admittance.api.validation.queues import check_variant_count
from admittance.api.validation.validate import validate_update
from admittance.control.commit import Message
from admittance.control.controller import Controller
from admittance.control.objects import Objects, StoredObject, key_of, users_of
from admittance.events.names import BadToken, plain, uid_of
from admittance.events.reader import Reader, Unreadable
from admittance.events.requests.manifests import Applied, DeleteReply
from admittance.events.subjects import applied_subject, object_key
from admittance.events.system import ObjectApplied
from admittance.quota.references import BOTH, Sharing, reference_warnings
from admittance.workload.bucket_reader import names_of, read_manifest
from admittance.workload.check_rows import row_of
from admittance.workload.limits import Limits
from admittance.workload.phase import holds_quota, is_stopping
from admittance.workload.stored import PARENT, head

PARAMETERS_MAX: Final = 400_000
"""How many bytes the parameters of a check may have. One message of 1 MiB carries the parameters of
a check together with the workload."""


class Proposal(NamedTuple):
    """Valid manifests and the warnings about each of them. ``problems``: one line per invalid
    manifest."""

    manifests: list[Manifest]
    warnings: list[tuple[str, ...]]
    problems: list[str]


def proposal(numbered: Iterable[tuple[int, msgspec.Raw]], namespace: str) -> Proposal:
    """Decodes manifests. Each manifest comes with its number in the request, which the errors about
    the manifest name. ``namespace`` "": any namespace is allowed. Two manifests of one object in a
    request are a problem, as in one file."""
    proposed = Proposal([], [], [])
    documents = []
    for number, raw in numbered:
        try:
            accepted = with_field_warnings(
                accept(
                    raw,
                    namespace=namespace,
                    document=f"object {number}",
                    flavors_max=FLAVOR_VARIANTS_MAX,
                )
            )
        except ManifestError as error:
            proposed.problems.extend(error.lines())
            continue
        manifest = accepted.manifest
        if our_kind(manifest) in SUBMITTED_KINDS:
            proposed.problems.append(
                f"object {number}: a {manifest.kind} is submitted, not applied"
            )
        elif namespace and manifest.metadata.namespace != namespace:
            proposed.problems.append(f"object {number}: is not in the namespace {namespace}")
        proposed.warnings.append(accepted.warnings)
        proposed.manifests.append(manifest)
        documents.append(Document("", f"object {number}", manifest, accepted.warnings))
    proposed.problems.extend(line for twice in duplicates(documents) for line in twice.lines())
    return proposed


def refusal_reasons(objects: Objects, planned: Iterable[PlannedWrite], limits: Limits) -> list[str]:
    """Why planned writes are refused, one line for each reason: forbidden updates and exceeded
    limits."""
    every = list(planned)
    named = {
        write.name: write.object for write in every if isinstance(write.object, AdmissionCheck)
    }

    def controller_of(check: str) -> str | None:
        known = named.get(check) or objects.check(check)
        return None if known is None else str(known.spec.controller_name)

    return [
        *(
            line
            for write in every
            for line in _objections(objects, write, controller_of, limits.flavors_max)
        ),
        *_second_defaults(objects, every),
    ]


def _second_defaults(objects: Objects, planned: Iterable[PlannedWrite]) -> Iterator[str]:
    """A line for each PriorityClass that would be a second global default."""
    classes = {
        write.name: write.object for write in planned if isinstance(write.object, PriorityClass)
    }
    default = objects.global_default()
    first = default[0] if default is not None and default[0] not in classes else ""
    for name, priority_class in classes.items():
        if priority_class.global_default and first:
            message = f"PriorityClass {first} is the global default already"
            yield f"PriorityClass {name}: {Problem('globalDefault', message, FORBIDDEN)}"
        elif priority_class.global_default:
            first = name


def warnings_about(
    planned: PlannedWrite, controller: Controller, sharing: Sharing = BOTH
) -> tuple[str, ...]:
    """Warnings about an applied object. ``controller`` has all objects, including the other objects
    of the same apply. ``sharing``: what the configuration has."""
    said = planned.object
    warnings = list(reference_warnings(said, controller.catalog, sharing))
    if isinstance(said, AdmissionCheck):
        missing = controller.objects.missing_parameters(said)
        if missing:
            warnings.append(
                f"spec.parameters: {missing}: until then the check is inactive, "
                "and its queues reserve nothing"
            )
    families = controller.queues.limits.families
    if isinstance(said, ClusterQueue) and said.spec.concurrent_admission and not families:
        warnings.append(
            "spec.concurrentAdmission is kept and has no effect: "
            "the gate ConcurrentAdmission is off, and every workload is regular"
        )
    return tuple(warnings)


UNANNOUNCED: Final = (
    "no runner has announced itself under this name, and nothing else makes such an object: "
    "`admit get runners`"
)


def _objections(
    objects: Objects,
    planned: PlannedWrite,
    controller_of: Callable[[str], str | None],
    flavors_max: int,
) -> list[str]:
    length = len(planned.value or b"")
    if length > PARAMETERS_MAX and not isinstance(planned.object, ClusterQueue | Cohort):
        sentence = f"is {length} bytes long, {PARAMETERS_MAX} are allowed"
        return [f"{planned.kind} {planned.name}: {sentence}"]
    old = objects.get(planned.key)
    if planned.value is None:
        return []
    try:
        # What is stored must be readable for every service, also for one that starts later.
        read_manifest(planned.key, planned.value)
    except Unreadable as error:
        return [f"{planned.kind} {planned.name}: cannot be stored: {error}"]
    problems = [] if old is None else validate_update(old.object, planned.object)
    if old is None and isinstance(planned.object, Runner):
        problems.append(Problem("metadata.name", UNANNOUNCED, FORBIDDEN))
    if isinstance(planned.object, ClusterQueue):
        # A conflict that existed before the change is not a reason to refuse the change: the queue
        # is already inactive and reports it.
        before = [] if old is None else conflicts(old.object.spec, controller_of)
        told = {problem.message for problem in before}
        clashes = conflicts(planned.object.spec, controller_of)
        problems += [problem for problem in clashes if problem.message not in told]
        if old is not None and check_variant_count(old.object.spec, flavors_max):
            # The stored queue was accepted when more flavors were allowed, so the number of flavors
            # may stay or shrink.
            flavors_max = len(old.object.spec.resource_groups[0].flavors)
        problems += check_variant_count(planned.object.spec, flavors_max)
    return [f"{planned.kind} {planned.name}: {problem}" for problem in problems]


def users_of_object(controller: Controller, prefix: str, name: str) -> list[str]:
    """Names everything that still uses the object. While something uses the object, the object is
    not deleted: for example, a ClusterQueue is kept while workloads hold its quota."""
    users = users_of(controller.objects, controller.catalog, prefix, name)
    if prefix != "clusterqueue":
        return users
    return users + [
        f"Workload {known.workload.metadata.namespace}/{known.workload.metadata.name}"
        for _, known in controller.workloads.items()
        if known.workload is not None
        and known.workload.status.admission is not None
        and known.workload.status.admission.cluster_queue == name
        and holds_quota(known.workload)
    ]


def deletion_mark(key: str, kept: StoredObject, now: datetime, user: str = "") -> PlannedWrite:
    """The write that marks the object for deletion. ``user``: the user that asks for the deletion;
    "": unknown."""
    meta = replace(with_user(kept.object.metadata, user), deletion_timestamp=now)
    going = replace(kept.object, metadata=meta)
    return planned_write(key, going, kept.revision, "terminating")


class PlannedDeletion(NamedTuple):
    """What a request to delete an object does: answers with ``reply``, and marks the object for
    deletion (``mark``) or removes the unused object (``unneeded``)."""

    reply: DeleteReply
    mark: PlannedWrite | None = None
    unneeded: StoredObject | None = None


def planned_deletion(
    controller: Controller, key: str, *, now: datetime, user: str = ""
) -> PlannedDeletion:
    """Plans the deletion of the object at the key. The deletion is deferred while something uses
    the object; a repeated request does not mark the object again. ``user``: the user that asks for
    the deletion; "": unknown."""
    kept = controller.objects.get(key)
    if kept is None:
        return PlannedDeletion(DeleteReply(outcome="absent"))
    name = kept.object.metadata.name
    users = users_of_object(controller, key.partition(".")[0], name)
    if not users:
        return PlannedDeletion(DeleteReply(outcome="deleted"), unneeded=kept)
    marked = key in controller.objects.terminating
    return PlannedDeletion(
        DeleteReply(outcome="deferred", error=f"still in use by {', '.join(users[:5])}"),
        mark=None if marked else deletion_mark(key, kept, now, user),
    )


def unneeded_objects(controller: Controller) -> list[tuple[str, StoredObject]]:
    """The objects marked for deletion that nothing uses any more."""
    unneeded = []
    for key in sorted(controller.objects.terminating):
        kept = controller.objects.get(key)
        prefix = key.partition(".")[0]
        if kept is None or users_of_object(controller, prefix, kept.object.metadata.name):
            continue
        unneeded.append((key, kept))
    return unneeded


_encode = msgspec.json.Encoder().encode
_applied = Reader(ObjectApplied)


def message_about(
    controller: Controller,
    kept: StoredObject,
    *,
    before: StoredObject | None = None,
    deleted: bool = False,
    user: str = "",
) -> Message:
    """Returns the message ``admit.object.applied`` or ``admit.object.deleted`` about a manifest.
    ``before``: the previous version of the manifest; None: the manifest is new, or the version is
    unknown. ``user``: the user that changes the manifest; "": the user that the manifest names."""
    manifest = kept.object
    meta = manifest.metadata
    said = ObjectApplied(
        kind=manifest.kind,
        namespace=meta.namespace,
        name=meta.name,
        revision=kept.revision,
        object=msgspec.Raw(kept.value),
        parameters_changed=names_others(before, manifest),
        user=user or _named_user(meta, deleted),
    )
    subject = applied_subject(token_of(manifest), meta.namespace, meta.name, deleted=deleted)
    return _message(controller, subject, said)


def _named_user(meta: ObjectMeta, deleted: bool) -> str:
    if deleted and meta.deletion_timestamp is None:
        return (
            ""  # A deleted manifest names the user that applied it, not the user that deletes it.
        )
    return meta.annotations.get(APPLIED_BY, "")


def names_others(before: StoredObject | None, manifest: Any) -> bool:
    """Whether the manifest is an AdmissionCheck that names other parameters than its previous
    version, or a check without a known previous version.
    """
    if not isinstance(manifest, AdmissionCheck):
        return False
    return before is None or before.object.spec.parameters != manifest.spec.parameters


def _message(controller: Controller, subject: str, said: ObjectApplied) -> Message:
    identity = controller.message_builder.identity(f"{subject}/{said.revision}")
    return Message(subject, _encode(said), identity)


def deletion_message(controller: Controller, key: str, revision: int) -> Message | None:
    """Returns the message ``admit.object.deleted`` for an object of which only the delete marker is
    known; None: the key does not belong to a known kind."""
    prefix = key.partition(".")[0]
    kind = OBJECT_KINDS.get(prefix)
    if kind is None:
        return None
    try:
        namespace, name = names_of(key)
    except Unreadable:
        return None
    said = ObjectApplied(kind=kind, namespace=namespace, name=name, revision=revision)
    subject = applied_subject(KINDS[kind].token, namespace, name, deleted=True)
    return _message(controller, subject, said)


def messages_about_all(controller: Controller) -> Iterator[tuple[int, Message]]:
    """For every manifest, including deleted ones, the last message about it that the log must hold,
    with the manifest's revision."""
    for _, kept in controller.objects:
        yield kept.revision, message_about(controller, kept)
    for key, revision in controller.objects.markers():
        said = deletion_message(controller, key, revision)
        if said is not None:
            yield revision, said


def message_about_rows(controller: Controller, newest: int) -> Message | None:
    """The message about the check `MACHINES_CHECK` once more, if the rows of a workload with quota
    do not agree with it: the configuration turns the check on and off, and says so in no message.
    None: they agree. ``newest``: the newest revision of the bucket, which makes the message differ
    from an earlier one."""
    kept = controller.objects.get(object_key(KINDS["AdmissionCheck"].token, "", MACHINES_CHECK))
    if kept is None:
        return None
    for _, known in controller.workloads.items():
        workload = known.workload
        admission = workload.status.admission if workload is not None else None
        if workload is None or admission is None or not holds_quota(workload):
            continue
        if is_stopping(workload) or head(workload).role == PARENT:
            continue
        required = controller.queues.required_checks(admission.cluster_queue, admission)
        row = row_of(workload.status.admission_checks, MACHINES_CHECK)
        if any(check.name == MACHINES_CHECK for check in required) is not (row is not None):
            said = message_about(controller, kept, before=kept)
            return said._replace(id=f"{said.id}/{newest}")
    return None


def load_entry(
    controller: Controller,
    key: str,
    value: bytes | None,
    revision: int,
    headers: Mapping[str, str],
) -> Message | None:
    """Loads an entry of the bucket that another program wrote, or that this leader wrote without
    getting an answer. Returns the message to publish; None: the entry was known."""
    known, before = controller.objects.expected(key), controller.objects.get(key)
    controller.load(key, value, revision, headers)
    if revision <= known:
        return None
    kept = controller.objects.get(key)
    if kept is not None:
        return message_about(controller, kept, before=before)
    return deletion_message(controller, key, revision)


def read_change(subject: str, data: bytes) -> ObjectApplied:
    """The message ``admit.object.…`` with this subject and payload. Its ``kind`` is "" for a
    foreign kind: only the subject tells a foreign kind from ours. Raises Unreadable."""
    parts = subject.split(".")
    kind = OBJECT_KINDS.get(parts[3], "") if len(parts) > 3 else ""
    return replace(_applied(data), kind=kind)


def affected_workloads(
    state: Controller, applied: ObjectApplied, asks: frozenset[str]
) -> list[str]:
    """Keys of the workloads that a changed object can affect. ``asks``: checks that name the object
    in ``parameters``."""
    workloads = state.workloads
    match applied.kind:
        case "LocalQueue":
            return workloads.of_queue(applied.namespace, applied.name)
        case "ClusterQueue":
            queues = {applied.name}
        case "WorkloadPriorityClass":
            return sorted(key for key, known in workloads.items() if known.workload)
        case kind:
            checks = asks | {applied.name} if kind == "AdmissionCheck" else asks
            if not checks:
                return []
            lists = state.catalog.lists
            queues = {
                queue
                for check in checks
                for queue in state.catalog.users_of_check(check)
                if check in lists[queue].listed()
            }
            if MACHINES_CHECK in checks:
                listing = _in_queues(state, queues)
                return listing + _with_machines(state, set(listing))
    return _in_queues(state, queues)


def _in_queues(state: Controller, queues: set[str]) -> list[str]:
    """Keys of the workloads of the ClusterQueues."""
    return [
        key
        for local in state.objects.of_kind("localqueue")
        if local.spec.cluster_queue in queues
        for key in state.workloads.of_queue(local.metadata.namespace, local.metadata.name)
    ]


def _with_machines(state: Controller, but: set[str]) -> list[str]:
    """Keys of the workloads, without those of ``but``, that have the row of the check
    `MACHINES_CHECK`, or may get it. A workload gets it with its quota, so the many workloads that
    wait are left out."""
    users = set(state.catalog.users_of_check(MACHINES_CHECK))
    found = []
    for key, known in state.workloads.items():
        if known.workload is None:
            continue
        status = known.workload.status
        queue = status.admission.cluster_queue if status.admission is not None else ""
        if key not in but and (
            queue in users or row_of(status.admission_checks, MACHINES_CHECK) is not None
        ):
            found.append(key)
    return sorted(found)


def checks_by_parameters(objects: Objects, subject: str, applied: ObjectApplied) -> frozenset[str]:
    """The checks that name changed, created or deleted parameters, or that now name other
    parameters."""
    if applied.kind == "AdmissionCheck":
        return frozenset({applied.name} if applied.parameters_changed else ())
    try:
        key = object_key(plain(subject.split(".")[3]), "", applied.name)
    except (BadToken, IndexError, ValueError):
        # No message of Admittance has such a subject: another program published the message.
        return frozenset()
    return objects.checks_by_parameters(key)


class PlannedWrite(NamedTuple):
    """One object of an apply: the value to write (None: nothing is written), and the result to
    report for the object."""

    key: str
    object: Any
    value: bytes | None
    expected: int
    result: Applied

    @property
    def kind(self) -> str:
        kind: str = self.object.kind
        return kind

    @property
    def name(self) -> str:
        name: str = self.object.metadata.name
        return name


def planned_write(key: str, manifest: Any, expected: int, outcome: str) -> PlannedWrite:
    """The write of a manifest. ``outcome``: the word in the reported result, such as "created"."""
    meta = manifest.metadata
    result = Applied(kind=manifest.kind, namespace=meta.namespace, name=meta.name, outcome=outcome)
    return PlannedWrite(key, manifest, encode(manifest), expected, result)


def _content(manifest: Any) -> Any:
    """The part of a manifest that an apply can change: without the fields that the system fills
    in."""
    if isinstance(manifest, Foreign):
        return manifest.object
    bare = replace(
        manifest,
        metadata=replace(
            manifest.metadata,
            uid="",
            resource_version="",
            generation=0,
            creation_timestamp=None,
            managed_fields=None,
        ),
    )
    bare = replace(bare, metadata=with_user(bare.metadata, ""))
    # The deletion time is compared too, because applying an object again removes its deletion mark.
    return replace(bare, status=None) if hasattr(bare, "status") else bare


def planned_writes(
    objects: Objects, manifests: Iterable[Manifest], *, now: datetime, user: str = ""
) -> Iterator[PlannedWrite]:
    """Yields the write of each manifest in an apply, in the order of the manifests. ``user``: the
    user that applies the manifests; "": unknown."""
    for manifest in manifests:
        meta = replace(
            with_user(manifest.metadata, user),
            deletion_timestamp=None,
            deletion_grace_period_seconds=None,
            managed_fields=None,
            self_link="",
        )
        manifest = replace(manifest, metadata=meta)  # noqa: PLW2901
        key = key_of(manifest)
        old = objects.get(key)
        if hasattr(manifest, "status"):
            # A user never sets a status. Only those of checks and runners are stored.
            kept = old if isinstance(manifest, AdmissionCheck | Runner) else None
            status = kept.object.status if kept is not None else None
            manifest = replace(manifest, status=status)  # noqa: PLW2901
        if old is not None and _content(old.object) == _content(manifest):
            same = planned_write(key, old.object, old.revision, "unchanged")
            result = replace(same.result, revision=old.revision)
            yield same._replace(value=None, result=result)
            continue
        before = old.object.metadata if old is not None else None
        meta = replace(
            meta,
            uid=before.uid if before else uid_of(f"{key}/{now.isoformat()}"),
            generation=before.generation + 1 if before else 1,
            creation_timestamp=before.creation_timestamp if before else now,
            resource_version="",
        )
        outcome = "changed" if before else "created"
        yield planned_write(key, replace(manifest, metadata=meta), objects.expected(key), outcome)
