"""Which numbers and times of a stored workload are read, and which are out of range: by direct
calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from admittance.events.codec import UID_MAX
from admittance.events.reader import SEQUENCE_MAX, Unreadable
from admittance.workload.bucket_reader import SECONDS_MAX, names_of, read, read_whole

Status = dict[str, Any]
ARRAY = {"role": "array", "array": {"indexes": "0-2"}}


def a_value(
    status: Status | None = None,
    spec: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
) -> bytes:
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Workload",
            "metadata": {"name": "w", "namespace": "ns", "uid": "u", **(metadata or {})},
            "spec": {"queueName": "q", **(spec or {})},
            "status": status or {},
        }
    )


def is_read(value: bytes, reader: Callable[[str, bytes], object] = read) -> bool:
    try:
        reader("workload.ns.w", value)
    except Unreadable:
        return False
    return True


def admission(count: Any = 1, cpu: str = "1") -> Status:
    pods = {"name": "main", "count": count, "resourceUsage": {"cpu": cpu}}
    return {"clusterQueue": "cq", "podSetAssignments": [pods]}


def check(**row: Any) -> Status:
    return {"admissionChecks": [{"name": "c", **row}]}


def condition(at: Any) -> list[Status]:
    return [{"type": "Admitted", "status": "True", "lastTransitionTime": at}]


NUMBERS: dict[str, Callable[[int], Status]] = {
    "fact": lambda n: {"log": {"fact": n}},
    "admission cycle": lambda n: {"admissionCycle": n},
    "rounds": lambda n: {"roundsSince": n},
    "restarts": lambda n: {"restarts": n},
    "admitted revision": lambda n: {"admittedRevision": n},
    "evicted revision": lambda n: {"evictedRevision": n},
    "released revision": lambda n: {"releasedRevision": n},
    "past execution time": lambda n: {"accumulatedPastExecutionTimeSeconds": n},
    "requeue count": lambda n: {"requeueState": {"count": n}},
    "pods of the admission": lambda n: {"admission": admission(n)},
    "retries of a row": lambda n: check(retryCount=n),
    "delay of a row": lambda n: check(requeueAfterSeconds=n),
    "cycle of a row": lambda n: check(verdictCycle=n),
    "retries of a check": lambda n: {**check(), "checkRetryCounts": {"c": n}},
    "reclaimable pods": lambda n: {"reclaimablePods": [{"name": "main", "count": n}]},
}


@pytest.mark.parametrize("status", NUMBERS.values(), ids=NUMBERS)
def test_a_number_is_from_0_to_the_largest_sequence(status: Callable[[int], Status]) -> None:
    for number, expected in ((-1, False), (0, True), (SEQUENCE_MAX, True), (2**63, False)):
        assert is_read(a_value(status(number))) is expected, number


TIMES: dict[str, Callable[[Any], bytes]] = {
    "created": lambda at: a_value(metadata={"creationTimestamp": at}),
    "deleted": lambda at: a_value(metadata={"deletionTimestamp": at}),
    "condition": lambda at: a_value({"conditions": condition(at)}),
    "started": lambda at: a_value({"startedAt": at}),
    "requeue at": lambda at: a_value({"requeueState": {"requeueAt": at}}),
    "pods ready": lambda at: a_value({"requeueState": {"podsReadyUntil": at}}),
    "row": lambda at: a_value(check(lastTransitionTime=at)),
    "victim": lambda at: a_value(
        {
            "pendingPreemption": {
                "victims": [{"namespace": "ns", "name": "v", "uid": "v", "since": at}]
            }
        }
    ),
    "preemption": lambda at: a_value({"preemptions": [{"by": "a", "byUid": "b", "last": at}]}),
    **{
        name: lambda at, field=name: a_value({field: at}, {"role": "parent"})  # type: ignore[misc]
        for name in ("familyStart", "firstAdmittedAt", "nextChangeAt")
    },
    "gate": lambda at: a_value(
        {"preemptionGate": {"holder": "v", "since": at}}, {"role": "parent"}
    ),
    "row of a variant": lambda at: a_value(
        {"variants": [{"name": "v", "variant": "a", "conditions": condition(at)}]},
        {"role": "parent"},
    ),
}


@pytest.mark.parametrize("value", TIMES.values(), ids=TIMES)
def test_a_time_has_a_zone_and_a_year_from_1900_to_8999(value: Callable[[Any], bytes]) -> None:
    for at, expected in (
        ("2026-01-01T12:00:00Z", True),
        ("2026-01-01T12:00:00", False),
        ("1900-01-01T00:00:00Z", True),
        ("1899-12-31T23:59:59Z", False),
        ("8999-12-31T23:59:59Z", True),
        ("9000-01-01T00:00:00Z", False),
    ):
        assert is_read(value(at)) is expected, at


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"maximumExecutionTimeSeconds": 0}, True),
        ({"maximumExecutionTimeSeconds": -1}, False),
        ({"maximumExecutionTimeSeconds": SECONDS_MAX}, True),
        ({"maximumExecutionTimeSeconds": SECONDS_MAX + 1}, False),
        ({"role": "regular"}, True),
        ({"role": "parent"}, True),
        ({"role": "variant"}, True),
        ({"role": "other"}, False),
    ],
)
def test_a_spec_has_a_known_role_and_a_possible_time(spec: dict[str, Any], expected: bool) -> None:
    assert is_read(a_value(spec=spec)) is expected


@pytest.mark.parametrize(
    ("spec", "array", "expected"),
    [
        pytest.param(ARRAY, {"created": 3, "results": "..."}, True, id="all are created"),
        pytest.param(ARRAY, {"created": 0, "results": "..."}, True, id="none is created"),
        pytest.param(ARRAY, {"created": 4, "results": "..."}, False, id="more than there are"),
        pytest.param(ARRAY, {"created": -1, "results": "..."}, False, id="less than none"),
        pytest.param(ARRAY, {"created": 3, "results": ".."}, False, id="a result is missing"),
        pytest.param(ARRAY, {"results": "...", "states": {"Running": -1}}, False, id="state"),
        pytest.param(ARRAY, {"results": "...", "states": {"Running": 0}}, True, id="no such state"),
        pytest.param(ARRAY, None, False, id="no status"),
        pytest.param({"role": "array"}, {"results": ""}, False, id="no indexes"),
        pytest.param(
            {"role": "array", "array": {"indexes": "x"}}, {"results": ""}, False, id="bad indexes"
        ),
    ],
)
def test_an_array_has_a_result_for_each_index(
    spec: dict[str, Any], array: Status | None, expected: bool
) -> None:
    assert is_read(a_value({"array": array} if array is not None else {}, spec)) is expected


@pytest.mark.parametrize(
    ("status", "spec"),
    [
        ({"admission": admission(cpu="x")}, {}),
        ({"promised": admission(cpu="x")}, {"role": "variant"}),
        ({"promised": admission(-1)}, {"role": "variant"}),
    ],
)
def test_quota_of_an_admission_must_be_a_quantity(status: Status, spec: dict[str, Any]) -> None:
    assert not is_read(a_value(status, spec))


@pytest.mark.parametrize(
    ("count", "expected"), [(-1, False), (0, True), (SEQUENCE_MAX, True), (SEQUENCE_MAX + 1, False)]
)
def test_a_pod_set_of_a_spec_has_up_to_the_largest_number_of_pods(
    count: int, expected: bool
) -> None:
    pod_sets = [
        {"name": f"set-{at}", "count": n, "template": {}} for at, n in enumerate((1, count))
    ]
    value = a_value(spec={"podSets": pod_sets})
    assert is_read(value, read_whole) is expected


@pytest.mark.parametrize(("length", "expected"), [(UID_MAX, True), (UID_MAX + 1, False)])
def test_a_uid_has_a_limit(length: int, expected: bool) -> None:
    assert is_read(a_value(metadata={"uid": "u" * length})) is expected


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("workload.ns.w", ("ns", "w")),
        ("localqueue.ns.lq", ("ns", "lq")),
        ("clusterqueue.cq", ("", "cq")),
        ("clusterqueue.ns.cq", None),
        ("workload.w", None),
        ("foreign.ns.x", ("ns", "x")),
        ("foreign.x", ("", "x")),
        ("foreign", None),
        ("workload.ns.w.x", None),
        ("", None),
    ],
)
def test_a_key_has_the_names_that_its_kind_has(key: str, expected: tuple[str, str] | None) -> None:
    if expected is not None:
        assert names_of(key) == expected
        return
    with pytest.raises(Unreadable):
        names_of(key)
