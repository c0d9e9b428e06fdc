"""Builders of objects for tests; a test states only the fields that it needs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from admittance.api.meta import Condition, ObjectMeta
from admittance.events.shapes import Admission, PodSetAssignment
from admittance.family import FamilyRules
from admittance.workload.limits import Limits
from admittance.workload.moves.requests import Arrived
from admittance.workload.stored import StoredWorkload
from admittance.workload.transition_context import (
    CheckRules,
    FlavorParts,
    InactiveReason,
    RequiredCheck,
    TransitionContext,
)

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
API = "kueue.x-k8s.io/v1beta2"


def an_object(
    kind: str, name: str, spec: Any = None, namespace: str = "", **more: Any
) -> dict[str, Any]:
    """A manifest as a user writes it. ``metadata``: more of that; other names: beside the spec."""
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    meta.update(more.pop("metadata", {}))
    version = "v1" if kind == "Namespace" else API
    rest = more if spec is None else {**more, "spec": spec}
    return {"apiVersion": version, "kind": kind, "metadata": meta, **rest}


def resource_groups(
    flavors: Mapping[str, Any],
    resource: str = "cpu",
    checks: Mapping[str, Sequence[str]] | None = None,
) -> list[dict[str, Any]]:
    """One resource group. ``flavors``: for each flavor, in order, its quota or its nominal amount;
    ``checks``: for each flavor the names of its checks."""
    offered = []
    for name, of in flavors.items():
        quota = of if isinstance(of, Mapping) else {"nominalQuota": of}
        flavor_quotas: dict[str, Any] = {"name": name, "resources": [{"name": resource, **quota}]}
        if checks and name in checks:
            flavor_quotas["admissionChecks"] = list(checks[name])
        offered.append(flavor_quotas)
    return [{"coveredResources": [resource], "flavors": offered}]


def a_condition(kind: str, status: bool, reason: str = "", since: datetime = NOON) -> Condition:
    return Condition(
        type=kind,
        status="True" if status else "False",
        reason=reason or kind,
        last_transition_time=since,
    )


class Around:
    """Queues as a test wants them: everything runs, and no check is asked for, unless said.

    ``checks`` are queue-wide, ``per_flavor`` those of one flavor."""

    def __init__(
        self,
        checks: Iterable[str] = (),
        hindrance: InactiveReason | None = None,
        limits: Limits | None = None,
        rules: Iterable[CheckRules] = (),
    ) -> None:
        self.checks = tuple(checks)
        self.stopped = hindrance
        self.limits = limits or Limits()
        self.rules = {rule.name: rule for rule in rules}
        self.flavors: dict[str, FlavorParts] = {}
        self.edited = ""
        self.gone: tuple[str, ...] = ()
        self.per_flavor: dict[str, tuple[str, ...]] = {}
        self.families: FamilyRules | None = None

    def check(self, name: str) -> CheckRules | None:
        return self.rules.get(name) or CheckRules(name, f"ctl-{name}")

    def cluster_queue(self, namespace: str, queue: str) -> str:
        return "cq" if queue else ""

    def inactive_reason(self, namespace: str, queue: str) -> InactiveReason | None:
        return self.stopped

    def required_checks(
        self, cluster_queue: str, admission: Admission | None
    ) -> tuple[RequiredCheck, ...]:
        names = set(self.checks)
        for place in admission.pod_set_assignments if admission is not None else ():
            for flavor in place.flavors.values():
                names |= set(self.per_flavor.get(flavor, ()))
        return tuple(RequiredCheck(name, f"ctl-{name}") for name in sorted(names))

    def named_checks(self, cluster_queue: str) -> frozenset[str]:
        return frozenset(self.checks).union(*self.per_flavor.values())

    def edition(self, namespace: str, queue: str, check: str) -> str:
        return self.edited

    def flavor(self, name: str) -> FlavorParts:
        return self.flavors.get(name, FlavorParts())

    def not_offered(self, admission: Admission) -> tuple[str, ...]:
        return self.gone

    def family_rules(self, namespace: str, queue: str) -> FamilyRules | None:
        return self.families


def occasion(
    sequence: int = 1, now: datetime = NOON, around: Around | None = None
) -> TransitionContext:
    """A moment on the log."""
    return TransitionContext(now, sequence, now, around or Around())


def a_spec(
    requests: Mapping[str, str] | None = None,
    *,
    queue: str = "lq",
    count: int = 1,
    labels: Mapping[str, str] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """The spec of a workload with one pod set, as JSON would have it. labels: of its pods."""
    container = {
        "name": "c",
        "command": ["true"],
        "resources": {"requests": dict(requests or {"cpu": "1"})},
    }
    template: dict[str, Any] = {"spec": {"containers": [container]}}
    if labels:
        template["metadata"] = {"labels": dict(labels)}
    pods = {"name": "main", "count": count, "template": template}
    return {"podSets": [pods], "queueName": queue, **more}


def a_manifest(name: str = "w", namespace: str = "ns", **spec: Any) -> dict[str, Any]:
    """A Workload as a user writes it."""
    return an_object("Workload", name, a_spec(**spec), namespace)


def an_arrival(
    name: str = "w",
    namespace: str = "ns",
    *,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> Arrived:
    """A submission that has passed the door."""
    return Arrived(
        namespace=namespace,
        name=name,
        api_version=API,
        metadata=ObjectMeta(name=name, namespace=namespace, annotations=annotations or {}),
        spec=msgspec.Raw(json.dumps(a_spec(**spec)).encode()),
    )


def an_admission(cluster_queue: str = "cq", flavor: str = "default", cpu: str = "1") -> Admission:
    """One pod set on one flavor."""
    return Admission(
        cluster_queue=cluster_queue,
        pod_set_assignments=(
            PodSetAssignment(
                name="main", flavors={"cpu": flavor}, resource_usage={"cpu": cpu}, count=1
            ),
        ),
    )


def conditions_of(workload: StoredWorkload) -> dict[str, tuple[str, str]]:
    """Type to status and reason."""
    return {c.type: (c.status, c.reason) for c in workload.status.conditions}
