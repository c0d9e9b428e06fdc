"""The kinds of manifests that are ours: their versions, their names for people, their Structs."""

from __future__ import annotations

import difflib
from typing import Final, NamedTuple, TypeAlias

from admittance.api.checks import (
    AdmissionCheck,
    Foreign,
    Namespace,
    ProvisioningRequestConfig,
    WorkloadPriorityClass,
)
from admittance.api.kind_names import GROUP, NAMES
from admittance.api.queues import ClusterQueue, Cohort, LocalQueue, ResourceFlavor
from admittance.api.workload import Job, Workload

Typed: TypeAlias = (
    ClusterQueue
    | Cohort
    | LocalQueue
    | ResourceFlavor
    | AdmissionCheck
    | WorkloadPriorityClass
    | ProvisioningRequestConfig
    | Namespace
    | Workload
    | Job
)
Manifest: TypeAlias = Typed | Foreign

OUR_GROUPS: Final = frozenset({GROUP, "batch", ""})
"""API groups in which an unknown kind is a mistake, not a foreign object."""


GENERATED: Final = frozenset({"Workload", "Job"})
"""Kinds that accept a generateName instead of a name."""


class Kind(NamedTuple):
    """``token`` stands for the kind in bucket keys and subjects; ``short`` are names for people."""

    name: str
    struct: type[Typed]
    versions: tuple[str, ...]
    namespaced: bool
    plural: str
    token: str
    short: tuple[str, ...] = ()


_STRUCTS: Final[tuple[type[Typed], ...]] = (
    Workload,
    ClusterQueue,
    LocalQueue,
    Cohort,
    ResourceFlavor,
    AdmissionCheck,
    WorkloadPriorityClass,
    ProvisioningRequestConfig,
    Namespace,
    Job,
)
"""In the order of `NAMES`."""

KINDS: Final[dict[str, Kind]] = {
    names.name: Kind(names[0], struct, *names[1:])
    for names, struct in zip(NAMES, _STRUCTS, strict=True)
}

OBJECT_KINDS: Final = {
    kind.token: kind.name for kind in KINDS.values() if kind.name not in GENERATED
}
"""Kinds whose manifests are bucket objects, not workloads, by the token in their keys."""

_BY_WORD: Final[dict[str, Kind]] = {
    word: kind for kind in KINDS.values() for word in (kind.name.lower(), kind.plural, *kind.short)
}


def kind_named(word: str) -> Kind | None:
    """The kind for a word typed by a user: its name, plural or short name, in any case."""
    return _BY_WORD.get(word.lower())


def kind_of(manifest: Manifest) -> Kind | None:
    """The kind of manifest; None for a foreign one."""
    return None if isinstance(manifest, Foreign) else KINDS[manifest.kind]


def refuse(api_version: str, kind: str) -> str:
    """Why the kind is unknown here, with a suggestion; "" if it is ours or foreign."""
    group = api_version.rpartition("/")[0]
    known = KINDS.get(kind)
    if known is not None and api_version in known.versions:
        return ""
    if group not in OUR_GROUPS:
        # A group similar to ours is a typing mistake; any other is a foreign one.
        if known is not None and difflib.get_close_matches(group, [GROUP], cutoff=0.85):
            return f'apiVersion "{api_version}" is not known; a {kind} is {known.versions[0]}'
        return ""
    if known is not None:
        return (
            f'apiVersion "{api_version}" is not known for a {kind}; known: '
            f"{', '.join(known.versions)}"
        )
    names = [one.name for one in KINDS.values()]
    near = [one for one in names if one.lower() == kind.lower()] or difflib.get_close_matches(
        kind, names, n=1
    )
    if near:
        return f'kind "{kind}" is not known in {api_version}; did you mean "{near[0]}"?'
    return f'kind "{kind}" is not known in {api_version}; known: {", ".join(names)}'
