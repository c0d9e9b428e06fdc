"""The memory of a controller that runs for long."""

from __future__ import annotations

from admittance.control.workloads import VersionedWorkload, Workloads
from admittance.workload.change import with_status
from admittance.workload.conditions import Type, put
from admittance.workload.stored import StoredWorkload
from support.builders import NOON

KEY = "workload.ns.w"


def a_finished_one() -> StoredWorkload:
    workload = StoredWorkload(api_version="v", kind="Workload")
    done = put((), Type.FINISHED, True, "Succeeded", now=NOON)
    return with_status(workload, conditions=done)


def test_a_finished_workload_loaded_on_demand_is_dropped_again() -> None:
    """The bucket deletes it by itself; a copy in memory would never be deleted."""
    workloads = Workloads()
    workloads.keep(KEY, VersionedWorkload(a_finished_one(), 5, 3))
    assert len(workloads) == 0
    assert workloads.must_load(KEY)
    workloads.load(KEY, VersionedWorkload(a_finished_one(), 5, 3))
    workloads.let_go(KEY)
    assert len(workloads) == 0
    assert workloads.must_load(KEY)


def test_the_keys_of_what_finished_long_ago_are_forgotten() -> None:
    workloads = Workloads()
    workloads.keep(KEY, VersionedWorkload(a_finished_one(), 5, 3))
    workloads.drop_finished(3)
    assert workloads.must_load(KEY)
    workloads.drop_finished(4)
    assert not workloads.must_load(KEY)
