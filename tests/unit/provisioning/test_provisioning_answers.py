"""The verdicts that follow from answers of a provider, in any order."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from admittance.api.checks import (
    NodeSelectorUpdate,
    ProvisioningPodSetUpdates,
    ProvisioningRequestConfigSpec,
    ProvisioningRetryStrategy,
)
from admittance.api.meta import ObjectMeta
from admittance.events import provisioning as facts
from admittance.events.shapes import PodSetToProvision, PodSetUpdate
from admittance.provisioning.records import Record, RecordSpec, State, apply_status, delay_seconds
from admittance.provisioning.steps import CLASS, CONSUME, CheckVerdict, verdict_of_request

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ME: dict[str, Any] = {"namespace": "ns", "name": "train", "provisioning_class": "class"}


def a_record(attempt: int = 1, **fields: Any) -> Record:
    spec = RecordSpec(
        id=f"u/capacity/1/{attempt}",
        workload="train",
        uid="u",
        check="capacity",
        cycle=1,
        attempt=attempt,
        provisioning_class_name="class",
        pod_sets=(PodSetToProvision(name="a", names=("a", "b"), count=5),),
    )
    return Record(
        api_version="autoscaling.x-k8s.io/v1",
        kind="ProvisioningRequest",
        metadata=ObjectMeta(name=f"train-capacity-{attempt}", namespace="ns"),
        spec=replace(spec, **fields),
    )


def said(record: Record, kind: type[facts.ProvisioningStatus], **fields: Any) -> Record:
    fact = kind(**{**ME, "id": record.spec.id, **fields})
    return apply_status(record, fact, NOON).record


def config(limit: int = 1, **fields: Any) -> ProvisioningRequestConfigSpec:
    return ProvisioningRequestConfigSpec(
        provisioning_class_name="class",
        retry_strategy=ProvisioningRetryStrategy(
            backoff_limit_count=limit, backoff_base_seconds=60, backoff_max_seconds=1800
        ),
        **fields,
    )


def test_a_request_without_an_answer_is_pending_without_a_message() -> None:
    assert verdict_of_request(a_record(), config(), admitted=False) == CheckVerdict("Pending", "")


def test_an_accepted_request_is_pending_with_the_message_of_the_provider() -> None:
    record = said(a_record(), facts.Accepted, message="in about 4 minutes")

    assert verdict_of_request(record, config(), admitted=False) == CheckVerdict(
        "Pending", "in about 4 minutes"
    )


def test_a_provisioned_request_is_ready_with_updates_for_all_pod_sets() -> None:
    """E2: one update for each pod set, merged or not; a detail that is missing is left out."""
    updates = ProvisioningPodSetUpdates(
        node_selector=(
            NodeSelectorUpdate(key="node-group", value_from_provisioning_class_detail="group"),
            NodeSelectorUpdate(key="rack", value_from_provisioning_class_detail="rack"),
        )
    )
    record = said(a_record(), facts.Provisioned, details={"group": "g7"}, message="here it is")

    verdict = verdict_of_request(record, config(pod_set_updates=updates), admitted=False)

    assert verdict is not None
    assert (verdict.state, verdict.message, verdict.missing) == ("Ready", "here it is", ("rack",))
    annotations = {CONSUME: "train-capacity-1", CLASS: "class"}
    assert verdict.updates == tuple(
        PodSetUpdate(name=name, annotations=annotations, node_selector={"node-group": "g7"})
        for name in ("a", "b")
    )


def test_annotations_of_the_provider_win() -> None:
    theirs = (PodSetUpdate(name="a", annotations={CONSUME: "train-3f"}),)
    record = said(a_record(), facts.Provisioned, pod_set_updates=theirs)

    verdict = verdict_of_request(record, config(), admitted=False)

    assert verdict is not None
    assert [update.annotations[CONSUME] for update in verdict.updates] == [
        "train-3f",
        "train-capacity-1",
    ]
    assert {update.annotations[CLASS] for update in verdict.updates} == {"class"}


LONG = {str(number): "x" * 30_000 for number in range(8)}


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        pytest.param({"details": LONG}, "details: 240,", id="details"),
        pytest.param(
            {"details": dict.fromkeys(map(str, range(65)), "")},
            "the answer has 65 details, at most 64 are allowed",
            id="too many details",
        ),
        pytest.param(
            {"pod_set_updates": (PodSetUpdate(name="a", annotations=LONG),)},
            "podSetUpdates: 240,",
            id="updates",
        ),
    ],
)
def test_a_status_that_makes_the_record_too_large_changes_nothing(
    fields: dict[str, Any], sentence: str
) -> None:
    record = a_record()
    fact = facts.Provisioned(**ME, id=record.spec.id, **fields)

    taken = apply_status(record, fact, NOON)

    assert taken.record == record
    assert taken.contradicts
    assert taken.ignored.startswith(sentence)


def test_updates_that_are_too_long_reject_the_workload() -> None:
    """The details fit into the answer, but each pod set gets a copy of them."""
    details = {"group": "x" * 30_000, "rack": "y" * 30_000}
    wanted = tuple(
        NodeSelectorUpdate(key=f"{detail}-{n}", value_from_provisioning_class_detail=detail)
        for detail in details
        for n in range(2)
    )
    updates = ProvisioningPodSetUpdates(node_selector=wanted)
    record = said(a_record(), facts.Provisioned, details=details)

    verdict = verdict_of_request(record, config(pod_set_updates=updates), admitted=False)

    assert verdict is not None
    assert verdict.state == "Rejected"
    assert "podSetUpdates: 240," in verdict.message


def test_a_detail_that_is_not_a_label_value_rejects_the_workload() -> None:
    """The verdict would be refused, and the workload would never start."""
    selector = NodeSelectorUpdate(key="rack", value_from_provisioning_class_detail="rack")
    updates = ProvisioningPodSetUpdates(node_selector=(selector,))
    record = said(a_record(), facts.Provisioned, details={"rack": "row 7!"})

    verdict = verdict_of_request(record, config(pod_set_updates=updates), admitted=False)

    assert verdict is not None
    assert verdict.state == "Rejected"
    assert verdict.message.startswith(
        "the pod set updates of the capacity are not valid: "
        "podSetUpdates[0].nodeSelector: the value of 'rack': 'row 7!' is not a label value"
    )


@pytest.mark.parametrize(
    ("attempt", "limit", "wanted"),
    [
        pytest.param(1, 1, CheckVerdict("Retry", "Retrying after failure: none left", 60), id="E3"),
        pytest.param(2, 1, CheckVerdict("Rejected", "none left"), id="E4"),
        pytest.param(
            2, 2, CheckVerdict("Retry", "Retrying after failure: none left", 120), id="E5"
        ),
        pytest.param(3, 2, CheckVerdict("Rejected", "none left"), id="E5, the third"),
        pytest.param(1, 0, CheckVerdict("Rejected", "none left"), id="limit 0"),
    ],
)
def test_a_failure_is_retried_as_often_as_the_strategy_says(
    attempt: int, limit: int, wanted: CheckVerdict
) -> None:
    record = said(a_record(attempt), facts.ProvisioningFailed, message="none left")

    assert verdict_of_request(record, config(limit), admitted=False) == wanted


def test_a_permanent_failure_rejects_at_once() -> None:
    record = said(a_record(), facts.ProvisioningFailed, message="no such type", retryable=False)

    verdict = verdict_of_request(record, config(9), admitted=False)

    assert verdict == CheckVerdict("Rejected", "no such type")


def test_the_delay_of_the_provider_wins() -> None:
    record = said(a_record(), facts.ProvisioningFailed, message="busy", retry_after=7)

    verdict = verdict_of_request(record, config(), admitted=False)

    assert verdict is not None
    assert verdict.after == 7


@pytest.mark.parametrize(
    "delay",
    [pytest.param(-5, id="before now"), pytest.param(2**31, id="longer than a message may be")],
)
def test_an_invalid_delay_is_left_out_and_the_failure_counts(delay: int) -> None:
    """No verdict can have such a delay."""
    record = said(a_record(), facts.ProvisioningFailed, message="busy", retry_after=delay)

    (note,) = record.status.notes
    assert note.text == f"a retryAfter of {delay} s is not a valid delay: left out"
    assert verdict_of_request(record, config(), admitted=False) == CheckVerdict(
        "Retry", "Retrying after failure: busy", 60
    )
    kept = replace(record, status=replace(record.status, retry_after=delay))
    assert verdict_of_request(kept, config(), admitted=False) == verdict_of_request(
        record, config(), admitted=False
    )


def test_delays_double_up_to_the_limit() -> None:
    strategy = ProvisioningRetryStrategy()

    assert [delay_seconds(n, strategy) for n in range(1, 8)] == [60, 120, 240, 480, 960, 1800, 1800]
    assert delay_seconds(2**31, strategy) == 1800


def test_a_booking_that_expires_counts_only_before_the_admission() -> None:
    """E6."""
    record = said(said(a_record(), facts.Provisioned), facts.BookingExpired, message="too late")

    assert verdict_of_request(record, config(), admitted=True) is None
    assert verdict_of_request(record, config(), admitted=False) == CheckVerdict(
        "Retry", "Retrying after booking expired: too late", 60
    )


@pytest.mark.parametrize("admitted", [True, False])
def test_revoked_capacity_rejects_before_and_after_the_admission(admitted: bool) -> None:
    """E7."""
    record = said(said(a_record(), facts.Provisioned), facts.CapacityRevoked, message="sold")

    assert verdict_of_request(record, config(), admitted=admitted) == CheckVerdict(
        "Rejected", "sold"
    )


# In which order. ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "then", "wanted"),
    [
        pytest.param(facts.Provisioned, facts.Accepted, State.PROVISIONED, id="a late Accepted"),
        pytest.param(facts.ProvisioningFailed, facts.Provisioned, State.FAILED, id="a late yes"),
        pytest.param(
            facts.CapacityRevoked, facts.Provisioned, State.CAPACITY_REVOKED, id="back again"
        ),
        pytest.param(
            facts.Provisioned, facts.ProvisioningFailed, State.FAILED, id="lost after all"
        ),
    ],
)
def test_an_answer_after_a_final_one_changes_nothing(
    first: type[facts.ProvisioningStatus], then: type[facts.ProvisioningStatus], wanted: State
) -> None:
    assert said(said(a_record(), first), then).status.state is wanted


def test_an_answer_with_a_lower_seq_is_old() -> None:
    record = said(a_record(), facts.Accepted, seq=5, message="soon")

    assert said(record, facts.Provisioned, seq=5) == record
    assert said(record, facts.Provisioned, seq=6).status.state is State.PROVISIONED


def test_an_answer_to_another_request_is_ignored() -> None:
    fact = facts.Provisioned(**ME, id="u/capacity/1/9")

    applied = apply_status(a_record(), fact, NOON)

    assert applied.record == a_record()
    assert "u/capacity/1/9" in applied.ignored


def test_answers_to_a_cancelled_request_are_ignored() -> None:
    record = a_record()
    record = replace(record, status=replace(record.status, cancelled="Evicted"))

    assert said(record, facts.Provisioned) == record


KINDS = [
    facts.Accepted,
    facts.Provisioned,
    facts.ProvisioningFailed,
    facts.BookingExpired,
    facts.CapacityRevoked,
]


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 9)), max_size=12))
def test_a_repeated_answer_changes_nothing(
    story: list[tuple[type[facts.ProvisioningStatus], int]],
) -> None:
    record = a_record()
    for kind, seq in story:
        record = said(record, kind, seq=seq)
        assert said(record, kind, seq=seq) == record
