"""The variants of a parent, as manifests: one function for whoever submits them and for whoever
takes them in, so that a variant is always what its parent makes it. LIFECYCLE 4.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from admittance.api.canonical import encode
from admittance.api.stored_form import spec_of
from admittance.api.workload import (
    ALLOWED_FLAVORS,
    FAMILY_GATE,
    GATED_BY,
    PARENT_VARIANT,
    AdmissionConstraints,
    NamedGate,
    WorkloadSpec,
)
from admittance.family.naming import variant_name
from admittance.family.rules import FamilyRules, Tag
from admittance.workload.families.reading import allowed_flavors
from admittance.workload.families.roles import VARIANT
from admittance.workload.stored import StoredWorkload

_NOT_CARRIED: Final = frozenset({PARENT_VARIANT, ALLOWED_FLAVORS, GATED_BY})
"""Annotations of a parent that its variants do not have."""


class Made(NamedTuple):
    """A variant as it is to be. ``spec``: canonical bytes, as it is stored."""

    tag: Tag
    flavors: tuple[str, ...]
    spec: bytes


def wanted_tags(parent: StoredWorkload, rules: FamilyRules) -> tuple[Tag, ...]:
    """The variants that the parent is to have, the best first."""
    return rules.tags_within(allowed_flavors(parent))


def name_of(parent: StoredWorkload, tag: str, *, taken: bool = False) -> str:
    """The name of that variant. ``taken``: the plain one belongs to somebody else."""
    meta = parent.metadata
    return variant_name(meta.name, meta.uid, tag, force_hash=taken)


def made(parent: StoredWorkload, rules: FamilyRules, *, active: bool = True) -> Iterator[Made]:
    """Every variant that the parent is to have. Decodes the parent's spec once."""
    spec = spec_of(parent.spec)
    allowed = allowed_flavors(parent)
    for tag in rules.tags_within(allowed):
        flavors = tag.within(allowed)
        yield Made(tag, flavors, encode(_variant(spec, tag, flavors, active)))


def variant_spec(
    parent: StoredWorkload, rules: FamilyRules, tag: str, *, active: bool = True
) -> bytes | None:
    """The spec of one variant as it is stored; None: the parent is to have no such one."""
    found = next((one for one in wanted_tags(parent, rules) if one.name == tag), None)
    if found is None:
        return None
    flavors = found.within(allowed_flavors(parent))
    return encode(_variant(spec_of(parent.spec), found, flavors, active))


def _variant(spec: WorkloadSpec, tag: Tag, flavors: tuple[str, ...], active: bool) -> WorkloadSpec:
    gates = tuple(one for one in spec.preemption_gates if one.name != FAMILY_GATE)
    return msgspec.structs.replace(
        spec,
        role=VARIANT,
        variant=tag.name,
        sibling_index=tag.place,
        active=active,
        maximum_execution_time_seconds=None,
        admission_constraints=AdmissionConstraints(allowed_resource_flavors=flavors),
        preemption_gates=(*gates, NamedGate(name=FAMILY_GATE)),
    )


def metadata_of(parent: StoredWorkload, name: str) -> Mapping[str, Any]:
    """The metadata that a variant is submitted with."""
    meta = parent.metadata
    annotations = {k: v for k, v in meta.annotations.items() if k not in _NOT_CARRIED}
    return {
        "name": name,
        "namespace": meta.namespace,
        **({"labels": meta.labels} if meta.labels else {}),
        **({"annotations": annotations} if annotations else {}),
        "ownerReferences": [
            {
                "apiVersion": parent.api_version,
                "kind": "Workload",
                "name": meta.name,
                "uid": meta.uid,
                "controller": True,
            }
        ],
    }


def manifest_of(parent: StoredWorkload, name: str, spec: bytes) -> bytes:
    """The manifest that a variant is submitted with."""
    return msgspec.json.encode(
        {
            "apiVersion": parent.api_version,
            "kind": "Workload",
            "metadata": metadata_of(parent, name),
            "spec": msgspec.Raw(spec),
        }
    )
