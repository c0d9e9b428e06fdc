"""Workloads that need capacity which somebody has to provide, beside checks of other kinds."""

from __future__ import annotations

from random import Random
from typing import Any

from admittance.provisioning.observed_state import CONTROLLER, GROUP, KIND
from simulation import checked as other
from simulation.checked_queues import Checked
from simulation.configuration import manifest
from simulation.provider import CLASS
from simulation.scenario import PROVIDED_SERVICES, Scenario, faults, skews

CONFIG = "p0"


class Provided(Checked):
    """``k0`` asks for capacity. Its configuration changes now and then."""

    def check(self, name: str) -> dict[str, Any]:
        if name != "k0":
            spec = super().check(name)
            if spec["controllerName"] == "ctl-k0":
                spec["controllerName"] = "ctl-k2"
            return spec
        if name not in self.specs:
            reference = {"apiGroup": GROUP, "kind": KIND, "name": CONFIG}
            self.specs[name] = {"controllerName": CONTROLLER, "parameters": reference}
        return self.specs[name]

    def config(self) -> dict[str, Any]:
        """What is asked of the provider from now on."""
        retry = {
            "backoffLimitCount": self.rng.choice((0, 1, 3)),
            "backoffBaseSeconds": self.rng.choice((1, 3)),
            "backoffMaxSeconds": 6,
        }
        spec: dict[str, Any] = {"provisioningClassName": CLASS, "retryStrategy": retry}
        if self.rng.random() < 0.5:
            spec["parameters"] = {"zone": self.rng.choice(("a", "b"))}
        if self.rng.random() < 0.1:
            spec["managedResources"] = ["example.com/gpu"]
        return manifest(KIND, CONFIG, spec)

    def all(self) -> list[dict[str, Any]]:
        return [self.config(), *super().all()]

    def edit(self) -> list[dict[str, Any]]:
        kind = self.rng.random()
        if kind < 0.3:
            return [self.config()]
        if kind < 0.35:
            return [{"delete": f"provisioningrequestconfig.{CONFIG}"}]
        return super().edit()


def provided(rng: Random) -> Scenario:
    """As where checks judge, with one that asks a provider for capacity."""
    base = other.checked(rng, Provided)
    found = faults(rng, PROVIDED_SERVICES)
    found += [one._replace(who=rng.choice(("p-a", "p-b"))) for one in faults(rng)[:2]]
    return base._replace(
        services=PROVIDED_SERVICES, faults=found, skews=skews(rng, PROVIDED_SERVICES)
    )


__all__ = ["provided"]
