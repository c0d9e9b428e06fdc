"""What is kept in memory of each workload: for a parent its spec and the policy's input, for a
variant the policy's input, for other workloads only the name. Strings that members of a family
share are interned. Pure."""

from __future__ import annotations

from sys import intern
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from admittance.api.workload import VariantRow
from admittance.events.names import plain
from admittance.family.gates import Sibling
from admittance.family.policy import ParentState, VariantState
from admittance.workload.conditions import Type, find, is_true
from admittance.workload.families.parent_status import summary_of
from admittance.workload.family_info import competes, parent_state, sibling, variant_state
from admittance.workload.stored import (
    PARENT,
    VARIANT,
    StoredWorkload,
    WorkloadStatus,
    head,
    owner_of,
)

_NOTHING: Final = WorkloadStatus()
_encode = msgspec.json.Encoder().encode


class Name(NamedTuple):
    """The name of a workload, not escaped. A family has the name of its parent."""

    namespace: str
    name: str


class Row(NamedTuple):
    """A parent's status row of a variant, stored or required, compact because there are many. Rows
    are only compared. ``mark``: a hash of all fields but ``why``."""

    name: str
    mark: int
    why: str


class Parent(NamedTuple):
    """``stored``: without its status. ``rows``: its status rows. ``reason``: why it has no quota;
    "": it has quota, or no reason is known. ``over``: it has finished or is being deleted; the
    workload-controller then ends its variants."""

    state: ParentState
    stored: StoredWorkload
    revision: int
    priority: int
    rows: tuple[Row, ...]
    reason: str
    over: bool


class Variant(NamedTuple):
    """``place``: its stored position among its siblings. ``mark``: see `Row`. ``booked_in``: it
    holds quota of that ClusterQueue; "": none. ``going``: it is being deleted. ``competes``: the
    scheduler may try it, or it holds quota."""

    state: VariantState
    uid: str
    revision: int
    priority: int
    place: int
    mark: int
    sibling: Sibling
    competes: bool
    booked_in: str
    going: bool
    finished: bool


class Family:
    """A parent and the variants that name it. ``parent`` None: it does not exist."""

    __slots__ = ("kin", "name", "parent")

    def __init__(self, name: Name) -> None:
        self.name = name
        self.parent: Parent | None = None
        self.kin: dict[str, Variant] = {}


def name_of(key: str) -> Name:
    """The workload's name, from its key in the bucket. Raises BadToken, or ValueError for other
    keys."""
    kind, namespace, name = key.split(".")
    if kind != "workload":
        raise ValueError(f"{key} is not the key of a workload")
    return Name(intern(plain(namespace)), intern(plain(name)))


def family_of(workload: StoredWorkload) -> Name | None:
    """The family that the workload belongs to; None: it is a regular workload."""
    match head(workload).role:
        case role if role == PARENT:
            return Name(intern(workload.metadata.namespace), intern(workload.metadata.name))
        case role if role == VARIANT:
            return Name(intern(workload.metadata.namespace), intern(owner_of(workload)[0]))
    return None


def parent_of(stored: StoredWorkload, revision: int) -> Parent:
    """What is kept of a parent."""
    reserved = find(stored, Type.QUOTA_RESERVED)
    meta, state = stored.metadata, parent_state(stored)
    namespace, name, uid = intern(meta.namespace), intern(meta.name), intern(meta.uid)
    kept = replace(meta, namespace=namespace, name=name, uid=uid)
    return Parent(
        state=state._replace(
            namespace=namespace, name=name, uid=uid, admitted=intern(state.admitted)
        ),
        stored=replace(stored, metadata=kept, status=_NOTHING),
        revision=revision,
        priority=head(stored).priority or 0,
        rows=tuple(
            Row(intern(one.name), _mark(one), intern(one.why)) for one in stored.status.variants
        ),
        reason=reserved.reason if reserved is not None and reserved.status == "False" else "",
        over=is_true(stored, Type.FINISHED) or stored.metadata.deletion_timestamp is not None,
    )


def variant_of(stored: StoredWorkload, revision: int) -> Variant:
    """What is kept of a variant."""
    spec = head(stored)
    admission = stored.status.admission
    place, row = summary_of(stored)
    state = variant_state(stored)
    # Interned, because many variants repeat the same strings.
    name, tag = intern(state.name), intern(state.tag)
    parent, uid = intern(state.parent), intern(state.parent_uid)
    return Variant(
        state=state._replace(name=name, tag=tag, parent=parent, parent_uid=uid),
        uid=stored.metadata.uid,
        revision=revision,
        priority=spec.priority or 0,
        place=place,
        mark=_mark(row),
        sibling=sibling(stored, spec.sibling_index or 0)._replace(name=name),
        competes=competes(stored),
        booked_in=intern(admission.cluster_queue) if admission is not None else "",
        going=stored.metadata.deletion_timestamp is not None,
        finished=is_true(stored, Type.FINISHED),
    )


def _mark(row: VariantRow) -> int:
    return hash(_encode(replace(row, why="") if row.why else row))
