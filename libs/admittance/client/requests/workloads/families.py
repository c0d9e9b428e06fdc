"""A family read from the bucket: a parent, its variants, and the policy of their queue."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from admittance.api.queues import ClusterQueue, LocalQueue
from admittance.client import kinds
from admittance.client.errors import Refused
from admittance.client.requests.link import Link
from admittance.client.requests.objects import BucketObject, lookup
from admittance.workload.stored import PARENT, VARIANT, StoredWorkload, head, owner_of

if TYPE_CHECKING:
    from admittance.family import DesiredState, FamilyRules, ParentState


class FamilyMember(NamedTuple):
    """A variant: its object and the decoded workload."""

    found: BucketObject
    workload: StoredWorkload

    @property
    def tag(self) -> str:
        """The variant's name within its parent."""
        return head(self.workload).variant


class Family(NamedTuple):
    """A parent and its variants, best first. ``rules``: the policy of the queue; None if the queue
    has no policy or does not exist.
    """

    found: BucketObject
    parent: StoredWorkload
    variants: tuple[FamilyMember, ...]
    rules: FamilyRules | None

    @property
    def state(self) -> ParentState:
        """The parent in the form that the policy functions take."""
        from admittance.workload.family_info import parent_state

        return parent_state(self.parent)

    def wishes(self, now: datetime) -> Mapping[str, DesiredState]:
        """The state that the policy requires of each variant, by the variant's workload name."""
        from admittance.family import desired_variants
        from admittance.workload.family_info import variant_state

        states = [variant_state(variant.workload) for variant in self.variants]
        return desired_variants(self.state, states, self.rules, now)


def is_parent(workload: StoredWorkload) -> bool:
    """Whether the workload has or will have variants."""
    return head(workload).role == PARENT


def is_variant(workload: StoredWorkload) -> bool:
    """Whether the workload is a variant of another workload."""
    return head(workload).role == VARIANT


async def family_of(link: Link, stored: BucketObject) -> Family:
    """The family of a parent."""
    parent = stored.workload()
    rules = await rules_for(link, stored.namespace, head(parent).queue_name)
    names = names_of(parent, rules)
    present = await asyncio.gather(
        *(lookup(link, kinds.WORKLOAD.object_key(stored.namespace, name)) for name in names)
    )
    variants = [FamilyMember(member, member.workload()) for member in present if member is not None]
    return Family(stored, parent, _own(parent, variants, rules), rules)


def names_of(parent: StoredWorkload, rules: FamilyRules | None) -> list[str]:
    """Possible workload names of the parent's variants: from the parent's status and from the
    policy of its queue.
    """
    return list(tags_of(parent, rules))


def tags_of(parent: StoredWorkload, rules: FamilyRules | None) -> dict[str, str]:
    """The variant's tag for each possible workload name of a variant of this parent."""
    from admittance.workload.families.roles import name_of

    tags = {row.name: row.variant for row in parent.status.variants}
    for tag in rules.tags if rules is not None else ():
        for taken in (False, True):
            tags.setdefault(name_of(parent, tag.name, taken=taken), tag.name)
    return tags


def _own(
    parent: StoredWorkload, variants: Iterable[FamilyMember], rules: FamilyRules | None
) -> tuple[FamilyMember, ...]:
    uid = parent.metadata.uid
    places = {} if rules is None else {tag.name: tag.place for tag in rules.tags}

    def place(variant: FamilyMember) -> tuple[int, str]:
        index = head(variant.workload).sibling_index
        last = len(places) if index is None else index
        return (places.get(variant.tag, last), variant.found.name)

    own = (
        variant
        for variant in variants
        if head(variant.workload).role == VARIANT and owner_of(variant.workload)[1] == uid
    )
    return tuple(sorted(own, key=place))


async def rules_for(link: Link, namespace: str, queue: str) -> FamilyRules | None:
    """The policy of the ClusterQueue of a LocalQueue; None if the ClusterQueue has no policy or
    does not exist.
    """
    if not queue:
        return None
    local = await _object(link, kinds.LOCAL_QUEUE.object_key(namespace, queue))
    if not isinstance(local, LocalQueue) or not local.spec.cluster_queue:
        return None
    behind = await _object(link, kinds.CLUSTER_QUEUE.object_key("", local.spec.cluster_queue))
    from admittance.family import rules_of

    return rules_of(behind.spec) if isinstance(behind, ClusterQueue) else None


async def _object(link: Link, key: str) -> object:
    from admittance.api.fields.problems import ManifestError
    from admittance.api.reading.objects import decode_object

    stored = await lookup(link, key)
    try:
        return None if stored is None else decode_object(stored.data).manifest
    except ManifestError:
        return None  # The stored queue cannot be read: another program or version wrote it.


async def parent_of(link: Link, variant: BucketObject) -> BucketObject | None:
    """The parent of a variant; None if the parent was deleted."""
    name, uid = owner_of(variant.workload())
    key = kinds.WORKLOAD.object_key(variant.namespace, name)
    parent = await lookup(link, key) if name else None
    return parent if parent is not None and parent.workload().metadata.uid == uid else None


def refuse_variant(stored: BucketObject, instead: str) -> None:
    """Raises Refused if the object is a variant. ``instead``: what to use on the parent; ``{}``
    stands for the parent's name."""
    workload = stored.workload()
    spec = head(workload)
    if spec.role != VARIANT:
        return
    parent, _ = owner_of(workload)
    raise Refused(
        f'workload "{stored.name}" is the variant {spec.variant} of workload "{parent}", '
        f"which owns the job: use {instead.format(parent)}",
        reason="Variant",
    )
