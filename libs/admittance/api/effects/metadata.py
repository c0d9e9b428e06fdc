"""What the fields of metadata, selectors, tolerations and taints do."""

from __future__ import annotations

from typing import Final

from admittance.api.effects.field_effect import BY_SYSTEM, Table, all_work, in_part, no_effect
from admittance.api.meta import (
    Condition,
    LabelSelector,
    LabelSelectorRequirement,
    ObjectMeta,
    OwnerReference,
    Taint,
    Toleration,
)

_OWNER: Final = "names the parent of a variant; an object of another owner is not deleted with it"

METADATA: Final[Table] = {
    ObjectMeta: {
        **all_work("name", "namespace", "labels", "annotations", "ownerReferences"),
        "generateName": in_part("completes the name of a Workload or Job, and of nothing else"),
        "uid": BY_SYSTEM,
        "resourceVersion": BY_SYSTEM,
        "generation": BY_SYSTEM,
        "creationTimestamp": BY_SYSTEM,
        "deletionTimestamp": BY_SYSTEM,
        "deletionGracePeriodSeconds": BY_SYSTEM,
        "managedFields": BY_SYSTEM,
        "selfLink": BY_SYSTEM,
        "finalizers": no_effect(
            "an object in use is kept until nothing uses it; no other program can hold it",
            usual=(("kueue.x-k8s.io/resource-in-use",), ("kueue.x-k8s.io/managed-resources",)),
        ),
    },
    OwnerReference: {
        **all_work("apiVersion", "name", "uid"),
        "kind": in_part(_OWNER, usual=("Workload",)),
        "controller": in_part("kept; an owner that is not a Workload has no effect"),
        "blockOwnerDeletion": in_part("kept; variants are always deleted with their parent"),
    },
    Condition: dict.fromkeys(
        ("type", "status", "reason", "message", "lastTransitionTime", "observedGeneration"),
        BY_SYSTEM,
    ),
    LabelSelector: all_work("matchLabels", "matchExpressions"),
    LabelSelectorRequirement: all_work("key", "operator", "values"),
    Toleration: {
        **all_work("key", "operator", "value", "effect"),
        "tolerationSeconds": in_part(
            "given to providers of capacity; no node evicts the pods of a local runner"
        ),
    },
    Taint: {
        **all_work("key", "value", "effect"),
        "timeAdded": no_effect("a taint of a flavor has no history"),
    },
}
