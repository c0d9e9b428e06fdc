"""Parts of all manifests: metadata, conditions, selectors, tolerations."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec

from admittance.api.fields.limits import (
    Annotations,
    Effect,
    EffectOrNone,
    LabelKey,
    LabelKeyOrNone,
    Labels,
    LabelValue,
    Operator,
    RequiredLabelKey,
    TolerationOperator,
)


class Strict(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """A part of a manifest in which an unknown field is an error."""


class OwnerReference(Strict, frozen=True, kw_only=True):
    """A reference to the owner of an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Strict, frozen=True, kw_only=True):
    """Metadata of any object. Fields that only a Kubernetes API server uses are kept unread."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: Labels = msgspec.field(default_factory=dict)
    annotations: Annotations = msgspec.field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    managed_fields: Any = None
    self_link: str = ""


class Condition(Strict, frozen=True, kw_only=True):
    """One condition of an object, as in Kubernetes. ``status``: "True", "False" or "Unknown"."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    observed_generation: int = 0


class LabelSelectorRequirement(Strict, frozen=True, kw_only=True):
    key: LabelKey
    operator: Operator
    values: tuple[LabelValue, ...] = ()


APPLIED_BY: Final = "admittance.dev/applied-by"
"""The annotation with the user that applied the object last, or marked it for deletion. Only the
workload-controller sets the annotation, from the user that the server knows."""


def with_user(meta: ObjectMeta, user: str) -> ObjectMeta:
    """The metadata with the annotation `APPLIED_BY` set to the user; "": without the annotation."""
    notes = {name: value for name, value in meta.annotations.items() if name != APPLIED_BY}
    if user:
        notes[APPLIED_BY] = user
    if notes == meta.annotations:
        return meta
    return msgspec.structs.replace(meta, annotations=notes)


class LabelSelector(Strict, frozen=True, kw_only=True):
    """Selects objects by labels. An empty selector selects everything; null instead of a selector
    selects nothing.
    """

    match_labels: Labels = msgspec.field(default_factory=dict)
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class Toleration(Strict, frozen=True, kw_only=True):
    """A toleration of taints. ``operator`` "" is Equal; an empty key with Exists tolerates every
    taint.
    """

    key: LabelKeyOrNone = ""
    operator: TolerationOperator = ""
    value: LabelValue = ""
    effect: EffectOrNone = ""
    toleration_seconds: int | None = None


class Taint(Strict, frozen=True, kw_only=True):
    """A taint of a node, which a pod must tolerate."""

    key: RequiredLabelKey = ""
    value: LabelValue = ""
    effect: Effect = ""
    time_added: datetime | None = None
