"""The page that tries a change: its sentence, its lists, its differences, and what it applies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from admittance.client.calls import Login
from admittance.events.requests.whatif import (
    Counts,
    SimulatedState,
    SimulateReply,
    WouldBeEvicted,
    WouldStart,
    WouldWait,
)
from admittance.events.shapes import Admission, PodSetAssignment
from admittance.web.views.whatif.object_changes import (
    change_of_object,
    manifest_text,
    with_more_quota,
)
from admittance.web.views.whatif.result import result_of, say
from admittance.web.views.whatif.view import Attempt, applying, build
from support.printed_actions import arguments_of_call, parameters_of_command

ADMIN = Login("root", "admin")


def on(flavor: str) -> Admission:
    return Admission(
        cluster_queue="cq",
        pod_set_assignments=(PodSetAssignment(name="main", flavors={"cpu": flavor}),),
    )


REPLY = SimulateReply(
    counts=Counts(evictions=1, starts=2, waits=1, run=3, pending=1),
    evictions=(
        WouldBeEvicted(
            namespace="ns",
            name="low",
            cluster_queue="cq",
            reason="Preempted",
            rule="InClusterQueue",
            by="ns/high",
            ran=True,
            then=SimulatedState(phase="Pending", position=8),
        ),
    ),
    starts=(
        WouldStart(
            namespace="ns",
            name="high",
            admission=on("spot"),
            after=1,
            preempts=("ns/low",),
            otherwise=SimulatedState(phase="Pending", position=1),
        ),
        WouldStart(namespace="ns", name="new", admission=on("gold"), checks=("money",)),
    ),
    waits=(
        WouldWait(
            namespace="ns",
            name="low",
            cluster_queue="cq",
            position=8,
            message="cpu: 1 short",
            otherwise=SimulatedState(phase="Running", admission=on("spot")),
        ),
    ),
    warnings=("ClusterQueue x becomes inactive",),
)


def test_lists_say_what_was_and_what_becomes() -> None:
    result = result_of(REPLY, 0.44)
    shown = [
        (group.word.text, row.name.text, row.before, row.after.text, row.why)
        for group in result.groups
        for row in group.rows
    ]
    assert shown == [
        (
            "Would be evicted",
            "low",
            "runs in cq",
            "waits, number 8",
            "At once. Preempted by ns/high (InClusterQueue).",
        ),
        ("Would start", "high", "waits, number 1", "runs on spot", "Once ns/low has stopped."),
        (
            "Would start",
            "new",
            "does not exist",
            "has quota in gold",
            "At once. Its checks must be Ready before: money.",
        ),
        ("Would wait", "low", "runs on spot", "waits, number 8 in cq", "Cpu: 1 short."),
    ]
    assert (result.took, result.notes) == ("0.4 s", REPLY.warnings)


@pytest.mark.parametrize(
    ("counts", "sentence"),
    [
        (
            Counts(evictions=2, starts=2, waits=1, run=28),
            "With this change 2 would be evicted, 2 would start and 1 would wait. 28 others stay "
            "as they are. Nothing has been changed.",
        ),
        (
            Counts(starts=1, pending=1),
            "With this change 1 would start. 1 other stays as it is. Nothing has been changed.",
        ),
        (
            Counts(run=5),
            "Nothing would start, wait or be evicted that does not do so anyway. Nothing has been "
            "changed.",
        ),
    ],
    ids=["three lists", "one list", "no difference"],
)
def test_the_sentence_counts_what_changes(counts: Counts, sentence: str) -> None:
    assert "".join(part.text for part in say(counts)) == sentence


def test_an_empty_list_is_left_out_and_a_long_one_is_cut() -> None:
    starts = tuple(
        WouldStart(namespace="ns", name=f"w{number}", admission=on("spot")) for number in range(101)
    )
    (group,) = result_of(SimulateReply(counts=Counts(starts=150), starts=starts), 1).groups
    assert (group.count, len(group.rows), group.more) == (150, 100, "50 more")


def test_workloads_of_other_namespaces_are_only_counted() -> None:
    (group,) = result_of(SimulateReply(counts=Counts(waits=2)), 1).groups
    assert (group.rows, group.more) == ((), "2 in other namespaces")


# What differs. -----------------------------------------------------------------------------------

QUEUE: dict[str, Any] = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "ClusterQueue",
    "metadata": {
        "name": "cq",
        "uid": "1",
        "annotations": {"admittance.dev/applied-by": "root", "note": "1e3"},
    },
    "spec": {
        "preemption": {"withinClusterQueue": "Never"},
        "resourceGroups": [
            {
                "coveredResources": ["cpu", "memory"],
                "flavors": [
                    {
                        "name": "spot",
                        "resources": [
                            {"name": "cpu", "nominalQuota": "1500m"},
                            {"name": "memory", "nominalQuota": "4Gi"},
                        ],
                    }
                ],
            }
        ],
    },
    "status": {"conditions": []},
}


def changed(**spec: Any) -> dict[str, Any]:
    return {**QUEUE, "spec": {**QUEUE["spec"], **spec}}


def test_differences_are_named_by_flavor_and_resource() -> None:
    more = with_more_quota(QUEUE, "spot", "cpu", 2000)
    assert more is not None
    more["spec"]["preemption"] = {"reclaimWithinCohort": "Any"}
    change = change_of_object("cq", QUEUE, more)
    assert [(line.field, line.before, line.after) for line in change.lines] == [
        ("preemption.reclaimWithinCohort", "", "Any"),
        ("spot, cpu, nominalQuota", "1500m", "3500m"),
        ("preemption.withinClusterQueue", "Never", ""),
    ]


def test_a_flavor_that_goes_is_a_difference() -> None:
    change = change_of_object("cq", QUEUE, changed(resourceGroups=[]))
    assert ("spot", "is there", "") in [
        (line.field, line.before, line.after) for line in change.lines
    ]


def test_a_new_object_and_an_unchanged_one_have_a_note() -> None:
    assert change_of_object("cq", None, QUEUE).note == "It does not exist yet."
    stripped = {**QUEUE, "metadata": {"name": "cq", "annotations": {"note": "1e3"}}}
    assert change_of_object("cq", QUEUE, stripped).note == "It is like that already."


def test_quota_of_a_flavor_that_the_queue_has_not_is_not_raised() -> None:
    assert with_more_quota(QUEUE, "gold", "cpu", 1) is None
    assert with_more_quota(QUEUE, "spot", "gpu", 1) is None


def test_a_manifest_to_edit_leaves_out_what_the_system_stores() -> None:
    text = manifest_text(QUEUE)
    assert text.startswith("apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata:\n")
    assert "note: '1e3'" in text
    assert not any(word in text for word in ("uid", "status", "applied-by"))


# What is applied. --------------------------------------------------------------------------------

TEXT = Attempt(text="kind: ClusterQueue")
PRIORITY = Attempt(workload="team a/w'1", priority="7")
QUEUE_OF_W = Attempt(workload="ns/w", queue="other")


@pytest.mark.parametrize(
    ("attempt", "role", "only_workloads", "offered"),
    [
        (TEXT, "", False, True),
        (TEXT, "admin", False, True),
        (TEXT, "user", False, False),
        (TEXT, "user", True, True),
        (TEXT, "viewer", True, False),
        (PRIORITY, "user", False, True),
        (PRIORITY, "viewer", False, False),
        (QUEUE_OF_W, "admin", False, False),
        (Attempt(text="x", workload="ns/w", priority="1"), "admin", False, False),
    ],
)
def test_apply_is_offered_to_those_that_may(
    attempt: Attempt, role: str, only_workloads: bool, offered: bool
) -> None:
    ask, _ = applying(attempt, Login("ada", role), only_workloads=only_workloads)
    assert (ask is not None) == offered


def test_another_queue_is_reached_by_submitting_again() -> None:
    _, instead = applying(QUEUE_OF_W, ADMIN, only_workloads=False)
    assert "admit resubmit w --queue other -n ns; admit delete workload w -n ns" in instead


@pytest.mark.parametrize("attempt", [TEXT, PRIORITY], ids=["manifests", "a priority"])
def test_the_printed_words_are_those_of_admit_and_of_the_client(attempt: Attempt) -> None:
    ask, _ = applying(attempt, ADMIN, only_workloads=False)
    assert ask is not None and ask.confirm
    parameters = parameters_of_command(ask)
    if attempt is PRIORITY:
        assert parameters["words"] == ("w'1", "7")
        given = arguments_of_call(ask)
        assert (given["name"], given["priority"], given["namespace"]) == ("w'1", 7, "team a")


def test_a_trial_prints_its_command() -> None:
    result = result_of(SimulateReply(), 0)
    view = build(PRIORITY._replace(text="kind: X", queue="q"), ADMIN, result=result)
    assert view.command == (
        "admit simulate -f FILE --set 'w'\"'\"'1:priority=7' --set 'w'\"'\"'1:queue=q' -n 'team a'"
    )
    assert "'priority': 7, 'queue': 'q'" in view.python
    assert (
        view.title == "What if: Nothing would start, wait or be evicted that does not do so anyway"
    )


def test_a_refusal_keeps_the_fields() -> None:
    view = build(PRIORITY, ADMIN, problems=["no"])
    assert (view.title, view.workload, view.priority) == ("Refused", "team a/w'1", "7")
    assert json.dumps(view.problems) == '["no"]'
