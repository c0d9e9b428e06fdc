"""`admit doctor` about queues, and about requests that no program reads."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.doctor.controllers import controller_finding
from admittance.doctor.finding import NOTE, OK, WRONG
from admittance.doctor.processes.consumers import consumer_finding
from admittance.doctor.queues import SHOWN_MAX, inactive_queues
from admittance.events.requests.queues import QueuesReply, QueueStatus
from admittance.services import SERVICES


def test_inactive_queues_are_named_with_their_reason() -> None:
    good = QueueStatus(name="good")
    bad = QueueStatus(name="bad", active=False, reason="FlavorNotFound", message="no x", pending=3)
    [finding] = inactive_queues(QueuesReply(cluster_queues=(good, bad)))
    assert (finding.state, finding.what) == (WRONG, "clusterqueue bad")
    assert finding.found == "inactive, 3 pending: FlavorNotFound: no x"
    assert "#a-queue-is-inactive" in finding.todo


def test_many_inactive_queues_are_counted() -> None:
    many = [QueueStatus(name=f"q{number}", active=False) for number in range(SHOWN_MAX + 5)]
    findings = inactive_queues(QueuesReply(cluster_queues=tuple(many)))
    assert len(findings) == SHOWN_MAX + 1
    assert findings[-1].found.startswith("5 more are inactive")


def a_consumer(name: str = "workload-controller-1-1", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "created": "2026-01-01T00:00:00.123456789Z",
        "ts": "2026-01-01T00:10:00Z",
        "config": {"max_ack_pending": 20_000},
        "delivered": {"last_active": "2026-01-01T00:09:00Z"},
        "ack_floor": {"last_active": "2026-01-01T00:09:00Z"},
        "num_waiting": 1,
        **more,
    }


@pytest.mark.parametrize(
    ("consumer", "state", "text"),
    [
        pytest.param(a_consumer(), OK, "0 not read", id="all is read"),
        pytest.param(
            a_consumer(num_pending=9, delivered={"last_active": "2026-01-01T00:09:59Z"}),
            OK,
            "9 not read",
            id="it moves",
        ),
        pytest.param(
            a_consumer(num_pending=9, num_waiting=0),
            WRONG,
            "no program has read it for 60 s",
            id="no reader",
        ),
        pytest.param(
            a_consumer(num_pending=9, num_waiting=0, delivered={}),
            WRONG,
            "no program has read it for 600 s",
            id="never a reader",
        ),
        pytest.param(
            a_consumer(num_pending=9),
            WRONG,
            "although a program asks for facts",
            id="the server does not deliver",
        ),
        pytest.param(
            a_consumer(num_pending=9, num_ack_pending=20_000),
            WRONG,
            "as many as allowed are not acknowledged",
            id="too many without acknowledgement",
        ),
        pytest.param(
            a_consumer(num_ack_pending=3), WRONG, "no fact is acknowledged", id="it hangs"
        ),
        pytest.param(
            a_consumer(paused=True, config={"pause_until": "2100"}),
            WRONG,
            "paused until 2100",
            id="paused",
        ),
        pytest.param(
            a_consumer(num_pending=50_000, delivered={"last_active": "2026-01-01T00:09:59Z"}),
            WRONG,
            "does not keep up",
            id="lag",
        ),
        pytest.param(
            a_consumer("mine", num_pending=9, num_waiting=0), NOTE, "no program", id="foreign"
        ),
    ],
)
def test_consumers_without_progress_are_reported(
    consumer: dict[str, Any], state: str, text: str
) -> None:
    finding = consumer_finding(consumer, SERVICES.values())
    assert (finding.state, text in finding.found, bool(finding.todo)) == (state, True, state != OK)


@pytest.mark.parametrize(
    ("consumer", "jobs_wait", "state"),
    [
        pytest.param(a_consumer("runner-gone", num_pending=9, num_waiting=0), False, NOTE),
        pytest.param(a_consumer("runner-gone", num_pending=9, num_waiting=0), True, WRONG),
        pytest.param(a_consumer("runner-hangs", num_ack_pending=3), False, WRONG),
        pytest.param(a_consumer(num_pending=9, num_waiting=0), False, WRONG),
    ],
)
def test_a_runner_that_is_away_is_a_note_while_no_job_waits(
    consumer: dict[str, Any], jobs_wait: bool, state: str
) -> None:
    assert consumer_finding(consumer, SERVICES.values(), jobs_wait=jobs_wait).state == state


def test_requests_that_no_controller_reads_are_a_note() -> None:
    finding = controller_finding("ctl", a_consumer("check-ctl", num_pending=1, num_waiting=0), [])
    assert finding.state == NOTE
    assert "no program has read them for 60 s" in finding.found
    assert "#a-check-does-not-answer" in finding.todo
