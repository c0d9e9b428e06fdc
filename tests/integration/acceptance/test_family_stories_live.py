"""Stories of families against real services and a real server, with processes that are killed and
started again on the way. docs/spec/lifecycle.md#4.11, #7.4; every cell on virtual time:
tests/acceptance.
"""

from __future__ import annotations

from typing import Any

import pytest

from admittance.workload.stored import head
from integration.acceptance.stage import NS, Stage

scenario = pytest.mark.scenario
pytestmark = [pytest.mark.bus, pytest.mark.asyncio(loop_scope="package")]

EVERYTHING: tuple[str, ...] = ()
"""Of services to be killed; the server goes, too."""


def policy(*explicit: dict[str, Any], **constraints: str) -> dict[str, Any]:
    constraints.setdefault("mode", "UpgradeOnly")
    said: dict[str, Any] = {"migrationConstraints": constraints}
    if explicit:
        said["explicitVariants"] = list(explicit)
    return {"concurrentAdmission": said}


def variant(tag: str, *flavors: str, **delays: int) -> dict[str, Any]:
    return {"name": tag, "allowedResourceFlavors": list(flavors) or [tag], **delays}


async def fill(stage: Stage, queue: str, flavor: str, cpu: int = 4) -> str:
    """A workload that takes all of the flavor, before the queue has families."""
    name = f"{queue}-{flavor}"
    only = {"allowedResourceFlavors": [flavor]}
    await stage.submit(name, queue, cpu, admissionConstraints=only)
    await stage.runs(name)
    return name


async def done(stage: Stage, name: str) -> None:
    """The job is at its end."""
    await stage.say("finished", name)
    await stage.is_in(name, "Finished")


async def told_to_stop(stage: Stage, name: str, check: str) -> None:
    """The check is; and the workload holds nothing any more."""
    await stage.until(lambda: bool(stage.withdrawn(check, name)), f"{check} is told to stop")
    assert stage.now(name).status.admission is None


async def restarted(stage: Stage, *services: str) -> None:
    await stage.kill(*services)
    await stage.start_again(*services)


@scenario("D8")
async def test_a_family_migrates_upwards_despite_kills_of_services(stage: Stage) -> None:
    flavors: dict[str, tuple[str, ...]] = {"s1-r": (), "s1-o": (), "s1-s": ()}
    cpu = {"s1-r": 4, "s1-o": 4, "s1-s": 8}
    await stage.queue("s1", flavors, cpu=cpu)
    reserved, demanded = await fill(stage, "s1", "s1-r"), await fill(stage, "s1", "s1-o")
    await stage.queue("s1", flavors, cpu=cpu, **policy())
    await stage.submit("j1", "s1", 4)
    await stage.is_on("j1", "s1-s", 1)
    await stage.until(lambda: stage.active("j1") == {"s1-r", "s1-o", "s1-s"})
    await restarted(stage, "variant-controller", "scheduler")
    await done(stage, demanded)
    await stage.is_on("j1", "s1-o", 2)
    await stage.until(lambda: stage.active("j1") == {"s1-r", "s1-o"})
    await restarted(stage, "workload-controller")
    await done(stage, reserved)
    await stage.is_on("j1", "s1-r", 3)
    await stage.until(lambda: stage.active("j1") == {"s1-r"})
    await done(stage, "j1")
    await stage.until(
        lambda: {stage.phase(name) for name in stage.variants("j1")} == {"Finished"},
        "all variants have finished",
    )


@scenario("D10")
async def test_the_first_ready_check_wins_and_a_late_check_moves_no_job(stage: Stage) -> None:
    flavors: dict[str, tuple[str, ...]] = {
        "s3-r": (), "s3-a": ("s3-x",), "s3-b": ("s3-y",), "s3-c": ("s3-z",),
    }  # fmt: skip
    await stage.queue("s3", flavors, cpu=4)
    reserved = await fill(stage, "s3", "s3-r")
    await stage.queue("s3", flavors, cpu=4, **policy(minFlavor="s3-r"))
    await stage.submit("j3", "s3", 4)
    checks = {tag: f"s3-{check}" for tag, check in zip("abc", "xyz", strict=True)}
    asked = {
        tag: await stage.request(check, f"j3-variant-s3-{tag}") for tag, check in checks.items()
    }
    assert stage.phase("j3") == "Pending"
    await restarted(stage, "scheduler")
    await stage.answer("j3-variant-s3-b", "s3-y", "Ready")
    await stage.is_on("j3", "s3-b", 1)
    await stage.until(lambda: stage.active("j3") == {"s3-r", "s3-b"})
    for tag in "ac":
        await told_to_stop(stage, f"j3-variant-s3-{tag}", checks[tag])
    await restarted(stage, "workload-controller", "variant-controller")
    await stage.answer("j3-variant-s3-a", "s3-x", "Ready", cycle=asked["a"].cycle)
    await stage.quiet()
    await stage.is_on("j3", "s3-b", 1)
    await done(stage, reserved)
    await stage.is_on("j3", "s3-r", 2)
    await stage.until(lambda: stage.active("j3") == {"s3-r"})


@scenario("D12")
async def test_the_fallback_is_activated_on_time_after_a_restart_of_services(stage: Stage) -> None:
    flavors: dict[str, tuple[str, ...]] = {"s5-r": (), "s5-o": ()}
    await stage.queue("s5", flavors, cpu=4)
    reserved = await fill(stage, "s5", "s5-r")
    explicit = [variant("s5-r"), variant("s5-o", createDelaySeconds=4)]
    await stage.queue("s5", flavors, cpu=4, **policy(*explicit))
    await stage.submit("j5", "s5", 4)
    await stage.until(lambda: stage.has("j5") and len(stage.variants("j5")) == 2)
    await restarted(stage, "variant-controller", "retry-timer", "workload-controller")
    await stage.is_on("j5", "s5-o", 1)
    assert not head(stage.revisions["j5-variant-s5-o"][0]).active
    await stage.until(lambda: stage.active("j5") == {"s5-r", "s5-o"})
    await done(stage, reserved)
    await stage.is_on("j5", "s5-r", 2)
    await stage.until(lambda: stage.active("j5") == {"s5-r"})


def pod_set(name: str, count: int, script: str, **requests: int) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "none",
        "command": ["/bin/sh", "-c", script],
        "resources": {"requests": requests},
    }
    spec = {"containers": [container], "restartPolicy": "Never"}
    return {"name": name, "count": count, "template": {"spec": spec}}


@scenario("D14")
async def test_what_siblings_share_is_there_for_the_better_one(stage: Stage) -> None:
    for flavor in ("s7-r", "s7-o", "s7-cpu"):
        await stage.put("ResourceFlavor", flavor, {})
    gpus = [
        {"name": flavor, "resources": [{"name": "gpu", "nominalQuota": 8}]}
        for flavor in ("s7-r", "s7-o")
    ]
    cpus = [{"name": "s7-cpu", "resources": [{"name": "cpu", "nominalQuota": 30}]}]
    groups = [
        {"coveredResources": ["gpu"], "flavors": gpus},
        {"coveredResources": ["cpu"], "flavors": cpus},
    ]
    spec = {"namespaceSelector": {}, "resourceGroups": groups}
    await stage.put("ClusterQueue", "s7", spec)
    await stage.put("LocalQueue", "s7", {"clusterQueue": "s7"}, NS)
    only = {"allowedResourceFlavors": ["s7-r"]}
    pods = [pod_set("main", 1, "sleep 3600", gpu=8)]
    await stage.submit("s7-first", "s7", podSets=pods, admissionConstraints=only)
    await stage.is_in("s7-first", "Admitted", "Running")
    explicit = [variant("better", "s7-r", "s7-cpu"), variant("worse", "s7-o", "s7-cpu")]
    await stage.put("ClusterQueue", "s7", {**spec, **policy(*explicit)})
    pods = [
        pod_set("launcher", 1, stage.script("j7"), cpu=4),
        pod_set("workers", 4, "sleep 3600", gpu=2, cpu=4),
    ]
    await stage.submit("j7", "s7", podSets=pods)
    await stage.runs("j7")
    assert stage.places("j7") == {"launcher": {"cpu": "s7-cpu"}, "workers": both("s7-o")}
    await restarted(stage, "scheduler", "variant-controller")
    await done(stage, "s7-first")
    await stage.runs("j7", 2)
    await stage.is_in("j7", "Admitted", "Running")
    assert stage.places("j7") == {"launcher": {"cpu": "s7-cpu"}, "workers": both("s7-r")}
    assert stage.trail_of("j7") == ["started", "stopped", "started"]


def both(gpu: str) -> dict[str, str]:
    return {"gpu": gpu, "cpu": "s7-cpu"}


KILLED = [
    pytest.param(("workload-controller",), True, id="the workload-controller, over a reservation"),
    pytest.param(("workload-controller",), False, id="the workload-controller, over a promise"),
    pytest.param(("scheduler",), False, id="the scheduler, over a promise"),
    pytest.param(("runner",), True, id="the runner, over a reservation"),
    pytest.param(EVERYTHING, False, id="everything, over a promise"),
]


@scenario("D8", "D25")
@pytest.mark.parametrize(("killed", "checked"), KILLED)
async def test_one_variant_runs_after_any_service_is_killed_in_a_swap(
    stage: Stage, killed: tuple[str, ...], checked: bool
) -> None:
    name = f"k-{'-'.join(killed) or 'all'}-{'c' if checked else 'n'}"
    better, worse = f"{name}-r", f"{name}-o"
    check = f"{name}-x"
    flavors: dict[str, tuple[str, ...]] = {better: (check,) if checked else (), worse: ()}
    await stage.queue(name, flavors, cpu=4, **policy())
    if not checked:
        await stage.queue(name, flavors, cpu={better: 0, worse: 4}, **policy())
    job = f"j-{name}"
    await stage.submit(job, name, 4)
    await stage.is_on(job, worse, 1)
    stage.hold(job).touch()
    if checked:
        variant_name = f"{job}-variant-{better}"
        await stage.request(check, variant_name)
        await stage.answer(variant_name, check, "Ready")
    else:
        await stage.queue(name, flavors, cpu=4, **policy())
    await stage.is_in(job, "Evicting")
    # The job ends at some moment while they are away, or while they come back.
    await stage.kill(*killed)
    stage.hold(job).unlink()
    if killed == EVERYTHING:
        await stage.lose_server()
    await stage.start_again(*killed)
    await stage.is_on(job, better, 2)
    await stage.quiet()
    await stage.is_on(job, better, 2)
    admitted = [one for one in stage.variants(job).values() if one.status.admission is not None]
    assert [one.metadata.name for one in admitted] == [f"{job}-variant-{better}"]


@scenario("D8", "D25")
async def test_one_variant_runs_after_a_kill_while_the_job_stops(stage: Stage) -> None:
    flavors: dict[str, tuple[str, ...]] = {"ks-r": (), "ks-o": ()}
    await stage.queue("ks", flavors, cpu={"ks-r": 0, "ks-o": 4}, **policy())
    await stage.submit("j-ks", "ks", 4)
    await stage.is_on("j-ks", "ks-o", 1)
    await stage.queue("ks", flavors, cpu=4, **policy())
    # Whatever of the swap is on its way: some of it is written, and some is not.
    await stage.has_moved("j-ks", lambda one: bool(one.status.migrating_to))
    await stage.kill("workload-controller", "scheduler", "variant-controller")
    await stage.start_again("workload-controller", "scheduler", "variant-controller")
    await stage.is_on("j-ks", "ks-r", 2)
