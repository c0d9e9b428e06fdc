"""Families against real services and a real server, with processes that are killed and started
again on the way. Every story on virtual time: tests/acceptance; against real services:
tests/system/pages/test_family_samples_run.
"""

from __future__ import annotations

from typing import Any

import pytest

from admittance.workload.stored import head
from integration.acceptance.stage import Stage

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
    """Ends the job."""
    await stage.say("finished", name)
    await stage.is_in(name, "Finished")


async def restarted(stage: Stage, *services: str) -> None:
    await stage.kill(*services)
    await stage.start_again(*services)


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


KILLED = [
    pytest.param(("workload-controller",), True, id="the workload-controller, over a reservation"),
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
    admitted = [
        variant for variant in stage.variants(job).values() if variant.status.admission is not None
    ]
    assert [variant.metadata.name for variant in admitted] == [f"{job}-variant-{better}"]
