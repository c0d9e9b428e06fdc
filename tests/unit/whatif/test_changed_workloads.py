"""Another priority or queue of an existing workload, simulated."""

from __future__ import annotations

import pytest

from admittance.events.facts import Held
from admittance.events.requests.whatif import WorkloadChange
from support.stored.system import StoredSystem, evictions, starts, waits
from unit.whatif.test_bucket_copy import LOWER, a_town, with_a_long_finished


def change(name: str, priority: int | None = None, queue: str | None = None) -> WorkloadChange:
    return WorkloadChange(namespace="ns", workload=name, priority=priority, queue=queue)


def two_queues() -> StoredSystem:
    """a and b run in cq, c waits there; queue other is empty."""
    town = a_town(preemption=LOWER)
    town.queue("other", cpu={"spot": 1})
    return town


def test_a_workload_with_a_higher_priority_preempts() -> None:
    reply = two_queues().simulate(changes=(change("c", priority=5),))
    assert (starts(reply), evictions(reply)) == ({"c": "spot"}, {"b": "Preempted"})
    assert [(each.name, each.outcome) for each in reply.results] == [("c", "changed")]


def test_a_waiting_workload_starts_in_another_queue() -> None:
    reply = two_queues().simulate(changes=(change("c", queue="other"),))
    assert (starts(reply), evictions(reply), reply.counts.gone) == ({"c": "spot"}, {}, 0)
    assert reply.starts[0].local_queue == "other"


def test_a_running_workload_stops_before_it_starts_in_another_queue() -> None:
    reply = two_queues().simulate(changes=(change("a", queue="other"),))
    assert starts(reply) == {"a": "spot", "c": "spot"}
    (lost,) = reply.evictions
    assert (lost.name, lost.ran, lost.then is not None) == ("a", True, True)
    assert lost.message == "It is deleted, and submitted again in queue other"


def test_queue_and_priority_change_together() -> None:
    town = two_queues()
    town.submit("runs", "other")
    reply = town.simulate(changes=(change("c", queue="other", priority=3),))
    assert waits(reply) == {"c": "WaitingForQuota"}
    assert (reply.waits[0].priority, reply.waits[0].local_queue) == (3, "other")


def test_a_held_workload_is_held_in_another_queue() -> None:
    town = two_queues()
    town.copy.apply_facts(Held(namespace="ns", name="c"))
    town.copy.settle()
    assert starts(town.simulate(changes=(change("c", queue="other"),))) == {}


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ((change("nothing", 1),), "Workload ns/nothing not found"),
        ((change("c", queue="no"),), "Workload ns/c: LocalQueue ns/no not found"),
        ((change("c", 0),), "Workload ns/c: nothing changes: it has that priority 0"),
        (
            (change("c", 0, "cq"),),
            "Workload ns/c: nothing changes: it has that priority 0 and queue cq",
        ),
        ((change("c"),), "Workload ns/c: nothing changes: name a priority or a queue"),
        ((change("c", 1), change("c", 2)), "Workload ns/c: is named twice in the changes"),
        (
            (change("c", 2**31),),
            "Workload ns/c: the priority 2147483648 is not a 32-bit number",
        ),
        (
            (WorkloadChange(namespace="", workload="c", priority=1),),
            "Workload /c: a change needs a workload and its namespace",
        ),
    ],
)
def test_an_impossible_change_gets_one_line(asked: tuple[WorkloadChange, ...], error: str) -> None:
    assert two_queues().simulate(changes=asked).error == error


def test_a_finished_workload_does_not_change() -> None:
    town = two_queues()
    with_a_long_finished(town)
    assert town.simulate(changes=(change("a", 1),)).error == "Workload ns/a has finished"


def test_a_change_in_another_namespace_is_refused() -> None:
    reply = two_queues().simulate(changes=(change("c", 1),), namespace="team")
    assert reply.error == "Workload ns/c: is not in the namespace team"
