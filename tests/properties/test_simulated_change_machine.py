"""For any state and change, a simulation predicts the real result, and the counts of its reply add
up to all workloads."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from admittance.events.requests.whatif import Simulate, SimulateReply
from admittance.whatif.simulate import change_of, perform
from admittance.workload.phase import holds_quota, is_stopping
from admittance.workload.stored import StoredWorkload
from support.builders import an_object
from support.examples import examples
from support.stored.system import StoredSystem, a_job, a_local, a_queue, raws

CHECK = an_object("AdmissionCheck", "budget", {"controllerName": "example.com/check"})
QUEUES = ("one", "two", "three")

policies = st.fixed_dictionaries(
    {
        "withinClusterQueue": st.sampled_from(["Never", "LowerPriority"]),
        "reclaimWithinCohort": st.sampled_from(["Never", "Any", "LowerPriority"]),
    }
)


@st.composite
def queues(draw: st.DrawFn, name: str) -> dict[str, Any]:
    flavors = draw(st.sampled_from([("spot",), ("spot", "steady"), ("steady", "spot")]))
    more: dict[str, Any] = {"preemption": draw(policies)}
    if draw(st.booleans()):
        more["queueingStrategy"] = "StrictFIFO"
    if draw(st.integers(0, 3)) == 0:
        more["admissionChecks"] = ["budget"]
    if draw(st.integers(0, 5)) == 0:
        more["stopPolicy"] = draw(st.sampled_from(["Hold", "HoldAndDrain"]))
    if draw(st.integers(0, 3)) == 0:
        more["onQuotaCut"] = "evict"
    cohort = draw(st.sampled_from(["", "team", "team"]))
    return a_queue(
        name, cohort, cpu={flavor: draw(st.integers(0, 4)) for flavor in flavors}, **more
    )


def jobs(prefix: str, most: int) -> st.SearchStrategy[list[dict[str, Any]]]:
    workload = st.tuples(st.sampled_from(QUEUES), st.integers(1, 3), st.integers(0, 2))
    return st.lists(workload, max_size=most).map(
        lambda drawn: [
            a_job(f"{prefix}-{n}", queue, cpu, priority)
            for n, (queue, cpu, priority) in enumerate(drawn)
        ]
    )


@st.composite
def changes(draw: st.DrawFn) -> list[dict[str, Any]]:
    edited = [draw(queues(name)) for name in QUEUES if draw(st.booleans())]
    return [*edited, *draw(jobs("new", 2))]


def held(workload: StoredWorkload | None) -> Any:
    """The quota that the workload holds permanently; None: none."""
    if workload is None or not holds_quota(workload) or is_stopping(workload):
        return None
    return workload.status.admission


@settings(max_examples=examples(60), deadline=None)
@given(
    st.tuples(*(queues(name) for name in QUEUES)),
    jobs("old", 8),
    changes(),
)
def test_a_simulated_change_gives_the_real_result(
    configured: tuple[dict[str, Any], ...], old: list[dict[str, Any]], change: list[dict[str, Any]]
) -> None:
    town = StoredSystem(CHECK, *configured, *(a_local(name) for name in QUEUES))
    for job in old:
        town.apply(job)
    before = {key: held(workload) for key, workload in town.copy.workloads()}
    reply = town.simulate(*change)
    assert reply.error == ""
    perform(town.copy, change_of(Simulate(objects=raws(*change))))
    town.copy.settle()
    after = {key: held(workload) for key, workload in town.copy.workloads()}

    expected = {key: before.get(key) for key in after}
    expected |= {(eviction.namespace, eviction.name): None for eviction in reply.evictions}
    expected |= {(wait.namespace, wait.name): None for wait in reply.waits}
    expected |= {(start.namespace, start.name): start.admission for start in reply.starts}
    assert after == expected
    assert_complete(reply, len(after))


def assert_complete(reply: SimulateReply, total: int) -> None:
    counts = reply.counts
    named = {start.name for start in reply.starts} | {wait.name for wait in reply.waits}
    named |= {eviction.name for eviction in reply.evictions}
    others = counts.run + counts.reserved + counts.pending + counts.off
    assert len(named) + others == total
    assert counts.starts == len(reply.starts)
    assert counts.waits == len(reply.waits)
    assert counts.evictions == len(reply.evictions)
    assert not {start.name for start in reply.starts} & {wait.name for wait in reply.waits}
