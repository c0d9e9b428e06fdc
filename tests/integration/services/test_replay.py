"""Every decision of a small run with preemption is made again, from what the system wrote down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from admittance.events import facts, subjects
from admittance.events.base import Fact
from admittance.events.codec import encode
from admittance.events.names import plain
from admittance.events.requests.replays import Replay, ReplayReply
from admittance.events.subjects import FENCED, subject_of
from admittance.replay.answer import answer
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.checkpoints import checkpoints
from admittance.runtime.bus.history import read_messages
from admittance.runtime.tasks import cancel_and_wait
from support.builders import a_manifest, an_object
from support.cluster import Cluster
from support.requests import admission_check, apply, eventually, queues, submit, workload
from support.servers import within

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]

API = "kueue.x-k8s.io/v1beta2"
DECISIONS = [f"admit.workload.{what}.>" for what in ("assigned", "preempted", "refused", "revoked")]


def a_queue(name: str, cpu: int, **spec: Any) -> list[dict[str, Any]]:
    """A ClusterQueue of the cohort with two flavors, and its LocalQueue."""
    flavors = [
        {"name": flavor, "resources": [{"name": "cpu", "nominalQuota": much}]}
        for flavor, much in (("spot", cpu), ("solid", 1))
    ]
    return [
        an_object(
            "ClusterQueue",
            name,
            {
                "cohortName": "all",
                "namespaceSelector": {},
                "preemption": {
                    "withinClusterQueue": "LowerPriority",
                    "reclaimWithinCohort": "LowerPriority",
                },
                "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
                **spec,
            },
        ),
        an_object("LocalQueue", f"lq-{name}", {"clusterQueue": name}, namespace="ns"),
    ]


def flavors() -> list[dict[str, Any]]:
    return [
        {"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": name}}
        for name in ("spot", "solid")
    ]


class Jobs:
    """Publishes the facts of runners and check controllers: evicted jobs stop at once, the named
    workloads finish, and every check is Ready while ``checks_pass``."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.running: dict[str, int] = {}
        self.checks_pass = True
        self._verdicts: list[Fact] = []
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        after = 0
        filters = [f"admit.{what}.>" for what in ("workload.admitted", "workload.evicted")]
        filters.append("admit.check.requested.>")
        while True:
            for message in await read_messages(self._bus, filters, after=after):
                after = message.sequence
                said = msgspec.json.decode(message.data)
                name = plain(message.subject.rpartition(".")[2])
                if ".requested." in message.subject:
                    self._verdicts.append(
                        facts.CheckReported(
                            namespace="ns",
                            name=name,
                            controller=said["controller"],
                            check=said["check"],
                            cycle=said.get("cycle", 0),
                            state="Ready",
                        )
                    )
                elif ".admitted." in message.subject:
                    self.running[name] = said["revision"]
                elif self.running.pop(name, None) is not None:
                    stopped = facts.Stopped(namespace="ns", name=name, revision=said["revision"])
                    await self.say(stopped)
            while self.checks_pass and self._verdicts:
                await self.say(self._verdicts.pop(0))
            await asyncio.sleep(0.02)

    async def finish(self, name: str) -> None:
        """Waits until the workload is admitted, and ends its job."""
        await eventually(lambda: self._runs(name))
        await self.say(facts.Finished(namespace="ns", name=name, revision=self.running.pop(name)))

    async def _runs(self, name: str) -> bool:
        return name in self.running

    async def say(self, fact: Fact) -> int:
        return await self._bus.publish(Outgoing(subject_of(fact), encode(fact)))

    async def close(self) -> None:
        await cancel_and_wait(self._task)


@pytest.fixture
async def jobs(bus: Bus) -> AsyncIterator[Jobs]:
    jobs_made = Jobs(bus)
    yield jobs_made
    await jobs_made.close()


async def decisions(bus: Bus) -> list[int]:
    """The sequences of the decisions on the log."""
    return [message.sequence for message in await read_messages(bus, DECISIONS)]


async def rest(bus: Bus) -> None:
    """Waits until no message has been published for a while."""

    async def end() -> int:
        info = await bus.api(f"STREAM.INFO.{subjects.STREAM}")
        return int(info["state"]["last_seq"])

    before = -1
    while (now := await end()) != before:
        before = now
        await asyncio.sleep(1.3)  # longer than a refusal waits to be said


async def replayed(bus: Bus, sequence: int, namespace: str = "") -> ReplayReply:
    """The decision, decided again."""
    return await answer(bus, Replay(sequence=sequence), namespace)


async def why_not(bus: Bus, sequence: int, namespace: str = "") -> str:
    """Why the decision cannot be decided again."""
    return (await replayed(bus, sequence, namespace)).impossible


async def same(bus: Bus, sequences: list[int]) -> list[ReplayReply]:
    """All decisions have the same outcome in the replay."""
    replies = [await replayed(bus, sequence) for sequence in sequences]
    assert not [reply for reply in replies if not reply.same]
    return replies


async def busy(bus: Bus, jobs: Jobs, seed: int, workloads: int = 24) -> None:
    """Workloads of several sizes and priorities come, preempt each other, and end."""
    chance = Random(seed)
    for number in range(workloads):
        await submit(
            bus,
            [
                a_manifest(
                    f"w{seed}-{number}",
                    queue=f"lq-{chance.choice('ab')}",
                    requests={"cpu": str(chance.randint(1, 4))},
                    priority=chance.choice((0, 0, 1, 5)),
                )
            ],
        )
        if chance.random() < 0.4:
            await asyncio.sleep(chance.random() / 10)
        if jobs.running and chance.random() < 0.3:
            await jobs.finish(chance.choice(sorted(jobs.running)))
    await rest(bus)
    while jobs.running:
        for name in sorted(jobs.running)[:2]:
            await jobs.finish(name)
        await asyncio.sleep(0.1)
    await rest(bus)


async def test_every_decision_of_a_run_is_repeated_equally(
    cluster: Cluster,
    bus: Bus,
    jobs: Jobs,
) -> None:
    await cluster.start("workload-controller")
    await cluster.start("scheduler")
    await apply(bus, *flavors(), *a_queue("a", 4), *a_queue("b", 3))
    await busy(bus, jobs, seed=1)
    replies = await same(bus, await decisions(bus))
    kinds = {decision.kind for decision in replies}
    assert kinds == {"assigned", "preempted", "refused"}
    assert any(decision.inputs.decisions_on_their_way for decision in replies)


async def test_decisions_across_crashes_and_quota_edits_are_repeated_equally(
    cluster: Cluster,
    bus: Bus,
    jobs: Jobs,
) -> None:
    controller = await cluster.start("workload-controller")
    scheduler = await cluster.start("scheduler")
    await apply(bus, *flavors(), *a_queue("a", 4), *a_queue("b", 3))
    await busy(bus, jobs, seed=2, workloads=5)
    work = asyncio.create_task(busy(bus, jobs, seed=5, workloads=16))
    before = len(await decisions(bus))
    await eventually(lambda: _at_least(bus, before + 5))
    await scheduler.kill()
    await cluster.start("scheduler")
    await apply(bus, *a_queue("a", 1))
    await eventually(lambda: _at_least(bus, before + 12))
    await apply(bus, *a_queue("a", 3))
    await within(work)
    await controller.kill()
    await cluster.start("workload-controller")
    await busy(bus, jobs, seed=6, workloads=5)
    replies = await same(bus, await decisions(bus))
    assert len({decision.epoch for decision in replies}) == 2


async def _at_least(bus: Bus, many: int) -> bool:
    return len(await decisions(bus)) >= many


async def test_a_checkpoint_replaces_expired_facts(
    cluster: Cluster,
    bus: Bus,
    jobs: Jobs,
) -> None:
    first = await cluster.start("workload-controller", ADMIT_CHECKPOINT_SECONDS="1")
    await cluster.start("scheduler")
    await apply(bus, *flavors(), *a_queue("a", 4), *a_queue("b", 3))
    await busy(bus, jobs, seed=3, workloads=10)
    old = await decisions(bus)
    await eventually(lambda: _behind(bus, old[-1]))
    await first.stop()
    await cluster.start("workload-controller")  # which writes none so soon
    made = (await checkpoints(bus))[-1]
    await busy(bus, jobs, seed=4, workloads=10)
    # On a loaded machine the log may rest before the new leader has begun.
    await eventually(lambda: _decided_after(bus, made.through))
    await rest(bus)
    new = [sequence for sequence in await decisions(bus) if sequence > made.through]

    with_facts = await same(bus, new)
    assert {decision.inputs.checkpoint for decision in with_facts} == {made.id}
    await bus.api(f"STREAM.PURGE.{subjects.STREAM}", {"seq": made.through + 1})
    await same(bus, new)

    assert f"the log has no message {old[-1]}: it goes from" in await why_not(bus, old[-1])

    # Half a checkpoint is none.
    await _purge(bus, f"{subjects.CHECKPOINT_PART}{made.id}")
    assert "the log has neither all facts" in await why_not(bus, new[0])


async def _decided_after(bus: Bus, sequence: int) -> bool:
    return (await decisions(bus))[-1] > sequence


async def _behind(bus: Bus, sequence: int) -> bool:
    made = await checkpoints(bus)
    return bool(made) and made[-1].through >= sequence


async def _purge(bus: Bus, subject: str) -> None:
    await bus.api(f"STREAM.PURGE.{subjects.CHECKPOINTS}", {"filter": subject})


async def test_a_different_decision_is_shown_field_by_field(cluster: Cluster, bus: Bus) -> None:
    await cluster.start("workload-controller")
    await cluster.start("scheduler")
    await apply(bus, *flavors(), *a_queue("a", 4))
    (submitted,) = await submit(bus, [a_manifest("w", queue="lq-a")])
    await eventually(lambda: _at_least(bus, 1))
    (assigned,) = await decisions(bus)
    (message,) = await read_messages(bus, ["admit.workload.assigned.>"])
    reply = await replayed(bus, assigned)
    assert (reply.same, reply.inputs.turns) == (True, ("ns/w",))

    # A leader publishes a decision that no scheduler would have made.
    decided = msgspec.json.decode(message.data, type=facts.Assigned)
    place = decided.admission.pod_set_assignments[0]
    forged = msgspec.structs.replace(
        decided,
        admission=msgspec.structs.replace(
            decided.admission,
            pod_set_assignments=(msgspec.structs.replace(place, flavors={"cpu": "solid"}),),
        ),
    )
    fence = {name: value for name, value in message.headers.items() if "Expected" in name}
    other = await bus.publish(Outgoing(subject_of(forged), encode(forged), fence))
    reply = await replayed(bus, other)
    assert not reply.same
    assert [line.split(":")[0] for line in reply.differences] == ["admission"]

    unfenced = await bus.publish(Outgoing(subject_of(forged), encode(forged)))
    for sequence in (submitted, unfenced):
        assert "is not a decision of a scheduler" in await why_not(bus, sequence)
    assert "the log has no message 999999: it goes from 1 to" in await why_not(bus, 999_999)
    for sequence in (assigned, submitted, 999_999):
        unknown = f"the log has no decision {sequence} about a workload of namespace other"
        assert await why_not(bus, sequence, "other") == unknown


async def test_a_log_without_recorded_commits_gets_a_checkpoint_at_once(
    cluster: Cluster, bus: Bus
) -> None:
    """As after an older version of the workload-controller, which recorded no commits."""
    first = await cluster.start("workload-controller")
    await cluster.start("scheduler")
    await apply(bus, *flavors(), *a_queue("a", 4))
    await submit(bus, [a_manifest("before", queue="lq-a")])
    await eventually(lambda: _at_least(bus, 1))
    await first.stop()
    await bus.api(f"STREAM.PURGE.{subjects.CHECKPOINTS}", {})
    assert not await checkpoints(bus)

    await cluster.start("workload-controller")
    await eventually(lambda: _behind(bus, 1))
    await submit(bus, [a_manifest("after", queue="lq-a")])
    await eventually(lambda: _at_least(bus, 2))
    before, after = await decisions(bus)
    reply = await replayed(bus, after)
    assert reply.same
    assert reply.inputs.workloads == 2
    assert reply.inputs.checkpoint
    assert f"decision {before} cannot be repeated" in await why_not(bus, before)


async def test_decisions_are_repeated_with_the_time_settings_of_the_leader(
    cluster: Cluster,
    bus: Bus,
    jobs: Jobs,
    tmp_path: Path,
) -> None:
    """Also if the caller has another configuration: the log has that of the leader."""
    file = tmp_path / "configuration.yaml"
    file.write_text(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\n"
        "kind: Configuration\n"
        "waitForPodsReady:\n"
        "  timeout: 1s\n"
        "  requeuingStrategy: {backoffBaseSeconds: 1}\n"
    )
    for service in ("workload-controller", "scheduler", "retry-timer"):
        await cluster.start(service, ADMIT_CONFIG=str(file))
    await apply(bus, *flavors(), *a_queue("a", 4))
    await submit(bus, [a_manifest("never-ready", queue="lq-a")])
    await eventually(lambda: _at_least(bus, 2))
    replies = await same(bus, (await decisions(bus))[:2])
    assert [decision.kind for decision in replies] == ["assigned", "assigned"]


async def _said(bus: Bus, what: str, many: int) -> bool:
    return len(await read_messages(bus, [f"admit.workload.{what}.>"])) >= many


async def test_plans_and_rechecks_are_repeated_equally(
    cluster: Cluster,
    bus: Bus,
    jobs: Jobs,
) -> None:
    for service in ("workload-controller", "scheduler"):
        await cluster.start(service)
    checks = [
        admission_check(name, f"ctl-{name}", preemptionPolicy=policy)
        for name, policy in (("now", "Anytime"), ("late", "AfterCheckPassedOrOnDemand"))
    ]
    lower = {"withinClusterQueue": "LowerPriority"}
    asks: dict[str, Any] = {"admissionChecks": ["now", "late"]}
    await apply(bus, *checks, *queues("cq", cpu=4, preemption=lower, **asks))
    small = [a_manifest(f"s{n}", queue="lq-cq", requests={"cpu": "1"}) for n in range(4)]
    await submit(bus, small)
    await eventually(lambda: _said(bus, "admitted", 4))
    jobs.checks_pass = False
    await submit(bus, [a_manifest("big", queue="lq-cq", requests={"cpu": "3"}, priority=5)])
    await eventually(lambda: _said(bus, "quota_reserved", 5))
    big = await workload(bus, "big")
    assert big is not None and big.status.pending_preemption is not None
    pending = big.status.pending_preemption
    await jobs.finish(pending.victims[0].name)
    await eventually(lambda: _said(bus, "planned", 1))
    jobs.checks_pass = True
    await eventually(lambda: _said(bus, "admitted", 5))
    assert await _said(bus, "preempted", 2)
    # A reservation that a cut takes back, with its verdicts on the way.
    jobs.checks_pass = False
    await jobs.finish("big")
    await eventually(lambda: _said(bus, "quota_reserved", 7))
    await apply(bus, *queues("cq", cpu=1, preemption=lower, **asks))
    await eventually(lambda: _said(bus, "revoked", 1))
    jobs.checks_pass = True
    await asyncio.sleep(1.5)  # longer than a refusal waits to be said

    said = await read_messages(bus, [f"admit.workload.{what}.>" for what in sorted(FENCED)])
    replies = await same(bus, [message.sequence for message in said])
    kinds = {decision.kind for decision in replies}
    assert kinds >= {"assigned", "planned", "preempted", "confirmed", "revoked"}
