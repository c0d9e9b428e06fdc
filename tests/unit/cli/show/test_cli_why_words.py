"""The sections of an explanation as text, and the tree of a cohort."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from admittance.cli.show import explanations as explain
from admittance.cli.show import sections
from admittance.cli.support.output import Table, aligned
from admittance.events.requests.explanation import (
    Ahead,
    ExplainReply,
    FlavorVerdict,
    HeldLease,
    Holder,
    Outlook,
    PreemptionVictim,
    Protection,
    Room,
)
from admittance.events.requests.queues import NodeStatus, NodeUsage
from admittance.events.shapes import Grounds, PreemptedBy, Shares, Taken
from admittance.quota.cell import UNLIMITED

NOON = datetime(2026, 2, 7, 12, tzinfo=UTC)


def lines(table: Table) -> list[str]:
    return [" ".join(line.split()) for line in aligned(table)][1:]


def test_place_shows_queue_position_and_workloads_ahead() -> None:
    reply = ExplainReply(
        cluster_queue="cq",
        local_queue="main",
        cohort="research",
        strategy="StrictFIFO",
        priority=5,
        position=2,
        pending=7,
        parked=True,
        waiting_since=NOON - timedelta(minutes=5),
        ahead=(Ahead(namespace="ns", name="a", position=1, priority=9, holds_place=True),),
        outlook=Outlook(outcome="NoFit", reason="ExceedsMaxQuota"),
    )
    assert list(explain.place(reply, NOON)) == [
        "queue main of clusterqueue cq (cohort research, StrictFIFO), priority 5",
        "position 2 of 7, waiting for 5m, parked until something changes",
        "behind ns/a (number 1, priority 9, preempting)",
        "next cycle: it does not fit (ExceedsMaxQuota)",
    ]


OUTLOOK_CASES: dict[str, tuple[Outlook, str]] = {
    "it fits by borrowing": (
        Outlook(outcome="Fits", flavors={"main": {"cpu": "spot"}}, level=1),
        "it fits: main on spot (cpu), borrowing at level 1",
    ),
    "fewer pods fit": (
        Outlook(outcome="Fits", flavors={"main": {"cpu": "spot"}}, counts={"main": 3}),
        "it fits: main on spot (cpu), with 3 pods of main only",
    ),
    "others have to go": (
        Outlook(
            outcome="Preempts",
            flavors={"main": {"cpu": "spot"}},
            victims=(PreemptionVictim(namespace="ns", name="v", cluster_queue="cq"),),
            victims_left_out=2,
        ),
        "it fits once 3 workloads have gone: main on spot (cpu)",
    ),
    "preemption does not help": (
        Outlook(outcome="NoCandidates", reason="WaitingForQuota"),
        "it does not fit, and preemption does not help (WaitingForQuota)",
    ),
    "it is not looked at": (
        Outlook(outcome="Hindered", reason="Suspended"),
        "it is not considered (Suspended)",
    ),
}


@pytest.mark.parametrize("case", OUTLOOK_CASES)
def test_the_outlook_is_one_line(case: str) -> None:
    outlook, want = OUTLOOK_CASES[case]
    assert explain.outlook(outlook) == want


def test_flavors_are_shown_resource_by_resource_with_their_numbers() -> None:
    verdicts = (
        FlavorVerdict(
            pod_set="main",
            flavor="spot",
            reason="WaitingForQuota",
            message="cpu: 1 short",
            rooms=(
                Room(resource="cpu", requested=3000, taken=1000, available=3000, short=1000,
                     usage=6000, nominal=4000, potential=9000),
                Room(resource="memory", requested=1024, available=UNLIMITED, nominal=UNLIMITED,
                     potential=UNLIMITED),
            ),
        ),
        FlavorVerdict(pod_set="main", flavor="", resources=("gpu",), message="unavailable"),
    )  # fmt: skip
    assert lines(explain.flavor_table(verdicts)) == [
        "main spot cpu 1+3 3 1 6 4 9 no WaitingForQuota: cpu: 1 short",
        "main spot memory 1Ki unlimited - 0 unlimited unlimited",
        "main - gpu - - - - - - no unavailable",
    ]


def test_holders_are_shown_with_what_protects_them() -> None:
    holders = (
        Holder(
            namespace="ns", name="a", cluster_queue="x", flavor="spot", resource="cpu",
            amount=1500, priority=2, borrowed=True, spared_by="PriorityNotLower",
        ),
        Holder(
            namespace="ns", name="b", cluster_queue="y", flavor="spot", resource="cpu",
            amount=1000, leaving=True,
        ),
        Holder(
            namespace="ns", name="c", cluster_queue="y", flavor="spot", resource="cpu", amount=1000
        ),
    )  # fmt: skip
    assert lines(explain.holder_table(holders)) == [
        "ns/a x spot 1500m cpu 2 yes PriorityNotLower",
        "ns/b y spot 1 cpu 0 no stopping",
        "ns/c y spot 1 cpu 0 no candidate",
    ]
    leased = (holders[0], replace(holders[2], leased=True))
    assert lines(explain.holder_table(leased)) == [
        "ns/a x spot 1500m cpu 2 yes PriorityNotLower by a job",
        "ns/c y spot 1 cpu 0 no candidate by a program until its lease ends",
    ]


@pytest.mark.parametrize(
    ("phase", "renewed", "ends", "line"),
    [
        ("Admitted", None, 20,
         "a program holds its quota: its lease of 60 s, not renewed yet, ends in 20s "
         "(2026-02-07T12:00:20Z) unless the program renews it"),
        ("Running", 15, 45,
         "a program holds its quota: its lease of 60 s, renewed 15s ago, ends in 45s "
         "(2026-02-07T12:00:45Z) unless the program renews it"),
        ("Pending", 61, -1,
         "a program waits for its quota: its lease of 60 s, renewed 1m1s ago, has ended "
         "(2026-02-07T11:59:59Z)"),
    ],
)  # fmt: skip
def test_the_lease_of_a_program_is_shown_with_its_end(
    phase: str, renewed: int | None, ends: int, line: str
) -> None:
    lease = HeldLease(
        duration_seconds=60,
        until=NOON + timedelta(seconds=ends),
        renewed_at=None if renewed is None else NOON - timedelta(seconds=renewed),
    )
    assert explain.lease_text(lease, phase, NOON) == line


def test_a_barrier_of_two_pod_sets_is_shown_once() -> None:
    bar = Protection(cluster_queue="x", flavor="spot", resource="cpu", rule="R", message="it stays")
    verdict = FlavorVerdict(pod_set="a", flavor="spot", barriers=(bar,))
    two = FlavorVerdict(pod_set="b", flavor="spot", barriers=(bar,))
    assert explain.barriers((verdict, two)) == ("cpu in flavor spot: it stays (R)",)


def test_the_preempting_workload_is_shown_with_rule_and_numbers() -> None:
    by = PreemptedBy(
        by="ns/boss",
        rule="InCohortFairSharing",
        at=NOON - timedelta(seconds=90),
        grounds=Grounds(
            cluster_queue="x",
            priority=1,
            by_cluster_queue="y",
            by_priority=8,
            policy="reclaimWithinCohort: Any",
            shares=Shares(
                strategy="LessThanOrEqualToFinalShare", preemptor=100.0, victim=400.0, after=250.0
            ),
            short=(Taken(flavor="spot", resource="cpu", amount=4000, available=1000),),
        ),
    )
    assert list(explain.preempted(by, NOON)) == [
        "by workload ns/boss, 1m30s ago (2026-02-07T11:58:30Z), rule InCohortFairSharing",
        "priority 8 in clusterqueue y against priority 1 in clusterqueue x",
        "allowed by reclaimWithinCohort: Any of clusterqueue y",
        "LessThanOrEqualToFinalShare: share 100 against 250, what is left of 400",
        "for 4 cpu in flavor spot, where 1 was free",
    ]


def test_a_share_with_weight_zero_is_shown_as_without_weight() -> None:
    shares = Shares(strategy="LessThanInitialShare", preemptor=5.0, victim=float(UNLIMITED))
    assert explain.shares(shares) == "LessThanInitialShare: share 5 against without weight"


def test_a_tree_is_shown_level_by_level_with_borrowed_and_lendable_quota() -> None:
    def usage(nominal: int, subtree: int, used: int, borrowed: int = 0) -> NodeUsage:
        return NodeUsage(
            flavor="spot", resource="cpu", nominal=nominal, subtree=subtree, usage=used,
            borrowed=borrowed, lendable=subtree, available=1000, borrowing_limit=2000,
        )  # fmt: skip

    tree = (
        NodeStatus(name="root", kind="Cohort", usage=(usage(0, 6000, 5000),)),
        NodeStatus(
            name="a", kind="ClusterQueue", depth=1, parent="root", pending=3, reserving=2,
            usage=(usage(2000, 2000, 3000, 1000),),
        ),
        NodeStatus(name="left", kind="Cohort", depth=1, parent="root", share=250),
    )  # fmt: skip
    assert lines(sections.tree_table(tree, "root")) == [
        "cohort root * spot cpu 0 6 5 0 6 1 borrow 2",
        "cq a spot cpu 2 2 3 1 2 1 borrow 2",
        "cohort left - - - - - - - - -",
    ]
    facts = dict(sections.facts_of(tree, "root"))
    assert facts["ClusterQueues below"] == "a"
    assert (facts["Pending below"], facts["Reserving below"]) == ("3", "2")
    assert dict(sections.facts_of(tree, "left"))["Weighted share"] == "250"
