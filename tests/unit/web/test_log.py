"""The log of a workload's page."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from admittance.client.wording.facts import line_of
from admittance.events.names import token
from admittance.events.requests.history import LogEntry
from admittance.events.requests.replays import ReplayInputs, ReplayReply
from admittance.web.views.accounts.log import Replayed, log_rows
from admittance.web.views.words import Link

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
DECIDED: dict[str, object] = {"revision": 3, "seen": 140, "domain": "cohort-all"}
"""The fields of every decision."""


def entry(sequence: int, subject: str, **fact: object) -> LogEntry:
    namespace, name = subject.split(".")[-2:]
    data = msgspec.json.encode({"namespace": namespace, "name": name, **fact})
    return LogEntry(sequence=sequence, time=NOW, subject=subject, data=msgspec.Raw(data))


def test_the_log_is_in_the_words_of_admit_events() -> None:
    fact = entry(7, "admit.user.ada.reprioritized.team.w", priority=5)
    [row] = log_rows([fact], "team/w", NOW)
    assert (row.sequence, row.what, row.about, row.text) == (
        7,
        "reprioritized",
        "",
        "by ada, priority 5",
    )
    assert row.text == line_of(fact).message


def test_facts_about_another_workload_of_the_family_name_it() -> None:
    names = ("w", "v")
    facts = [
        entry(place, f"admit.user.ada.reprioritized.team.{name}", priority=5)
        for place, name in enumerate(names, 1)
    ]
    rows = log_rows(facts, "team/w", NOW)
    assert [(row.sequence, row.about) for row in rows] == [(2, "v"), (1, "")]


def test_a_fact_of_unknown_shape_is_shown_by_its_subject() -> None:
    [row] = log_rows([entry(1, "admit.workload.dreamed.team.w")], "team/w", NOW)
    assert row.what == "workload dreamed"


# What a fact opens to. ------------------------------------------------------------------------


def details(subject: str, **fact: object) -> dict[str, str]:
    """The rows to which a fact opens, links by their texts."""
    [row] = log_rows([entry(7, subject, **fact)], "team/w", NOW)
    return {each.name: each.link.text if each.link else each.text for each in row.details}


@pytest.mark.parametrize(
    ("subject", "fact", "cause"),
    [
        ("admit.user.ada.reprioritized.team.w", {"priority": 5}, "user ada"),
        (
            f"admit.check.reported.{token('example.com/money')}.team.w",
            {"controller": "example.com/money", "check": "money", "state": "Ready"},
            "check controller example.com/money",
        ),
        ("admit.workload.started.team.w", {"revision": 3}, "the runner of its job"),
        ("admit.workload.evicted.team.w", {"revision": 3}, "the workload-controller"),
        ("admit.workload.confirmed.team.w", DECIDED, "the scheduler of cohort-all"),
        ("admit.workload.dreamed.team.w", {}, "a service, or a program without a login"),
    ],
)
def test_a_fact_opens_to_what_caused_it(subject: str, fact: dict[str, object], cause: str) -> None:
    assert details(subject, **fact)["Caused by"] == cause


def test_a_fact_of_the_workload_controller_names_the_fact_that_it_follows() -> None:
    facts = [
        entry(3, "admit.user.ada.deactivated.team.w"),
        entry(4, "admit.workload.evicted.team.w", revision=9),
        entry(5, "admit.workload.released.team.other", revision=9),
        entry(6, "admit.workload.quota_reserved.team.w", revision=10),
    ]
    rows = {row.sequence: row.details for row in log_rows(facts, "team/w", NOW)}
    for sequence in (4, 6):
        [follows] = [each.link for each in rows[sequence] if each.name == "Follows"]
        assert follows == Link("deactivated, fact 3", "#fact-3")


def test_a_refusal_opens_to_the_flavors_that_were_considered() -> None:
    short = {"podSet": "main", "resource": "cpu", "requested": 4000, "available": 1000}
    refusal = {
        "reason": "NoFit",
        "message": "no",
        "shortfalls": [
            {**short, "flavor": "spot", "reason": "Quota"},
            {"podSet": "main", "flavor": "old", "resource": "", "requested": 0, "available": 0}
            | {"reason": "Taint", "message": "its taint is not tolerated"},
        ],
    }
    rows = details("admit.workload.refused.team.w", **DECIDED, refusal=refusal)
    assert rows["Rule"] == "NoFit"
    assert rows["spot"] == "3 cpu short (4 asked, 1 free)"
    assert rows["old"] == "its taint is not tolerated"
    assert rows["Seen"] == "revision 140 of the bucket"


def test_a_preemption_opens_to_its_rule_with_the_numbers() -> None:
    grounds = {
        "clusterQueue": "cq",
        "priority": 5,
        "byClusterQueue": "other",
        "byPriority": 20,
        "policy": "withinClusterQueue: LowerPriority",
        "short": [{"flavor": "spot", "resource": "cpu", "amount": 2500, "available": 500}],
    }
    fact = {**DECIDED, "reason": "InClusterQueue", "by": "team/urgent", "grounds": grounds}
    rows = details("admit.workload.preempted.team.w", **fact, times=2)
    assert rows["Turn of"] == "urgent"
    assert rows["Rule"] == "InClusterQueue"
    assert rows["Priorities"] == "20 against 5"
    assert rows["It was short of"] == "2.5 cpu on spot, where 0.5 were free"
    assert rows["Times"] == "2, by the same workload"


@pytest.mark.parametrize(
    ("role", "decides"),
    [("", True), ("admin", True), ("viewer", True), ("user", True), ("approver", False)],
)
def test_a_decision_can_be_decided_again_by_roles_that_may(role: str, decides: bool) -> None:
    facts = [
        entry(7, "admit.workload.confirmed.team.w", **DECIDED),
        entry(8, "admit.workload.started.team.w", revision=3),
    ]
    rows = log_rows(facts, "team/w", NOW, role=role, open_fact=7)
    assert [(row.decides, row.is_open) for row in rows] == [(False, False), (decides, True)]


@pytest.mark.parametrize(
    ("reply", "word", "text"),
    [
        (
            ReplayReply(same=True, inputs=ReplayInputs(facts=145, workloads=33, objects=12)),
            "The same comes out.",
            "Decided again at 12:00:00 from the first fact and 145 others: 33 workloads and 12 "
            "objects, 0 decisions on their way. Nothing was changed.",
        ),
        (
            ReplayReply(differences=("level: logged 1, now 0",)),
            "Something else comes out.",
            "Decided again at 12:00:00 from the first fact and 0 others: 0 workloads and 0 "
            "objects, 0 decisions on their way. Nothing was changed.",
        ),
        (
            ReplayReply(impossible="the log has no message 7"),
            "It can no longer be decided again.",
            "the log has no message 7.",
        ),
    ],
    ids=["the same", "something else", "not possible"],
)
def test_the_answer_stays_beneath_the_decision(reply: ReplayReply, word: str, text: str) -> None:
    fact = entry(7, "admit.workload.confirmed.team.w", **DECIDED)
    [row] = log_rows([fact], "team/w", NOW, replayed={7: Replayed(reply, NOW)})
    assert row.again is not None
    assert (row.again.word, row.again.text) == (word, text)
    assert row.again.differences == reply.differences


def test_only_the_newest_facts_and_the_open_one_have_details() -> None:
    facts = [entry(place, "admit.workload.confirmed.team.w", **DECIDED) for place in range(1, 6)]
    rows = log_rows(facts, "team/w", NOW, open_fact=1, detailed=2)
    assert [row.sequence for row in rows if row.details] == [5, 4, 1]
    assert len(rows) == 5
