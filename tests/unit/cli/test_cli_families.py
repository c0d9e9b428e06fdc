"""What lists, descriptions and refusals tell of families of concurrent admission."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from admittance.cli import explain as why
from admittance.cli.approve import variant_with_check
from admittance.cli.show import tables, variants
from admittance.cli.show.families import names_of, refuse_variant, tags_of
from admittance.cli.show.objects import Found
from admittance.cli.show.selection import arranged
from admittance.cli.submit import allowing
from admittance.cli.support.errors import AnswerIsNo
from admittance.cli.support.kinds import WORKLOAD
from admittance.cli.support.output import Table
from admittance.events.requests import ExplainReply, VariantVerdict
from kinsfolk import a_family, a_parent, a_queue, as_found, as_stored, its_variants, the_rules

from builders import NOON, a_manifest

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


def everything() -> list[Found]:
    """A family and a regular workload, by name, as the bucket lists them."""
    parent = running_on_spot()
    values = [a_manifest("alone"), parent, *its_variants(parent, RULES, STATES)]
    return sorted((as_found(one) for one in values), key=lambda one: one.name)


def column(table: Table, title: str) -> list[str]:
    place = [one.title for one in table.columns].index(title)
    return [row[place] for row in table.rows]


# Lists. -------------------------------------------------------------------------------------


def test_a_list_has_one_line_per_family_with_its_variants_beneath_the_best_first() -> None:
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


def test_a_list_says_why_policy_does_not_try_a_variant() -> None:
    table = tables.table(WORKLOAD, everything(), NOON, {})
    assert column(table, "REASON")[2:] == ["WaitingForQuota", "User", "-"]


def test_names_of_namespaces_stand_before_their_own_lines() -> None:
    table = tables.table(WORKLOAD, everything(), NOON, {}, all_namespaces=True)
    assert column(table, "NAMESPACE") == ["ns"] * 5
    assert column(table, "NAME")[2] == "├─ train-variant-reservation"


def test_a_variant_whose_parent_is_not_listed_stands_where_it_was() -> None:
    orphans = [one for one in everything() if one.name != "train"]
    assert [(line.found.name, line.mark) for line in arranged(orphans)] == [
        ("alone", ""),
        ("train-variant-on-demand", ""),
        ("train-variant-reservation", ""),
        ("train-variant-spot", ""),
    ]


def test_variants_of_a_parent_that_was_made_anew_under_its_name_are_not_its_own() -> None:
    parent = running_on_spot()
    variants = its_variants(parent, RULES)
    parent["metadata"]["uid"] = "another"
    lines = arranged([as_found(parent), *map(as_found, variants)])
    assert [line.mark for line in lines] == [""] * 4


# Lanes. -------------------------------------------------------------------------------------


def test_a_lane_for_each_variant_tells_how_far_it_is_and_why() -> None:
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


def test_a_lane_tells_what_was_promised_to_it() -> None:
    states = {"reservation": {"promised": {"clusterQueue": "cq"}}}
    table = variants.variant_table(a_family(running_on_spot(), QUEUE, states), NOON)
    assert column(table, "RESERVED")[0] == "promised: cq"


@pytest.mark.parametrize(
    ("status", "want"),
    [
        pytest.param({}, "closed", id="closed, and nobody minds"),
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
def test_a_lane_tells_of_its_gate(status: dict[str, Any], want: str) -> None:
    states = {"reservation": {"since": NOON - timedelta(minutes=2), **status}}
    table = variants.variant_table(a_family(a_parent(), QUEUE, states), NOON)
    assert column(table, "GATE")[0] == want


def test_the_checks_of_every_lane_are_told_for_the_parent_has_none() -> None:
    rows = [{"name": "budget", "state": "Pending", "message": "asking"}]
    states = {"spot": {"admissionChecks": rows}, "on-demand": {"admissionChecks": rows}}
    table = variants.check_table(a_family(a_parent(), QUEUE, states), NOON)
    assert column(table, "VARIANT") == ["on-demand", "spot"]
    assert column(table, "CHECK") == ["budget", "budget"]
    assert variants.check_table(a_family(a_parent(), QUEUE), NOON).rows == []
    states["spot"]["active"] = False
    off = variants.check_table(a_family(a_parent(), QUEUE, states), NOON)
    assert column(off, "VARIANT") == ["on-demand"]


def test_a_variant_that_its_queue_has_no_more_is_about_to_go() -> None:
    family = a_family(a_parent(), QUEUE)._replace(rules=the_rules(a_queue("spot")))
    whys = column(variants.variant_table(family, NOON), "WHY")
    assert whys[0] == "the queue has no variant reservation any more: the variant will be deleted"
    assert whys[2].startswith("race")


def test_what_policy_wants_and_nobody_has_written_yet_is_told() -> None:
    states = {"spot": {"active": False}}
    whys = column(variants.variant_table(a_family(a_parent(), QUEUE, states), NOON), "WHY")
    assert whys[2].endswith("; it is about to become active")


def test_what_has_finished_has_no_reason_to_try_any_more() -> None:
    done = ("Finished", "True", "Succeeded", "")
    states = {tag: {"conditions": (done,)} for tag in ("reservation", "on-demand", "spot")}
    parent = running_on_spot()
    parent["status"]["conditions"].append({"type": "Finished", "status": "True"})
    family = a_family(parent, QUEUE, states)
    assert column(variants.variant_table(family, NOON), "WHY") == ["-", "-", "-"]
    told = dict(variants.parent_facts(family, NOON))
    assert told["Ran as"] == "spot (train-variant-spot)"
    assert "Racing since" not in told


# An explanation. ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdict", "want"),
    [
        pytest.param(
            VariantVerdict(
                name="w-variant-a",
                variant="a",
                why="race",
                gate="Open",
                explained=ExplainReply(phase="Pending", reason="WaitingForQuota", message="short"),
            ),
            "a (w-variant-a) is active (race, no variant is admitted yet, all variants try), "
            "Pending (WaitingForQuota: short); its preemption gate is open",
            id="one that tries",
        ),
        pytest.param(
            VariantVerdict(
                name="w-variant-a",
                variant="a",
                active=False,
                why="createDelay",
                explained=ExplainReply(
                    phase="Deactivated", reason="Deactivated", message="It does not compete"
                ),
            ),
            "a (w-variant-a) is inactive (createDelay, its create delay has not passed yet)",
            id="one that does not",
        ),
        pytest.param(
            VariantVerdict(
                name="w-variant-a",
                variant="a",
                why="admitted",
                admitted=True,
                gate="Open",
                explained=ExplainReply(phase="Running", reason="Admitted"),
            ),
            "a (w-variant-a) is active (admitted, the job runs as this variant), Running",
            id="the one that is admitted",
        ),
        pytest.param(
            VariantVerdict(
                name="w-variant-a",
                variant="a",
                why="race",
                set_aside="a better one goes first",
                explained=ExplainReply(phase="Pending"),
            ),
            "a (w-variant-a) is active (race, no variant is admitted yet, all variants try), "
            "Pending; not tried now: a better one goes first",
            id="one that has to let another one go first",
        ),
    ],
)
def test_a_variant_is_explained_in_one_line(verdict: VariantVerdict, want: str) -> None:
    assert why.variant(verdict) == want


# What a parent tells. -----------------------------------------------------------------------


def test_a_parent_tells_where_it_is_how_often_it_moved_and_whose_gate_is_open() -> None:
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
    told = dict(variants.parent_facts(a_family(parent, QUEUE, STATES), NOON))
    assert told["Admitted as"] == "spot (train-variant-spot), for 0s"
    assert told["Migrations"] == "2"
    assert told["Preemption gate"].startswith("opened for reservation (train-variant-reservation)")
    assert told["Preemption gate"].endswith("(30s)")
    assert told["First admitted"].endswith("(5m)")
    assert told["Racing since"].endswith("(10m)")
    assert told["Next change"] == ""
    assert told["Family"].startswith("UpgradeOnly: 3 variants are tried")


def test_a_parent_that_moves_tells_whereto() -> None:
    parent = running_on_spot(migratingTo="train-variant-reservation")
    parent["status"]["conditions"].append(
        {"type": "Evicted", "status": "True", "reason": "VariantEvicted"}
    )
    told = dict(variants.parent_facts(a_family(parent, QUEUE, STATES), NOON))
    assert told["Admitted as"] == "spot (train-variant-spot), its job is being stopped"
    assert told["Moves to"] == "reservation (train-variant-reservation), once its job has stopped"


@pytest.mark.parametrize(
    ("delays", "parent", "want"),
    [
        pytest.param(
            {"createDelaySeconds": 7200},
            a_parent(),
            "2026-01-01T13:50:00Z (in 1h50m): late becomes active (race)",
            id="a variant whose time comes",
        ),
        pytest.param(
            {"createDelaySeconds": 7200},
            a_parent("train", ADMITTED, admittedVariant="train-variant-first"),
            "2026-01-01T13:50:00Z (in 1h50m): late stays inactive (lowerThanAdmitted)",
            id="a variant whose time comes for nothing",
        ),
        pytest.param(
            {"deleteDelaySeconds": 3600},
            a_parent(
                "train",
                ADMITTED,
                admittedVariant="train-variant-first",
                firstAdmittedAt=NOON.isoformat(),
            ),
            "",
            id="nothing, where the one that runs is the one whose time is over",
        ),
    ],
)
def test_a_parent_tells_what_the_clock_changes_next(
    delays: dict[str, int], parent: dict[str, Any], want: str
) -> None:
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


def test_the_end_of_a_chance_is_told_too() -> None:
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
    told = dict(variants.parent_facts(family, NOON))
    assert told["Next change"] == (
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


def test_a_parent_whose_queue_has_no_policy_any_more_says_so() -> None:
    family = a_family(running_on_spot(), QUEUE)._replace(rules=None)
    told = dict(variants.parent_facts(family, NOON))
    assert told["Family"] == "variants: 3; its queue has no policy for families any more"


def test_a_variant_names_its_parent_and_its_place() -> None:
    family = a_family(running_on_spot(), QUEUE, STATES)
    told = dict(variants.variant_facts(family.variants[0].workload, family, NOON))
    assert told["Variant"] == "reservation of workload train"
    assert told["Place"] == "1 of 3, 1 is the best"
    assert told["Why"] == "upgrade: it is better than the admitted variant"
    assert "admit describe workload train" in told["Job"]


def test_a_variant_without_its_parent_says_that_it_is_about_to_go() -> None:
    family = a_family(running_on_spot(), QUEUE, STATES)
    told = dict(variants.variant_facts(family.variants[0].workload, None, NOON))
    assert told["Parent"] == "train, which does not exist: the variant will be deleted"


# Policy. ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queue", "want"),
    [
        pytest.param(
            a_queue("a", mode="NoMigration"),
            "NoMigration: 1 variant is tried, and the first that is admitted stays",
            id="where nobody moves",
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
def test_policy_in_words(queue: dict[str, Any], want: str) -> None:
    assert variants.policy_text(the_rules(queue)) == want


def test_the_variants_of_a_queue_with_their_times() -> None:
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


def test_a_variant_is_looked_for_under_all_names_that_it_may_have() -> None:
    parent = as_stored(a_parent(variants=[a_row("gone", False, "race")]))
    names = names_of(parent, RULES)
    assert names[0] == "train-variant-gone"
    assert "train-variant-spot" in names
    assert sum(name.startswith("train-variant-spot-") for name in names) == 1
    assert tags_of(parent, RULES)["train-variant-spot"] == "spot"
    assert names_of(parent, None) == ["train-variant-gone"]


def test_what_is_for_parents_only_is_refused_with_the_parents_name() -> None:
    [variant, *_] = its_variants(a_parent(), RULES)
    with pytest.raises(AnswerIsNo) as refusal:
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
def test_a_verdict_about_a_parent_is_one_about_the_variant_whose_check_is_asked(
    states: dict[str, Any], check: str | None, want: str
) -> None:
    family = a_family(a_parent(), QUEUE, states)
    assert variant_with_check(family, check, NOON).name == f"train-variant-{want}"


@pytest.mark.parametrize(
    ("states", "check", "words"),
    [
        pytest.param(
            {"spot": a_reserved("budget"), "reservation": a_reserved("budget")},
            None,
            "train-variant-reservation (reservation), train-variant-spot (spot)",
            id="several wait, and are named",
        ),
        pytest.param({}, None, "waits for a check: reservation is Pending", id="nobody is asked"),
        pytest.param(
            {"spot": a_reserved("budget")}, "x", 'has the check "x"', id="nobody has that check"
        ),
    ],
)
def test_a_verdict_about_nobody_in_particular_is_refused(
    states: dict[str, Any], check: str | None, words: str
) -> None:
    with pytest.raises(AnswerIsNo, match="train") as refusal:
        variant_with_check(a_family(a_parent(), QUEUE, states), check, NOON)
    assert words in str(refusal.value)


def test_only_the_flavors_that_are_typed_are_allowed() -> None:
    assert allowing([]) is None
    constraints = allowing(["spot", "on-demand", "spot"])
    assert constraints is not None
    assert constraints.allowed_resource_flavors == ("spot", "on-demand")
