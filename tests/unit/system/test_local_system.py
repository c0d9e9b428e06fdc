"""A system in memory stores what its cores decide, and starts anew from what is stored."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import msgspec

from admittance.events import facts
from admittance.system.local_system import LocalSystem
from admittance.workload.limits import Limits, PodsReadyLimits
from admittance.workload.phase import phase
from support.builders import NOON, a_manifest, an_object, resource_groups

LIMITS = Limits(pods_ready=PodsReadyLimits(timeout=timedelta(minutes=5)))
ME: dict[str, Any] = {"namespace": "ns", "name": "w"}


def admitted() -> LocalSystem:
    """``ns/w`` is admitted, and its pods have five minutes to get ready."""
    system = LocalSystem(NOON, limits=LIMITS, timers=True)
    system.apply_manifest(an_object("ResourceFlavor", "default"))
    offer = {"namespaceSelector": {}, "resourceGroups": resource_groups({"default": "1"})}
    system.apply_manifest(an_object("ClusterQueue", "cq", offer))
    system.apply_manifest(an_object("LocalQueue", "lq", {"clusterQueue": "cq"}, "ns"))
    workload = msgspec.Raw(json.dumps(a_manifest("w")).encode())
    system.apply_facts(facts.Submitted(**ME, workload=workload))
    system.apply_facts(*system.run_cycle())
    system.now += timedelta(seconds=1)
    system.set_timers()
    return system


def phase_of(system: LocalSystem) -> str:
    stored = system.stored_workload("ns", "w")
    assert stored is not None
    return str(phase(stored, system.now))


def test_a_decision_changes_the_workload_when_it_is_applied() -> None:
    system = admitted()
    assert phase_of(system) == "Admitted"
    assert [slot.name for slot in system.schedules] == ["w"]
    assert not system.run_cycle()


def test_a_restart_changes_no_entry_and_no_timer() -> None:
    system = admitted()
    entries, timers = system.entries(), dict(system.schedules)
    system.restart()
    system.now += timedelta(seconds=5)
    system.set_timers()
    assert (system.entries(), system.schedules) == (entries, timers)
    assert not system.run_cycle()


def test_the_entries_of_one_system_make_an_equal_one() -> None:
    system = admitted()
    other = LocalSystem(system.now, limits=LIMITS)
    other.load(system.entries())
    assert other.entries() == system.entries()
    assert other.revision == system.revision
    assert not other.run_cycle()


def test_a_timer_that_fires_is_applied_and_gone() -> None:
    system = admitted()
    due = system.next_timer()
    assert due is not None
    system.now = due.want.at
    system.fire(due)
    assert phase_of(system) == "Evicting"
    assert due.slot not in system.schedules


def test_a_finished_workload_is_read_again_for_a_fact_about_it() -> None:
    system = admitted()
    system.apply_facts(facts.Finished(**ME))
    assert phase_of(system) == "Finished"
    assert system.controller.workloads.get("workload.ns.w").workload is None
    system.apply_facts(facts.Deleted(**ME))
    assert system.stored_workload("ns", "w") is None


def test_a_workload_that_is_written_by_hand_counts_for_every_core() -> None:
    system = admitted()
    stored = system.stored_workload("ns", "w")
    cell = system.scheduler.catalog.tree.queues["cq"].cell(("default", "cpu"))
    system.write("ns", "w", None)
    system.now += timedelta(seconds=5)
    system.set_timers()
    assert (cell.usage, system.schedules) == (0, {})
    system.write("ns", "w", stored)
    system.now += timedelta(seconds=5)
    system.set_timers()
    assert (cell.usage, len(system.schedules)) == (1000, 1)


def test_a_fact_after_a_written_workload_is_new_to_the_workload() -> None:
    written = admitted().stored_workload("ns", "w")
    system = LocalSystem(NOON)
    system.write("ns", "w", written)
    system.apply_facts(facts.Finished(**ME))
    assert phase_of(system) == "Finished"


def test_a_restarted_scheduler_reads_the_whole_bucket() -> None:
    system = admitted()
    before = system.scheduler
    system.restart_scheduler()
    assert system.scheduler is not before
    cell = system.scheduler.catalog.tree.queues["cq"].cell(("default", "cpu"))
    assert cell.usage == 1000
    assert system.scheduler.owned() == before.owned()
