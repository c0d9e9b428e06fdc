"""The plain reading of what counts in a ClusterQueue, with plans of preemption and families."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import pytest

from admittance.api.meta import ObjectMeta, OwnerReference
from admittance.events.shapes import PendingPreemption, PlannedVictim
from admittance.workload.stored import StoredWorkload, WorkloadStatus
from simulation.invariants.quota import charged
from support.builders import API, a_condition, an_admission


class Holds(NamedTuple):
    """A workload with cpu of a ClusterQueue, in thousandths. ``plans``: the victims that it plans;
    ``family``: of which it is a variant."""

    cpu: int
    plans: str = ""
    family: str = ""
    queue: str = "cq"


def stored(name: str, holds: Holds) -> StoredWorkload:
    meta = ObjectMeta(name=name, namespace="ns", uid=name)
    spec = b"{}"
    if holds.family:
        spec = b'{"role": "variant"}'
        owner = OwnerReference(kind="Workload", name=holds.family, uid=holds.family)
        meta = msgspec.structs.replace(meta, owner_references=(owner,))
    victims = [PlannedVictim(namespace="ns", name=victim, uid=victim) for victim in holds.plans]
    return StoredWorkload(
        api_version=API,
        kind="Workload",
        metadata=meta,
        spec=msgspec.Raw(spec),
        status=WorkloadStatus(
            conditions=(a_condition("QuotaReserved", True),),
            admission=an_admission(holds.queue, cpu=str(holds.cpu)),
            pending_preemption=PendingPreemption(victims=tuple(victims)) if victims else None,
        ),
    )


@pytest.mark.parametrize(
    ("held", "counts"),
    [
        pytest.param({"a": Holds(3), "b": Holds(4)}, 7, id="no plan"),
        pytest.param({"p": Holds(3, "v"), "v": Holds(5)}, 5, id="the victim holds more"),
        pytest.param({"p": Holds(5, "v"), "v": Holds(3)}, 5, id="the planner holds more"),
        pytest.param({"p": Holds(5, "vw"), "v": Holds(3), "w": Holds(3)}, 6, id="two victims"),
        pytest.param(
            {"p": Holds(6, "v"), "q": Holds(4, "v"), "v": Holds(10)}, 10, id="a victim for two"
        ),
        pytest.param(
            {"p": Holds(4, "v"), "q": Holds(4, "v"), "v": Holds(4)}, 8, id="too small for two"
        ),
        pytest.param(
            {"p": Holds(6, "vw"), "q": Holds(2, "v"), "v": Holds(4), "w": Holds(4)}, 8,
            id="what the one leaves is enough for the other",
        ),
        pytest.param(
            {"p": Holds(5, "qv"), "q": Holds(5, "v"), "v": Holds(5)}, 5, id="a planner is a victim"
        ),
        pytest.param(
            {"p": Holds(2, "q"), "q": Holds(5, "v"), "v": Holds(5)}, 7,
            id="the victim of a victim stays when its planner goes",
        ),
        pytest.param(
            {"p": Holds(4, "v"), "v": Holds(4, queue="other")}, 4, id="a victim of another queue"
        ),
        pytest.param(
            {"x": Holds(3, family="f"), "y": Holds(5, family="f"), "z": Holds(1)}, 6, id="a family"
        ),
        pytest.param(
            {"p": Holds(4, "y"), "x": Holds(3, family="f"), "y": Holds(5, family="f")}, 7,
            id="a victim frees what its family does not hold besides",
        ),
    ],
)  # fmt: skip
def test_what_counts_is_the_most_that_may_be_held_when_plans_end(
    held: dict[str, Holds], counts: int
) -> None:
    usages = charged(stored(name, holds) for name, holds in held.items())
    assert usages["cq"] == {("default", "cpu"): counts * 1_000}
