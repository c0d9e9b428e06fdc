"""Runner objects as functions of what runners announce."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from admittance.api.reading.objects import encode
from admittance.api.runners import Runner, RunnerDrain
from admittance.events.stored.machines import (
    ALIVE_RUNNERS,
    INVENTORIES,
    OPEN_RUNS,
    REFUSED_RUNNERS,
    Device,
    OpenRun,
    OpenRuns,
    RunnerAlive,
    RunnerInventory,
    RunnerRefused,
    RunnerTaint,
)
from admittance.events.subjects import object_key
from admittance.events.system import RunnerStarts, SystemMessage
from admittance.placement.machines import known_runners
from admittance.placement.machines.known_runners import (
    NAME_CONFLICT,
    KnownRunners,
    StoredRunner,
    runner_object,
)
from admittance.placement.machines.stored_machine import machine_of
from admittance.placement_service.machine_metrics import values_of
from admittance.workload.bucket_reader import read_manifest

NOW = datetime(2026, 11, 27, 12, 0, 0, 123456, tzinfo=UTC)
GPU = RunnerInventory(
    id="a1",
    name="gpu_1",
    host="gpu-1",
    version="1.0",
    boot_id="b",
    mount_namespace="mnt:[1]",
    folders=("/home",),
    capacity={"cpu": 64_000, "memory": 64 * 2**30, "nvidia.com/gpu": 2},
    devices=(
        Device(resource="nvidia.com/gpu", index=0, id="GPU-0", model="A100", minor=0),
        Device(resource="nvidia.com/gpu", index=1, id="GPU-1", slices=4),
    ),
    labels={"zone": "b", "kubernetes.io/hostname": "gpu-1"},
    taints=(RunnerTaint(key="gpu", value="yes", effect="NoSchedule"),),
    executors=("local",),
    starts=RunnerStarts(submitters=("ada",), all_of=("team-a",), lacks=("values",), pods=500),
    messages=("cannot limit memory",),
)


def say(
    known: KnownRunners, first: str, message: SystemMessage | None, name: str = "gpu_1"
) -> None:
    known.said(first, name, None if message is None else msgspec.json.encode(message))


def stored(known: KnownRunners, now: datetime = NOW) -> Runner | None:
    """The object of the runner after its writes, as the bucket returns it; None: no write."""
    made = None
    for write in known.writes(now):
        read = read_manifest(object_key("runner", "", write.name), encode(write.object))
        assert isinstance(read, Runner)
        known.set_object(write.name, StoredRunner(read, write.expected + 1))
        made = read
    return made


def test_a_runner_object_has_what_its_machine_announces() -> None:
    known = KnownRunners()
    say(known, INVENTORIES, GPU)
    made = stored(known)
    assert made is not None and made.status is not None and made.status.users is not None
    assert made.metadata.name == "gpu_1"
    assert made.metadata.labels["zone"] == "b"
    assert made.status.capacity == {"cpu": "64", "memory": "64Gi", "nvidia.com/gpu": "2"}
    assert [(device.id, device.slices) for device in made.status.devices] == [
        ("GPU-0", 1),
        ("GPU-1", 4),
    ]
    assert made.status.users.submitters == ("ada",)
    assert [taint.key for taint in made.spec.taints] == ["gpu"]


def test_a_runner_object_is_written_only_when_the_machine_changes() -> None:
    known = KnownRunners()
    say(known, INVENTORIES, GPU)
    first = stored(known)
    say(known, ALIVE_RUNNERS, RunnerAlive(id="a1"))
    say(known, OPEN_RUNS, OpenRuns(id="a1", runs=(OpenRun(namespace="n", name="w", revision=1),)))
    say(known, INVENTORIES, GPU)
    assert stored(known, NOW + timedelta(hours=1)) is None
    say(known, INVENTORIES, replace(GPU, labels={"zone": "c"}))
    second = stored(known, NOW + timedelta(hours=1))
    assert first is not None and second is not None
    assert second.metadata.labels == {"zone": "c"}
    assert second.metadata.creation_timestamp == NOW
    assert (first.metadata.generation, second.metadata.generation) == (1, 2)


def test_a_heartbeat_looks_at_the_object_of_no_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    known, looked = KnownRunners(), list[str]()

    def noted(before: Runner | None, said: RunnerInventory, *rest: Any) -> Runner:
        looked.append(said.name)
        return runner_object(before, said, *rest)

    monkeypatch.setattr(known_runners, "runner_object", noted)
    for name in ("a", "b", "c"):
        say(known, INVENTORIES, replace(GPU, name=name), name)
    # A write that failed comes again.
    assert [len(list(known.writes(NOW))) for _ in range(2)] == [3, 3]
    stored(known)
    stored(known)
    looked.clear()
    say(known, ALIVE_RUNNERS, RunnerAlive(id="a1"), "a")
    say(known, OPEN_RUNS, OpenRuns(id="a1"), "b")
    assert (stored(known), looked) == (None, [])
    say(known, REFUSED_RUNNERS, RunnerRefused(id="b2"), "c")
    assert stored(known) is not None
    assert looked == ["c"]
    known.set_object("b", StoredRunner(None, 9))  # A user deleted the object.
    again = stored(known)
    assert again is not None
    assert again.metadata.name == "b"


def test_a_cordoned_and_drained_runner_stays_so_when_it_announces_itself_again() -> None:
    known = KnownRunners()
    say(known, INVENTORIES, GPU)
    made = stored(known)
    assert made is not None
    drain = RunnerDrain(deadline=NOW, reason="a new fan")
    cordoned = replace(made, spec=replace(made.spec, unschedulable=True, drain=drain))
    known.set_object("gpu_1", StoredRunner(cordoned, 9))
    assert stored(known) is None
    say(known, INVENTORIES, replace(GPU, version="2.0"))
    again = stored(known)
    assert again is not None and again.spec.unschedulable
    assert again.spec.drain == drain
    machine = machine_of(again)
    assert machine is not None and machine.draining and not machine.takes_pods
    assert (machine.evict_at, machine.message) == (NOW, "a new fan")


def test_a_second_runner_with_the_name_is_named_on_the_object_until_it_is_gone() -> None:
    known = KnownRunners()
    say(known, INVENTORIES, GPU)
    stored(known)
    say(known, REFUSED_RUNNERS, RunnerRefused(id="a1"))
    assert stored(known) is None, "the runner itself waited for its name"
    say(known, REFUSED_RUNNERS, RunnerRefused(id="b2", host="other"))
    made = stored(known)
    assert made is not None and made.status is not None
    [condition] = made.status.conditions
    assert (condition.type, condition.status) == (NAME_CONFLICT, "True")
    assert "b2 on host other" in condition.message
    say(known, REFUSED_RUNNERS, None)
    later = stored(known, NOW + timedelta(minutes=1))
    assert later is not None and later.status is not None
    [condition] = later.status.conditions
    assert (condition.status, condition.reason) == ("False", "OneRunner")
    assert stored(known, NOW + timedelta(minutes=2)) is None


def test_a_runner_is_ready_while_it_holds_its_name_and_runs_add_up() -> None:
    known = KnownRunners()
    say(known, INVENTORIES, GPU)
    assert not known.is_ready("gpu_1")
    say(known, ALIVE_RUNNERS, RunnerAlive(id="b2"))
    assert not known.is_ready("gpu_1"), "another runner holds the name"
    say(known, ALIVE_RUNNERS, RunnerAlive(id="a1"))
    runs = tuple(
        OpenRun(namespace="n", name=name, revision=1, requests={"cpu": 500, "nvidia.com/gpu": 1})
        for name in ("a", "b")
    )
    say(known, OPEN_RUNS, OpenRuns(id="a1", runs=runs))
    state = known.state("gpu_1", with_runs=True)
    assert (state.ready, state.in_use) == (True, {"cpu": 1000, "nvidia.com/gpu": 2})
    assert [run.name for run in state.runs] == ["a", "b"]
    say(known, ALIVE_RUNNERS, RunnerAlive(id="a1", leaving=True))
    assert not known.is_ready("gpu_1"), "it is being shut down"
    say(known, ALIVE_RUNNERS, None)
    assert not known.is_ready("gpu_1")


def test_metrics_say_what_machines_have_and_which_devices_jobs_have() -> None:
    known = KnownRunners()
    say(known, INVENTORIES, GPU)
    say(known, ALIVE_RUNNERS, RunnerAlive(id="a1"))
    stored(known)
    runs = tuple(
        OpenRun(
            namespace="n",
            name=name,
            revision=1,
            requests={"cpu": 1500, "nvidia.com/gpu": 1},
            devices={"nvidia.com/gpu": units},
        )
        for name, units in (("a", ("GPU-1::0", "GPU-1::1")), ("b", ("GPU-1::2",)))
    )
    say(known, OPEN_RUNS, OpenRuns(id="a1", runs=runs))
    values = values_of(known)
    assert values["runner_ready"] == {("gpu_1",): 1}
    assert values["runner_capacity"]["gpu_1", "cpu"] == 64
    assert values["runner_in_use"]["gpu_1", "cpu"] == 3
    assert values["runner_in_use"]["gpu_1", "memory"] == 0
    assert values["runner_device_jobs"] == {
        ("gpu_1", "nvidia.com/gpu", "GPU-0"): 0,
        ("gpu_1", "nvidia.com/gpu", "GPU-1"): 2,
    }


def test_a_page_of_machines_with_runs_ends_after_very_many_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(known_runners, "PAGE_RUNS", 2)
    runners = KnownRunners()
    run = OpenRun(namespace="ns", name="w", revision=1)
    for name in ("a", "b", "c"):
        say(runners, OPEN_RUNS, OpenRuns(id=name, runs=(run,)), name)
    names = ["a", "b", "c"]
    assert [(each.runner, each.runs) for each in runners.page(names, with_runs=True)] == [
        ("a", (run,)),
        ("b", (run,)),
    ]
    assert len(runners.page(names, with_runs=False)) == 3
