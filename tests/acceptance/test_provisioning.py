"""The provisioning check, by the clock and with a provider by hand. LIFECYCLE 7.5."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.events import facts
from admittance.events.provisioning import Accepted, BookingExpired, CapacityRevoked
from admittance.provisioning.records import State
from admittance.provisioning.steps import RequestSlot
from admittance.provisioning.verdicts import CLASS as CLASS_KEY
from admittance.provisioning.verdicts import CONSUME, NOT_ACTIVE, NOT_NEEDED
from admittance.workload.stored import head
from support.builders import NOON
from support.cores.scheduling_story import groups

from provided_living import CHECK, ProvidedLife, a_pod_set, a_provided_life

scenario = pytest.mark.scenario
MISHAPS = pytest.mark.parametrize(
    "restless", [False, True], ids=["calm", "the check starts anew all the time"]
)


def a_reserved(**config: Any) -> ProvidedLife:
    """``w`` holds quota and waits for its capacity."""
    life = a_provided_life(**config)
    life.submit("w", "cq", "8")
    life.go()
    assert life.phase("w") == "QuotaReserved"
    return life


def a_running(**config: Any) -> ProvidedLife:
    """``w`` runs on capacity that was provisioned."""
    life = a_reserved(**config)
    life.provisioned()
    assert life.phase("w") == "Admitted"
    return life


def gone(life: ProvidedLife) -> bool:
    """Nothing is booked and no request is kept."""
    return not life.booked and not life.records()


# E1: when nothing is asked for. -------------------------------------------------------------


@scenario("E1")
def test_no_capacity_is_requested_for_a_workload_that_waits_for_quota() -> None:
    life = a_provided_life(nominal="4")
    life.submit("w", "cq", "8")
    life.advance(3600)
    assert life.phase("w") == "Pending"
    assert life.ids() == []
    assert life.told == []


@scenario("E1")
def test_no_capacity_is_requested_for_pods_without_managed_resources() -> None:
    life = a_provided_life(managedResources=["example.com/gpu"])
    life.submit("w", "cq", "8")
    life.go()
    assert life.phase("w") == "Admitted"
    assert (life.states("w"), life.rows("w")[CHECK].message) == ({CHECK: "Ready"}, NOT_NEEDED)
    assert life.rows("w")[CHECK].pod_set_updates == ()
    assert life.ids() == []


@scenario("E1")
def test_no_capacity_is_requested_for_zero_pods() -> None:
    life = a_provided_life()
    life.work("w", [a_pod_set(count=0)])
    assert life.phase("w") == "Admitted"
    assert life.rows("w")[CHECK].message == NOT_NEEDED
    assert life.ids() == []


# E2: capacity is there. ---------------------------------------------------------------------


@scenario("E2")
@MISHAPS
def test_provisioned_capacity_starts_the_job_with_an_update_for_each_pod_set(
    restless: bool,
) -> None:
    selectors = [
        {"key": "pool", "valueFromProvisioningClassDetail": "pool"},
        {"key": "zone", "valueFromProvisioningClassDetail": "never-told"},
    ]
    life = a_provided_life(podSetUpdates={"nodeSelector": selectors}, restless=restless)
    life.work("w", [a_pod_set("driver"), a_pod_set("workers", 3)])
    assert life.phase("w") == "QuotaReserved"
    life.provider(Accepted, message="in 5 minutes")
    assert life.rows("w")[CHECK].message == "in 5 minutes"
    assert life.starts("w") == 0
    life.provisioned(message="here", details={"pool": "p-1"})
    assert (life.phase("w"), life.starts("w")) == ("Admitted", 1)
    row = life.rows("w")[CHECK]
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
    restless: bool,
) -> None:
    life = a_reserved(limit=1, restless=restless)
    life.fails(message="none left")
    assert life.usage("cq") == 0
    assert life.wait("w") == 60
    assert life.rows("w")[CHECK].message == "Retrying after failure: none left"
    assert gone(life)
    life.advance(59)
    assert len(life.ids()) == 1
    life.advance(1)
    assert life.phase("w") == "QuotaReserved"
    assert [one.rsplit("/", 1)[1] for one in life.ids()] == ["1", "2"]
    assert life.records() == ["w-capacity-2"]
    life.provisioned()
    assert (life.phase("w"), life.starts("w")) == ("Admitted", 1)
    assert life.booked == {life.ids()[1]}


@scenario("E4")
@MISHAPS
def test_the_last_failure_turns_the_workload_off(restless: bool) -> None:
    life = a_reserved(limit=1, restless=restless)
    life.fails(message="none left")
    life.advance(60)
    life.fails(message="none left at all")
    assert life.phase("w") == "Rejected"
    assert not head(life.stored("w")).active
    assert life.evicted_for("w") == ["AdmissionCheck", "DeactivatedDueToAdmissionCheck"]
    assert life.evictions("w") == {"AdmissionCheck": 1, "Deactivated": 1}
    assert "none left at all" in life.message("w", "Evicted")
    assert gone(life)
    life.advance(86_400)
    assert len(life.ids()) == 2


@scenario("E5")
def test_delays_double_from_the_base_and_end_in_a_rejection() -> None:
    life = a_reserved(limit=2, base=60)
    waits = []
    while True:
        life.fails()
        if life.phase("w") == "Rejected":
            break
        waits.append(life.wait("w"))
        life.advance(waits[-1] or 0)
    assert waits == [60, 120]
    assert len(life.ids()) == 3


@scenario("E5")
def test_a_provider_may_set_the_retry_delay_or_forbid_retries() -> None:
    life = a_reserved(limit=9)
    life.fails(retry_after=7)
    assert life.wait("w") == 7
    life.advance(7)
    life.fails(message="no such machine", retryable=False)
    assert life.phase("w") == "Rejected"


# E6, E7: bookings that end. -----------------------------------------------------------------


@scenario("E6")
def test_a_booking_that_ends_before_the_start_counts_as_a_failure() -> None:
    life = a_provided_life(limit=1)
    life.check("other")
    life.queue("cq", resourceGroups=groups(default="10"), admissionChecks=[CHECK, "other"])
    life.submit("w", "cq", "8")
    life.go()
    life.provisioned()
    assert life.states("w") == {CHECK: "Ready", "other": "Pending"}
    life.provider(BookingExpired, message="kept 600 s")
    assert life.wait("w") == 60
    assert life.rows("w")[CHECK].message == "Retrying after booking expired: kept 600 s"
    assert gone(life)


@scenario("E6")
def test_a_booking_that_ends_during_a_preemption_counts_as_a_failure() -> None:
    life = a_provided_life(limit=1)
    life.queue(
        "cq",
        resourceGroups=groups(default="10"),
        preemption={"withinClusterQueue": "LowerPriority"},
        admissionChecks=[CHECK],
    )
    life.submit("low", "cq", "8")
    life.go()
    life.provisioned()
    life.stubborn.add("low")
    life.submit("w", "cq", "8", priority=1)
    life.go()
    (mine,) = life.ids("w")
    life.provisioned(mine)
    assert life.rows("w")[CHECK].state == "Ready"
    assert life.phase("w") == "QuotaReserved"
    life.provider(BookingExpired, mine)
    assert life.starts("w") == 0
    assert life.rows("w")[CHECK].state == "Retry"


@scenario("E6")
def test_a_booking_that_ends_under_a_running_job_is_ignored() -> None:
    life = a_running()
    before = life.rows("w")
    life.provider(BookingExpired)
    life.advance(600)
    assert (life.phase("w"), life.rows("w")) == ("Admitted", before)
    life.restart_check()
    life.go()
    assert (life.phase("w"), life.rows("w")) == ("Admitted", before)


@scenario("E7")
@MISHAPS
@pytest.mark.parametrize("admitted", [False, True], ids=["reserved", "running"])
def test_revoked_capacity_rejects(admitted: bool, restless: bool) -> None:
    life = a_provided_life(limit=9, restless=restless)
    life.check("other")
    checks = [CHECK] if admitted else [CHECK, "other"]
    life.queue("cq", resourceGroups=groups(default="10"), admissionChecks=checks)
    life.submit("w", "cq", "8")
    life.go()
    life.provisioned()
    assert (life.phase("w") == "Admitted") == admitted
    life.provider(CapacityRevoked, message="sold")
    assert life.phase("w") == "Rejected"
    assert not head(life.stored("w")).active
    assert "sold" in life.message("w", "Evicted")
    assert gone(life)


@scenario("E7")
def test_revoked_capacity_counts_after_a_failure_of_the_running_job() -> None:
    life = a_running()
    life.fails()
    assert life.phase("w") == "Admitted"
    life.provider(CapacityRevoked)
    assert life.phase("w") == "Rejected"


@scenario("E7")
def test_revoked_capacity_of_a_finished_job_is_ignored() -> None:
    life = a_running()
    life.finish("w")
    life.go()
    told = len(life.told)
    life.provider(CapacityRevoked)
    assert life.phase("w") == "Finished"
    assert len(life.told) == told
    assert gone(life)


# E8: the configuration changes. -------------------------------------------------------------


def other_class(life: ProvidedLife) -> None:
    life.configure(provisioningClassName="another")


def other_parameter(life: ProvidedLife) -> None:
    life.configure(parameters={"zone": "b"})


def other_config(life: ProvidedLife) -> None:
    life.configure("second", parameters={"zone": "b"})
    life.capacity_check(CHECK, "second")


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
    change: Any, accepted: bool, restless: bool
) -> None:
    life = a_reserved(restless=restless)
    if accepted:
        life.provider(Accepted)
    change(life)
    life.go()
    first, second = (life.wanted[0], life.wanted[-1])
    assert len(life.ids()) == 2
    assert (first.attempt, second.attempt) == (1, 1)
    asked = first.provisioning_class, first.parameters
    assert (second.provisioning_class, second.parameters) != asked
    assert set(life.freed) == {first.id}
    assert life.records() == ["w-capacity-1"]
    # What the first provider says now is of the past.
    life.provisioned(first.id)
    assert life.phase("w") == "QuotaReserved"
    life.provisioned(second.id)
    assert life.phase("w") == "Admitted"
    assert life.booked == {second.id}


@scenario("E8")
@pytest.mark.parametrize("change", CHANGES)
def test_another_configuration_leaves_ready_requests_alone(change: Any) -> None:
    life = a_running()
    before = life.rows("w")
    change(life)
    life.advance(60)
    assert (life.phase("w"), life.rows("w")) == ("Admitted", before)
    assert (len(life.ids()), life.freed) == (1, [])


@scenario("E8")
@MISHAPS
@pytest.mark.parametrize("what", ["ProvisioningRequestConfig", "AdmissionCheck"])
def test_without_a_configuration_the_request_is_cancelled(what: str, restless: bool) -> None:
    life = a_reserved(restless=restless)
    if what == "AdmissionCheck":
        life.capacity_check(CHECK, "nowhere")
    else:
        life.delete("ProvisioningRequestConfig", "config")
    life.go()
    assert set(life.freed) == set(life.ids())
    assert (life.states("w"), life.rows("w")[CHECK].message) == ({CHECK: "Pending"}, NOT_ACTIVE)
    assert life.phase("w") == "QuotaReserved"
    life.configure("nowhere" if what == "AdmissionCheck" else "config")
    life.go()
    assert len(life.ids()) == 2
    assert life.rows("w")[CHECK].message == ""
    life.provisioned()
    assert life.phase("w") == "Admitted"


@scenario("E8")
def test_a_request_that_is_no_longer_needed_is_cancelled() -> None:
    life = a_reserved()
    life.configure(managedResources=["example.com/gpu"])
    life.go()
    assert set(life.freed) == set(life.ids())
    assert (life.phase("w"), life.rows("w")[CHECK].message) == ("Admitted", NOT_NEEDED)


@scenario("E8")
def test_a_check_that_is_listed_again_gets_a_request_with_a_new_id() -> None:
    life = a_reserved()
    life.queue("cq", resourceGroups=groups(default="10"), admissionChecks=[CHECK, "other"])
    life.check("other")
    life.queue("cq", resourceGroups=groups(default="10"), admissionChecks=["other"])
    life.go()
    assert set(life.freed) == set(life.ids())
    life.queue("cq", resourceGroups=groups(default="10"), admissionChecks=[CHECK, "other"])
    life.go()
    assert len(life.ids()) == 2
    life.provisioned()
    life.judge("w", "other", "Ready")
    assert life.phase("w") == "Admitted"


# E9: a request deleted by hand. -------------------------------------------------------------


@scenario("E9")
def test_a_request_that_is_deleted_under_a_running_job_does_not_come_back() -> None:
    life = a_running()
    life.edit_record("w-capacity-1", None)
    life.advance(3600)
    life.restart_check()
    life.go()
    assert (life.phase("w"), life.starts("w")) == ("Admitted", 1)
    assert life.records() == []
    assert len(life.ids()) == 1
    assert life.booked == set()


@scenario("E9")
def test_a_request_that_is_deleted_while_it_is_waited_for_is_written_again() -> None:
    life = a_reserved()
    life.provider(Accepted, message="soon")
    life.edit_record("w-capacity-1", None)
    assert life.record("w-capacity-1").status.state is State.ACCEPTED
    assert life.freed == []
    life.provisioned()
    assert life.phase("w") == "Admitted"


# E10: the end. ------------------------------------------------------------------------------


@scenario("E10")
@MISHAPS
@pytest.mark.parametrize("ready", [False, True], ids=["waiting", "running"])
@pytest.mark.parametrize("end", ["finished", "deleted", "deactivated", "evicted"])
def test_each_end_of_the_reservation_frees_the_booking(
    end: str, ready: bool, restless: bool
) -> None:
    life = a_running(restless=restless) if ready else a_reserved(restless=restless)
    match end:
        case "finished":
            life.finish("w")
        case "deleted":
            life.say(facts.Deleted, "w")
        case "deactivated":
            life.say(facts.Deactivated, "w")
        case "evicted":
            life.queue("cq", resourceGroups=groups(default="10"), stopPolicy="HoldAndDrain")
    life.go()
    assert set(life.freed) == set(life.ids())
    assert gone(life)


@scenario("E10")
def test_the_next_name_uses_the_count_of_retries() -> None:
    life = a_reserved(limit=5)
    life.fails()
    life.advance(60)
    assert life.records() == ["w-capacity-2"]
    # Preempted: the attempt is not counted.
    life.queue("cq", resourceGroups=groups(default="4"), admissionChecks=[CHECK])
    life.go()
    assert gone(life)
    life.queue("cq", resourceGroups=groups(default="10"), admissionChecks=[CHECK])
    life.go()
    assert life.records() == ["w-capacity-2"]
    assert len(life.ids()) == 3
    life.fails()
    life.advance(120)
    assert life.records() == ["w-capacity-3"]


@scenario("E10")
def test_a_workload_with_a_reused_name_has_its_own_request() -> None:
    life = a_running()
    (first,) = life.ids()
    life.say(facts.Deleted, "w")
    life.submit("w", "cq", "8")
    life.go()
    assert len(life.ids()) == 2
    assert first in life.freed
    life.provisioned(first)
    assert life.phase("w") == "QuotaReserved"
    life.provisioned()
    assert life.booked == {life.ids()[1]}


@scenario("E10")
def test_a_retry_of_another_check_cancels_the_request_at_once() -> None:
    life = a_provided_life(limit=5)
    life.check("other")
    life.queue("cq", resourceGroups=groups(default="10"), admissionChecks=[CHECK, "other"])
    life.submit("w", "cq", "8")
    life.go()
    life.stubborn.add("w")
    life.judge("w", "other", "Retry", after=30)
    assert gone(life)
    life.fails()  # A late failure does not extend the delay.
    assert life.wait("w") == 30
    life.advance(30)
    assert [one.rsplit("/", 1)[1] for one in life.ids()] == ["1", "1"]


# E11, E12: what is asked. -------------------------------------------------------------------


@scenario("E11")
def test_the_annotation_of_a_workload_wins_over_the_config() -> None:
    life = a_provided_life(parameters={"zone": "a", "disk": "ssd"})
    life.work("w", [a_pod_set()], zone="b", ValidUntilSeconds="30")
    (asked,) = life.wanted
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
    more = {"podSetMergePolicy": policy} if policy else {}
    life = a_provided_life(**more)
    life.work("w", pod_sets)
    (asked,) = life.wanted
    assert [(one.count, one.names) for one in asked.pod_sets] == wanted
    life.provisioned()
    assert [one["name"] for one in life.rows("w")[CHECK].pod_set_updates] == ["a", "b"]
    assert life.phase("w") == "Admitted"


# E13: another flavor. -----------------------------------------------------------------------


def a_preempted_off_spot(second: str) -> ProvidedLife:
    """``w`` waits for capacity on ``spot``, is preempted, and comes back where only the flavor
    ``calm`` has room; ``second``: the check of that flavor."""
    life = a_provided_life(per_flavor={"spot": "8", "calm": "0"})
    if second:
        life.configure("second", provisioningClassName="another")
        life.capacity_check(second, "second")
    offered: dict[str, Any] = groups(spot="8", calm="8")[0]
    for flavor in offered["flavors"]:
        checks = {"spot": CHECK, "calm": second}[flavor["name"]]
        if checks:
            flavor["admissionChecks"] = [checks]
    spec = {"resourceGroups": [offered], "preemption": {"withinClusterQueue": "LowerPriority"}}
    life.queue("cq", **spec)
    life.submit("w", "cq", "8")
    life.go()
    assert life.flavor("w") == "spot"
    life.stubborn.add("w")
    small = [dict(one) for one in offered["flavors"]]
    small[0]["resources"] = [{"name": "cpu", "nominalQuota": "0"}]
    life.queue("cq", **{**spec, "resourceGroups": [{**offered, "flavors": small}]})
    life.go()
    assert life.flavor("w") == "calm"
    return life


@scenario("E13")
def test_a_job_on_a_flavor_without_the_check_leaves_no_request() -> None:
    life = a_preempted_off_spot("")
    assert life.phase("w") == "Admitted"
    assert set(life.freed) == set(life.ids())
    assert gone(life)


@scenario("E13")
def test_a_flavor_with_another_check_uses_only_that_check() -> None:
    life = a_preempted_off_spot("more")
    assert life.states("w") == {"more": "Pending"}
    assert life.records() == ["w-more-1"]
    first, second = life.ids()
    assert set(life.freed) == {first}
    life.provisioned(second)
    assert life.phase("w") == "Admitted"
    assert life.booked == {second}


# E14: mishaps. ------------------------------------------------------------------------------


@scenario("E14")
def test_a_repeated_answer_counts_once() -> None:
    life = a_reserved(limit=5)
    life.provider(Accepted, seq=1)
    life.provisioned(seq=2)
    told = len(life.told)
    assert "not higher than 2" in life.provisioned(seq=2)
    assert life.provisioned(seq=3) == "repeated answer"
    assert len(life.told) == told
    assert (life.phase("w"), life.starts("w")) == ("Admitted", 1)


@scenario("E14")
def test_answers_out_of_order_count_by_their_numbers() -> None:
    life = a_reserved()
    life.provisioned(seq=2)
    life.provider(Accepted, seq=1)
    assert life.phase("w") == "Admitted"
    assert life.record("w-capacity-1").status.state is State.PROVISIONED


@scenario("E14")
def test_a_provider_that_never_answers_counts_as_failed_at_the_deadline() -> None:
    life = a_reserved(limit=0, patience=900)
    life.advance(899)
    assert life.phase("w") == "QuotaReserved"
    life.advance(1)
    assert life.phase("w") == "Rejected"
    assert "not provisioned by 2026-01-01T12:15:00Z" in life.message("w", "Evicted")
    assert gone(life)
    # What comes later is freed, and starts nothing.
    life.provisioned()
    assert (life.phase("w"), life.booked) == ("Rejected", set())


@scenario("E14")
def test_a_provider_killed_before_its_answer_gets_the_same_request_id() -> None:
    life = a_reserved()
    (asked,) = life.ids()
    life.booked.add(asked)
    life.capacity.send_again(RequestSlot(life.namespace, "w", CHECK), asked)
    life.go()
    assert [one.id for one in life.wanted] == [asked, asked]
    life.provisioned()
    assert life.booked == {asked}
    life.finish("w")
    life.go()
    assert gone(life)


@scenario("E14")
def test_a_stored_request_that_was_not_sent_is_sent_by_the_next_leader() -> None:
    life = a_reserved()
    (asked,) = life.ids()
    life.wanted.clear()
    life.restart_check()
    life.go()
    assert [one.id for one in life.wanted] == [asked]
    assert life.freed == []


@scenario("E14")
def test_a_lost_verdict_is_reported_by_the_next_leader() -> None:
    life = a_reserved()
    asked = life.wanted[0]
    record = life.record("w-capacity-1")
    there = record.status.__class__(state=State.PROVISIONED, message="here")
    life.keep(
        ("ns", "w-capacity-1"),
        record.__class__(
            api_version=record.api_version, kind=record.kind, metadata=record.metadata,
            spec=record.spec, status=there,
        ),
    )  # fmt: skip
    life.restart_check()
    life.go()
    assert life.phase("w") == "Admitted"
    assert life.ids() == [asked.id]


@scenario("E14")
def test_an_answer_to_a_request_of_another_class_changes_nothing() -> None:
    life = a_reserved()
    assert "was requested from class" in life.provisioned(provisioning_class="another")
    assert "no request" in life.provisioned(id="", name="nobody")
    assert life.phase("w") == "QuotaReserved"
    life.provisioned()
    assert life.phase("w") == "Admitted"


# The story. ---------------------------------------------------------------------------------


@MISHAPS
def test_spot_is_provisioned_only_when_reserved_machines_are_full(
    restless: bool,
) -> None:
    life = a_provided_life(per_flavor={"reserved": "8", "spot": "8"}, limit=3, restless=restless)
    life.submit("first", "cq", "8")
    life.go()
    assert (life.flavor("first"), life.phase("first")) == ("reserved", "Admitted")
    assert life.ids() == []
    life.submit("second", "cq", "8")
    life.go()
    assert (life.flavor("second"), life.phase("second")) == ("spot", "QuotaReserved")
    (asked,) = {one.id: one for one in life.wanted}.values()
    (group,) = asked.pod_sets
    assert b'"kind":"spot"' in bytes(group.template).replace(b" ", b"")
    life.fails(message="no spot machines")
    assert life.wait("second") == 60
    life.advance(60)
    life.provider(Accepted, message="booting")
    life.provisioned(message="booted")
    assert (life.phase("second"), life.starts("second")) == ("Admitted", 1)
    life.provider(CapacityRevoked, message="the price went up")
    assert life.phase("second") == "Rejected"
    assert life.phase("first") == "Admitted"
    assert gone(life)


def test_a_workload_that_leaves_spot_for_reserved_has_no_booking() -> None:
    life = a_provided_life(per_flavor={"reserved": "8", "spot": "8"}, limit=3)
    life.submit("first", "cq", "8")
    life.submit("second", "cq", "8")
    life.go()
    life.fails()
    life.finish("first")
    life.advance(60)
    assert (life.flavor("second"), life.phase("second")) == ("reserved", "Admitted")
    assert len(life.ids()) == 1
    assert gone(life)
