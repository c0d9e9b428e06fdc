"""How the kinds of manifests that are ours are spelled, apart from their Structs.

The command line names kinds while the shell waits, and Structs take long to make.
"""

from __future__ import annotations

from typing import Final, NamedTuple

GROUP: Final = "kueue.x-k8s.io"
V1BETA1: Final = "kueue.x-k8s.io/v1beta1"
V1BETA2: Final = "kueue.x-k8s.io/v1beta2"
V1ALPHA1: Final = "kueue.x-k8s.io/v1alpha1"


class KindNames(NamedTuple):
    """``token`` stands for the kind in bucket keys and subjects; ``short`` are names for people."""

    name: str
    versions: tuple[str, ...]
    namespaced: bool
    plural: str
    token: str
    short: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """All that a person may type for it, in lower case."""
        return (self.name.lower(), self.plural, *self.short)


_OURS: Final = (V1BETA2, V1BETA1)

NAMES: Final[tuple[KindNames, ...]] = (
    KindNames("Workload", _OURS, True, "workloads", "workload", ("wl",)),
    KindNames("ClusterQueue", _OURS, False, "clusterqueues", "clusterqueue", ("cq",)),
    KindNames("LocalQueue", _OURS, True, "localqueues", "localqueue", ("lq", "queue")),
    KindNames("Cohort", (*_OURS, V1ALPHA1), False, "cohorts", "cohort", ("co",)),
    KindNames(
        "ResourceFlavor", _OURS, False, "resourceflavors", "flavor", ("rf", "flavor", "flavors")
    ),
    KindNames("AdmissionCheck", _OURS, False, "admissionchecks", "admissioncheck", ("ac", "check")),
    KindNames(
        "WorkloadPriorityClass",
        _OURS,
        False,
        "workloadpriorityclasses",
        "workloadpriorityclass",
        ("wpc", "priorityclass"),
    ),
    KindNames(
        "ProvisioningRequestConfig",
        _OURS,
        False,
        "provisioningrequestconfigs",
        "provisioningrequestconfig",
        ("prc",),
    ),
    KindNames("Namespace", ("v1",), False, "namespaces", "namespace", ("ns",)),
    KindNames("Job", ("batch/v1",), True, "jobs", "job", ()),
)
