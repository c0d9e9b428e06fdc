"""The table of kinds: how our kinds of manifests are spelled in YAML, in keys and by people.

The Structs of the kinds are elsewhere, in `admittance.api.manifests`: Structs take long to import,
and the command line completes kinds while the shell waits.
"""

from __future__ import annotations

import difflib
from typing import Final, NamedTuple

GROUP: Final = "kueue.x-k8s.io"
V1BETA1: Final = "kueue.x-k8s.io/v1beta1"
V1BETA2: Final = "kueue.x-k8s.io/v1beta2"
V1ALPHA1: Final = "kueue.x-k8s.io/v1alpha1"
OUR_GROUPS: Final = frozenset({GROUP, "batch", ""})
"""API groups in which an unknown kind is a mistake; in any other group it is a foreign kind."""
_KUEUE: Final = (V1BETA2, V1BETA1)


class Kind(NamedTuple):
    """A kind of manifest. ``token``: the kind in bucket keys and subjects, of which it becomes one
    token. ``short``: short names that users may type. ``generated``: a generateName is accepted
    instead of a name.
    """

    name: str
    plural: str
    short: tuple[str, ...]
    token: str
    versions: tuple[str, ...] = _KUEUE
    namespaced: bool = False
    generated: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """All names of the kind that users may type, in lower case."""
        return (self.name.lower(), self.plural, *self.short)

    @property
    def group(self) -> str:
        return self.versions[0].rpartition("/")[0]

    @property
    def prefix(self) -> str:
        """The first token of the bucket keys of the kind's objects."""
        return self.token.replace(".", "_")


_ROWS: Final = (
    Kind("Workload", "workloads", ("wl",), "workload", namespaced=True, generated=True),
    Kind("ClusterQueue", "clusterqueues", ("cq",), "clusterqueue"),
    Kind("LocalQueue", "localqueues", ("lq", "queue"), "localqueue", namespaced=True),
    Kind("Cohort", "cohorts", ("co",), "cohort", (*_KUEUE, V1ALPHA1)),
    Kind("ResourceFlavor", "resourceflavors", ("rf", "flavor", "flavors"), "flavor"),
    Kind("Topology", "topologies", ("topo",), "topology", (*_KUEUE, V1ALPHA1)),
    Kind("AdmissionCheck", "admissionchecks", ("ac", "check"), "admissioncheck"),
    Kind(
        "WorkloadPriorityClass",
        "workloadpriorityclasses",
        ("wpc",),
        "workloadpriorityclass",
    ),
    Kind(
        "PriorityClass",
        "priorityclasses",
        ("pc",),
        "priorityclass.scheduling.k8s.io",
        ("scheduling.k8s.io/v1",),
    ),
    Kind(
        "ProvisioningRequestConfig",
        "provisioningrequestconfigs",
        ("prc",),
        "provisioningrequestconfig",
    ),
    Kind("Namespace", "namespaces", ("ns",), "namespace", ("v1",)),
    Kind("Budget", "budgets", ("bud",), "budget", ("admittance.dev/v1",)),
    Kind("Runner", "runners", ("machine", "machines"), "runner", ("admittance.dev/v1",)),
    Kind("Job", "jobs", (), "job", ("batch/v1",), namespaced=True, generated=True),
)

KINDS: Final[dict[str, Kind]] = {kind.name: kind for kind in _ROWS}

SUBMITTED_KINDS: Final = frozenset(kind.name for kind in _ROWS if kind.generated)
"""Kinds that are submitted and stored as workloads."""

OBJECT_KINDS: Final = {kind.prefix: kind.name for kind in _ROWS if not kind.generated}
"""The kinds of bucket objects other than workloads, by the first token of their keys."""

_BY_WORD: Final[dict[str, Kind]] = {word: kind for kind in _ROWS for word in kind.words}


def kind_named(word: str) -> Kind | None:
    """The kind for a word typed by a user, which is the kind's name, plural or short name, in any
    case.
    """
    return _BY_WORD.get(word.lower())


def unknown_kind(api_version: str, kind: str) -> str:
    """Why the kind is unknown, with a suggestion; "": the kind is known or foreign."""
    group = api_version.rpartition("/")[0]
    known = KINDS.get(kind)
    if known is not None and api_version in known.versions:
        return ""
    if group not in OUR_GROUPS and (known is None or group != known.group):
        # A group similar to `GROUP` is a typing mistake; any other group is foreign.
        if known is not None and difflib.get_close_matches(group, [GROUP], cutoff=0.85):
            return f'apiVersion "{api_version}" is not known; a {kind} is {known.versions[0]}'
        return ""
    if known is not None:
        versions = ", ".join(known.versions)
        return f'apiVersion "{api_version}" is not known for a {kind}; known: {versions}'
    near = [name for name in KINDS if name.lower() == kind.lower()]
    near = near or difflib.get_close_matches(kind, KINDS, n=1)
    hint = f'did you mean "{near[0]}"?' if near else f"known: {', '.join(KINDS)}"
    return f'kind "{kind}" is not known in {api_version}; {hint}'
