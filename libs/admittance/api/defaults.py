"""What a manifest means where it says nothing; what a Struct cannot say with its own defaults."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from admittance.api.kinds import KINDS, Manifest
from admittance.api.meta import ObjectMeta
from admittance.api.queues import ClusterQueue, Cohort, FairSharing, LocalQueue
from admittance.api.workload import ALLOWED_FLAVORS, AdmissionConstraints, Workload


def _weighed(given: FairSharing | None) -> FairSharing | None:
    return FairSharing(weight=1) if given is not None and given.weight is None else given


def flavors_of_annotation(metadata: ObjectMeta) -> tuple[str, ...] | None:
    """The flavors that the annotation `ALLOWED_FLAVORS` allows; None where it is not there."""
    written = metadata.annotations.get(ALLOWED_FLAVORS)
    if written is None:
        return None
    return tuple(dict.fromkeys(name.strip() for name in written.split(",") if name.strip()))


def _workload(given: Workload) -> Workload:
    allowed = flavors_of_annotation(given.metadata)
    if allowed is None or given.spec.admission_constraints is not None:
        return given
    # A spec travels without its metadata, so it has to say itself what it may be given.
    constraints = AdmissionConstraints(allowed_resource_flavors=allowed)
    return replace(given, spec=replace(given.spec, admission_constraints=constraints))


def defaulted(manifest: Manifest, namespace: str = "") -> Manifest:
    """manifest with Kueue's defaults, and namespace where it needs one and names none."""
    kind = KINDS.get(manifest.kind)
    done: Any = manifest
    metadata = done.metadata
    if namespace and kind is not None and kind.namespaced and not metadata.namespace:
        done = replace(done, metadata=replace(metadata, namespace=namespace))
    if isinstance(done, Workload):
        return _workload(done)
    if isinstance(done, ClusterQueue | Cohort | LocalQueue):
        weighed = _weighed(done.spec.fair_sharing)
        if weighed is not done.spec.fair_sharing:
            done = replace(done, spec=replace(done.spec, fair_sharing=weighed))
    result: Manifest = done
    return result


def complete(value: Any) -> Any:
    """value as dicts and lists, a Struct's defaults included, but for those that say nothing: null
    and empty ones. An empty value where the default is another is kept: a ``namespaceSelector`` of
    ``{}`` selects everything, none selects nothing."""
    if isinstance(value, msgspec.Struct):
        found = {}
        for field in msgspec.structs.fields(value):
            there = getattr(value, field.name)
            shown = complete(there)
            if not _says_nothing(shown) or there != _default(field):
                found[field.encode_name] = shown
        return found
    if isinstance(value, dict):
        return {name: complete(shown) for name, shown in value.items()}
    if isinstance(value, list | tuple):
        return [complete(shown) for shown in value]
    return msgspec.to_builtins(value)


def _says_nothing(value: Any) -> bool:
    # A default of 0 is such as "no generation yet"; False is an answer.
    return value is None or (not value and not isinstance(value, bool))


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default
