"""Which subjects the history of a workload has."""

from __future__ import annotations

import pytest

from admittance.workload_controller.endpoints import filters_of


def matches(subject: str, filters: list[str]) -> bool:
    words = subject.split(".")
    return any(
        one == ["admit", ">"]
        or (len(one) == len(words) and all(a in ("*", b) for a, b in zip(one, words, strict=True)))
        for one in (each.split(".") for each in filters)
    )


@pytest.mark.parametrize(
    ("subject", "own", "in_namespace"),
    [
        ("admit.workload.submitted.ns.x", True, True),
        ("admit.check.requested.example_com=2Fa.ns.x", True, True),
        ("admit.provisioning.accepted.pool.ns.x", True, True),
        ("admit.timer.due.requeue.ns.x", True, True),
        ("admit.object.applied.localqueue.ns.x", False, True),
        ("admit.object.deleted.localqueue.ns.x", False, True),
        ("admit.workload.submitted.ns.y", False, True),
        ("admit.workload.submitted.other.x", False, False),
        ("admit.object.applied.clusterqueue._.x", False, False),
    ],
)
def test_an_object_of_another_kind_is_not_in_the_story_of_its_namesake(
    subject: str, own: bool, in_namespace: bool
) -> None:
    assert matches(subject, filters_of("ns", ["x"])) is own
    assert matches(subject, filters_of("ns", [])) is in_namespace
    assert matches(subject, filters_of("", []))
    everywhere = own or subject == "admit.workload.submitted.other.x"
    assert matches(subject, filters_of("", ["x"])) is everywhere
