"""Budgets, checks and workloads with quota, as the bucket has them."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import msgspec

from admittance.api.budgets import BUDGET_CONTROLLER, VERSION, Budget, BudgetSpec
from admittance.api.checks import AdmissionCheck, AdmissionCheckSpec, ParametersReference
from admittance.api.meta import ObjectMeta
from admittance.api.workload import CheckState
from admittance.budgets.rules import BudgetRules
from admittance.events.shapes import Admission, PodSetAssignment
from admittance.workload.stored import StoredWorkload, WorkloadStatus
from support.builders import NOON, a_condition

HOUR = timedelta(hours=1)
GPU = "nvidia.com/gpu"


def a_budget(name: str = "b", **spec: Any) -> Budget:
    fields = {"per": "Namespace", "window": "Day", "unit": "cpu-hours", **spec}
    if not fields.keys() & {"limit", "limits"}:
        fields["limit"] = 4
    return Budget(
        metadata=ObjectMeta(name=name),
        spec=msgspec.convert(fields, BudgetSpec),
    )


def rules(**spec: Any) -> BudgetRules:
    return BudgetRules(a_budget(**spec))


def a_check(budget: str = "b", controller: str = BUDGET_CONTROLLER) -> AdmissionCheck:
    group = VERSION.partition("/")[0]
    return AdmissionCheck(
        spec=AdmissionCheckSpec(
            controller_name=controller,
            parameters=ParametersReference(api_group=group, kind="Budget", name=budget),
        )
    )


def a_holder(
    name: str,
    *,
    row: str = "Pending",
    reserved: datetime | None = NOON,
    admitted: datetime | None = None,
    limit: int | None = 3600,
    spent: int | None = None,
    stopping: bool = False,
    check: str = "budget",
    **more: Any,
) -> StoredWorkload:
    """A workload with one cpu. ``reserved`` None: it has no quota; ``admitted``: since when;
    ``row``: the state of its check, "": it has none; ``limit``: its time limit."""
    amounts: dict[str, str] = more.pop("amounts", {"cpu": "1"})
    place = PodSetAssignment(
        name="main",
        flavors=dict.fromkeys(amounts, more.pop("flavor", "default")),
        resource_usage=amounts,
        count=1,
    )
    conditions = []
    if reserved is not None:
        conditions.append(a_condition("QuotaReserved", True, since=reserved))
    if admitted is not None:
        conditions.append(a_condition("Admitted", True, since=admitted))
    if stopping:
        conditions.append(a_condition("Evicted", True, since=NOON))
    spec = {"queueName": more.pop("queue", "lq"), "maximumExecutionTimeSeconds": limit}
    spec |= {"role": more.pop("role", "regular")}
    holds = Admission(cluster_queue=more.pop("cluster_queue", "cq"), pod_set_assignments=(place,))
    return StoredWorkload(
        api_version="kueue.x-k8s.io/v1beta2",
        kind="Workload",
        metadata=ObjectMeta(name=name, namespace=more.pop("namespace", "ns"), uid=f"uid-{name}"),
        spec=msgspec.Raw(json.dumps(spec).encode()),
        status=WorkloadStatus(
            conditions=tuple(conditions),
            admission=holds if reserved is not None else None,
            admission_checks=(CheckState(name=check, state=row, **more.pop("row_fields", {})),)
            if row
            else (),
            admission_cycle=more.pop("cycle", 1),
            submitted_by=more.pop("user", "ada"),
            accumulated_past_execution_time_seconds=spent,
            **more,
        ),
    )
