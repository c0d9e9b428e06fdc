"""Kueue's tables of admission fair sharing: the usage of LocalQueues, and their order."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from admittance.api.fields.units import amount, seconds
from admittance.events.facts import Assigned
from admittance.events.shapes import ConsumedUsage
from admittance.scheduling.fairsharing.usage import (
    Account,
    Nanos,
    add,
    consumed_of,
    quantity,
    status_of,
    to_billionths,
    weighted_sum,
)
from admittance.scheduling.state.config import CohortFairSharing, Config, UsageFairSharing
from conformance.differences import CONSUMED
from conformance.tables import START, Given, cases, needs_data, read, time_of

RECONCILED = [
    pytest.param(case, id=case["name"])
    for case in read("controllers/TestLocalQueueReconcile")
    if "afsConfig" in case["given"] and case["name"] not in CONSUMED
]


def sharing(given: Mapping[str, Any] | None) -> UsageFairSharing | None:
    """The configuration of a case."""
    if given is None:
        return None
    return UsageFairSharing(
        usage_half_life_time=timedelta(seconds=float(seconds(given["usageHalfLifeTime"]))),
        usage_sampling_interval=timedelta(seconds=float(seconds(given["usageSamplingInterval"]))),
        resource_weights=given.get("resourceWeights", {}),
    )


def used(quantities: Mapping[str, str]) -> Nanos:
    """Quantities of a case."""
    return consumed_of(ConsumedUsage(consumed_resources=dict(quantities), last_update=START))


def recorded(quantities: Mapping[str, str], at: str | None = None) -> ConsumedUsage:
    """The consumed usage of a case, as it would have been stored."""
    return ConsumedUsage(consumed_resources=dict(quantities), last_update=time_of(at))


def by_usage(given: dict[str, Any], config: Config) -> Given:
    """A scheduler with the objects of the case, LocalQueues and their usage included."""
    world = Given({**given, "workloads": ()}, config)
    for key, quantities in given.get("initConsumedResources", {}).items():
        namespace, name = key.split("/")
        world.core.apply_usage(namespace, name, recorded(quantities))
    for name, quantities in given.get("initialUsage", {}).items():
        world.core.apply_usage("default", name, recorded(quantities))
    for raw in given.get("wls", given.get("workloads", ())):
        world.workload(raw)
    return world


@needs_data
@pytest.mark.parametrize(
    "case",
    [
        *cases("admissionfairsharing/TestCalculateUsageWithDRA"),
        *cases("admissionfairsharing/TestCalculateUsageWithNonPositiveWeight"),
    ],
)
def test_usage_weighs_as_much_as_in_kueue(case: dict[str, Any]) -> None:
    given = case["given"]
    config = UsageFairSharing(resource_weights=given.get("resWeights", {}))
    amounts = used(given.get("consumed", {}))
    add(amounts, used(given.get("penalty", {})))
    want = case["want"].get("usage", 0)
    assert weighted_sum(config, amounts, given.get("lqWeight", 0)) == float(want)


@needs_data
def test_every_difference_in_what_is_consumed_is_a_case() -> None:
    assert {row["name"] for row in read("controllers/TestLocalQueueReconcile")} >= set(CONSUMED)


@needs_data
@pytest.mark.parametrize("case", RECONCILED)
def test_as_much_is_consumed_as_in_kueue(case: dict[str, Any]) -> None:
    given = case["given"]
    config = sharing(given["afsConfig"])
    assert config is not None
    now = time_of(given["now"])
    before = given.get("initialConsumedResources", {})
    since = time_of(before.get("lastUpdate", given["now"]))
    account = Account(config, 1.0, since)
    account.restore(used(before.get("resources", {})), since)
    account.expect(used(given.get("pendingEntryPenalty", {})))
    for raw in given.get("runningWls", ()):
        for place in raw["status"]["admission"]["podSetAssignments"]:
            for resource, text in place["resourceUsage"].items():
                # The table has it run all the time, and says nothing of a penalty.
                held = {resource: to_billionths(resource, amount(resource, text))}
                account.start(held, {}, since)
    status = case["want"]["localQueue"]["status"]["fairSharing"]["admissionFairSharingStatus"]
    want = status.get("consumedResources", {})
    shown = status_of(account, max(now, since))
    assert shown.consumed_resources == {name: text for name, text in want.items() if text != "0"}


def test_amounts_of_bytes_are_shown_whole_and_others_to_the_billionth() -> None:
    assert quantity("memory", 1_500_000_001) == "1"
    assert quantity("cpu", 1_500_000_000) == "1500m"
    assert quantity("gpu", 6_828_427_124) == "6828427124n"


@needs_data
@pytest.mark.parametrize("case", cases("queue/TestFsAdmission"))
def test_the_head_is_of_the_local_queue_that_kueue_takes_it_from(case: dict[str, Any]) -> None:
    given = case["given"]
    queues = [
        {**queue, "spec": {**queue.get("spec", {}), "clusterQueue": "cq"}} for queue in given["lqs"]
    ]
    config = Config(admission_fair_sharing=sharing(given.get("afsConfig")))
    world = by_usage({**given, "clusterQueues": [given["cq"]], "localQueues": queues}, config)
    head = world.queue("cq").head()
    assert head is not None
    assert head.key[1] == case["want"]["wl"]["metadata"]["name"]


@needs_data
@pytest.mark.parametrize("case", cases("scheduler/TestScheduleForAFS"))
def test_cycles_by_usage_admit_the_workloads_that_kueue_admits(case: dict[str, Any]) -> None:
    given = case["given"]
    counts = given["featureGates"]["AdmissionFairSharing"]
    config = Config(
        preemption=True,
        fair_sharing=CohortFairSharing() if counts else None,
        admission_fair_sharing=sharing(given["admissionFairSharing"]) if counts else None,
    )
    namespaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}]
    # The LocalQueue that a case deletes goes from Kueue's store alone; ours is the only place.
    world = by_usage({**given, "namespaces": namespaces}, config)
    admitted = []
    for _ in given["workloads"]:
        decided = world.core.cycle(now=world.now)
        admitted += [decision.name for decision in decided if isinstance(decision, Assigned)]
    want = [
        raw["metadata"]["name"]
        for raw in case["want"]["workloads"]
        if raw.get("status", {}).get("admission")
    ]
    assert sorted(admitted) == sorted(want)


@needs_data
@pytest.mark.parametrize("case", cases("scheduler/TestShouldApplyEntryPenalty"))
def test_an_admission_costs_a_penalty_where_it_does_in_kueue(case: dict[str, Any]) -> None:
    given = case["given"]
    offered = {"name": "default", "resources": [{"name": "cpu", "nominalQuota": "8"}]}
    spec: dict[str, Any] = {
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [offered]}],
    }
    if "admissionMode" in given:
        spec["admissionScope"] = {"admissionMode": given["admissionMode"]}
    api = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    shown = {
        "now": given["now"],
        "resourceFlavors": [{**api, "kind": "ResourceFlavor", "metadata": {"name": "default"}}],
        "clusterQueues": [
            {**api, "kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": spec}
        ],
        "localQueues": [
            {
                **api,
                "kind": "LocalQueue",
                "metadata": {"name": "lq", "namespace": "ns"},
                "spec": {"clusterQueue": "cq"},
            }
        ],
        "workloads": [given["wl"]],
    }
    world = by_usage(shown, Config(admission_fair_sharing=sharing(given.get("afsConfig"))))

    def pending() -> Nanos:
        accounts = world.world.accounts
        account = accounts.of(("ns", "lq")) if accounts is not None else None
        return dict(account.pending) if account is not None else {}

    before = pending()
    world.core.cycle(now=world.now)
    assert (pending() != before) is case["want"].get("result", False)


@needs_data
def test_victims_of_the_local_queue_that_used_more_come_first() -> None:
    (case,) = (
        row
        for row in read("preemption/TestCandidatesOrdering")
        if row["name"] == "workloads with higher LQ usage first"
    )
    api = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    own = case["given"]["preemptorClusterQueue"]
    scope = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}
    replied: dict[str, Any] = {
        "now": case["given"]["now"],
        "clusterQueues": [
            {**api, "kind": "ClusterQueue", "metadata": {"name": own}, "spec": scope}
        ],
        "localQueues": [
            {
                **api,
                "kind": "LocalQueue",
                "metadata": {"name": candidate["obj"]["spec"]["queueName"], "namespace": "default"},
                "spec": {"clusterQueue": own},
            }
            for candidate in case["given"]["candidates"]
        ],
        "initialUsage": {
            candidate["obj"]["spec"]["queueName"]: {"cpu": str(candidate["localQueueFSUsage"])}
            for candidate in case["given"]["candidates"]
        },
        "workloads": [
            {
                **candidate["obj"],
                "metadata": {**candidate["obj"]["metadata"], "namespace": "default"},
            }
            for candidate in case["given"]["candidates"]
        ],
    }
    config = Config(preemption=True, admission_fair_sharing=UsageFairSharing())
    world = by_usage(replied, config)
    queue = world.queue(own)
    assert queue.lanes is not None
    ordered = queue.lanes.used_most_first(queue.candidates)
    assert [entry[3][1] for entry in ordered] == case["want"]["candidates"]
