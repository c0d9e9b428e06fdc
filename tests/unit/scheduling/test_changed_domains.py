"""The scheduler notes in which of its domains the quota or queues have changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from admittance.scheduling.state.config import Config
from support.cores.stepped_scheduler import SteppedScheduler, groups


@pytest.fixture
def scheduler() -> SteppedScheduler:
    """Two queues in one cohort and one queue alone; `a` runs, and `b` waits for its quota."""
    scheduler = SteppedScheduler(Config())
    for name in ("left", "right"):
        scheduler.queue(name, cohort="lab", resourceGroups=groups(default="1"))
    scheduler.queue("alone", resourceGroups=groups(default="1"))
    scheduler.submit("a", "left", "1")
    scheduler.submit("b", "right", "2")
    scheduler.settle()
    scheduler.core.changed_domains()
    return scheduler


@pytest.mark.parametrize(
    ("change", "names"),
    [
        pytest.param(lambda it: it.submit("c", "right"), ["cohort-lab"], id="a submission"),
        pytest.param(lambda it: it.finish("a"), ["cohort-lab"], id="quota becomes free"),
        pytest.param(lambda it: it.gone("b"), ["cohort-lab"], id="a waiting workload is deleted"),
        pytest.param(
            lambda it: it.queue("alone", resourceGroups=groups(default="9")),
            ["queue-alone"],
            id="a quota is edited",
        ),
        pytest.param(
            lambda it: it.queue("alone", cohort="lab", resourceGroups=groups(default="1")),
            ["cohort-lab", "queue-alone"],
            id="a queue joins a cohort",
        ),
        pytest.param(lambda it: it.settle(), [], id="no change"),
        pytest.param(
            lambda it: it.change("b", conditions={"QuotaReserved": (False, "Other")}),
            [],
            id="another reason",
        ),
    ],
)
def test_a_change_of_quota_or_queues_is_noted_for_its_domain(
    scheduler: SteppedScheduler, change: Callable[[SteppedScheduler], object], names: list[str]
) -> None:
    change(scheduler)
    assert scheduler.core.changed_domains() == names
    assert scheduler.core.changed_domains() == []


def test_only_the_leader_of_a_domain_returns_its_changes(scheduler: SteppedScheduler) -> None:
    scheduler.core.disown("cohort-lab")
    scheduler.submit("c", "right")
    assert scheduler.core.has_changed_domains
    assert scheduler.core.changed_domains() == []
    assert not scheduler.core.has_changed_domains
