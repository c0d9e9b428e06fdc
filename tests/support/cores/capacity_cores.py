"""The cores with a clock, the provisioning check's core, and a provider that the test answers for.
The check's steps are performed at once; between any two steps the check may start anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from admittance.api.kinds import OBJECT_KINDS
from admittance.events import facts, provisioning
from admittance.events.provisioning import (
    ProvisioningCancelled,
    ProvisioningFact,
    ProvisioningRequested,
    ProvisioningStatus,
)
from admittance.provisioning.core import ProvisioningCore
from admittance.provisioning.observed_state import CONTROLLER
from admittance.provisioning.records import Record
from admittance.provisioning.steps import Step, VerdictReport
from admittance.scheduling.state.config import Config
from admittance.workload.bucket_reader import names_of
from admittance.workload.limits import Limits
from admittance.workload.stored import StoredWorkload
from support.builders import an_object
from support.cores.stepped_scheduler import groups
from support.cores.timed_cores import TimedCores

CHECK = "capacity"
CLASS = "class"


class CapacityCores(TimedCores):
    """``wanted``: the published requests; ``freed``: the ids of cancelled requests, once for each
    message. ``booked``: the ids of provisioned requests. ``verdicts``: verdicts of the check, in
    order. ``ignored``: ids of answers without an effect, with the reason. ``patience``: seconds
    that a provider gets. ``restarts``: the check starts anew between any two of its steps."""

    def __init__(
        self,
        config: Config | None = None,
        limits: Limits | None = None,
        *,
        patience: float | None = None,
        restarts: bool = False,
    ) -> None:
        self.patience = timedelta(seconds=patience) if patience is not None else None
        self.restarts = restarts
        self.bucket: dict[tuple[str, str], tuple[Record | None, int]] = {}
        self.written = 0
        self.wanted: list[ProvisioningRequested] = []
        self.freed: list[str] = []
        self.booked: set[str] = set()
        self.verdicts: list[tuple[str, VerdictReport]] = []
        self.ignored: list[tuple[str, str]] = []
        self._last: Step | None = None
        self.capacity = ProvisioningCore(self.patience)
        super().__init__(config, limits)

    # The check. -----------------------------------------------------------------------------

    def _object_changed(self, key: str, revision: int) -> None:
        super()._object_changed(key, revision)
        self._learns(key)

    def _learns(self, key: str) -> None:
        observed = self.capacity.observed
        kept = self.controller.objects.get(key)
        manifest = kept.object if kept is not None else None
        prefix, _, name = key.partition(".")
        match OBJECT_KINDS.get(prefix):
            case "AdmissionCheck":
                observed.check(name, manifest)
            case "ProvisioningRequestConfig":
                observed.config(name, manifest)
            case "ResourceFlavor":
                observed.flavor(name, manifest)

    def saw(self, key: str, before: StoredWorkload | None, after: StoredWorkload | None) -> None:
        super().saw(key, before, after)
        self.capacity.observed.workload(names_of(key), after)

    def step(self) -> None:
        self.capacity.mark_overdue(self.now)
        for _ in range(200):
            steps = list(self.capacity.steps(self.now))
            if not steps:
                return
            for step in steps:
                self._perform(step)
                if self.restarts and step != self._last:
                    # Once: each new leader publishes open statuses again.
                    self._last = step
                    self.restart_check()
                    break
        raise AssertionError("the check does not come to rest")

    def _perform(self, step: Step) -> None:
        if step.write is not None:
            key = step.slot.namespace, step.write.name
            _, stands = self.bucket.get(key, (None, 0))
            if stands != step.write.expected:
                record, _ = self.bucket[key]
                if record is not None:
                    self.capacity.observed.record(key, record, stands)
                else:
                    self.capacity.observed.marked(step.slot, key[1], stands)
                self.capacity.failed(step)
                return
            self.keep(key, step.write.record)
        if step.fact is not None:
            self._provider_reads(step.fact)
        if step.report is not None:
            self._tells(step.slot.workload, step.slot.check, step.report)
        self.capacity.done(step, self.written)

    def _tells(self, name: str, check: str, tell: VerdictReport) -> None:
        self.verdicts.append((name, tell))
        answer = tell.verdict
        self.publish(
            facts.CheckReported,
            name,
            controller=CONTROLLER,
            check=check,
            cycle=tell.reservation.cycle,
            state=answer.state,
            message=answer.message,
            requeue_after_seconds=answer.after,
            pod_set_updates=answer.updates,
            uid=tell.reservation.uid,
        )

    def keep(self, key: tuple[str, str], record: Record | None) -> None:
        """Stores the value in the bucket without an event."""
        self.written += 1
        self.bucket[key] = record, self.written

    def edit_record(self, name: str, record: Record | None) -> None:
        """Writes or deletes the record as another client, and lets the check read the change."""
        key = self.namespace, name
        self.keep(key, record)
        self.capacity.observed.record(key, record, self.written)
        self.go()

    def restart_check(self) -> None:
        """Restarts the check from the stored objects."""
        self.capacity = ProvisioningCore(self.patience)
        for object_key, _ in self.controller.objects:
            self._learns(object_key)
        for request, (record, revision) in self.bucket.items():
            if record is not None:
                self.capacity.observed.record(request, record, revision)
        for key, known in self.controller.workloads.items():
            self.capacity.observed.workload(names_of(key), known.workload)

    def wakes(self) -> Iterator[datetime]:
        yield from super().wakes()
        deadline = self.capacity.next_deadline()
        if deadline is not None:
            yield deadline

    # The provider. --------------------------------------------------------------------------

    def _provider_reads(self, fact: ProvisioningFact) -> None:
        if isinstance(fact, ProvisioningRequested):
            self.wanted.append(fact)
        elif isinstance(fact, ProvisioningCancelled):
            self.freed.append(fact.id)
            self.booked.discard(fact.id)

    def ids(self, name: str = "") -> list[str]:
        """The ids of the published requests, each once, in order."""
        return list(
            dict.fromkeys(request.id for request in self.wanted if name in ("", request.name))
        )

    def provider(self, kind: type[ProvisioningStatus], id: str = "", **fields: Any) -> str:
        """Applies an answer of the provider to the request ``id`` (by default the newest), and runs
        all cores until they are idle. Returns the reason why the answer has no effect; "": it has
        one."""
        asked = [request for request in self.wanted if id in ("", request.id)][-1]
        about = {"namespace": asked.namespace, "name": asked.name, "uid": asked.uid}
        fields = {"provisioning_class": asked.provisioning_class, **about, **fields}
        fact = kind(**{"id": asked.id, **fields})
        if kind is provisioning.Provisioned and fact.id not in self.freed:
            self.booked.add(fact.id)
        step, why = self.capacity.apply_status(fact, self.now)
        if step is not None:
            self._perform(step)
        else:
            self.ignored.append((fact.id, why))
        self.go()
        return why

    def provisioned(self, id: str = "", **fields: Any) -> str:
        """The provider answers that the capacity is provisioned."""
        return self.provider(provisioning.Provisioned, id, **fields)

    def fails(self, id: str = "", **fields: Any) -> str:
        """The provider answers that it has no capacity."""
        return self.provider(provisioning.ProvisioningFailed, id, **fields)

    # Looking. -------------------------------------------------------------------------------

    def records(self) -> list[str]:
        """The names of the stored requests."""
        return sorted(name for (_, name), (record, _) in self.bucket.items() if record is not None)

    def record(self, name: str) -> Record:
        """The stored request."""
        record, _ = self.bucket[self.namespace, name]
        assert record is not None
        return record

    def configure(self, name: str = "config", **spec: Any) -> None:
        """Applies the ProvisioningRequestConfig. ``limit``, ``base``: of its retries."""
        retry = {
            "backoffLimitCount": spec.pop("limit", 3),
            "backoffBaseSeconds": spec.pop("base", 60),
            "backoffMaxSeconds": 1800,
        }
        spec = {"provisioningClassName": CLASS, "retryStrategy": retry, **spec}
        self.put("ProvisioningRequestConfig", name, spec)

    def capacity_check(self, name: str = CHECK, config: str = "config") -> None:
        """Applies an AdmissionCheck that requests capacity."""
        reference = {
            "apiGroup": "kueue.x-k8s.io",
            "kind": "ProvisioningRequestConfig",
            "name": config,
        }
        self.check(name, CONTROLLER, parameters=reference)

    def work(self, name: str, pod_sets: list[dict[str, Any]], **annotations: str) -> None:
        """Submits a workload of these pod sets, and runs all cores until they are idle."""
        given = {f"provreq.kueue.x-k8s.io/{key}": value for key, value in annotations.items()}
        spec = {"queueName": "cq", "podSets": pod_sets}
        meta = {"annotations": given}
        self.submit_manifest(an_object("Workload", name, spec, self.namespace, metadata=meta))
        self.go()


def a_pod_set(
    name: str = "main", count: int = 1, cpu: str = "1", image: str = "i", **spec: Any
) -> dict[str, Any]:
    """Pods of one container."""
    container = {"name": "c", "image": image, "resources": {"requests": {"cpu": cpu}}}
    return {
        "name": name,
        "count": count,
        "template": {"spec": {"containers": [container], "restartPolicy": "Never", **spec}},
    }


def cores_with_capacity(
    *, nominal: str = "10", per_flavor: dict[str, str] | None = None, **spec: Any
) -> CapacityCores:
    """One queue ``cq`` whose check ``capacity`` asks the class ``class``. ``per_flavor``: what it
    offers of which flavor, the check being that of ``spot`` alone. The rest is for the
    ProvisioningRequestConfig, or for the cores."""
    mine = {key: spec.pop(key) for key in ("patience", "restarts", "limits") if key in spec}
    cores = CapacityCores(**mine)
    cores.configure(**spec)
    cores.capacity_check()
    if per_flavor is None:
        cores.queue("cq", resourceGroups=groups(default=nominal), admissionChecks=[CHECK])
        return cores
    (group,) = groups(**per_flavor)
    for flavor in group["flavors"]:
        cores.put("ResourceFlavor", flavor["name"], {"nodeLabels": {"kind": flavor["name"]}})
        if flavor["name"] == "spot":
            flavor["admissionChecks"] = [CHECK]
    cores.queue("cq", resourceGroups=[group])
    return cores
