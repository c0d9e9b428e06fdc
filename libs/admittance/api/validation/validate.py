"""One door to the rules: what is wrong with a manifest, and what may not change in it."""

from __future__ import annotations

from admittance.api.checks import (
    AdmissionCheck,
    Foreign,
    Namespace,
    ProvisioningRequestConfig,
    WorkloadPriorityClass,
)
from admittance.api.kinds import Manifest, Typed
from admittance.api.limits import VARIANTS_MAX
from admittance.api.problems import REQUIRED, Problem
from admittance.api.queues import ClusterQueue, Cohort, LocalQueue, ResourceFlavor
from admittance.api.validation.checks import (
    check_admission_check,
    check_admission_check_update,
    check_flavor,
    check_flavor_update,
    check_namespace,
    check_priority_class,
    check_provisioning,
)
from admittance.api.validation.meta import object_name
from admittance.api.validation.queues import (
    check_cluster_queue,
    check_cluster_queue_update,
    check_cohort,
    check_local_queue,
    check_local_queue_update,
)
from admittance.api.validation.stated import stated
from admittance.api.validation.workload import check_job, check_workload, check_workload_update
from admittance.api.workload import Job, Workload


def validate(manifest: Manifest, *, flavors_max: int = VARIANTS_MAX) -> list[Problem]:
    """Everything that is wrong with manifest by itself; empty when it may be stored.

    Whether what it names exists is asked elsewhere: a queue without its flavor is inactive, not
    wrong. ``flavors_max``: so many flavors may each be a variant, which a deployment may set.
    """
    if isinstance(manifest, Foreign):
        if not manifest.metadata.name:
            return [Problem("metadata.name", "must be set", REQUIRED)]
        return object_name(manifest.metadata.name, "metadata.name")
    return [*stated(manifest), *_of_several(manifest, flavors_max)]


def _of_several(manifest: Typed, flavors_max: int) -> list[Problem]:
    """Rules of more than one field, and those with words of their own."""
    match manifest:
        case Workload():
            return check_workload(manifest)
        case ClusterQueue():
            return check_cluster_queue(manifest, flavors_max)
        case LocalQueue():
            return check_local_queue(manifest)
        case Cohort():
            return check_cohort(manifest)
        case ResourceFlavor():
            return check_flavor(manifest)
        case AdmissionCheck():
            return check_admission_check(manifest)
        case WorkloadPriorityClass():
            return check_priority_class(manifest)
        case ProvisioningRequestConfig():
            return check_provisioning(manifest)
        case Namespace():
            return check_namespace(manifest)
        case Job():
            return check_job(manifest)


def validate_update(
    old: Manifest, new: Manifest, *, reserved: bool = False, admitted: bool = False
) -> list[Problem]:
    """What new may not be because old was; `validate` is asked separately.

    ``reserved`` and ``admitted`` say how far a workload is.
    """
    match old, new:
        case Workload(), Workload():
            return check_workload_update(old, new, reserved=reserved, admitted=admitted)
        case ClusterQueue(), ClusterQueue():
            return check_cluster_queue_update(old, new)
        case LocalQueue(), LocalQueue():
            return check_local_queue_update(old, new)
        case ResourceFlavor(), ResourceFlavor():
            return check_flavor_update(old, new)
        case AdmissionCheck(), AdmissionCheck():
            return check_admission_check_update(old, new)
    return []
