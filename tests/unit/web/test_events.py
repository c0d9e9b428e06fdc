"""The views of the page of events."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from admittance.events.requests.history import LogEntry
from admittance.web.views.accounts.events import (
    DATA_MAX,
    EventsPart,
    Filters,
    build,
    build_one,
    merged,
)
from admittance.web.views.words import Link
from support.builders import NOON

FACT = b'{"namespace":"ns","name":"w","uid":"u","revision":1}'


def entry(
    sequence: int, subject: str = "admit.workload.pending.ns.w", data: bytes = FACT
) -> LogEntry:
    time = NOON + timedelta(seconds=sequence)
    return LogEntry(sequence=sequence, time=time, subject=subject, data=msgspec.Raw(data))


def part(*sequences: int, before: int = 0, after: int = 0) -> EventsPart:
    return EventsPart(entries=tuple(map(entry, sequences)), before=before, after=after)


@pytest.mark.parametrize(
    ("parts", "limit", "sequences", "before"),
    [
        ([part(9, 4), part(8, 6)], 10, [9, 8, 6, 4], 0),
        ([part(9, 4, before=4), part(8, 2)], 10, [9, 8, 4], 4),
        ([part(9, 4), part(8, 6)], 3, [9, 8, 6], 6),
        ([part(before=7), part(8, 6)], 10, [8], 7),
        ([], 10, [], 0),
    ],
    ids=[
        "all facts of both",
        "older facts than the end of a part wait for the next page",
        "the limit ends a page",
        "a part without facts ends a page, too",
        "no namespace",
    ],
)
def test_facts_of_several_namespaces_are_one_list(
    parts: list[EventsPart], limit: int, sequences: list[int], before: int
) -> None:
    one = merged(parts, limit)
    assert [fact.sequence for fact in one.entries] == sequences
    assert one.before == before


def test_pages_keep_the_filters_and_lead_to_each_other() -> None:
    filters = Filters(namespace="a b", type="pending")
    view = build(part(9, 8, before=8, after=11), filters, NOON)
    assert view.older == Link("Older", "/events?namespace=a+b&type=pending&before=8")
    assert view.pause == Link("Pause", "/events?namespace=a+b&type=pending&before=12")
    assert view.newer is None
    assert view.title == "pending ns/w · Events"
    assert view.say == "2 events, from 12:00:09 back to 12:00:08."
    fixed = build(part(9, after=9), filters, NOON, fixed=True, newer=True)
    assert fixed.pause == Link("Newest", "/events?namespace=a+b&type=pending")
    assert fixed.newer == Link("Newer", "/events?namespace=a+b&type=pending&after=9")
    assert fixed.older is None
    assert fixed.say == "1 event, at 12:00:09."


def test_an_empty_page_says_how_far_the_log_was_read() -> None:
    assert build(part(), Filters(), NOON).say == "No event matches."
    assert "from sequence 240,010 of the log on" in build(part(before=240_010), Filters(), NOON).say


def test_rows_lead_to_the_fact_and_to_its_workload() -> None:
    told = (
        entry(5, "admit.object.applied.clusterqueue._.big", b'{"user":"<b>"}'),
        entry(4, "admit.workload.noted.ns.w"),
        entry(3, "admit.workload.quota_released.ns.w"),
        entry(2, "junk"),
    )
    rows = build(EventsPart(entries=told), Filters(), NOON).rows
    assert [row.what.href for row in rows] == ["/events/5", "/events/4", "/events/2"]
    assert [row.about for row in rows] == [None, Link("ns/w", "/workloads/ns/w"), None]
    assert (rows[0].subject, rows[0].text) == ("clusterqueue big", "by <b>")


def test_a_fact_is_shown_with_its_data_and_the_facts_around_it() -> None:
    submitted = entry(
        3, "admit.user.ada.submitted.ns.w", b'{"namespace":"ns","name":"w","workload":{}}'
    )
    view = build_one([entry(4), submitted, entry(2)], 3, NOON)
    assert view is not None
    assert view.title == "submitted ns/w"
    assert [row.here for row in view.rows] == [False, True, False]
    lines = {line.label: line for line in view.lines}
    assert lines["Caused by"].text == "ada"
    assert lines["About"].link == Link("ns/w", "/workloads/ns/w")
    assert "Trace" not in lines
    assert view.data.startswith('{\n  "namespace": "ns",\n')
    assert build_one([entry(4)], 3, NOON) is None


def test_a_fact_about_used_quota_and_long_data_are_shown_on_its_page() -> None:
    long = msgspec.json.encode("x" * (DATA_MAX + 8))
    view = build_one([entry(3, "admit.workload.quota_released.ns.w", long)], 3, NOON)
    assert view is not None
    assert len(view.data) == DATA_MAX
    assert view.left_out == 10
