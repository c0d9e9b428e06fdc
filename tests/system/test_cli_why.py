"""Explanations, preemptions and cohorts, shown by the command against a whole system."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.servers import answer_with
from system.test_cli import Up

pytestmark = pytest.mark.bus

QUEUES = """\
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: spot}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: ondemand}
spec: {nodeTaints: [{key: ondemand, value: "yes", effect: NoSchedule}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: team-a}
spec:
  cohortName: research
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: spot
      resources: [{name: cpu, nominalQuota: 6}]
    - name: ondemand
      resources: [{name: cpu, nominalQuota: 4}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: team-b}
spec:
  cohortName: research
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: spot
      resources: [{name: cpu, nominalQuota: 4}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: a, namespace: default}
spec: {clusterQueue: team-a}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: b, namespace: default}
spec: {clusterQueue: team-b}
"""


@pytest.fixture(scope="module")
def admit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with Up(tmp_path_factory.mktemp("why")) as up:
        up.ok("apply", "-f", "-", stdin=QUEUES)
        for name, queue, cpu, priority in (
            ("mine", "a", "4", "5"),
            ("small", "a", "2", "1"),
            ("theirs", "b", "4", "9"),
        ):
            submit(up, name, queue, cpu, priority)
            up.ok("wait", "workload", name, "--for", "Running", "--timeout", "50s")
        submit(up, "waits", "a", "3", "3")
        yield up


def submit(up: Up, name: str, queue: str, cpu: str, priority: str) -> None:
    asked = ("--cpu", cpu, "--memory", "0", "--priority", priority)
    up.ok("submit", "-q", queue, "--name", name, *asked, "--", "sleep", "600")


def test_an_explanation_names_missing_quota_its_holders_and_their_protection(admit: Up) -> None:
    def explained() -> Any:
        return admit.ok("explain", "workload", "waits", "-o", "json").json()

    why = answer_with(explained, lambda reply: reply.get("parked"))
    assert (why["reason"], why["position"], why["cohort"]) == ("WaitingForQuota", 1, "research")
    spot, ondemand = why["flavors"]
    assert spot["rooms"][0]["short"] == 3000
    assert ("PriorityNotLower", "team-a") in {
        (bar["rule"], bar["clusterQueue"]) for bar in spot["barriers"]
    }
    assert ondemand["outcome"] == "Ineligible"
    assert {holder["name"] for holder in why["heldBy"]} == {"mine", "small", "theirs"}
    text = admit.ok("explain", "workload", "waits").out
    for part in (
        "queue a of clusterqueue team-a (cohort research, BestEffortFIFO), priority 3",
        "Preemption does not help",
        "ClusterQueue team-a has reclaimWithinCohort: Never, so other ClusterQueues keep",
        "3 more free cpu in flavor spot of cohort research (held by default/mine, default/theirs, "
        "default/small)",
        "a toleration of taint ondemand of flavor ondemand",
    ):
        assert part in text


def test_the_page_shows_the_output_of_the_command(admit: Up) -> None:
    page = (Path(__file__).parents[2] / "docs" / "why.md").read_text()
    (shown,) = re.findall(r"```console\n\$ admit explain workload waits\n(.*?)```", page, re.S)
    output = admit.ok("explain", "workload", "waits").out
    assert re.sub(r"waiting for \w+", "waiting for 3s", output) == shown


def test_pending_workloads_are_listed_with_numbers_flavors_and_a_limit(admit: Up) -> None:
    submit(admit, "waits-too", "a", "3", "2")

    def listed() -> Any:
        return admit.ok("get", "pending", "-q", "team-a", "-o", "json").json()

    def are_parked(reply: Any) -> bool:
        return reply["total"] == 2 and all(row["parked"] for row in reply["items"])

    reply = answer_with(listed, are_parked)
    assert [(row["name"], row["position"]) for row in reply["items"]] == [
        ("waits", 1),
        ("waits-too", 2),
    ]
    assert all(row["flavors"] == ["spot", "ondemand"] for row in reply["items"])
    assert "cpu: 3 short in flavor spot (3 asked, 0 free)" in reply["items"][0]["message"]
    head = admit.ok("get", "pending", "-q", "team-a", "--limit", "1")
    assert [line.split()[2] for line in head.lines[1:]] == ["waits"]
    assert "1 more pending" in head.err
    wide = admit.ok("get", "pending", "-q", "a", "-o", "wide").lines
    assert "FLAVORS TRIED" in wide[0]
    assert "spot,ondemand" in wide[1]
    assert len(admit.ok("get", "wl", "--limit", "1").lines) == 2


def test_the_tree_of_a_cohort_shows_quota_usage_and_borrowing(admit: Up) -> None:
    lines = [" ".join(line.split()) for line in admit.ok("describe", "cohort", "research").lines]
    assert "Object: none: other objects name it" in lines
    assert "ClusterQueues below: team-a, team-b" in lines
    assert "cohort research * ondemand cpu 0 4 0 0 0 4 -" in lines
    assert "cq team-b spot cpu 4 4 4 0 4 0 -" in lines
    missing = admit("describe", "cohort", "nowhere")
    assert (missing.status, missing.out) == (1, "")


def test_a_local_queue_shows_the_usage_of_its_own_workloads(admit: Up) -> None:
    status = admit.ok("get", "lq", "b", "-o", "json").json()["status"]
    spot = {"name": "spot", "resources": [{"name": "cpu", "total": "4"}]}
    assert status["flavorsUsage"] == [spot]
    assert status["flavorsReservation"] == [spot]


def test_victim_and_preempting_workload_both_show_the_preemption(admit: Up) -> None:
    submit(admit, "boss", "a", "1", "8")
    admit.ok("wait", "workload", "boss", "--for", "Running", "--timeout", "50s")
    why = admit.ok("explain", "workload", "small", "-o", "json").json()
    by = why["preemptedBy"]
    assert (by["by"], by["rule"]) == ("default/boss", "InClusterQueue")
    assert (by["grounds"]["byPriority"], by["grounds"]["priority"]) == (8, 1)
    text = admit.ok("explain", "workload", "small").out
    assert "by workload default/boss" in text
    assert "priority 8 in clusterqueue team-a against priority 1 in clusterqueue team-a" in text
    assert "allowed by withinClusterQueue: LowerPriority of clusterqueue team-a" in text
    described = admit.ok("describe", "workload", "small").out
    assert re.search(r"Preempted by: +workload default/boss, .* rule InClusterQueue", described)
    victim = admit.ok("events", "--workload", "small").out
    reason = "Preempted for default/boss in ClusterQueue team-a: priority 8 against 1"
    assert f"InClusterQueue: {reason}" in victim
    assert f"evicted           default/small  Preempted: {reason}" in victim
    preemptor = admit.ok("events", "--workload", "boss").out
    assert "WaitingForPreemptedWorkloads" in preemptor
    assert "default/small" in preemptor
    assert "team-a: main on spot; 1 cpu of" in preemptor
