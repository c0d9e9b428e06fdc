"""The order of heads under fair sharing with nested cohorts."""

from __future__ import annotations

import pytest

from admittance.scheduling.state.config import CohortFairSharing, Config
from support.cores.stepped_scheduler import SteppedScheduler, groups


@pytest.mark.parametrize(
    ("beside", "first"),
    [
        pytest.param(False, "oldest", id="of two that borrow nothing above, the older is first"),
        pytest.param(
            True,
            "older",
            id="unless a head without any room, since it borrows nothing, stands for its cohort",
        ),
    ],
)
def test_the_first_entry_of_two_cohorts_depends_on_shares(beside: bool, first: str) -> None:
    """The free quota suffices for one of the two workloads ``oldest`` and ``older``. The head
    without room is the youngest of all."""
    scheduler = SteppedScheduler(Config(preemption=True, fair_sharing=CohortFairSharing()))
    scheduler.put("Cohort", "root", {})
    for side in ("left", "right"):
        scheduler.put("Cohort", side, {"parentName": "root", "resourceGroups": groups(default="2")})
    for name, cohort in (("o", "root"), ("l", "left"), ("hopeless", "left"), ("r", "right")):
        scheduler.queue(name, cohort, resourceGroups=groups(default="0"))
    scheduler.submit("borrows", "o", "2")
    assert scheduler.settle() == ["borrows"]
    scheduler.submit("oldest", "l", "2", age=3)
    scheduler.submit("older", "r", "2", age=2)
    if beside:
        scheduler.submit("huge", "hopeless", "200", age=1)
    assert scheduler.cycle() == [first]
