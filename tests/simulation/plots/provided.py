"""Workloads that need capacity that a provider has to book, beside checks of other kinds."""

from __future__ import annotations

from random import Random

from admittance.provisioning.machine_pool import KIND as POOL
from admittance.provisioning.observed_state import CONTROLLER, GROUP, KIND
from simulation.environment.provider import CLASS
from simulation.plots import checked as other
from simulation.plots.checked_queues import CheckedQueues
from simulation.plots.configuration import Manifests, Spec, manifest
from simulation.plots.scenario import (
    PROVIDED_SERVICES,
    SERVICES,
    AdminChange,
    Scenario,
    faults,
    skews,
)

CONFIG = "p0"
POOLS = ("pool-a", "pool-b")
UNRELIABLE = ("m-a", "m-b")


class ProvidedQueues(CheckedQueues):
    """``k0`` asks for capacity. Its configuration changes now and then. ``pooled``: the capacity is
    a pool of machines, and changes, too."""

    def __init__(self, rng: Random) -> None:
        self.pooled, self.ample = rng.random() < 0.5, False
        super().__init__(rng)

    def check(self, name: str) -> Spec:
        if name != "k0":
            spec = super().check(name)
            if spec["controllerName"] == "ctl-k0":
                spec["controllerName"] = "ctl-k2"
            return spec
        if name not in self.specs:
            reference = {"apiGroup": GROUP, "kind": KIND, "name": CONFIG}
            self.specs[name] = {"controllerName": CONTROLLER, "parameters": reference}
        return self.specs[name]

    def config(self) -> Spec:
        """The configuration of requests to the provider from now on."""
        retry = {
            "backoffLimitCount": self.rng.choice((0, 1, 3)),
            "backoffBaseSeconds": self.rng.choice((1, 3)),
            "backoffMaxSeconds": 6,
        }
        spec: Spec = {"provisioningClassName": CLASS, "retryStrategy": retry}
        if self.rng.random() < 0.5:
            spec["parameters"] = {"zone": self.rng.choice(("a", "b"))}
        if self.rng.random() < 0.1:
            spec["managedResources"] = ["example.com/gpu"]
        return manifest(KIND, CONFIG, spec)

    def pool(self) -> Manifests:
        """The machines that are there from now on; in the end enough for all, at once."""
        rng, ample = self.rng, self.ample
        machines = {
            "name": "m0",
            "count": 60 if ample else rng.choice((0, 1, 2, 4, 8)),
            "bootSeconds": 0 if ample else rng.choice((0, 0, 1, 12)),
            "resources": {"cpu": 9 if ample else rng.choice((2, 4, 9))},
        }
        spec = {
            "provisioningClassName": CLASS,
            "bookingSeconds": 0 if ample else rng.choice((0, 0, 2, 20)),
            "machines": [machines],
        }
        made = manifest(POOL, "pool", spec) | {"apiVersion": "admittance.dev/v1"}
        return [made] if self.pooled else []

    def empty(self) -> Manifests:
        """All machines are taken away."""
        (pool,) = self.pool()
        pool["spec"]["machines"][0]["count"] = 0
        return [pool]

    def all(self) -> Manifests:
        return [self.config(), *self.pool(), *super().all()]

    def repair(self) -> None:
        self.ample = True
        super().repair()

    def edit(self) -> Manifests:
        kind = self.rng.random()
        if kind < 0.3:
            return [self.config()]
        if kind < 0.35:
            return [{"delete": f"provisioningrequestconfig.{CONFIG}"}]
        if self.pooled and kind < 0.6:
            return self.pool()
        return super().edit()


def provided(rng: Random) -> Scenario:
    """A scenario of `checked` with one more check that requests capacity from a provider."""
    made: list[ProvidedQueues] = []

    def queues(rng: Random) -> ProvidedQueues:
        made.append(ProvidedQueues(rng))
        return made[0]

    base = other.checked(rng, queues)
    pooled = made[0].pooled
    if pooled:
        base = base._replace(admin_changes=base.admin_changes + _shrinking(rng, made[0]))
    services = PROVIDED_SERVICES + (POOLS if pooled else UNRELIABLE)
    drawn = faults(rng, services)
    drawn += [
        fault._replace(target=rng.choice(services[len(SERVICES) :])) for fault in faults(rng)[:3]
    ]
    return base._replace(services=services, faults=drawn, skews=skews(rng, services))


def _shrinking(rng: Random, queues: ProvidedQueues) -> list[AdminChange]:
    """The pool loses its machines, also those that are booked, and gets others later."""
    drawn = []
    queues.ample = False
    for _ in range(rng.choice((0, 2, 4))):
        at = 2.0 + rng.random() * rng.choice((5.0, 15.0, 30.0))
        drawn += [
            AdminChange(at, queues.empty()),
            AdminChange(at + rng.random() * 3.0, queues.pool()),
        ]
    return drawn
