"""Questions about usage: sums of the leader, sums by label from the log, shares and costs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from admittance.api.fields.usage_units import unit_named
from admittance.client.errors import ClientError
from admittance.client.requests import usage
from admittance.client.requests.past import EARLY
from admittance.events.requests.history import Events, EventsReply, LogEntry
from admittance.events.requests.queues import FlavorUsage, QueuesReply, QueueStatus
from admittance.events.requests.reading import Usage, UsageReply, UsageSum
from admittance.usage.costs import prices_of
from support.builders import NOON
from unit.usage.test_run_history import EVICTED, a_report

GPU = "nvidia.com/gpu"
PRICES = prices_of(
    {
        "prices": [
            {"resource": "gpu", "perHour": 2},
            {"resource": "gpu", "flavor": "spot", "perHour": 1},
        ]
    }
)
TEN_SECONDS: dict[str, Any] = {"wait_seconds": 5, "resource_seconds": {"cpu": "10"}}
DAYS = {"since": NOON.date().isoformat(), "until": NOON.date().isoformat()}


class Link(SimpleNamespace):
    """A link to services with these answers, in their order."""

    namespace = "ns"

    def __init__(self, **answers: list[Any]) -> None:
        super().__init__(answers=answers, asked=[])

    async def ask(self, what: str, query: Any, _reply: type, **options: Any) -> Any:
        self.asked.append((what, query, options["namespace"]))
        return self.answers[what].pop(0)


def asked(
    link: Link, *by: str, namespace: str | None = None, **options: Any
) -> list[tuple[Any, ...]]:
    """The groups of the answer, each with what it used, its shares and its cost."""
    anything: Any = link
    reply = asyncio.run(usage.usage(anything, by, None, None, namespace, **options))
    return [(*each.group, each.used, each.share, each.entitled, each.cost) for each in reply.sums]


def a_sum(*group: str, gpu_hours: int = 0, **fields: Any) -> UsageSum:
    seconds = {GPU: str(gpu_hours * 3600)} if gpu_hours else {}
    return UsageSum(group=group, **{"resource_seconds": seconds, **fields})


def a_reply(*sums: UsageSum, **fields: Any) -> UsageReply:
    return UsageReply(sums=sums, **{**DAYS, **fields})


def test_sums_are_read_part_by_part() -> None:
    link = Link(usage=[a_reply(a_sum("a"), more=True), a_reply(a_sum("b"))])
    assert [row[0] for row in asked(link, "user")] == ["a", "b"]
    assert [query.after for _, query, _ in link.asked] == [0, 1]


def test_a_sum_has_its_share_and_its_entitlement() -> None:
    queues = [
        QueueStatus(name=name, usage=(FlavorUsage(flavor="f", resource=GPU, nominal=nominal),))
        for name, nominal in (("a", 1), ("b", 3))
    ]
    sums = a_reply(a_sum("a", gpu_hours=31), a_sum("c", gpu_hours=69))
    link = Link(usage=[sums], queues=[QueuesReply(cluster_queues=tuple(queues))])
    assert asked(link, "cluster-queue", unit=unit_named("gpu-hours")) == [
        ("a", "31", 0.31, 0.25, ""),
        ("c", "69", 0.69, None, ""),
    ]


def test_sums_of_one_namespace_have_no_entitlement() -> None:
    link = Link(usage=[a_reply(a_sum("a", gpu_hours=1))])
    [row] = asked(link, "user", namespace="ns", unit=unit_named("gpu-hours"))
    assert row == ("a", "1", 1.0, None, "")


@pytest.mark.parametrize(
    ("unit", "shares"),
    [(None, [("", 0.6), ("", 0.4)]), ("gpu-hours", [("2", 0.5), ("2", 0.5)])],
)
def test_costs_are_those_of_the_flavors(unit: str | None, shares: list[Any]) -> None:
    sums = a_reply(a_sum("a", gpu_hours=2), a_sum("b", gpu_hours=2))
    by_flavor = a_reply(
        a_sum("a", "spot", gpu_hours=1),
        a_sum("a", "h100", gpu_hours=1),
        a_sum("b", "spot", gpu_hours=2),
    )
    link = Link(usage=[sums, by_flavor])
    chosen = None if unit is None else unit_named(unit)
    rows = asked(link, "user", namespace="ns", prices=PRICES, unit=chosen)
    assert [(row[0], row[4]) for row in rows] == [("a", "3"), ("b", "2")]
    assert [row[1:3] for row in rows] == shares
    assert link.asked[1][1] == Usage(by=("user", "flavor"), since=DAYS["since"])


def test_costs_by_flavor_need_one_question_of_each_kind() -> None:
    link = Link(usage=[a_reply(a_sum("spot", "a", gpu_hours=1)) for _ in range(2)])
    assert asked(link, "flavor", "user", namespace="ns", prices=PRICES)[0][-1] == "1"
    assert link.asked[1][1].by == ("flavor", "user")


# By label. --------------------------------------------------------------------------------------


def an_entry(sequence: int, name: str, kind: str = "quota_released", **fields: Any) -> LogEntry:
    report = a_report(name, sequence, **fields).report
    return LogEntry(
        sequence=sequence,
        time=NOON + timedelta(seconds=sequence),
        subject=f"admit.workload.{kind}.ns.{name}",
        data=msgspec.Raw(msgspec.json.encode(report)),
    )


def by_label(*pages: EventsReply, running: Sequence[UsageSum] = ()) -> UsageReply:
    first = EventsReply(entries=(an_entry(1, "first"),))
    link: Any = Link(usage=[a_reply(more=True), a_reply(*running)], events=[*pages, first])
    reply = asyncio.run(usage.usage(link, ("label:team", "user"), None, None, "ns"))
    kinds = [what for what, _, _ in link.asked]
    assert kinds == ["usage", *(["events"] * len(pages)), "usage", "events"]
    assert all(query.running_only for what, query, _ in link.asked if what == "usage")
    assert link.asked[1][1] == Events(
        only=("quota_released",), since=NOON.replace(hour=0, minute=0, second=0) - EARLY
    )
    return reply


def test_sums_by_label_are_those_of_the_log_and_of_what_runs_now() -> None:
    nlp: dict[str, Any] = {"labels": {"team": "nlp"}}
    pages = (
        EventsReply(
            entries=(
                an_entry(1, "a", **nlp),
                an_entry(2, "a", **nlp | EVICTED),
                an_entry(3, "b", **nlp),
            ),
            complete=False,
        ),
        EventsReply(
            entries=(an_entry(3, "b", **nlp), an_entry(4, "noted", "noted"), an_entry(5, "c")),
            complete=True,
        ),
    )
    running = a_sum("nlp", "ada", running=1, resource_seconds={"cpu": "7"})
    reply = by_label(*pages, running=[running])
    assert reply.begins == NOON.date().isoformat()
    assert [
        (each.group, each.runs, each.running, each.resource_seconds) for each in reply.sums
    ] == [
        (("", "ada"), 1, 0, {"cpu": "10"}),
        (("nlp", "ada"), 3, 1, {"cpu": "37"}),
    ]


def test_runs_of_other_days_are_not_in_sums_by_label() -> None:
    long = an_entry(9, "a", since=NOON - timedelta(days=1), until=NOON)
    late = an_entry(10, "b", since=NOON + timedelta(days=1), until=NOON + timedelta(days=1))
    [only] = by_label(EventsReply(entries=(long, late), complete=True)).sums
    assert (only.runs, only.resource_seconds) == (1, {"cpu": "43200"})


@pytest.mark.parametrize("what", ["usage", "events"])
def test_the_reason_of_a_refusal_is_the_error(what: str) -> None:
    answers: dict[str, list[Any]] = {"usage": [a_reply()], "events": [EventsReply(complete=True)]}
    answers[what] = [msgspec.structs.replace(answers[what][0], error="no leader")]
    link: Any = Link(**answers)
    with pytest.raises(ClientError, match="no leader"):
        asyncio.run(usage.usage(link, ("label:team",), None, None, None))
