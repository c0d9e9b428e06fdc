"""What one workload holds of machines is assigned to no other. docs/spec/lifecycle.md#2.9."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admittance.events import facts
from admittance.events.placement import PlacementPart
from support.builders import resource_groups
from support.cores.families.family_cores import cores_with_families
from support.cores.timed_cores import TimedCores

CONTROLLER = "admittance.dev/machines"
GPU = "nvidia.com/gpu"
COVER = {"preemptionPolicy": "AfterCheckPassedOrOnDemand"}


def configured_cores(*names: str, runner: dict[str, Any] | None = None) -> TimedCores:
    """Workloads of one pod with 1 cpu and the row `machines`; ``runner``: what r1 has."""
    cores = TimedCores()
    cores.queue("cq", resourceGroups=resource_groups({"default": 9}, "cpu"))
    cores.check("machines", CONTROLLER, onFlavors=["default"], **COVER)
    if runner is not None:
        cores.put_manifest(
            {
                "apiVersion": "admittance.dev/v1",
                "kind": "Runner",
                "metadata": {"name": "r1"},
                "status": {"id": "one", **runner},
            }
        )
    for age, name in enumerate(reversed(names)):
        cores.submit(name, "cq", "1", age=age)
    cores.go()
    return cores


def ready(cores: TimedCores, name: str, *devices: str, runner: str = "one") -> facts.CheckReported:
    part = PlacementPart(
        runner="r1",
        id=runner,
        pod_set="main",
        first=0,
        count=1,
        devices={GPU: devices} if devices else {},
    )
    return facts.CheckReported(
        namespace=cores.namespace,
        name=name,
        controller=CONTROLLER,
        check="machines",
        cycle=cores.stored(name).status.admission_cycle,
        state="Ready",
        placement=(part,),
    )


def row(cores: TimedCores, name: str) -> tuple[str, str, str]:
    known = cores.rows(name)["machines"]
    return known.state, known.reason, known.message


@pytest.mark.parametrize("together", [True, False], ids=["one batch", "one after the other"])
def test_a_device_that_another_workload_holds_is_not_assigned(together: bool) -> None:
    cores = configured_cores("a", "b", "c")
    said = [ready(cores, "a", "g0", "g1"), ready(cores, "b", "g1"), ready(cores, "c", "g2")]
    if together:
        cores.apply_facts(*said)
    else:
        for fact in said:
            cores.apply_facts(fact)
    why = f"runner one: {GPU} g1 is held by ns/a"
    assert row(cores, "b") == ("Pending", "MachineTaken", why)
    assert (row(cores, "a")[0], row(cores, "c")[0]) == ("Ready", "Ready")
    assert cores.noted("b") == ["MachineTaken"]
    cores.apply_facts(ready(cores, "b", "g1", runner="two"))
    assert row(cores, "b")[0] == "Ready"


def test_a_device_is_held_until_the_job_has_stopped_also_for_a_new_leader() -> None:
    cores = configured_cores("a", "b")
    cores.slow_jobs.add("a")
    cores.apply_facts(ready(cores, "a", "g0"))
    cores.go()
    cores.publish(facts.Deactivated, "a")
    cores.restart()
    assert "machines" not in cores.rows("a")
    cores.apply_facts(ready(cores, "b", "g0"))
    assert row(cores, "b")[1] == "MachineTaken"
    cores.stop("a")
    cores.apply_facts(ready(cores, "b", "g0"))
    assert row(cores, "b")[0] == "Ready"


def test_a_finished_or_deleted_workload_holds_nothing() -> None:
    cores = configured_cores("a", "b")
    cores.apply_facts(ready(cores, "a", "g0"))
    cores.go()
    cores.finish("a")
    assert cores.stored("a").status.placement
    cores.apply_facts(ready(cores, "b", "g0"))
    assert row(cores, "b")[0] == "Ready"
    cores.publish(facts.Deleted, "b")
    assert len(cores.controller.workloads.bookings) == 0


@pytest.mark.parametrize(
    ("runner", "devices", "why"),
    [
        ({"capacity": {"cpu": "1"}}, (), "0 of cpu is free, 1 is assigned"),
        ({"capacity": {"cpu": "2"}}, (), ""),
        (
            {"capacity": {"cpu": "9"}, "devices": [{"resource": GPU, "index": 0, "id": "g0"}]},
            ("g1",),
            f"it does not have all of {GPU} g1",
        ),
        (None, (), ""),
    ],
    ids=["no cpu left", "room for both", "no such device", "an unknown machine"],
)
def test_an_assignment_needs_room_on_a_known_machine(
    runner: dict[str, Any] | None, devices: tuple[str, ...], why: str
) -> None:
    cores = configured_cores("a", "b", runner=runner)
    cores.apply_facts(ready(cores, "a"), ready(cores, "b", *devices))
    assert row(cores, "a")[0] == "Ready"
    state, reason, message = row(cores, "b")
    assert (state, reason) == (("Pending", "MachineTaken") if why else ("Ready", ""))
    assert message.endswith(why)


@pytest.mark.parametrize("restarted", [False, True], ids=["at once", "for a new leader"])
def test_a_device_of_an_earlier_data_folder_is_held_until_its_job_has_stopped(
    restarted: bool,
) -> None:
    devices = [{"resource": GPU, "index": 0, "id": "g0"}]
    runner = {"capacity": {"cpu": "9"}, "devices": devices}
    cores = configured_cores("a", "b", runner=runner)
    cores.slow_jobs.add("a")
    cores.apply_facts(ready(cores, "a", "g0"))
    cores.go()
    cores.put_manifest(
        {
            "apiVersion": "admittance.dev/v1",
            "kind": "Runner",
            "metadata": {"name": "r1"},
            "status": {"id": "two", **runner},
        }
    )
    if restarted:
        cores.restart()
    cores.apply_facts(ready(cores, "b", "g0", runner="two"))
    assert row(cores, "b") == ("Pending", "MachineTaken", f"runner r1: {GPU} g0 is held by ns/a")
    cores.publish(facts.Deactivated, "a")
    cores.apply_facts(ready(cores, "b", "g0", runner="two"))
    assert row(cores, "b")[0] == "Pending"
    cores.stop("a")
    cores.apply_facts(ready(cores, "b", "g0", runner="two"))
    assert row(cores, "b")[0] == "Ready"


def test_members_of_a_family_may_have_the_same_devices() -> None:
    cores = cores_with_families({"a": "4", "b": "4"})
    cores.check("machines", CONTROLLER, onFlavors=["a", "b"], **COVER)
    cores.job("j", 1)
    for flavor in ("a", "b"):
        cores.apply_facts(ready(cores, f"j-variant-{flavor}", "g0"))
        assert row(cores, f"j-variant-{flavor}")[0] == "Ready"


def test_a_batch_that_is_folded_again_has_booked_nothing() -> None:
    cores = configured_cores("a", "b")
    # So long an object takes no large fact any more, so the batch is folded twice.
    filler = msgspec.Raw(b'{"x":"' + b"y" * 899_000 + b'",' + bytes(cores.stored("a").spec)[1:])
    full = msgspec.structs.replace(cores.stored("a"), spec=filler)
    cores.write(cores.namespace, "a", full)
    large = msgspec.structs.replace(ready(cores, "a", "g0"), message="m" * 30_000)
    facts_of_batch = [large, ready(cores, "b", "g0")]
    commit = cores.fold_once([cores.logged_fact(fact) for fact in facts_of_batch])
    assert [dead.reason[:24] for dead in commit.dead] == ["the object would be 9301"]
    [put] = commit.puts
    assert put.workload is not None
    assert [each.state for each in put.workload.status.admission_checks] == ["Ready"]
