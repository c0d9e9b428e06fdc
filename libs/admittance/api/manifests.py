"""The Struct of each kind, and Kueue's defaults that a Struct cannot express."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, TypeAlias, get_args

import msgspec
from msgspec.structs import replace

from admittance.api.budgets import Budget
from admittance.api.checks import (
    AdmissionCheck,
    Foreign,
    Namespace,
    PriorityClass,
    ProvisioningRequestConfig,
    WorkloadPriorityClass,
)
from admittance.api.kinds import KINDS
from admittance.api.meta import ObjectMeta
from admittance.api.queues import (
    ClusterQueue,
    Cohort,
    FairSharing,
    LocalQueue,
    ResourceFlavor,
    Topology,
)
from admittance.api.runners import Runner
from admittance.api.workload import ALLOWED_FLAVORS, AdmissionConstraints, Job, Workload

Typed: TypeAlias = (
    Workload
    | ClusterQueue
    | LocalQueue
    | Cohort
    | ResourceFlavor
    | Topology
    | AdmissionCheck
    | WorkloadPriorityClass
    | PriorityClass
    | ProvisioningRequestConfig
    | Namespace
    | Budget
    | Runner
    | Job
)
Manifest: TypeAlias = Typed | Foreign

STRUCTS: Final[dict[str, type[Typed]]] = {struct.__name__: struct for struct in get_args(Typed)}
"""The Struct of each kind; a Struct is named like its kind."""


def our_kind(manifest: Manifest) -> str:
    """The kind of a manifest; "" for a foreign object, because a foreign kind may have the name of
    one of our kinds, such as the Job of another API group."""
    return "" if isinstance(manifest, Foreign) else manifest.kind


def token_of(manifest: Manifest) -> str:
    """The first part of a manifest's key: the kind, and for a foreign kind also its group."""
    return manifest.token if isinstance(manifest, Foreign) else KINDS[manifest.kind].token


def _with_weight(given: FairSharing | None) -> FairSharing | None:
    return FairSharing(weight=1) if given is not None and given.weight is None else given


def flavors_of_annotation(metadata: ObjectMeta) -> tuple[str, ...] | None:
    """The flavors in the annotation `ALLOWED_FLAVORS`; None: the annotation is absent."""
    written = metadata.annotations.get(ALLOWED_FLAVORS)
    if written is None:
        return None
    return tuple(dict.fromkeys(name.strip() for name in written.split(",") if name.strip()))


def _workload(given: Workload) -> Workload:
    allowed = flavors_of_annotation(given.metadata)
    if allowed is None or given.spec.admission_constraints is not None:
        return given
    # A spec is sent without its metadata, so the flavors of the annotation are copied into the
    # spec.
    constraints = AdmissionConstraints(allowed_resource_flavors=allowed)
    return replace(given, spec=replace(given.spec, admission_constraints=constraints))


def with_defaults(manifest: Manifest, namespace: str = "") -> Manifest:
    """The manifest with Kueue's defaults, and with ``namespace`` if the manifest needs and lacks a
    namespace.
    """
    kind = KINDS.get(manifest.kind)
    done: Any = manifest
    metadata = done.metadata
    if namespace and kind is not None and kind.namespaced and not metadata.namespace:
        done = replace(done, metadata=replace(metadata, namespace=namespace))
    if isinstance(done, Workload):
        return _workload(done)
    if isinstance(done, ClusterQueue | Cohort | LocalQueue):
        sharing = _with_weight(done.spec.fair_sharing)
        if sharing is not done.spec.fair_sharing:
            done = replace(done, spec=replace(done.spec, fair_sharing=sharing))
    result: Manifest = done
    return result


def complete(value: Any) -> Any:
    """The value as dicts and lists, with the defaults that are not null or empty. An empty value
    that differs from its default is kept: a ``namespaceSelector`` of ``{}`` selects everything, a
    missing ``namespaceSelector`` selects nothing.
    """
    if isinstance(value, msgspec.Struct):
        missing = {}
        for field in _fields(type(value)):
            given = getattr(value, field.name)
            shown = complete(given)
            if not _is_empty(shown) or given != _default(field):
                missing[field.encode_name] = shown
        return missing
    if isinstance(value, dict):
        return {name: complete(shown) for name, shown in value.items()}
    if isinstance(value, list | tuple):
        return [complete(shown) for shown in value]
    return msgspec.to_builtins(value)


@cache
def _fields(struct: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    # msgspec evaluates the annotations of the class anew at each call.
    return msgspec.structs.fields(struct)


def _is_empty(value: Any) -> bool:
    # The value 0 counts as empty: a default of 0 means that there is no value yet. False does not
    # count as empty.
    return value is None or (not value and not isinstance(value, bool))


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default
