"""Applies all rules of manifests: returns the problems of a manifest or of a change. Also the rules
of AdmissionCheck, ProvisioningRequestConfig and ResourceFlavor: docs/spec/scheduling.md#1.2,
docs/spec/lifecycle.md#2.1, #5.1.
"""

from __future__ import annotations

from string import ascii_letters, digits
from typing import Final

from admittance.api.budgets import BUDGET_CONTROLLER, VERSION, Budget, check_budget
from admittance.api.checks import (
    MACHINES_CHECK,
    MACHINES_CONTROLLER,
    PREEMPTS_AFTER_CHECK,
    AdmissionCheck,
    Foreign,
    ProvisioningRequestConfig,
    WorkloadPriorityClass,
)
from admittance.api.effects.walk import refusals
from admittance.api.fields.limits import CONTROLLER_MAX, FLAVOR_VARIANTS_DEFAULT
from admittance.api.fields.names import check_unique, code_of, kind_error, label_error, name_error
from admittance.api.fields.problems import FORBIDDEN, NOT_SUPPORTED, REQUIRED, TOO_LONG, Problem
from admittance.api.manifests import Manifest, Typed
from admittance.api.queues import ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Topology
from admittance.api.runners import Runner, check_runner, check_runner_update
from admittance.api.validation.field_rules import field_problems
from admittance.api.validation.meta import (
    check_metadata,
    check_taints,
    check_tolerations,
    object_name,
    unchanged,
)
from admittance.api.validation.queues import (
    check_cluster_queue,
    check_cluster_queue_update,
    check_cohort,
    check_local_queue,
    check_local_queue_update,
    check_min_run,
)
from admittance.api.validation.workload import check_job, check_workload
from admittance.api.workload import Job, Workload


def validate(manifest: Manifest, *, flavors_max: int = FLAVOR_VARIANTS_DEFAULT) -> list[Problem]:
    """The problems of a manifest by itself; [] if the manifest may be stored.

    Names of objects that do not exist are not problems: a queue without its flavor is inactive.
    ``flavors_max``: the deployment's limit of flavors in a queue in which each flavor becomes a
    variant.
    """
    if isinstance(manifest, Foreign):
        if not manifest.metadata.name and manifest.kind == "Configuration":
            message = "is not applied: services read it with --config FILE or ADMIT_CONFIG"
            return [Problem("", f"a Configuration {message}", NOT_SUPPORTED)]
        return check_foreign(manifest)
    problems = check_metadata(manifest.metadata, manifest.kind) + field_problems(manifest)
    return problems + refusals(manifest) + _across_fields(manifest, flavors_max)


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
        case Topology():
            return check_topology(manifest)
        case AdmissionCheck():
            return check_admission_check(manifest)
        case ProvisioningRequestConfig():
            return check_provisioning(manifest)
        case Budget():
            return check_budget(manifest)
        case WorkloadPriorityClass():
            return check_min_run(manifest, "minRunPolicy")
        case Runner():
            return check_taints(manifest.spec.taints, "spec.taints") + check_runner(manifest)
        case Job():
            return check_job(manifest)
    return []


def validate_update(old: Manifest, new: Manifest) -> list[Problem]:
    """The problems of changing a manifest from ``old`` to ``new``; `validate` finds the problems of
    ``new`` alone. No problem of a Workload is reported here, because only facts change a stored
    workload.
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
        case Runner(), Runner():
            return check_runner_update(old, new)
        case Foreign(), Foreign():
            # Keys have the kind in lower case, so two spellings of a kind have the same key.
            return unchanged(old.kind, new.kind, "kind", f": it is stored as {old.kind}")
    return []


def check_foreign(manifest: Foreign) -> list[Problem]:
    """The problems of the names in a foreign object. The names are parts of its key: with a dot in
    its kind, the object could have the key of an object of another group."""
    group, _, version = manifest.api_version.rpartition("/")
    meta = manifest.metadata
    problems = []
    for field, name, error_of in (
        ("apiVersion", group, name_error),
        ("apiVersion", version, label_error),
        ("kind", manifest.kind, kind_error),
        ("metadata.namespace", meta.namespace, label_error),
    ):
        error = error_of(name) if name or field != "metadata.namespace" else ""
        if error:
            problems.append(Problem(field, error, code_of(error)))
    if not meta.name:
        return [*problems, Problem("metadata.name", "must be set", REQUIRED)]
    return problems + object_name(meta.name, "metadata.name")


CONTROLLER_TOKEN_MAX: Final = 249
"""The most characters of a controller's name as a token on the bus: its durable consumer is named
``check-<token>``, and the server allows 255 characters.
"""
_PLAIN: Final = frozenset(f"{ascii_letters}{digits}-.".encode())


def check_admission_check(check: AdmissionCheck) -> list[Problem]:
    return [
        *_controller_problems(check.spec.controller_name),
        *_machines_problems(check),
        *_budget_problems(check),
    ]


def _budget_problems(check: AdmissionCheck) -> list[Problem]:
    """The problem of a check of the budget controller that names no Budget."""
    spec, named = check.spec, check.spec.parameters
    if spec.controller_name != BUDGET_CONTROLLER:
        return []
    group = VERSION.partition("/")[0]
    if named is not None and (named.api_group, named.kind) == (group, "Budget"):
        return []
    message = f"must name a Budget ({{apiGroup: {group}, kind: Budget, name: …}}) for the "
    message += f"controller {BUDGET_CONTROLLER}"
    return [Problem("spec.parameters", message, REQUIRED)]


def _machines_problems(check: AdmissionCheck) -> list[Problem]:
    """The problems of the check that places workloads on machines, and of the fields that only this
    check may have."""
    spec = check.spec
    problems = check_unique(spec.on_flavors, "spec.onFlavors")
    machines = spec.controller_name == MACHINES_CONTROLLER
    if spec.on_flavors and not (machines and check.metadata.name == MACHINES_CHECK):
        message = f"must be left out: only the AdmissionCheck {MACHINES_CHECK} of the controller "
        message += f"{MACHINES_CONTROLLER} has flavors; others are named by ClusterQueues"
        problems.append(Problem("spec.onFlavors", message, FORBIDDEN))
    if not machines:
        return problems
    if spec.preemption_policy != PREEMPTS_AFTER_CHECK:
        message = f"must be {PREEMPTS_AFTER_CHECK} for the controller {MACHINES_CONTROLLER}, "
        message += "which has to find a machine before others are stopped"
        problems.append(Problem("spec.preemptionPolicy", message))
    return problems


def _controller_problems(name: str) -> list[Problem]:
    if len(name) > CONTROLLER_MAX or _token_length(name) <= CONTROLLER_TOKEN_MAX:
        return []
    message = (
        f"has more than {CONTROLLER_TOKEN_MAX} characters on the bus, where any but letters, "
        "digits, - and . takes three or more"
    )
    return [Problem("spec.controllerName", message, TOO_LONG)]


def _token_length(name: str) -> int:
    """The length of the name as one token of a subject: see `admittance.events.names`, which this
    package does not import."""
    encoded = name.encode("utf-8", "surrogatepass")
    return sum(1 if byte in _PLAIN else 3 for byte in encoded)


def check_admission_check_update(old: AdmissionCheck, new: AdmissionCheck) -> list[Problem]:
    return unchanged(old.spec.controller_name, new.spec.controller_name, "spec.controllerName")


def check_provisioning(config: ProvisioningRequestConfig) -> list[Problem]:
    spec = config.spec
    problems = check_unique(spec.managed_resources, "spec.managedResources")
    if spec.pod_set_updates is not None:
        keys = [label.key for label in spec.pod_set_updates.node_selector]
        problems += check_unique(keys, "spec.podSetUpdates.nodeSelector", ".key")
    return problems


HOSTNAME: Final = "kubernetes.io/hostname"


def check_topology(topology: Topology) -> list[Problem]:
    levels = [level.node_label for level in topology.spec.levels]
    problems = check_unique(levels, "spec.levels", ".nodeLabel")
    for index, label in enumerate(levels[:-1]):
        if label == HOSTNAME:
            message = "must be the label of the last level, the finest one"
            problems.append(Problem(f"spec.levels[{index}].nodeLabel", message))
    return problems


def check_flavor(flavor: ResourceFlavor) -> list[Problem]:
    spec = flavor.spec
    problems = check_taints(spec.node_taints, "spec.nodeTaints")
    problems += check_tolerations(spec.tolerations, "spec.tolerations")
    if spec.topology_name is not None and not spec.node_labels:
        message = "must have at least one label while topologyName is set"
        problems.append(Problem("spec.nodeLabels", message, REQUIRED))
    return problems


def check_flavor_update(old: ResourceFlavor, new: ResourceFlavor) -> list[Problem]:
    if old.spec.topology_name is None:
        return []
    return unchanged(old.spec.topology_name, new.spec.topology_name, "spec.topologyName")
