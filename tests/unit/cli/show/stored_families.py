"""Families as the bucket keeps them, made by hand: a parent, and its variants in some state."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from admittance.api.queues import ClusterQueue
from admittance.api.reading.manifest import decode_object
from admittance.client.requests.objects import BucketObject
from admittance.client.requests.workloads.families import Family, FamilyMember
from admittance.family import FamilyRules, rules_of
from admittance.workload import stored
from admittance.workload.families.roles import metadata_of, name_of, planned_variants
from admittance.workload.stored import StoredWorkload
from support.builders import NOON, a_manifest

Condition = tuple[str, str, str, str]
"""Type, status, reason, message."""


def a_queue(
    *flavors: str,
    mode: str = "UpgradeOnly",
    variants: tuple[dict[str, Any], ...] = (),
    **constraints: Any,
) -> dict[str, Any]:
    """A ClusterQueue with families, as JSON; ``variants`` explicit ones."""
    offered = [
        {"name": name, "resources": [{"name": "cpu", "nominalQuota": 4}]} for name in flavors
    ]
    policy: dict[str, Any] = {"migrationConstraints": {"mode": mode, **constraints}}
    if variants:
        policy["explicitVariants"] = list(variants)
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "cq"},
        "spec": {
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": offered}],
            "concurrentAdmission": policy,
        },
    }


def the_rules(queue: Mapping[str, Any]) -> FamilyRules:
    """The family rules of the queue."""
    manifest = decode_object(queue).manifest
    assert isinstance(manifest, ClusterQueue)
    rules = rules_of(manifest.spec)
    assert rules is not None
    return rules


def conditions(*given: Condition, since: datetime = NOON) -> list[dict[str, Any]]:
    """Conditions as JSON."""
    return [
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": since.isoformat(),
        }
        for kind, status, reason, message in given
    ]


def a_parent(
    name: str = "train",
    *given: Condition,
    created: datetime = NOON - timedelta(minutes=10),
    since: datetime = NOON,
    spec: Mapping[str, Any] | None = None,
    **status: Any,
) -> dict[str, Any]:
    """A parent as it is stored. ``status``: in the spelling of JSON."""
    manifest = a_manifest(name, role="parent", **(spec or {}))
    manifest["metadata"] |= {"uid": f"uid-{name}", "creationTimestamp": created.isoformat()}
    return {**manifest, "status": {"conditions": conditions(*given, since=since), **status}}


def as_stored(value: Mapping[str, Any]) -> StoredWorkload:
    """The object as the bucket's readers have it."""
    return stored.decode(msgspec.json.encode(value))


def as_found(value: Mapping[str, Any]) -> BucketObject:
    """The object as the command finds it."""
    meta = value["metadata"]
    key = f"workload.{meta['namespace']}.{meta['name']}"
    return BucketObject(key, msgspec.json.encode(value), 7)


def its_variants(
    parent: Mapping[str, Any],
    rules: FamilyRules,
    given: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    """The variants of the parent. ``given``: by tag; ``active``, ``conditions`` (with ``since``),
    and what else their status has."""
    owner = as_stored(parent)
    members = []
    for plan in planned_variants(owner, rules):
        status = dict((given or {}).get(plan.tag.name, {}))
        name = name_of(owner, plan.tag.name)
        spec = msgspec.json.decode(plan.spec)
        spec["active"] = status.pop("active", True)
        rows = conditions(*status.pop("conditions", ()), since=status.pop("since", NOON))
        members.append(
            {
                "apiVersion": parent["apiVersion"],
                "kind": "Workload",
                "metadata": {
                    **metadata_of(owner, name),
                    "uid": f"uid-{name}",
                    "creationTimestamp": NOON.isoformat(),
                },
                "spec": spec,
                "status": {"conditions": rows, **status},
            }
        )
    return msgspec.json.decode(msgspec.json.encode(members), type=list[dict[str, Any]])


def a_family(
    parent: Mapping[str, Any],
    queue: Mapping[str, Any],
    given: Mapping[str, Mapping[str, Any]] | None = None,
) -> Family:
    """The family as `admit describe` reads it from the bucket."""
    rules = the_rules(queue)
    members = [
        FamilyMember(as_found(variant), as_stored(variant))
        for variant in its_variants(parent, rules, given)
    ]
    return Family(as_found(parent), as_stored(parent), tuple(members), rules)
