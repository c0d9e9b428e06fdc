"""The provisioning check, by the clock and with a provider by hand. docs/spec/lifecycle.md#7.5."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.events import facts
from admittance.events.provisioning import Accepted, BookingExpired, CapacityRevoked
from admittance.provisioning.records import State
from admittance.provisioning.steps import CLASS as CLASS_KEY
from admittance.provisioning.steps import CONSUME, NOT_ACTIVE, NOT_NEEDED, RequestSlot
from admittance.workload.stored import head
from support.builders import NOON
from support.cores.capacity_cores import CHECK, CapacityCores, a_pod_set, cores_with_capacity
from support.cores.stepped_scheduler import groups

scenario = pytest.mark.scenario
MISHAPS = pytest.mark.parametrize(
    "restarts", [False, True], ids=["calm", "the check starts anew all the time"]
)


def a_reserved(**config: Any) -> CapacityCores:
    """``w`` holds quota and waits for its capacity."""
    cores = cores_with_capacity(**config)
    cores.submit("w", "cq", "8")
    cores.go()
    assert cores.phase("w") == "QuotaReserved"
    return cores


def a_running(**config: Any) -> CapacityCores:
    """``w`` runs on capacity that was provisioned."""
    cores = a_reserved(**config)
    cores.provisioned()
    assert cores.phase("w") == "Admitted"
    return cores


def gone(cores: CapacityCores) -> bool:
    """Nothing is booked and no request is kept."""
    return not cores.booked and not cores.records()


# E1: when nothing is asked for. -------------------------------------------------------------


@scenario("E1")
def test_no_capacity_is_requested_for_a_workload_that_waits_for_quota() -> None:
    cores = cores_with_capacity(nominal="4")
    cores.submit("w", "cq", "8")
    cores.advance(3600)
    assert cores.phase("w") == "Pending"
    assert cores.ids() == []
    assert cores.verdicts == []


@scenario("E1")
def test_no_capacity_is_requested_for_pods_without_managed_resources() -> None:
    cores = cores_with_capacity(managedResources=["example.com/gpu"])
    cores.submit("w", "cq", "8")
    cores.go()
    assert cores.phase("w") == "Admitted"
    assert (cores.states("w"), cores.rows("w")[CHECK].message) == ({CHECK: "Ready"}, NOT_NEEDED)
    assert cores.rows("w")[CHECK].pod_set_updates == ()
    assert cores.ids() == []


@scenario("E1")
def test_no_capacity_is_requested_for_zero_pods() -> None:
    cores = cores_with_capacity()
    cores.work("w", [a_pod_set(count=0)])
    assert cores.phase("w") == "Admitted"
    assert cores.rows("w")[CHECK].message == NOT_NEEDED
    assert cores.ids() == []


# E2: capacity is there. ---------------------------------------------------------------------


@scenario("E2")
@MISHAPS
def test_provisioned_capacity_starts_the_job_with_an_update_for_each_pod_set(
    restarts: bool,
) -> None:
    selectors = [
        {"key": "pool", "valueFromProvisioningClassDetail": "pool"},
        {"key": "zone", "valueFromProvisioningClassDetail": "never-told"},
    ]
    cores = cores_with_capacity(podSetUpdates={"nodeSelector": selectors}, restarts=restarts)
    cores.work("w", [a_pod_set("driver"), a_pod_set("workers", 3)])
    assert cores.phase("w") == "QuotaReserved"
    cores.provider(Accepted, message="in 5 minutes")
    assert cores.rows("w")[CHECK].message == "in 5 minutes"
    assert cores.starts("w") == 0
    cores.provisioned(message="here", details={"pool": "p-1"})
    assert (cores.phase("w"), cores.starts("w")) == ("Admitted", 1)
    row = cores.rows("w")[CHECK]
    assert (row.state, row.message) == ("Ready", "here")
    wanted = {
        "annotations": {CONSUME: "w-capacity-1", CLASS_KEY: "class"},
        "nodeSelector": {"pool": "p-1"},
    }
    assert list(row.pod_set_updates) == [
        {"name": "driver", **wanted}, {"name": "workers", **wanted},
    ]  # fmt: skip


# E3 to E5: failures. ------------------------------------------------------------------------


@scenario("E3")
@MISHAPS
def test_a_failure_frees_the_quota_and_the_next_attempt_comes_after_its_delay(
    restarts: bool,
) -> None:
    cores = a_reserved(limit=1, restarts=restarts)
    cores.fails(message="none left")
    assert cores.usage("cq") == 0
    assert cores.wait("w") == 60
    assert cores.rows("w")[CHECK].message == "Retrying after failure: none left"
    assert gone(cores)
    cores.advance(59)
    assert len(cores.ids()) == 1
    cores.advance(1)
    assert cores.phase("w") == "QuotaReserved"
    assert [request_id.rsplit("/", 1)[1] for request_id in cores.ids()] == ["1", "2"]
    assert cores.records() == ["w-capacity-2"]
    cores.provisioned()
    assert (cores.phase("w"), cores.starts("w")) == ("Admitted", 1)
    assert cores.booked == {cores.ids()[1]}


@scenario("E4")
@MISHAPS
def test_the_last_failure_turns_the_workload_off(restarts: bool) -> None:
    cores = a_reserved(limit=1, restarts=restarts)
    cores.fails(message="none left")
    cores.advance(60)
    cores.fails(message="none left at all")
    assert cores.phase("w") == "Rejected"
    assert not head(cores.stored("w")).active
    assert cores.evicted_for("w") == ["AdmissionCheck", "DeactivatedDueToAdmissionCheck"]
    assert cores.evictions("w") == {"AdmissionCheck": 1, "Deactivated": 1}
    assert "none left at all" in cores.message("w", "Evicted")
    assert gone(cores)
    cores.advance(86_400)
    assert len(cores.ids()) == 2


@scenario("E5")
def test_delays_double_from_the_base_and_end_in_a_rejection() -> None:
    cores = a_reserved(limit=2, base=60)
    waits = []
    while True:
        cores.fails()
        if cores.phase("w") == "Rejected":
            break
        waits.append(cores.wait("w"))
        cores.advance(waits[-1] or 0)
    assert waits == [60, 120]
    assert len(cores.ids()) == 3


@scenario("E5")
def test_a_provider_may_set_the_retry_delay_or_forbid_retries() -> None:
    cores = a_reserved(limit=9)
    cores.fails(retry_after=7)
    assert cores.wait("w") == 7
    cores.advance(7)
    cores.fails(message="no such machine", retryable=False)
    assert cores.phase("w") == "Rejected"


# E6, E7: bookings that end. -----------------------------------------------------------------


@scenario("E6")
def test_a_booking_that_ends_before_the_start_counts_as_a_failure() -> None:
    cores = cores_with_capacity(limit=1)
    cores.check("other")
    cores.queue("cq", resourceGroups=groups(default="10"), admissionChecks=[CHECK, "other"])
    cores.submit("w", "cq", "8")
    cores.go()
    cores.provisioned()
    assert cores.states("w") == {CHECK: "Ready", "other": "Pending"}
    cores.provider(BookingExpired, message="kept 600 s")
    assert cores.wait("w") == 60
    assert cores.rows("w")[CHECK].message == "Retrying after booking expired: kept 600 s"
    assert gone(cores)


@scenario("E6")
def test_a_booking_that_ends_during_a_preemption_counts_as_a_failure() -> None:
    cores = cores_with_capacity(limit=1)
    cores.queue(
        "cq",
        resourceGroups=groups(default="10"),
        preemption={"withinClusterQueue": "LowerPriority"},
        admissionChecks=[CHECK],
    )
    cores.submit("low", "cq", "8")
    cores.go()
    cores.provisioned()
    cores.slow_jobs.add("low")
    cores.submit("w", "cq", "8", priority=1)
    cores.go()
    (mine,) = cores.ids("w")
    cores.provisioned(mine)
    assert cores.rows("w")[CHECK].state == "Ready"
    assert cores.phase("w") == "QuotaReserved"
    cores.provider(BookingExpired, mine)
    assert cores.starts("w") == 0
    assert cores.rows("w")[CHECK].state == "Retry"


@scenario("E6")
def test_a_booking_that_ends_under_a_running_job_is_ignored() -> None:
    cores = a_running()
    before = cores.rows("w")
    cores.provider(BookingExpired)
    cores.advance(600)
    assert (cores.phase("w"), cores.rows("w")) == ("Admitted", before)
    cores.restart_check()
    cores.go()
    assert (cores.phase("w"), cores.rows("w")) == ("Admitted", before)


@scenario("E7")
@MISHAPS
@pytest.mark.parametrize("admitted", [False, True], ids=["reserved", "running"])
def test_revoked_capacity_rejects(admitted: bool, restarts: bool) -> None:
    cores = cores_with_capacity(limit=9, restarts=restarts)
    cores.check("other")
    checks = [CHECK] if admitted else [CHECK, "other"]
    cores.queue("cq", resourceGroups=groups(default="10"), admissionChecks=checks)
    cores.submit("w", "cq", "8")
    cores.go()
    cores.provisioned()
    assert (cores.phase("w") == "Admitted") == admitted
    cores.provider(CapacityRevoked, message="sold")
    assert cores.phase("w") == "Rejected"
    assert not head(cores.stored("w")).active
    assert "sold" in cores.message("w", "Evicted")
    assert gone(cores)


@scenario("E7")
def test_revoked_capacity_counts_after_a_failure_of_the_running_job() -> None:
    cores = a_running()
    cores.fails()
    assert cores.phase("w") == "Admitted"
    cores.provider(CapacityRevoked)
    assert cores.phase("w") == "Rejected"


@scenario("E7")
def test_revoked_capacity_of_a_finished_job_is_ignored() -> None:
    cores = a_running()
    cores.finish("w")
    cores.go()
    count = len(cores.verdicts)
    cores.provider(CapacityRevoked)
    assert cores.phase("w") == "Finished"
    assert len(cores.verdicts) == count
    assert gone(cores)


# E8: the configuration changes. -------------------------------------------------------------


def other_class(cores: CapacityCores) -> None:
    cores.configure(provisioningClassName="another")


def other_parameter(cores: CapacityCores) -> None:
    cores.configure(parameters={"zone": "b"})


def other_config(cores: CapacityCores) -> None:
    cores.configure("second", parameters={"zone": "b"})
    cores.capacity_check(CHECK, "second")


CHANGES = [
    pytest.param(other_class, id="another class"),
    pytest.param(other_parameter, id="another parameter"),
    pytest.param(other_config, id="another config"),
]


@scenario("E8")
@MISHAPS
@pytest.mark.parametrize("accepted", [False, True], ids=["unanswered", "accepted"])
@pytest.mark.parametrize("change", CHANGES)
def test_another_configuration_replaces_the_request_at_the_same_attempt(
    change: Any, accepted: bool, restarts: bool
) -> None:
    cores = a_reserved(restarts=restarts)
    if accepted:
        cores.provider(Accepted)
    change(cores)
    cores.go()
    first, second = (cores.wanted[0], cores.wanted[-1])
    assert len(cores.ids()) == 2
    assert (first.attempt, second.attempt) == (1, 1)
    asked = first.provisioning_class, first.parameters
    assert (second.provisioning_class, second.parameters) != asked
    assert set(cores.freed) == {first.id}
    assert cores.records() == ["w-capacity-1"]
    # What the first provider says now is of the past.
    cores.provisioned(first.id)
    assert cores.phase("w") == "QuotaReserved"
    cores.provisioned(second.id)
    assert cores.phase("w") == "Admitted"
    assert cores.booked == {second.id}


@scenario("E8")
@pytest.mark.parametrize("change", CHANGES)
def test_another_configuration_leaves_ready_requests_alone(change: Any) -> None:
    cores = a_running()
    before = cores.rows("w")
    change(cores)
    cores.advance(60)
    assert (cores.phase("w"), cores.rows("w")) == ("Admitted", before)
    assert (len(cores.ids()), cores.freed) == (1, [])


@scenario("E8")
@MISHAPS
@pytest.mark.parametrize("what", ["ProvisioningRequestConfig", "AdmissionCheck"])
def test_without_a_configuration_the_request_is_cancelled(what: str, restarts: bool) -> None:
    cores = a_reserved(restarts=restarts)
    if what == "AdmissionCheck":
        cores.capacity_check(CHECK, "nowhere")
    else:
        cores.delete("ProvisioningRequestConfig", "config")
    cores.go()
    assert set(cores.freed) == set(cores.ids())
    assert (cores.states("w"), cores.rows("w")[CHECK].message) == ({CHECK: "Pending"}, NOT_ACTIVE)
    assert cores.phase("w") == "QuotaReserved"
    cores.configure("nowhere" if what == "AdmissionCheck" else "config")
    cores.go()
    assert len(cores.ids()) == 2
    assert cores.rows("w")[CHECK].message == ""
    cores.provisioned()
    assert cores.phase("w") == "Admitted"


@scenario("E8")
def test_a_request_that_is_no_longer_needed_is_cancelled() -> None:
    cores = a_reserved()
    cores.configure(managedResources=["example.com/gpu"])
    cores.go()
    assert set(cores.freed) == set(cores.ids())
    assert (cores.phase("w"), cores.rows("w")[CHECK].message) == ("Admitted", NOT_NEEDED)


@scenario("E8")
def test_a_check_that_is_listed_again_gets_a_request_with_a_new_id() -> None:
    cores = a_reserved()
    cores.queue("cq", resourceGroups=groups(default="10"), admissionChecks=[CHECK, "other"])
    cores.check("other")
    cores.queue("cq", resourceGroups=groups(default="10"), admissionChecks=["other"])
    cores.go()
    assert set(cores.freed) == set(cores.ids())
    cores.queue("cq", resourceGroups=groups(default="10"), admissionChecks=[CHECK, "other"])
    cores.go()
    assert len(cores.ids()) == 2
    cores.provisioned()
    cores.report("w", "other", "Ready")
    assert cores.phase("w") == "Admitted"


# E9: a request deleted by hand. -------------------------------------------------------------


@scenario("E9")
def test_a_request_that_is_deleted_under_a_running_job_does_not_come_back() -> None:
    cores = a_running()
    cores.edit_record("w-capacity-1", None)
    cores.advance(3600)
    cores.restart_check()
    cores.go()
    assert (cores.phase("w"), cores.starts("w")) == ("Admitted", 1)
    assert cores.records() == []
    assert len(cores.ids()) == 1
    assert cores.booked == set()


@scenario("E9")
def test_a_request_that_is_deleted_while_it_is_waited_for_is_written_again() -> None:
    cores = a_reserved()
    cores.provider(Accepted, message="soon")
    cores.edit_record("w-capacity-1", None)
    assert cores.record("w-capacity-1").status.state is State.ACCEPTED
    assert cores.freed == []
    cores.provisioned()
    assert cores.phase("w") == "Admitted"


# E10: the end. ------------------------------------------------------------------------------


@scenario("E10")
@MISHAPS
@pytest.mark.parametrize("ready", [False, True], ids=["waiting", "running"])
@pytest.mark.parametrize("end", ["finished", "deleted", "deactivated", "evicted"])
def test_each_end_of_the_reservation_frees_the_booking(
    end: str, ready: bool, restarts: bool
) -> None:
    cores = a_running(restarts=restarts) if ready else a_reserved(restarts=restarts)
    match end:
        case "finished":
            cores.finish("w")
        case "deleted":
            cores.publish(facts.Deleted, "w")
        case "deactivated":
            cores.publish(facts.Deactivated, "w")
        case "evicted":
            cores.queue("cq", resourceGroups=groups(default="10"), stopPolicy="HoldAndDrain")
    cores.go()
    assert set(cores.freed) == set(cores.ids())
    assert gone(cores)


@scenario("E10")
def test_the_next_name_uses_the_count_of_retries() -> None:
    cores = a_reserved(limit=5)
    cores.fails()
    cores.advance(60)
    assert cores.records() == ["w-capacity-2"]
    # Preempted: the attempt is not counted.
    cores.queue("cq", resourceGroups=groups(default="4"), admissionChecks=[CHECK])
    cores.go()
    assert gone(cores)
    cores.queue("cq", resourceGroups=groups(default="10"), admissionChecks=[CHECK])
    cores.go()
    assert cores.records() == ["w-capacity-2"]
    assert len(cores.ids()) == 3
    cores.fails()
    cores.advance(120)
    assert cores.records() == ["w-capacity-3"]


@scenario("E10")
def test_a_workload_with_a_reused_name_has_its_own_request() -> None:
    cores = a_running()
    (first,) = cores.ids()
    cores.publish(facts.Deleted, "w")
    cores.submit("w", "cq", "8")
    cores.go()
    assert len(cores.ids()) == 2
    assert first in cores.freed
    cores.provisioned(first)
    assert cores.phase("w") == "QuotaReserved"
    cores.provisioned()
    assert cores.booked == {cores.ids()[1]}


@scenario("E10")
def test_a_retry_of_another_check_cancels_the_request_at_once() -> None:
    cores = cores_with_capacity(limit=5)
    cores.check("other")
    cores.queue("cq", resourceGroups=groups(default="10"), admissionChecks=[CHECK, "other"])
    cores.submit("w", "cq", "8")
    cores.go()
    cores.slow_jobs.add("w")
    cores.report("w", "other", "Retry", after=30)
    assert gone(cores)
    cores.fails()  # A late failure does not extend the delay.
    assert cores.wait("w") == 30
    cores.advance(30)
    assert [request_id.rsplit("/", 1)[1] for request_id in cores.ids()] == ["1", "1"]


# E11, E12: what is asked. -------------------------------------------------------------------


@scenario("E11")
def test_the_annotation_of_a_workload_wins_over_the_config() -> None:
    cores = cores_with_capacity(parameters={"zone": "a", "disk": "ssd"})
    cores.work("w", [a_pod_set()], zone="b", ValidUntilSeconds="30")
    (asked,) = cores.wanted
    assert asked.parameters == {"zone": "b", "disk": "ssd", "ValidUntilSeconds": "30"}
    assert asked.deadline is not None
    assert (asked.deadline - NOON).total_seconds() == 30


TEMPLATES, SCHEDULING = "IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"
EQUAL = [a_pod_set("a", 2), a_pod_set("b", 3)]
LIKE = [a_pod_set("a", 2), a_pod_set("b", 3, image="another")]
UNLIKE = [a_pod_set("a", 2), a_pod_set("b", 3, cpu="2")]
MERGED, APART = [(5, ("a", "b"))], [(2, ("a",)), (3, ("b",))]


@scenario("E12")
@pytest.mark.parametrize(
    ("pod_sets", "policy", "wanted"),
    [
        pytest.param(EQUAL, None, APART, id="equal and no policy"),
        pytest.param(EQUAL, TEMPLATES, MERGED, id="equal by templates"),
        pytest.param(EQUAL, SCHEDULING, MERGED, id="equal by scheduling"),
        pytest.param(LIKE, None, APART, id="alike and no policy"),
        pytest.param(LIKE, TEMPLATES, APART, id="alike by templates"),
        pytest.param(LIKE, SCHEDULING, MERGED, id="alike by scheduling"),
        pytest.param(UNLIKE, TEMPLATES, APART, id="different by templates"),
        pytest.param(UNLIKE, SCHEDULING, APART, id="different by scheduling"),
    ],
)
def test_pod_sets_are_merged_in_a_request_by_the_policy(
    pod_sets: list[dict[str, Any]], policy: str | None, wanted: list[Any]
) -> None:
    more: dict[str, Any] = {"podSetMergePolicy": policy} if policy else {}
    cores = cores_with_capacity(**more)
    cores.work("w", pod_sets)
    (asked,) = cores.wanted
    assert [(pod_set.count, pod_set.names) for pod_set in asked.pod_sets] == wanted
    cores.provisioned()
    assert [update["name"] for update in cores.rows("w")[CHECK].pod_set_updates] == ["a", "b"]
    assert cores.phase("w") == "Admitted"


# E13: another flavor. -----------------------------------------------------------------------


def a_preempted_off_spot(second: str) -> CapacityCores:
    """``w`` waits for capacity on ``spot``, is preempted, and comes back where only the flavor
    ``calm`` has room; ``second``: the check of that flavor."""
    cores = cores_with_capacity(per_flavor={"spot": "8", "calm": "0"})
    if second:
        cores.configure("second", provisioningClassName="another")
        cores.capacity_check(second, "second")
    offered: dict[str, Any] = groups(spot="8", calm="8")[0]
    for flavor in offered["flavors"]:
        checks = {"spot": CHECK, "calm": second}[flavor["name"]]
        if checks:
            flavor["admissionChecks"] = [checks]
    spec: dict[str, Any] = {
        "resourceGroups": [offered],
        "preemption": {"withinClusterQueue": "LowerPriority"},
    }
    cores.queue("cq", **spec)
    cores.submit("w", "cq", "8")
    cores.go()
    assert cores.flavor("w") == "spot"
    cores.slow_jobs.add("w")
    small = [dict(flavor) for flavor in offered["flavors"]]
    small[0]["resources"] = [{"name": "cpu", "nominalQuota": "0"}]
    cores.queue("cq", **{**spec, "resourceGroups": [{**offered, "flavors": small}]})
    cores.go()
    assert cores.flavor("w") == "calm"
    return cores


@scenario("E13")
def test_a_job_on_a_flavor_without_the_check_leaves_no_request() -> None:
    cores = a_preempted_off_spot("")
    assert cores.phase("w") == "Admitted"
    assert set(cores.freed) == set(cores.ids())
    assert gone(cores)


@scenario("E13")
def test_a_flavor_with_another_check_uses_only_that_check() -> None:
    cores = a_preempted_off_spot("more")
    assert cores.states("w") == {"more": "Pending"}
    assert cores.records() == ["w-more-1"]
    first, second = cores.ids()
    assert set(cores.freed) == {first}
    cores.provisioned(second)
    assert cores.phase("w") == "Admitted"
    assert cores.booked == {second}


# E14: mishaps. ------------------------------------------------------------------------------


@scenario("E14")
def test_a_repeated_answer_counts_once() -> None:
    cores = a_reserved(limit=5)
    cores.provider(Accepted, seq=1)
    cores.provisioned(seq=2)
    count = len(cores.verdicts)
    assert "not higher than 2" in cores.provisioned(seq=2)
    assert cores.provisioned(seq=3) == "repeated answer"
    assert len(cores.verdicts) == count
    assert (cores.phase("w"), cores.starts("w")) == ("Admitted", 1)


@scenario("E14")
def test_answers_out_of_order_count_by_their_numbers() -> None:
    cores = a_reserved()
    cores.provisioned(seq=2)
    cores.provider(Accepted, seq=1)
    assert cores.phase("w") == "Admitted"
    assert cores.record("w-capacity-1").status.state is State.PROVISIONED


@scenario("E14")
def test_a_provider_that_never_answers_counts_as_failed_at_the_deadline() -> None:
    cores = a_reserved(limit=0, patience=900)
    cores.advance(899)
    assert cores.phase("w") == "QuotaReserved"
    cores.advance(1)
    assert cores.phase("w") == "Rejected"
    assert "not provisioned by 2026-01-01T12:15:00Z" in cores.message("w", "Evicted")
    assert gone(cores)
    # What comes later is freed, and starts nothing.
    cores.provisioned()
    assert (cores.phase("w"), cores.booked) == ("Rejected", set())


@scenario("E14")
def test_a_provider_killed_before_its_answer_gets_the_same_request_id() -> None:
    cores = a_reserved()
    (asked,) = cores.ids()
    cores.booked.add(asked)
    cores.capacity.send_again(RequestSlot(cores.namespace, "w", CHECK), asked)
    cores.go()
    assert [request.id for request in cores.wanted] == [asked, asked]
    cores.provisioned()
    assert cores.booked == {asked}
    cores.finish("w")
    cores.go()
    assert gone(cores)


@scenario("E14")
def test_a_stored_request_that_was_not_sent_is_sent_by_the_next_leader() -> None:
    cores = a_reserved()
    (asked,) = cores.ids()
    cores.wanted.clear()
    cores.restart_check()
    cores.go()
    assert [request.id for request in cores.wanted] == [asked]
    assert cores.freed == []


@scenario("E14")
def test_a_lost_verdict_is_reported_by_the_next_leader() -> None:
    cores = a_reserved()
    asked = cores.wanted[0]
    record = cores.record("w-capacity-1")
    there = record.status.__class__(state=State.PROVISIONED, message="here")
    cores.keep(
        ("ns", "w-capacity-1"),
        record.__class__(
            api_version=record.api_version, kind=record.kind, metadata=record.metadata,
            spec=record.spec, status=there,
        ),
    )  # fmt: skip
    cores.restart_check()
    cores.go()
    assert cores.phase("w") == "Admitted"
    assert cores.ids() == [asked.id]


@scenario("E14")
def test_an_answer_to_a_request_of_another_class_changes_nothing() -> None:
    cores = a_reserved()
    assert "was requested from class" in cores.provisioned(provisioning_class="another")
    assert "no request" in cores.provisioned(id="", name="missing")
    assert cores.phase("w") == "QuotaReserved"
    cores.provisioned()
    assert cores.phase("w") == "Admitted"


# The story. ---------------------------------------------------------------------------------


@MISHAPS
def test_spot_is_provisioned_only_when_reserved_machines_are_full(
    restarts: bool,
) -> None:
    cores = cores_with_capacity(
        per_flavor={"reserved": "8", "spot": "8"}, limit=3, restarts=restarts
    )
    cores.submit("first", "cq", "8")
    cores.go()
    assert (cores.flavor("first"), cores.phase("first")) == ("reserved", "Admitted")
    assert cores.ids() == []
    cores.submit("second", "cq", "8")
    cores.go()
    assert (cores.flavor("second"), cores.phase("second")) == ("spot", "QuotaReserved")
    (asked,) = {request.id: request for request in cores.wanted}.values()
    (group,) = asked.pod_sets
    assert b'"kind":"spot"' in bytes(group.template).replace(b" ", b"")
    cores.fails(message="no spot machines")
    assert cores.wait("second") == 60
    cores.advance(60)
    cores.provider(Accepted, message="booting")
    cores.provisioned(message="booted")
    assert (cores.phase("second"), cores.starts("second")) == ("Admitted", 1)
    cores.provider(CapacityRevoked, message="the price went up")
    assert cores.phase("second") == "Rejected"
    assert cores.phase("first") == "Admitted"
    assert gone(cores)


def test_a_workload_that_leaves_spot_for_reserved_has_no_booking() -> None:
    cores = cores_with_capacity(per_flavor={"reserved": "8", "spot": "8"}, limit=3)
    cores.submit("first", "cq", "8")
    cores.submit("second", "cq", "8")
    cores.go()
    cores.fails()
    cores.finish("first")
    cores.advance(60)
    assert (cores.flavor("second"), cores.phase("second")) == ("reserved", "Admitted")
    assert len(cores.ids()) == 1
    assert gone(cores)
