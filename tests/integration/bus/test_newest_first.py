"""Events of the log, the newest first, against a real server."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from typing import Any

import msgspec
import pytest

from admittance.events.requests.history import Events, EventsReply
from admittance.events.system import DeadLetter
from admittance.runtime.bus import backward
from admittance.runtime.bus.backward import read_backward
from admittance.runtime.bus.bucket import delete_message, put_message
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.history import read_in_order, read_messages
from admittance.workload_controller.endpoints import events_endpoint
from admittance.workload_controller.endpoints.reading_endpoints import reading_endpoints
from support.servers import within

pytestmark = pytest.mark.bus


async def publish(bus: Bus, *subjects: str, data: bytes = b"{}") -> list[int]:
    return [await bus.publish(Outgoing(subject, data)) for subject in subjects]


async def asked(bus: Bus, namespace: str = "ns", **fields: Any) -> EventsReply:
    request = msgspec.json.encode(Events(**{"newest_first": True, **fields}))
    where = f".{namespace}" if namespace else ""
    answer = reading_endpoints(bus)[f"admit.api.events{'.*' if namespace else ''}"]
    reply = await within(answer(request, f"admit.api.events{where}"))
    assert isinstance(reply, EventsReply)
    assert not reply.error
    return reply


async def all_pages(bus: Bus, **fields: Any) -> list[list[int]]:
    pages: list[list[int]] = []
    before, complete = 0, False
    while not complete:
        reply = await asked(bus, before=before, **fields)
        assert reply.before < before or not before
        before, complete = reply.before, reply.complete
        pages.append(sequences(reply))
    return pages


def sequences(reply: EventsReply) -> list[int]:
    return [entry.sequence for entry in reply.entries]


@pytest.mark.servers("real", "simulated")
async def test_the_log_is_read_backward_in_windows_that_follow_the_density(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    rare, common = "admit.workload.finished.ns.rare", "admit.workload.admitted.ns.common"
    dense = await publish(bus, *[rare] * 30)
    sparse = await publish(bus, *[common, *[common] * 19, rare] * 4)
    mine = [*dense, *sparse[20::21]]
    windows = 0

    async def counted(*args: Any, **options: Any) -> Any:
        nonlocal windows
        windows += 1
        return await read_in_order(*args, **options)

    monkeypatch.setattr(backward, "read_in_order", counted)
    found: list[int] = []
    end = sparse[-1] + 1
    while end > 1:
        page, end = await read_backward(bus, [rare], before=end, limit=5, bytes_max=1 << 20)
        assert len(page) <= 5
        found += [message.sequence for message in page]
    assert found == mine[::-1]
    assert windows < 40
    page, end = await read_backward(bus, [rare], before=0, limit=5, bytes_max=1 << 20)
    assert (page, end) == ([], 1)


async def test_newest_events_end_at_a_page_and_go_on_before_it(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = await publish(bus, *["admit.workload.admitted.ns.w"] * 12)
    await publish(bus, "admit.workload.admitted.other.w")
    assert await all_pages(bus, limit=5) == [sent[:6:-1], sent[6:1:-1], sent[1::-1]]
    newest = await asked(bus, limit=5)
    assert newest.after == sent[-1] + 1, "the answer covers the fact of the other namespace"
    assert newest.applied == ("newest_first",)
    assert sequences(await asked(bus, after=sent[9])) == sent[:9:-1]
    monkeypatch.setattr(events_endpoint, "ANSWER_MAX", 500)
    assert [len(page) for page in await all_pages(bus, limit=5)] == [2] * 6


async def test_events_of_a_time_span_are_the_same_in_both_orders(bus: Bus) -> None:
    sent = await publish(bus, *["admit.workload.admitted.ns.w"] * 4)
    times = [message.time.astimezone(UTC) for message in await read_messages(bus, ["admit.>"])]
    # The server keeps more digits of a time than a moment here has.
    since, until = (times[at] + (times[at + 1] - times[at]) / 2 for at in (0, 2))
    newest = await asked(bus, since=since, until=until)
    assert sequences(newest) == sent[2:0:-1]
    first = await asked(bus, newest_first=False, since=since, until=until)
    assert sequences(first) == sent[1:3]
    assert newest.complete
    assert first.complete
    assert sequences(await asked(bus, until=since, since=until)) == []


ADMITTED = "admit.workload.admitted.ns.w"
SUBMITTED = ("admit.workload.submitted.ns.w", "admit.user.ada.submitted.ns.w")
REPORTED = "admit.check.reported.example_com=2Fa.ns.w"
FAILED = "admit.provisioning.failed.pool.ns.w"
APPLIED = "admit.object.applied.localqueue.ns.main"
LETTER = "admit.deadletter.s"


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (["admitted"], [ADMITTED]),
        (["submitted"], [*SUBMITTED]),
        (["check_reported", "provisioning_failed"], [REPORTED, FAILED]),
        (["object_applied"], [APPLIED]),
        (["dead_letter"], [LETTER]),
        (["dead_letter", "admitted"], [ADMITTED, LETTER]),
    ],
)
async def test_events_are_narrowed_to_types(
    bus: Bus, types: Sequence[str], expected: Sequence[str]
) -> None:
    await publish(bus, ADMITTED, *SUBMITTED, REPORTED, FAILED, APPLIED)
    for about in ("other", "ns"):
        subject = f"admit.workload.submitted.{about}.w"
        letter = DeadLetter(service="s", subject=subject, reason="Invalid")
        await publish(bus, LETTER, data=msgspec.json.encode(letter))
    for fields in ({}, {"workload": "w"}) if APPLIED not in expected else ({},):
        reply = await asked(bus, types=types, **fields)
        assert [entry.subject for entry in reply.entries] == expected[::-1]


async def test_events_are_narrowed_to_a_queue(bus: Bus) -> None:
    stored = {
        "localqueue.ns.main": b'{"spec":{"clusterQueue":"big"}}',
        "workload.ns.here": b'{"spec":{"queueName":"main"}}',
        "workload.ns.lent": b'{"status":{"admission":{"clusterQueue":"big"}}}',
        "workload.ns.there": b'{"spec":{"queueName":"x"}}',
        "workload.ns.broken": b"{",
        "workload.ns.gone": b'{"spec":{"queueName":"x"}}',
    }
    for key, value in stored.items():
        await bus.publish(put_message(key, value, expected=None))
    await bus.publish(delete_message("workload.ns.gone", expected=None))
    here, lent, _, _, _ = await publish(
        bus,
        *(f"admit.workload.pods_ready.ns.{name}" for name in ("here", "lent", "there", "broken")),
        "admit.workload.pods_ready.ns.gone",
    )
    named = b'{"admission":{"clusterQueue":"big"}}'
    [assigned] = await publish(bus, "admit.workload.assigned.ns.gone", data=named)
    await publish(bus, "admit.workload.submitted.ns.other", "admit.lease.epoch.big")
    submitted = b'{"workload":{"spec":{"queueName":"main"}}}'
    [again] = await publish(bus, "admit.workload.submitted.ns.gone", data=submitted)
    assert sequences(await asked(bus, queue="big")) == [again, assigned, lent, here]
    assert sequences(await asked(bus, "", queue="big")) == [again, assigned, lent, here]
    assert sequences(await asked(bus, queue="main")) == [again, here]
    reply = await asked(bus, queue="nowhere")
    assert (reply.entries, reply.complete, reply.applied) == ((), True, ("newest_first", "queue"))
