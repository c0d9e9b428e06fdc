"""What a program holds by a lease: its machine, its devices, and the states in which it has lost
them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, cast

import pytest
from msgspec.structs import replace

from admittance.api.meta import ObjectMeta
from admittance.api.runners import Runner, RunnerStatus
from admittance.client.calls import Calls
from admittance.client.errors import BadInput
from admittance.client.holding import Hold, HoldOptions, Kept, WorkloadHold
from admittance.client.methods.holds import HoldMethods
from admittance.client.requests.submissions.holds import (
    devices_of,
    runner_here,
    variables_of,
    why_lost,
)
from admittance.events import facts
from admittance.events.placement import PlacementPart
from admittance.folders import MachineFacts
from support.builders import Around
from support.cores.tracked_workload import ME, TrackedWorkload

HERE = MachineFacts(boot_id="b", mount_namespace="m")


def runner(name: str, boot: str = "b", mounts: str = "m", host: str = "") -> Runner:
    labels = {"kubernetes.io/hostname": host} if host else {}
    status = RunnerStatus(boot_id=boot, mount_namespace=mounts)
    return Runner(metadata=ObjectMeta(name=name, labels=labels), status=status)


@pytest.mark.parametrize(
    ("runners", "machine", "host"),
    [
        pytest.param([], HERE, "", id="no runner"),
        pytest.param([runner("r")], HERE, "r", id="a runner without a label has its name"),
        pytest.param([runner("r", host="vm")], HERE, "vm", id="the label counts"),
        pytest.param([runner("r", boot="x")], HERE, "", id="another machine"),
        pytest.param(
            [runner("a", mounts="x"), runner("z")], HERE, "z", id="the same files come first"
        ),
        pytest.param([runner("r", boot="")], MachineFacts(), "", id="the machine is not known"),
        pytest.param([Runner(metadata=ObjectMeta(name="r"))], HERE, "", id="no status"),
    ],
)
def test_the_machine_of_a_program_is_that_of_a_runner_of_the_same_boot(
    runners: list[Runner], machine: MachineFacts, host: str
) -> None:
    assert runner_here(runners, machine) == host


def part(**devices: tuple[str, ...]) -> PlacementPart:
    named = {{"gpu": "nvidia.com/gpu", "amd": "amd.com/gpu", "npu": "x.com/npu"}[k]: v
             for k, v in devices.items()}  # fmt: skip
    return PlacementPart(runner="r", id="i", pod_set="main", first=0, count=1, devices=named)


@pytest.mark.parametrize(
    ("placement", "cuda", "rocr", "every"),
    [
        pytest.param((), "", "", "", id="no devices hide all"),
        pytest.param((part(gpu=("0", "3")),), "0,3", "", "0,3", id="NVIDIA"),
        pytest.param((part(amd=("1",)),), "", "1", "1", id="AMD"),
        pytest.param((part(npu=("n-0",)),), "", "", "n-0", id="another maker"),
        pytest.param((part(gpu=("GPU-a::0", "GPU-a::1")),), "GPU-a", "", "GPU-a", id="slices"),
        pytest.param((part(gpu=("0",)), part(gpu=("1",))), "0,1", "", "0,1", id="two parts"),
    ],
)
def test_variables_show_the_assigned_devices_and_hide_the_others(
    placement: tuple[PlacementPart, ...], cuda: str, rocr: str, every: str
) -> None:
    assert variables_of(devices_of(placement)) == {
        "CUDA_VISIBLE_DEVICES": cuda,
        "NVIDIA_VISIBLE_DEVICES": cuda,
        "ROCR_VISIBLE_DEVICES": rocr,
        "ADMITTANCE_DEVICES": every,
    }


def life() -> TrackedWorkload:
    return TrackedWorkload(Around(["a"]), leaseDurationSeconds=60)


EVICTED = "AdmissionCheck: At least one admission check is false"
LOST: dict[str, tuple[Any, str]] = {
    "it runs": (lambda w: w, ""),
    "it is renewed": (lambda w: w.happens(facts.Renewed(**ME)), ""),
    "a user stops it": (lambda w: w.off(), "Deactivated: The workload is deactivated"),
    "a check evicts it": (lambda w: w.verdict("a", "Retry", 60), "AdmissionCheck: "),
    "its program has ended": (
        lambda w: w.happens(facts.Renewed(**ME, ended=True)),
        "Succeeded: Its program ended",
    ),
    "its lease is over": (
        lambda w: w.later(60).due("lease"),
        "LeaseExpired: The program that held the quota did not renew its lease within 60 s",
    ),
}


@pytest.mark.parametrize("case", LOST)
def test_a_program_has_lost_its_quota_when_its_workload_is_no_longer_admitted(case: str) -> None:
    happens, why = LOST[case]
    tracked = life().admitted()
    held = tracked.stored
    said = why_lost(happens(tracked).stored, held)
    assert said.startswith(why)
    assert bool(said) is bool(why)


def test_a_program_has_lost_its_quota_when_its_workload_is_another_one() -> None:
    held = life().admitted().stored
    assert why_lost(None, held) == "the workload was deleted"
    other = replace(held, metadata=replace(held.metadata, uid="other"))
    assert why_lost(other, held) == "the workload was deleted"
    again = replace(held, status=replace(held.status, restarts=1))
    assert why_lost(again, held) == "its quota was released, and it is Admitted"
    waiting = life().stored
    assert why_lost(waiting, held) == "its quota was released, and it is Pending"


def test_a_workload_without_a_lease_is_not_renewed() -> None:
    tracked = TrackedWorkload().happens(facts.Renewed(**ME))
    assert (str(tracked.outcome), tracked.reason) == ("refused", "NoLease")
    assert "lease" not in str(tracked.later(90).due("lease").outcome)


def client() -> Any:
    """The methods without a connection, which no case needs."""
    methods = HoldMethods()
    methods._calls = cast(Calls, None)
    return methods


WORKLOAD, QUOTA = WorkloadHold, Hold
KINDS: dict[str, tuple[Callable[[Any], object], type | str]] = {
    "a name": (lambda c: c.hold("a"), WORKLOAD),
    "a name by its keyword": (lambda c: c.hold(name="a"), WORKLOAD),
    "a name in a namespace": (lambda c: c.hold("a", namespace="n"), WORKLOAD),
    "cpu": (lambda c: c.hold("q", cpu=1), QUOTA),
    "memory": (lambda c: c.hold("q", memory="1Gi"), QUOTA),
    "no gpu is an amount": (lambda c: c.hold("q", gpu=0), QUOTA),
    "a queue by its keyword and a name": (lambda c: c.hold(queue="q", name="a", gpu=1), QUOTA),
    "the default queue": (lambda c: c.hold(gpu=1), QUOTA),
    "nothing": (lambda c: c.hold(), "hold takes the name of a workload, or a queue with an amount"),
    "an option alone": (lambda c: c.hold("a", timeout=3), "a queue with an amount of cpu, memory"),
    "no amount": (lambda c: c.hold("q", gpu=None), "a queue with an amount of cpu, memory or gpu"),
    "a queue and a name": (lambda c: c.hold("q", name="a"), "a queue with an amount of cpu"),
    "a name that is no text": (lambda c: c.hold(7), "queue 7 is not a text"),
    "an amount of a wrong type": (lambda c: c.hold("q", gpu=[1]), "gpu "),
    "part of a gpu": (lambda c: c.hold("q", gpu="500m"), "gpu"),
    "no time": (lambda c: c.hold("q", cpu=1, timeout=0), "timeout 0 is not a positive number"),
}


@pytest.mark.parametrize("case", KINDS)
async def test_hold_is_of_quota_with_an_amount_and_of_a_workload_without(case: str) -> None:
    call, expected = KINDS[case]
    if isinstance(expected, str):
        with pytest.raises(BadInput, match=expected):
            call(client())
        return
    made = call(client())
    assert type(made) is expected
    if isinstance(made, WorkloadHold):
        made.close()


async def test_a_hold_is_refused_where_the_other_kind_is_meant() -> None:
    with pytest.raises(BadInput, match="for a block with quota pass cpu, memory or gpu"):
        async with client().hold("a"):
            raise AssertionError("the block has no quota")
    with pytest.raises(BadInput, match="to keep a workload out of its queue pass its name alone"):
        await client().hold("q", cpu=1)
    kept: Any = Kept(outcome="applied")
    with pytest.raises(BadInput, match="begins no block"), kept:
        raise AssertionError("the block has no quota")


async def test_a_hold_of_a_workload_runs_as_a_task_of_its_own() -> None:
    task = asyncio.create_task(client().hold("a"))
    await asyncio.sleep(0)
    with pytest.raises(AttributeError, match="'call'"):  # There is no connection.
        await task


def test_hold_has_the_options_of_hold_quota() -> None:
    own = {"queue", "name", "namespace", "self"}
    options = inspect.signature(HoldMethods.hold_quota).parameters.keys() - own
    assert HoldOptions.__optional_keys__ == options
