"""Decodes, completes and validates submissions, and makes the messages about refused ones."""

from __future__ import annotations

from datetime import datetime
from hashlib import blake2b
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from admittance.api.fields.limits import MANIFEST_BYTES_MAX, Role
from admittance.api.fields.problems import ManifestError
from admittance.api.meta import ObjectMeta
from admittance.api.pod_requests import needs, uncharged
from admittance.api.reading.manifest import accept
from admittance.api.reading.workload_reader import KnownPodSets, ReadWorkload, WorkloadReader
from admittance.api.validation.workload import array_name_error
from admittance.api.workload import Kept, Workload
from admittance.control.commit import LogMessage
from admittance.control.manifests.objects import Objects
from admittance.events import facts, reasons
from admittance.events.base import Fact
from admittance.family import FamilyRules, VariantState, desired_variants
from admittance.workload.change import Change, ignored, refused, with_spec
from admittance.workload.conditions import Type, is_true
from admittance.workload.families.family_change import FamilyMembers
from admittance.workload.families.roles import (
    annotations_of_role,
    metadata_of,
    name_of,
    planned_variants,
)
from admittance.workload.family_info import parent_state, variant_state
from admittance.workload.limits import check_pods_ready_max
from admittance.workload.moves.requests import Arrived
from admittance.workload.stored import VARIANT, StoredWorkload, head, owner_of
from admittance.workload.transition_context import QueueView


class InvalidSubmission(ValueError):
    """A submission is not a valid workload; the text says why, in one line."""


def validate_submission(
    fact: facts.Submitted,
    objects: Objects,
    queues: QueueView,
    reader: WorkloadReader,
) -> Arrived:
    """The submission as a fact for `transition`. Raises InvalidSubmission.

    The priority class is resolved to its number here, and the time limit of the queue counts for a
    workload without one. The queue of the workload, not the submission, decides whether the
    workload is a parent.
    """
    manifest, pods = _read(fact, objects, reader, default_class=queues.limits.default_class)
    above = [
        *pods.over_limits,
        *check_pods_ready_max(manifest.metadata.annotations, queues.limits),
    ]
    if above:
        # The workload could never be admitted, or run longer than allowed without ready pods, so
        # its submission is refused now.
        problems = "; ".join(str(problem) for problem in above)
        raise InvalidSubmission(problems)
    meta = manifest.metadata
    if meta.name not in ("", fact.name) or meta.namespace not in ("", fact.namespace):
        raise InvalidSubmission(
            f"the manifest names the workload {meta.namespace}/{meta.name}, "
            f"its message {fact.namespace}/{fact.name}"
        )
    manifest, remark = in_role(manifest, fact.namespace, queues)
    manifest = _with_time_limit(manifest, fact.namespace, objects, queues)
    if manifest.spec.array is not None and (error := array_name_error(fact.name)):
        raise InvalidSubmission(f"metadata.name: {error}")
    meta = manifest.metadata
    spec = pods.to_stored(manifest.spec)
    if len(fact.workload) > MANIFEST_BYTES_MAX // 4:
        length = len(spec) + len(msgspec.json.encode(meta))
        if length > MANIFEST_BYTES_MAX:
            raise InvalidSubmission(
                f"the workload is {length} bytes long, {MANIFEST_BYTES_MAX} are allowed"
            )
    return Arrived(
        namespace=fact.namespace,
        name=fact.name,
        uid=fact.uid,
        api_version=manifest.api_version,
        metadata=meta,
        spec=msgspec.Raw(spec),
        remark=remark,
        uncharged=_uncharged(spec, fact.namespace, manifest.spec.queue_name, objects, queues),
    )


def _read(
    fact: facts.Submitted, objects: Objects, reader: WorkloadReader, *, default_class: bool
) -> ReadWorkload:
    try:
        known = reader.read(
            fact.workload, namespace=fact.namespace, classes=objects, default_class=default_class
        )
        if known is not None:
            return known
        # `accept` finds all problems, and reads what an older version of the API has.
        manifest, _ = accept(
            fact.workload, namespace=fact.namespace, classes=objects, default_class=default_class
        )
    except ManifestError as error:
        raise InvalidSubmission(str(error)) from error
    if not isinstance(manifest, Workload):
        raise InvalidSubmission(f"a {manifest.kind} was submitted: submit a Workload")
    return ReadWorkload(manifest, KnownPodSets(manifest.spec))


def _uncharged(
    spec: bytes, namespace: str, local_queue: str, objects: Objects, queues: QueueView
) -> dict[str, str]:
    """Each resource that the pods of a workload request and for which no quota is charged, with the
    reason."""
    limits = queues.limits
    covered: set[str] | None = None
    if limits.ignores_undeclared:
        queue = objects.cluster_queue(queues.cluster_queue(namespace, local_queue))
        if queue is not None:
            groups = queue.spec.resource_groups
            covered = {resource for group in groups for resource in group.covered_resources}
    exclude, transformations = limits.exclude_resource_prefixes, limits.transformations
    if not exclude and not transformations and covered is None:
        return {}
    reasons_of: dict[str, str] = {}
    for pod_set in needs(spec).pod_sets:
        reasons_of |= uncharged(pod_set.requests, exclude, transformations, covered)
    return reasons_of


def _with_time_limit(
    manifest: Workload, namespace: str, objects: Objects, queues: QueueView
) -> Workload:
    """The workload with the time limit of its ClusterQueue if it has none."""
    spec = manifest.spec
    if spec.maximum_execution_time_seconds is not None:
        return manifest
    queue = objects.cluster_queue(queues.cluster_queue(namespace, spec.queue_name))
    seconds = None if queue is None else queue.spec.default_maximum_execution_time_seconds
    if seconds is None:
        return manifest
    return replace(manifest, spec=replace(spec, maximum_execution_time_seconds=seconds))


def in_role(manifest: Workload, namespace: str, queues: QueueView) -> tuple[Workload, str]:
    """Returns the workload with the role that its queue gives to the workload (regular or parent),
    and a remark for the user."""
    spec, meta = manifest.spec, manifest.metadata
    role: Role = "regular"
    remark = ""
    if spec.array is not None:
        role = "array"
    elif queues.family_rules(namespace, spec.queue_name) is not None:
        if any(pod_set.min_count is not None for pod_set in spec.pod_sets):
            remark = "No variants are made of a workload with minCount: it is a regular one"
        else:
            role = "parent"
    notes = annotations_of_role(meta.annotations, role)
    if spec.role == role and notes == meta.annotations:
        return manifest, remark
    return (
        replace(
            manifest,
            metadata=replace(meta, annotations=notes),
            spec=replace(spec, role=role),
        ),
        remark,
    )


def rejected_fact(fact: Fact, now: datetime, reason: str, message: str) -> facts.Rejected:
    """The fact that a submission is refused: the submission is invalid, or the name of the workload
    is taken."""
    return facts.Rejected(**_common(fact, now), reason=reason, message=message)


def unchanged_fact(fact: Fact, now: datetime, message: str) -> facts.Noted:
    """Returns the fact that a submission changes nothing because the same workload exists
    already."""
    said = f"A second submission changes nothing: {message}"
    return facts.Noted(**_common(fact, now), reason=reasons.ALREADY_EXISTS, message=said)


def _common(fact: Fact, now: datetime) -> dict[str, Any]:
    return {
        "namespace": fact.namespace,
        "name": fact.name,
        "uid": fact.uid,
        "time": now,
        "revision": 0,
    }


def digest(logged: LogMessage) -> str:
    """Digest of a submission's message id. The workload stores the digest. "": the submission had
    no id."""
    if not logged.message_id:
        return ""
    return blake2b(logged.message_id.encode("utf-8", "replace"), digest_size=6).hexdigest()


MADE_MAX: Final = 256
"""Number of parents with cached variants; siblings are submitted shortly after each other, so a few
parents are enough."""
_MARK: Final = b'"variant"'


class _Reference(Kept, frozen=True, kw_only=True):
    kind: str = ""
    name: str = ""
    uid: str = ""


class _Meta(Kept, frozen=True, kw_only=True):
    owner_references: tuple[_Reference, ...] = ()


class _Spec(Kept, frozen=True, kw_only=True):
    role: str = ""
    variant: str = ""


class VariantClaim(Kept, frozen=True, kw_only=True):
    """The parent and the variant that a submission names."""

    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()

    @property
    def owner(self) -> tuple[str, str]:
        """Name and uid of the parent; empty if the submission names no parent."""
        for reference in self.metadata.owner_references:
            if reference.kind == "Workload":
                return reference.name, reference.uid
        return "", ""


_claim = msgspec.json.Decoder(VariantClaim)


def claim_of(fact: facts.Submitted) -> VariantClaim | None:
    """The parent and the variant that a submission with the role variant names; None: the
    submission has another role."""
    written = bytes(fact.workload)
    if _MARK not in written:
        return None
    try:
        claim = _claim.decode(written)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None  # No error is reported here, because `validate_submission` reports it.
    return claim if claim.spec.role == VARIANT else None


class VariantIntake:
    """Computes the stored spec of submitted variants, and caches the variants of recent parents."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[msgspec.Raw, FamilyRules, dict[str, bytes]]] = {}

    def spec_of(self, parent: StoredWorkload, rules: FamilyRules, tag: str) -> bytes | None:
        """The active spec of one of the parent's variants; None: the parent has no such variant."""
        uid = parent.metadata.uid
        kept = self._made.get(uid)
        if kept is None or kept[0] is not parent.spec or kept[1] is not rules:
            if len(self._made) >= MADE_MAX:
                self._made.clear()
            specs = {planned.tag.name: planned.spec for planned in planned_variants(parent, rules)}
            kept = self._made[uid] = parent.spec, rules, specs
        return kept[2].get(tag)

    def enter(
        self,
        fact: facts.Submitted,
        claim: VariantClaim,
        present: StoredWorkload | None,
        family: FamilyMembers,
        rules: FamilyRules | None,
        now: datetime,
    ) -> Arrived | Change:
        """Returns the submitted variant as an `Arrived` fact, or why the variant is refused.
        ``present``: the stored workload with the variant's name."""
        parent = family.parent
        tag = claim.spec.variant
        if present is not None:
            same = head(present).variant == tag and owner_of(present) == claim.owner
            if same and present.metadata.deletion_timestamp is None:
                return ignored(present, reasons.UNCHANGED, "the variant exists")
            return refused(
                present, reasons.ALREADY_EXISTS, f"a workload {fact.namespace}/{fact.name} exists"
            )
        if (
            parent is None
            or is_true(parent, Type.FINISHED)
            or parent.metadata.deletion_timestamp is not None
        ):
            name, uid = claim.owner
            return refused(
                None, reasons.NO_PARENT, f"no parent {name!r} with the uid {uid!r} exists"
            )
        spec = self.spec_of(parent, rules, tag) if rules is not None else None
        if spec is None or rules is None:
            return refused(None, reasons.NO_SUCH_VARIANT, f"its parent has no variant {tag!r}")
        if fact.name not in (name_of(parent, tag), name_of(parent, tag, taken=True)):
            return refused(None, reasons.OTHER_NAME, f"the variant {tag!r} has another name")
        twin = next(
            (variant for variant in family.variants.values() if head(variant).variant == tag), None
        )
        if twin is not None:
            return refused(
                None, reasons.ALREADY_EXISTS, f"the variant exists: {twin.metadata.name!r}"
            )
        states = [variant_state(variant) for variant in family.variants.values()]
        states.append(VariantState(fact.name, tag, *claim.owner))
        wish = desired_variants(parent_state(parent), states, rules, now).get(fact.name)
        stored = msgspec.Raw(spec)
        if wish is not None and not wish.active:
            plain = StoredWorkload(api_version=parent.api_version, kind="Workload", spec=stored)
            stored = with_spec(plain, active=False).spec
        metadata = msgspec.convert(metadata_of(parent, fact.name), ObjectMeta)
        return Arrived(
            namespace=fact.namespace,
            name=fact.name,
            uid=fact.uid,
            api_version=parent.api_version,
            metadata=replace(metadata, namespace=fact.namespace),
            spec=stored,
            submitted_by=parent.status.submitted_by,
        )
