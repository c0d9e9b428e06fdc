"""Families of variants in lists, descriptions and refusals."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from admittance.cli.show import explanations as why
from admittance.cli.show import tables, variants
from admittance.cli.show.variant_tree import arranged
from admittance.cli.support.output import Table
from admittance.client.errors import RequestFailed
from admittance.client.kinds import WORKLOAD
from admittance.client.requests.objects import BucketObject
from admittance.client.requests.submissions.commands import allowing
from admittance.client.requests.workloads.changes import variant_with_check
from admittance.client.requests.workloads.families import names_of, refuse_variant, tags_of
from admittance.events.requests.explanation import ExplainReply, VariantVerdict
from support.builders import NOON, a_manifest
from unit.cli.show.stored_families import (
    a_family,
    a_parent,
    a_queue,
    as_found,
    as_stored,
    its_variants,
    the_rules,
)

QUEUE = a_queue("reservation", "on-demand", "spot")
RULES = the_rules(QUEUE)
ON_SPOT = {
    "clusterQueue": "cq",
    "podSetAssignments": [{"name": "main", "flavors": {"cpu": "spot"}, "count": 1}],
}
WAITS = ("QuotaReserved", "False", "WaitingForQuota", "no room in reservation")
RESERVED = ("QuotaReserved", "True", "QuotaReserved", "")
ADMITTED = ("Admitted", "True", "Admitted", "")


def a_row(tag: str, active: bool, why: str) -> dict[str, Any]:
    return {"name": f"train-variant-{tag}", "variant": tag, "active": active, "why": why}


def running_on_spot(**status: Any) -> dict[str, Any]:
    return a_parent(
        "train",
        RESERVED,
        ADMITTED,
        admission=ON_SPOT,
        admittedVariant="train-variant-spot",
        firstAdmittedAt=(NOON - timedelta(minutes=5)).isoformat(),
        **{
            "variants": [
                a_row("reservation", True, "upgrade"),
                a_row("on-demand", False, "User"),
                a_row("spot", True, "admitted"),
            ],
            **status,
        },
    )


STATES: dict[str, dict[str, Any]] = {
    "reservation": {"conditions": (WAITS,), "since": NOON - timedelta(minutes=3)},
    "on-demand": {
        "active": False,
        "stoppedBy": "User",
        "conditions": (("QuotaReserved", "False", "Deactivated", "Variant deactivated: User"),),
    },
    "spot": {
        "conditions": (RESERVED, ADMITTED),
        "since": NOON - timedelta(minutes=5),
        "admission": ON_SPOT,
    },
}


def everything() -> list[BucketObject]:
    """A family and a regular workload, by name, as the bucket lists them."""
    parent = running_on_spot()
    values = [a_manifest("alone"), parent, *its_variants(parent, RULES, STATES)]
    return sorted(
        (as_found(value) for value in values), key=lambda bucket_object: bucket_object.name
    )


def column(table: Table, title: str) -> list[str]:
    place = [column.title for column in table.columns].index(title)
    return [row[place] for row in table.rows]


# Lists. -------------------------------------------------------------------------------------


def test_variants_are_listed_below_their_parent_best_first() -> None:
    table = tables.table(WORKLOAD, everything(), NOON, {})
    assert column(table, "NAME") == [
        "alone",
        "train",
        "├─ train-variant-reservation",
        "├─ train-variant-on-demand",
        "└─ train-variant-spot",
    ]
    assert column(table, "PHASE")[1:] == ["Admitted", "Pending", "Deactivated", "Admitted"]
    assert column(table, "FLAVORS")[1:] == ["spot", "-", "-", "spot"]


def test_a_variant_without_its_parent_in_the_list_keeps_its_place() -> None:
    orphans = [member for member in everything() if member.name != "train"]
    assert [(line.found.name, line.mark) for line in arranged(orphans)] == [
        ("alone", ""),
        ("train-variant-on-demand", ""),
        ("train-variant-reservation", ""),
        ("train-variant-spot", ""),
    ]


# Lanes. -------------------------------------------------------------------------------------


def test_the_variant_table_shows_phase_and_reason() -> None:
    table = variants.variant_table(a_family(running_on_spot(), QUEUE, STATES), NOON)
    assert column(table, "VARIANT") == ["reservation", "on-demand", "spot"]
    assert column(table, "ACTIVE") == ["yes", "no", "yes"]
    assert column(table, "PHASE") == ["Pending", "Deactivated", "Admitted"]
    assert column(table, "SINCE") == ["3m", "0s", "5m"]
    assert column(table, "RESERVED") == ["-", "-", "cq: main on spot"]
    assert column(table, "WHY") == [
        "upgrade: it is better than the admitted variant",
        "User: a user stopped it",
        "admitted: the job runs as this variant",
    ]
    assert column(table, "MESSAGE")[0] == "WaitingForQuota: no room in reservation"


@pytest.mark.parametrize(
    ("status", "want"),
    [
        pytest.param({}, "closed", id="closed and not needed"),
        pytest.param(
            {"conditions": (("BlockedOnPreemptionGates", "True", "PreemptionGated", ""),)},
            "closed, needs it open for 2m",
            id="closed, and it would have to preempt",
        ),
        pytest.param(
            {
                "preemptionGates": [
                    {
                        "name": "kueue.x-k8s.io/concurrent-admission",
                        "position": "Open",
                        "lastTransitionTime": (NOON - timedelta(minutes=1)).isoformat(),
                    }
                ]
            },
            "open for 1m",
            id="open, and since when",
        ),
    ],
)
def test_the_variant_table_shows_the_preemption_gate(status: dict[str, Any], want: str) -> None:
    states = {"reservation": {"since": NOON - timedelta(minutes=2), **status}}
    table = variants.variant_table(a_family(a_parent(), QUEUE, states), NOON)
    assert column(table, "GATE")[0] == want


def test_a_parent_shows_the_checks_of_its_active_variants() -> None:
    rows = [{"name": "budget", "state": "Pending", "message": "asking"}]
    states: dict[str, dict[str, Any]] = {
        "spot": {"admissionChecks": rows},
        "on-demand": {"admissionChecks": rows},
    }
    table = variants.check_table(a_family(a_parent(), QUEUE, states), NOON)
    assert column(table, "VARIANT") == ["on-demand", "spot"]
    assert column(table, "CHECK") == ["budget", "budget"]
    assert variants.check_table(a_family(a_parent(), QUEUE), NOON).rows == []
    states["spot"]["active"] = False
    off = variants.check_table(a_family(a_parent(), QUEUE, states), NOON)
    assert column(off, "VARIANT") == ["on-demand"]


def test_a_variant_that_its_queue_no_longer_has_will_be_deleted() -> None:
    family = a_family(a_parent(), QUEUE)._replace(rules=the_rules(a_queue("spot")))
    whys = column(variants.variant_table(family, NOON), "WHY")
    assert whys[0] == "the queue has no variant reservation any more: the variant will be deleted"
    assert whys[2].startswith("race")


def test_variants_of_a_finished_job_have_no_reason() -> None:
    done = ("Finished", "True", "Succeeded", "")
    states = {tag: {"conditions": (done,)} for tag in ("reservation", "on-demand", "spot")}
    parent = running_on_spot()
    parent["status"]["conditions"].append({"type": "Finished", "status": "True"})
    family = a_family(parent, QUEUE, states)
    assert column(variants.variant_table(family, NOON), "WHY") == ["-", "-", "-"]
    shown = dict(variants.parent_facts(family, NOON))
    assert shown["Ran as"] == "spot (train-variant-spot)"
    assert "Racing since" not in shown


# An explanation. ----------------------------------------------------------------------------


def a_verdict(phase: str, reason: str = "", message: str = "", **more: Any) -> VariantVerdict:
    explained = ExplainReply(phase=phase, reason=reason, message=message)
    more = {"why": "race", **more}
    return VariantVerdict(name="w-variant-a", variant="a", explained=explained, **more)


RACES = "a (w-variant-a) is active (race, no variant is admitted yet, all variants try), Pending"


@pytest.mark.parametrize(
    ("verdict", "want"),
    [
        pytest.param(
            a_verdict("Pending", "WaitingForQuota", "short", gate="Open"),
            f"{RACES} (WaitingForQuota: short); its preemption gate is open",
            id="one that tries",
        ),
        pytest.param(
            a_verdict("Deactivated", "Deactivated", "no", active=False, why="createDelay"),
            "a (w-variant-a) is inactive (createDelay, its create delay has not passed yet)",
            id="one that does not",
        ),
        pytest.param(
            a_verdict("Running", "Admitted", why="admitted", admitted=True, gate="Open"),
            "a (w-variant-a) is active (admitted, the job runs as this variant), Running",
            id="the one that is admitted",
        ),
        pytest.param(
            a_verdict("Pending", set_aside="a better one goes first"),
            f"{RACES}; not tried now: a better one goes first",
            id="one that has to let another one go first",
        ),
    ],
)
def test_a_variant_is_explained_in_one_line(verdict: VariantVerdict, want: str) -> None:
    assert why.variant(verdict) == want


# What a parent tells. -----------------------------------------------------------------------


def test_a_parent_shows_its_variant_migrations_and_open_gate() -> None:
    parent = running_on_spot(
        schedulingStats={
            "evictions": [
                {"reason": "VariantEvicted", "underlyingCause": "FlavorMigration", "count": 2},
                {"reason": "VariantEvicted", "count": 5},
            ]
        },
        preemptionGate={
            "holder": "train-variant-reservation",
            "since": (NOON - timedelta(seconds=30)).isoformat(),
        },
    )
    shown = dict(variants.parent_facts(a_family(parent, QUEUE, STATES), NOON))
    assert shown["Admitted as"] == "spot (train-variant-spot), for 0s"
    assert shown["Migrations"] == "2"
    assert shown["Preemption gate"].startswith("opened for reservation (train-variant-reservation)")
    assert shown["Preemption gate"].endswith("(30s)")
    assert shown["First admitted"].endswith("(5m)")
    assert shown["Racing since"].endswith("(10m)")
    assert shown["Next change"] == ""
    assert shown["Family"].startswith("UpgradeOnly: 3 variants are tried")


def test_a_migrating_parent_shows_its_target() -> None:
    parent = running_on_spot(migratingTo="train-variant-reservation")
    parent["status"]["conditions"].append(
        {"type": "Evicted", "status": "True", "reason": "VariantEvicted"}
    )
    shown = dict(variants.parent_facts(a_family(parent, QUEUE, STATES), NOON))
    assert shown["Admitted as"] == "spot (train-variant-spot), its job is being stopped"
    assert shown["Moves to"] == "reservation (train-variant-reservation), once its job has stopped"


PARENT_CASES: dict[str, tuple[dict[str, int], dict[str, Any], str]] = {
    "a create delay that ends": (
        {"createDelaySeconds": 7200},
        a_parent(),
        "2026-01-01T13:50:00Z (in 1h50m): late becomes active (race)",
    ),
    "a delay that changes nothing": (
        {"createDelaySeconds": 7200},
        a_parent("train", ADMITTED, admittedVariant="train-variant-first"),
        "2026-01-01T13:50:00Z (in 1h50m): late stays inactive (lowerThanAdmitted)",
    ),
    "nothing if the running variant is the one with the ended delay": (
        {"deleteDelaySeconds": 3600},
        a_parent(
            "train",
            ADMITTED,
            admittedVariant="train-variant-first",
            firstAdmittedAt=NOON.isoformat(),
        ),
        "",
    ),
}


@pytest.mark.parametrize("case", PARENT_CASES)
def test_a_parent_shows_the_next_change_by_time(case: str) -> None:
    delays, parent, want = PARENT_CASES[case]
    queue = a_queue(
        "reservation",
        "spot",
        variants=(
            {"name": "first", "allowedResourceFlavors": ["reservation"]},
            {"name": "late", "allowedResourceFlavors": ["spot"], **delays},
        ),
    )
    states = {"late": {"active": False}}
    assert dict(variants.parent_facts(a_family(parent, queue, states), NOON))["Next change"] == want


def test_a_variant_shows_the_end_of_its_delete_delay() -> None:
    queue = a_queue(
        "reservation",
        "spot",
        variants=(
            {"name": "best", "allowedResourceFlavors": ["reservation"], "deleteDelaySeconds": 3600},
            {"name": "rest", "allowedResourceFlavors": ["spot"]},
        ),
    )
    parent = a_parent(
        "train", ADMITTED, admittedVariant="train-variant-rest", firstAdmittedAt=NOON.isoformat()
    )
    family = a_family(parent, queue)
    shown = dict(variants.parent_facts(family, NOON))
    assert shown["Next change"] == (
        "2026-01-01T13:00:00Z (in 1h): best becomes inactive (deleteDelay)"
    )
    assert column(variants.variant_table(family, NOON), "WHY")[0].endswith(
        "(until 2026-01-01T13:00:00Z, in 1h)"
    )
    later = NOON + timedelta(hours=2)
    assert column(variants.variant_table(family, later), "WHY")[0] == (
        "deleteDelay: its delete delay has passed (since 2026-01-01T13:00:00Z); "
        "it is about to become inactive"
    )


def test_a_parent_shows_that_its_queue_lost_its_policy() -> None:
    family = a_family(running_on_spot(), QUEUE)._replace(rules=None)
    shown = dict(variants.parent_facts(family, NOON))
    assert shown["Family"] == "variants: 3; its queue has no policy for families any more"


def test_a_variant_names_its_parent_and_its_place() -> None:
    family = a_family(running_on_spot(), QUEUE, STATES)
    shown = dict(variants.variant_facts(family.variants[0].workload, family, NOON))
    assert shown["Variant"] == "reservation of workload train"
    assert shown["Place"] == "1 of 3, 1 is the best"
    assert shown["Why"] == "upgrade: it is better than the admitted variant"
    assert "admit describe workload train" in shown["Job"]


def test_a_variant_without_its_parent_will_be_deleted() -> None:
    family = a_family(running_on_spot(), QUEUE, STATES)
    shown = dict(variants.variant_facts(family.variants[0].workload, None, NOON))
    assert shown["Parent"] == "train, which does not exist: the variant will be deleted"


# Policy. ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queue", "want"),
    [
        pytest.param(
            a_queue("a", mode="NoMigration"),
            "NoMigration: 1 variant is tried, and the first that is admitted stays",
            id="without a migration",
        ),
        pytest.param(
            a_queue("a", "b"),
            "UpgradeOnly: 2 variants are tried, and the job moves up when a better one is admitted",
            id="where the job moves up",
        ),
        pytest.param(
            a_queue("a", "b", minFlavor="a"),
            "UpgradeOnly: 2 variants are tried, and the job moves up when a better one is "
            "admitted, "
            "to nothing below a",
            id="but not to everything",
        ),
    ],
)
def test_the_policy_of_a_queue_is_one_sentence(queue: dict[str, Any], want: str) -> None:
    assert variants.policy_text(the_rules(queue)) == want


def test_the_variants_of_a_queue_are_listed_with_their_delays() -> None:
    queue = a_queue(
        "a",
        "b",
        variants=(
            {"name": "best", "allowedResourceFlavors": ["a", "b"], "deleteDelaySeconds": 86400},
            {"name": "rest", "allowedResourceFlavors": ["b"], "createDelaySeconds": 7200},
        ),
    )
    assert variants.tag_table(the_rules(queue)).rows == [
        ("1", "best", "a,b", "at once", "1d after the first admission"),
        ("2", "rest", "b", "2h after the beginning", "-"),
    ]


# Names, and what is nothing for a variant. --------------------------------------------------


def test_a_variant_is_found_under_all_its_possible_names() -> None:
    parent = as_stored(a_parent(variants=[a_row("gone", False, "race")]))
    names = names_of(parent, RULES)
    assert names[0] == "train-variant-gone"
    assert "train-variant-spot" in names
    assert sum(name.startswith("train-variant-spot-") for name in names) == 1
    assert tags_of(parent, RULES)["train-variant-spot"] == "spot"
    assert names_of(parent, None) == ["train-variant-gone"]


def test_a_command_for_parents_only_names_the_parent() -> None:
    [variant, *_] = its_variants(a_parent(), RULES)
    with pytest.raises(RequestFailed) as refusal:
        refuse_variant(as_found(variant), "`admit logs workload {}`")
    assert str(refusal.value) == (
        'workload "train-variant-reservation" is the variant reservation of workload "train", '
        "which owns the job: use `admit logs workload train`"
    )
    refuse_variant(as_found(a_parent()), "x")
    refuse_variant(as_found(a_manifest()), "x")


# A person's verdict. ------------------------------------------------------------------------


def a_reserved(*checks: str, state: str = "Pending") -> dict[str, Any]:
    rows = [{"name": name, "state": state} for name in checks]
    return {"conditions": (RESERVED,), "admission": ON_SPOT, "admissionChecks": rows}


@pytest.mark.parametrize(
    ("states", "check", "want"),
    [
        pytest.param({"spot": a_reserved("budget")}, None, "spot", id="the only one that is asked"),
        pytest.param(
            {"spot": a_reserved("budget"), "reservation": a_reserved("approval")},
            "approval",
            "reservation",
            id="the only one with the check that is named",
        ),
        pytest.param(
            {"spot": a_reserved("budget"), "reservation": a_reserved("approval", state="Ready")},
            None,
            "spot",
            id="the only one that still waits",
        ),
    ],
)
def test_a_verdict_on_a_parent_goes_to_its_waiting_variant(
    states: dict[str, Any], check: str | None, want: str
) -> None:
    family = a_family(a_parent(), QUEUE, states)
    assert variant_with_check(family, check, NOON).name == f"train-variant-{want}"


VERDICT_CASES: dict[str, tuple[dict[str, Any], str | None, str]] = {
    "several wait, and are named": (
        {"spot": a_reserved("budget"), "reservation": a_reserved("budget")},
        None,
        "train-variant-reservation (reservation), train-variant-spot (spot)",
    ),
    "no variant waits": ({}, None, "waits for a check: reservation is Pending"),
    "no variant has that check": ({"spot": a_reserved("budget")}, "x", 'has the check "x"'),
}


@pytest.mark.parametrize("case", VERDICT_CASES)
def test_a_verdict_on_a_parent_without_one_waiting_variant_is_refused(case: str) -> None:
    states, check, words = VERDICT_CASES[case]
    with pytest.raises(RequestFailed, match="train") as refusal:
        variant_with_check(a_family(a_parent(), QUEUE, states), check, NOON)
    assert words in str(refusal.value)


def test_only_the_given_flavors_are_allowed() -> None:
    assert allowing([]) is None
    constraints = allowing(["spot", "on-demand", "spot"])
    assert constraints is not None
    assert constraints.allowed_resource_flavors == ("spot", "on-demand")
