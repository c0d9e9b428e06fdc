"""`admit doctor` about families of variants."""

from __future__ import annotations

import pytest

from admittance.doctor.finding import OK
from admittance.doctor.schedules import families_finding
from admittance.events.requests.services import FamiliesReply


@pytest.mark.parametrize(
    ("reply", "fine", "said"),
    [
        pytest.param(FamiliesReply(), True, "0 families", id="without families all is well"),
        pytest.param(
            FamiliesReply(families=1200, pending=3, gates_open={"a": 1, "b": 2}),
            True,
            "1,200 families, 3 changes pending, 3 variants may preempt",
            id="how many there are, and what is to be done",
        ),
        pytest.param(
            FamiliesReply(families=1, pending=1, stuck=1),
            False,
            "had no effect",
            id="a change without effect is wrong",
        ),
    ],
)
def test_the_doctor_checks_families(reply: FamiliesReply, fine: bool, said: str) -> None:
    answer = families_finding(reply)
    assert (answer.state == OK) is fine
    assert said in answer.found
