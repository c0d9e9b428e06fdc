"""Workloads in the hands of checks, some of which are a flavor's own, and what goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from random import Random
from typing import Any

from admittance.events import facts
from admittance.simulation.actors.checks import Outage, Tempers
from admittance.simulation.configuration import NAMESPACE, Queues, manifest
from admittance.simulation.courses import Courses
from admittance.simulation.scenario import (
    CALM_SECONDS,
    Applying,
    Saying,
    Scenario,
    faults,
    skews,
    workload_of,
)
from admittance.workload.limits import Limits, PodsReadyLimits


class Checked(Queues):
    """One or two queues whose flavors have checks of their own, by controllers that share names
    now and then, with retry strategies, timeouts and both preemption policies."""

    def __init__(self, rng: Random) -> None:
        self.specs: dict[str, dict[str, Any]] = {}
        super().__init__(rng)
        self.checks = ["k0", "k1", "k2"]
        self.cohorts = ["c0"]
        self.trees = {"c0": {}}
        self.queues, self.locals = {}, {}
        for number in range(rng.choice((1, 1, 2))):
            self.queues[f"q{number}"] = self.queue()
            self.locals[f"l{number}"] = {"clusterQueue": f"q{number}"}

    def queue(self) -> dict[str, Any]:
        rng = self.rng
        spec = super().queue()
        if len(self.checks) < 3:
            return spec
        spec["queueingStrategy"] = "BestEffortFIFO"
        spec["preemption"] = self.preemption()
        spec["admissionChecks"] = rng.choice(([], ["k0"], ["k0"], ["k0", "k1"]))
        for flavor in spec["resourceGroups"][0]["flavors"]:
            if rng.random() < 0.4:
                flavor["admissionChecks"] = rng.choice((["k1"], ["k2"], ["k1", "k2"]))
        return spec

    def check(self, name: str) -> dict[str, Any]:
        rng = self.rng
        if name in self.specs:
            return self.specs[name]
        spec: dict[str, Any] = {"controllerName": f"ctl-{name}"}
        if name == "k2" and rng.random() < 0.3:
            spec["controllerName"] = "ctl-k0"
        if rng.random() < 0.4:
            spec["preemptionPolicy"] = "AfterCheckPassedOrOnDemand"
        if rng.random() < 0.3:
            spec["retry"] = self.retry()
        if rng.random() < 0.3:
            spec["checkTimeoutSeconds"] = rng.choice((1, 4, 15))
        self.specs[name] = spec
        return spec

    def retry(self) -> dict[str, Any]:
        """When to come back where a controller does not say."""
        rng = self.rng
        found: dict[str, Any] = {
            "strategy": rng.choice(("static", "backoff")),
            "baseDelay": rng.choice(("1s", "3s")),
            "factor": rng.choice((1.0, 2.0)),
            "jitter": rng.choice((0.0, 0.5)),
        }
        if rng.random() < 0.5:
            found["maxDelay"] = "5s"
        if rng.random() < 0.3:
            found["maxRetries"] = rng.choice((0, 1, 3))
        return found

    def healed(self) -> list[dict[str, Any]]:
        """Everything as good as it can be: nothing is stopped, and there is room for all."""
        for spec in self.queues.values():
            spec.pop("stopPolicy", None)
            spec["admissionChecks"] = spec["admissionChecks"][:1]
            offered = spec["resourceGroups"][0]["flavors"]
            have = {flavor["name"] for flavor in offered}
            offered += [{"name": name} for name in self.flavors if name not in have]
            for flavor in offered:
                if len(flavor.get("admissionChecks", ())) > 1:
                    flavor["admissionChecks"] = ["k1"]
                flavor["resources"] = [{"name": "cpu", "nominalQuota": 40}]
        for local in self.locals.values():
            local.pop("stopPolicy", None)
        self.trees = {"c0": {}}
        return self.all()

    def beat(self, *, active: bool) -> list[dict[str, Any]]:
        """The controller of a check is heard again, or no more."""
        return [{"beat": {"check": self.rng.choice(self.checks), "active": active}}]

    def edit(self) -> list[dict[str, Any]]:
        rng = self.rng
        if rng.random() < 0.05:
            return [{"delete": f"admissioncheck.{rng.choice(self.checks)}"}]
        if rng.random() < 0.6:
            return super().edit()
        if rng.random() < 0.5:
            name = rng.choice(self.checks)
            spec = self.check(name)
            spec.pop("retry", None)
            if rng.random() < 0.5:
                spec["retry"] = self.retry()
            return [manifest("AdmissionCheck", name, dict(spec))]
        name = rng.choice(sorted(self.queues))
        spec = self.queues[name]
        for flavor in spec["resourceGroups"][0]["flavors"]:
            flavor.pop("admissionChecks", None)
            if rng.random() < 0.5:
                flavor["admissionChecks"] = rng.choice((["k1"], ["k2"]))
        spec["admissionChecks"] = rng.choice(([], ["k0"], ["k1"], ["k0", "k1"]))
        return [manifest("ClusterQueue", name, dict(spec))]


def checked(rng: Random) -> Scenario:
    """Few workloads in the hands of checks that judge, turn and fall silent, of jobs that are late
    and deaf, and of users and admins who do something in the middle."""
    queues = Checked(rng)
    span = rng.choice((0.5, 6.0, 20.0))
    sayings: list[Saying] = []
    names = [f"w{number}" for number in range(rng.randint(1, 5))]
    for name in names:
        at = 1.0 + rng.random() * span
        local = rng.choice(sorted(queues.locals))
        raw = workload_of(rng, name, local, most=rng.choice((None, None, None, 3, 8)), sides=0.2)
        sayings.append(Saying(at, facts.Submitted(namespace=NAMESPACE, name=name, workload=raw)))
        for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
            at += rng.random() * rng.choice((0.05, 1.0, 15.0))
            sayings += list(_meddling(rng, name, at))
    manifests = json.loads(json.dumps(queues.all()))
    applyings = []
    at = 2.0
    for _ in range(rng.choice((0, 0, 1, 1, 2, 4))):
        at += rng.random() * rng.choice((0.3, 2.0, 15.0))
        applyings.append(Applying(at, json.loads(json.dumps(queues.edit()))))
    if rng.random() < 0.3:
        at = 1.0 + rng.random() * 15.0
        for active in rng.choice(((False, True), (False,), (True, False, True))):
            applyings.append(Applying(at, queues.beat(active=active)))
            at += rng.random() * 8.0
    applyings.append(Applying(CALM_SECONDS, json.loads(json.dumps(queues.healed()))))
    for check in queues.checks:
        beat = {"beat": {"check": check, "active": True}}
        applyings.append(Applying(CALM_SECONDS + 1.0, [beat]))
    for name in names:
        me: dict[str, Any] = {"namespace": NAMESPACE, "name": name}
        sayings.append(Saying(CALM_SECONDS + 2.0, facts.Released(**me)))
        sayings.append(Saying(CALM_SECONDS + 4.0, facts.Activated(**me)))
    outages = [
        Outage(rng.random() * 30.0, rng.choice((0, 1)), rng.random() * 15.0)
        for _ in range(rng.choice((0, 0, 1, 3)))
    ]
    return Scenario(
        manifests,
        sayings,
        applyings,
        faults(rng)[: rng.choice((0, 1, 2, 6))],
        skews(rng),
        limits=_limits(rng),
        heals=True,
        tempers=Tempers(
            rejected=rng.choice((0.2, 1.5)),
            never=rng.choice((0.3, 2.0)),
            turns=rng.choice((1.0, 4.0)),
            demands=rng.choice((0.0, 1.0)),
            foreign=0.05,
            updates=rng.choice((0.0, 0.5)),
        ),
        outages=tuple(outages),
        lost_timers=(rng.random() * 40.0,) if rng.random() < 0.2 else (),
        courses=Courses(
            slow=rng.choice((0.0, 0.4)),
            flapping=rng.choice((0.0, 0.3)),
            deaf=rng.choice((0.0, 0.2)),
        ),
    )


def _meddling(rng: Random, name: str, at: float) -> Iterator[Saying]:
    """What a user does to a workload in the middle of its life."""
    me: dict[str, Any] = {"namespace": NAMESPACE, "name": name}
    match rng.choice(("stop", "stop", "stop", "hold", "priority", "delete", "finish")):
        case "stop":
            yield Saying(at, facts.Deactivated(**me))
            if rng.random() < 0.85:
                yield Saying(at + rng.random() * rng.choice((0.1, 6.0)), facts.Activated(**me))
        case "hold":
            yield Saying(at, facts.Held(**me))
            yield Saying(at + rng.random() * 5.0, facts.Released(**me))
        case "priority":
            yield Saying(at, facts.Reprioritized(**me, priority=rng.randint(-2, 3)))
        case "delete" if rng.random() < 0.5:
            yield Saying(at, facts.Deleted(**me))
        case "finish" if rng.random() < 0.3:
            yield Saying(at, facts.Finished(**me))


def _limits(rng: Random) -> Limits:
    drain = timedelta(seconds=rng.choice((6.0, 20.0, 300.0)))
    if rng.random() < 0.6:
        return Limits(drain=drain, requeue_after=rng.random() < 0.9)
    waiting = PodsReadyLimits(
        timeout=timedelta(seconds=rng.choice((2.0, 8.0, 40.0))),
        recovery=rng.choice((None, timedelta(seconds=3.0))),
        block_admission=rng.random() < 0.3,
        backoff_limit=rng.choice((None, 0, 1, 2)),
        backoff_base=rng.choice((1, 5)),
        backoff_max=rng.choice((4, 60)),
    )
    return Limits(drain=drain, pods_ready=waiting, requeue_after=rng.random() < 0.9)
