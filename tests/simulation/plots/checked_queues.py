"""Queues with checks of single flavors, beside those of the whole queue."""

from __future__ import annotations

from random import Random

from simulation.plots.configuration import Manifests, Queues, Spec, cpu, manifest


class CheckedQueues(Queues):
    """One or two queues with checks of single flavors, by controllers that share names
    now and then, with retry strategies, timeouts and both preemption policies."""

    def __init__(self, rng: Random) -> None:
        self.specs: dict[str, Spec] = {}
        self.parameters: dict[str, str] = {}
        super().__init__(rng)
        self.checks = ["k0", "k1", "k2"]
        self.clear("c0")
        for _ in range(rng.choice((1, 1, 2))):
            self.add(self.queue())

    def queue(self) -> Spec:
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

    def check(self, name: str) -> Spec:
        rng = self.rng
        if name in self.specs:
            return self.specs[name]
        spec: Spec = {"controllerName": f"ctl-{name}"}
        if name == "k2" and rng.random() < 0.3:
            spec["controllerName"] = "ctl-k0"
        if rng.random() < 0.4:
            spec["preemptionPolicy"] = "AfterCheckPassedOrOnDemand"
        if rng.random() < 0.3:
            spec["retry"] = self.retry()
        if rng.random() < 0.3:
            spec["checkTimeoutSeconds"] = rng.choice((1, 4, 15))
        if rng.random() < 0.3:
            spec["parameters"] = {
                "apiGroup": "kueue.x-k8s.io",
                "kind": "ProvisioningRequestConfig",
                "name": f"p-{name}",
            }
            self.parameters[f"p-{name}"] = "first"
        self.specs[name] = spec
        return spec

    def all(self) -> Manifests:
        manifests = super().all()
        return manifests + [self._parameters(name) for name in self.parameters]

    def _parameters(self, name: str) -> Spec:
        spec = {"provisioningClassName": self.parameters[name]}
        return manifest("ProvisioningRequestConfig", name, spec)

    def _other_parameters(self) -> Manifests:
        """The object that some check has its parameters in goes, comes or changes."""
        name = self.rng.choice(sorted(self.parameters))
        if self.rng.random() < 0.5:
            return [{"delete": f"provisioningrequestconfig.{name}"}]
        self.parameters[name] = self.rng.choice(("first", "second"))
        return [self._parameters(name)]

    def retry(self) -> Spec:
        """The delay of a Retry for which the controller names no delay."""
        rng = self.rng
        spec: Spec = {
            "strategy": rng.choice(("static", "backoff")),
            "baseDelay": rng.choice(("1s", "3s")),
            "factor": rng.choice((1.0, 2.0)),
            "jitter": rng.choice((0.0, 0.5)),
        }
        if rng.random() < 0.5:
            spec["maxDelay"] = "5s"
        if rng.random() < 0.3:
            spec["maxRetries"] = rng.choice((0, 1, 3))
        return spec

    def repaired(self) -> Manifests:
        """All manifests, as good as they can be: nothing is stopped, and there is room for all."""
        self.repair()
        return self.snapshot()

    def repair(self) -> None:
        """Starts what is stopped, and makes room for all."""
        for spec in self.queues.values():
            spec.pop("stopPolicy", None)
            spec["admissionChecks"] = spec["admissionChecks"][:1]
            offered = spec["resourceGroups"][0]["flavors"]
            have = {flavor["name"] for flavor in offered}
            offered += [{"name": name} for name in self.flavors if name not in have]
            for flavor in offered:
                if len(flavor.get("admissionChecks", ())) > 1:
                    flavor["admissionChecks"] = ["k1"]
                flavor["resources"] = cpu(40)
        for local in self.locals.values():
            local.pop("stopPolicy", None)
        self.trees = {"c0": {}}

    def beat(self, *, active: bool) -> Manifests:
        """The controller of a check sends heartbeats again, or stops sending them."""
        return [{"beat": {"check": self.rng.choice(self.checks), "active": active}}]

    def edit(self) -> Manifests:
        rng = self.rng
        if rng.random() < 0.05:
            return [{"delete": f"admissioncheck.{rng.choice(self.checks)}"}]
        if self.parameters and rng.random() < 0.3:
            return self._other_parameters()
        if rng.random() < 0.6:
            return super().edit()
        if rng.random() < 0.5:
            name = rng.choice(self.checks)
            spec = self.check(name)
            spec.pop("retry", None)
            if rng.random() < 0.5:
                spec["retry"] = self.retry()
            return [manifest("AdmissionCheck", name, spec)]
        name = rng.choice(sorted(self.queues))
        spec = self.queues[name]
        for flavor in spec["resourceGroups"][0]["flavors"]:
            flavor.pop("admissionChecks", None)
            if rng.random() < 0.5:
                flavor["admissionChecks"] = rng.choice((["k1"], ["k2"]))
        spec["admissionChecks"] = rng.choice(([], ["k0"], ["k1"], ["k0", "k1"]))
        return [manifest("ClusterQueue", name, spec)]
