"""The status that follows from the conditions of a ProvisioningRequest."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.events.shapes import PodSetUpdate
from admittance.provider_kubernetes.objects import end_of, seen_of, status_of
from admittance.providers import (
    Accepted,
    BookingExpired,
    CapacityRevoked,
    Failed,
    Provisioned,
    Status,
)
from admittance.provisioning.steps import CLASS, CONSUME


def an_object(*conditions: tuple[str, str, str], **status: Any) -> dict[str, Any]:
    conditions_shown = [
        {"type": kind, "status": value, "message": text} for kind, value, text in conditions
    ]
    return {
        "metadata": {
            "name": "train-1",
            "namespace": "prod",
            "uid": "1",
            "resourceVersion": "7",
            "labels": {"admittance.dev/installation": "ours"},
            "annotations": {"admittance.dev/request": "u/c/1/1"},
        },
        "spec": {"provisioningClassName": "class"},
        "status": {"conditions": conditions_shown, **status},
    }


ACCEPTED = ("Accepted", "True", "taken")
PROVISIONED = ("Provisioned", "True", "here")


CONDITIONS_CASES: dict[str, tuple[list[tuple[str, str, str]], Status | None]] = {
    "nothing yet": ([], None),
    "one that is False tells nothing": ([("Accepted", "False", "no")], None),
    "accepted": ([ACCEPTED], Accepted("taken")),
    "accepted, with the time that it will take": (
        [ACCEPTED, ("Provisioned", "False", "in 4 minutes")],
        Accepted("in 4 minutes"),
    ),
    "provisioned": ([ACCEPTED, PROVISIONED], Provisioned("here")),
    "failed wins": ([PROVISIONED, ("Failed", "True", "no")], Failed("no")),
    "expired": ([PROVISIONED, ("BookingExpired", "True", "over")], BookingExpired("over")),
    "revoked wins over expired": (
        [PROVISIONED, ("BookingExpired", "True", ""), ("CapacityRevoked", "True", "sold")],
        CapacityRevoked("sold"),
    ),
}


@pytest.mark.parametrize("case", CONDITIONS_CASES)
def test_conditions_have_a_status(case: str) -> None:
    conditions, wanted = CONDITIONS_CASES[case]
    seen = seen_of(an_object(*conditions))
    assert seen is not None

    assert status_of(seen) == wanted


def test_provisioned_has_the_name_in_the_cluster_and_the_details() -> None:
    seen = seen_of(an_object(PROVISIONED, provisioningClassDetails={"group": "g7"}))
    assert seen is not None

    status = status_of(seen, ["a", "b"])

    assert isinstance(status, Provisioned)
    assert status.details == {"group": "g7"}
    annotations = {CONSUME: "train-1", CLASS: "class"}
    assert status.updates() == tuple(PodSetUpdate(name=n, annotations=annotations) for n in "ab")


def test_details_above_the_limit_are_left_out() -> None:
    seen = seen_of(
        an_object(PROVISIONED, provisioningClassDetails={f"k{i}": "v" for i in range(99)})
    )
    assert seen is not None

    assert len(status_of(seen).details) == 64  # type: ignore[union-attr]


def test_a_condition_without_a_message_gives_its_reason() -> None:
    manifest = an_object()
    manifest["status"]["conditions"] = [{"type": "Failed", "status": "True", "reason": "NoRoom"}]
    seen = seen_of(manifest)
    assert seen is not None

    assert status_of(seen) == Failed("NoRoom")


@pytest.mark.parametrize(
    "manifest",
    [
        pytest.param({}, id="nothing at all"),
        pytest.param({"metadata": {"annotations": None}}, id="of another owner"),
        pytest.param({**an_object(), "metadata": 3}, id="of another shape"),
        pytest.param({**an_object(), "status": {"conditions": [3]}}, id="odd conditions"),
    ],
)
def test_objects_without_our_labels_are_ignored(manifest: dict[str, Any]) -> None:
    assert seen_of(manifest) is None


def test_provisioned_capacity_has_not_ended() -> None:
    seen = seen_of(an_object(ACCEPTED, PROVISIONED))
    assert seen is not None
    assert end_of(seen) is None
