"""The log of a workload's page."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from admittance.client.wording.facts import line_of
from admittance.events.requests.history import LogEntry
from admittance.web.views.log import log_rows

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


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
