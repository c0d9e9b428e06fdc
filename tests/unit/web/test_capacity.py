"""The view of the page of capacity."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from admittance.api.checks import (
    AdmissionCheck,
    AdmissionCheckSpec,
    ObjectStatus,
    ParametersReference,
    ProvisioningRequestConfig,
    ProvisioningRequestConfigSpec,
)
from admittance.api.meta import Condition, ObjectMeta
from admittance.events.shapes import PodSetToProvision
from admittance.provisioning.records import Note, Record, RecordSpec, RecordStatus, State
from admittance.web.views.system.capacity import ROWS_MAX, build, classes_of, down_classes
from admittance.web.views.words import Link, Word
from support.builders import NOON

EARLIER, LATER = NOON - timedelta(hours=1), NOON + timedelta(hours=1)
CONFIG = ProvisioningRequestConfig(
    metadata=ObjectMeta(name="spot"),
    spec=ProvisioningRequestConfigSpec(provisioning_class_name="spot.example.com"),
)
POOL: dict[str, Any] = {
    "metadata": {"name": "rack"},
    "spec": {
        "provisioningClassName": "spot.example.com",
        "bookingSeconds": 600,
        "machines": [
            {"name": "big", "count": 8, "bootSeconds": 90, "resources": {"nvidia.com/gpu": 4}},
            {"name": "small"},
        ],
    },
}


def a_request(
    name: str = "w-spot", *, minutes: int = 5, deadline: datetime | None = None, **status: Any
) -> Record:
    created = NOON - timedelta(minutes=minutes)
    return Record(
        api_version="autoscaling.x-k8s.io/v1",
        kind="ProvisioningRequest",
        metadata=ObjectMeta(name=name, namespace="ns", creation_timestamp=created),
        spec=RecordSpec(
            id=name,
            workload="w",
            uid="u",
            check="spot-machines",
            cycle=1,
            attempt=2,
            provisioning_class_name="spot.example.com",
            pod_sets=(PodSetToProvision(name="main", count=3),),
            deadline=deadline,
        ),
        status=RecordStatus(**status),
    )


@pytest.mark.parametrize(
    ("status", "word", "until"),
    [
        ({"deadline": NOON + timedelta(hours=1)}, Word("Asked", "pending"), "waits until 13:00"),
        (
            {"deadline": NOON - timedelta(hours=1)},
            Word("Asked", "pending"),
            "waits until 11:00 (over)",
        ),
        ({"state": State.ACCEPTED}, Word("Coming", "reserved"), ""),
        ({"state": State.PROVISIONED}, Word("Booked", "running"), "no end is set"),
        ({"state": State.FAILED, "deadline": NOON}, Word("Failed", "rejected"), ""),
        ({"state": State.CAPACITY_REVOKED}, Word("Revoked", "rejected"), ""),
        ({"cancelled": "the workload ended"}, Word("Cancelled", "off"), "the workload ended"),
    ],
)
def test_a_request_says_how_it_stands_and_until_when(
    status: dict[str, Any], word: Word, until: str
) -> None:
    [row] = build([CONFIG], [a_request(**status)], [], frozenset(), NOON).requests
    assert (row.word, row.until) == (word, until)


def test_a_request_leads_to_its_workload_with_the_words_of_the_provider() -> None:
    notes = (Note(time=NOON, text="<b>"),)
    told = a_request(message="soon", notes=notes, details={"pool": "rack", "machine": "big"})
    [row] = build([CONFIG], [told], [], None, NOON).requests
    assert row.workload == Link("ns/w", "/workloads/ns/w")
    assert (row.words, row.details) == ("soon; <b>", ("machine=big", "pool=rack"))
    assert (row.pods, row.attempt, row.since) == ("3", "2", "5 min")


def test_a_class_says_whether_its_provider_answers() -> None:
    asked = [a_request(), a_request("b", minutes=9, state=State.PROVISIONED)]
    there = build([CONFIG], asked, [POOL], frozenset({"spot.example.com"}), NOON)
    [row] = there.classes
    assert (row.word, row.open, row.booked) == (Word("Answers", "finished"), 1, 1)
    assert (row.configs, row.pools, row.oldest) == ("spot", "rack", "5 min")
    assert there.say == "1 request waits for its provider, 1 is booked."
    assert not there.trouble
    silent = build([CONFIG], asked, [], frozenset(), NOON)
    assert silent.trouble
    assert silent.say.endswith(" No provider answers for spot.example.com.")
    unknown = build([], asked, [], None, NOON)
    assert unknown.classes[0].word == Word("Not known", "off")
    assert unknown.classes[0].configs == "no config names it"


def test_a_provider_without_heartbeats_is_down() -> None:
    down = Condition(
        type="Active",
        status="False",
        reason="ProviderDown",
        message="",
        last_transition_time=NOON,
    )
    reference = ParametersReference(
        api_group="kueue.x-k8s.io", kind="ProvisioningRequestConfig", name="spot"
    )
    check = AdmissionCheck(
        metadata=ObjectMeta(name="spot-machines"),
        spec=AdmissionCheckSpec(controller_name="x", parameters=reference),
        status=ObjectStatus(conditions=(down,)),
    )
    classes = down_classes([check], [CONFIG])
    assert classes == {"spot.example.com"}
    view = build([CONFIG], [], [], classes, NOON, classes)
    assert view.classes[0].word == Word("Down", "rejected")
    assert view.trouble
    quiet = build([CONFIG], [], [], frozenset(), NOON)
    assert (quiet.classes[0].word, quiet.trouble) == (Word("No answer", "off"), False)


def test_open_requests_come_first_and_many_are_cut() -> None:
    asked = [a_request(f"p{number}", state=State.PROVISIONED) for number in range(ROWS_MAX)]
    view = build([CONFIG], [*asked, a_request("open", minutes=99)], [], None, NOON)
    assert (view.requests[0].id, len(view.requests), view.more) == ("ns/open", ROWS_MAX, 1)


def test_a_pool_has_a_row_for_each_kind_of_machine() -> None:
    big, small = build([], [], [POOL], None, NOON).pools
    assert (big.count, big.resources, big.boots) == ("8", "4 nvidia.com/gpu", "1 min 30 s")
    assert (big.booking, small.boots, small.count) == ("10 min", "at once", "0")


def test_classes_are_named_by_configs_requests_and_pools() -> None:
    assert classes_of([CONFIG], [a_request()], [POOL]) == ["spot.example.com"]
    empty = build([], [], [], frozenset(), NOON)
    assert empty.say.startswith("No ProvisioningRequestConfig names a class")
    assert build([], [], [], None, NOON).say == "No workload that you may see asks for capacity."
