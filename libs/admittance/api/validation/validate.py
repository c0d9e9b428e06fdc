"""Applies all rules of manifests: returns the problems of a manifest or of a change."""

from __future__ import annotations

from admittance.api.checks import AdmissionCheck, Foreign, ProvisioningRequestConfig
from admittance.api.limits import VARIANTS_MAX
from admittance.api.manifests import Manifest, Typed
from admittance.api.problems import NOT_SUPPORTED, REQUIRED, Problem
from admittance.api.queues import ClusterQueue, Cohort, LocalQueue, ResourceFlavor
from admittance.api.validation.checks import (
    check_admission_check,
    check_admission_check_update,
    check_flavor,
    check_flavor_update,
    check_provisioning,
)
from admittance.api.validation.field_rules import field_problems
from admittance.api.validation.meta import check_metadata, object_name
from admittance.api.validation.queues import (
    check_cluster_queue,
    check_cluster_queue_update,
    check_cohort,
    check_local_queue,
    check_local_queue_update,
)
from admittance.api.validation.workload import check_job, check_workload
from admittance.api.workload import Job, Workload


def validate(manifest: Manifest, *, flavors_max: int = VARIANTS_MAX) -> list[Problem]:
    """The problems of a manifest by itself; [] if the manifest may be stored.

    Names of objects that do not exist are not problems: a queue without its flavor is inactive.
    ``flavors_max``: the deployment's limit of flavors in a queue in which each flavor becomes a
    variant.
    """
    if isinstance(manifest, Foreign):
        if not manifest.metadata.name and manifest.kind == "Configuration":
            message = "is not applied: services read it with --config FILE or ADMIT_CONFIG"
            return [Problem("", f"a Configuration {message}", NOT_SUPPORTED)]
        if not manifest.metadata.name:
            return [Problem("metadata.name", "must be set", REQUIRED)]
        return object_name(manifest.metadata.name, "metadata.name")
    found = check_metadata(manifest.metadata, manifest.kind) + field_problems(manifest)
    return found + _across_fields(manifest, flavors_max)


def _across_fields(manifest: Typed, flavors_max: int) -> list[Problem]:
    """The problems of several fields together, and of fields that `field_rules` does not check."""
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
        case ProvisioningRequestConfig():
            return check_provisioning(manifest)
        case Job():
            return check_job(manifest)
    return []


def validate_update(old: Manifest, new: Manifest) -> list[Problem]:
    """The problems of the change from old to new; `validate` finds the problems of new by itself.
    Workloads are not among them, because only facts change a stored workload.
    """
    match old, new:
        case ClusterQueue(), ClusterQueue():
            return check_cluster_queue_update(old, new)
        case LocalQueue(), LocalQueue():
            return check_local_queue_update(old, new)
        case ResourceFlavor(), ResourceFlavor():
            return check_flavor_update(old, new)
        case AdmissionCheck(), AdmissionCheck():
            return check_admission_check_update(old, new)
    return []
