"""Families in cores with a clock: one ClusterQueue ``cq`` with gpus of several flavors, regular
workloads that fill some of them, and the state of a family in one line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from admittance.api.fields.units import amount
from admittance.events import facts
from admittance.scheduling.state.config import Config
from admittance.workload.conditions import is_true
from admittance.workload.limits import Limits
from admittance.workload.stored import StoredWorkload, head
from admittance.workload_controller.workload_metrics import WorkloadMetrics
from simulation.invariants.quota import charged
from support.builders import a_manifest, resource_groups
from support.cores.families.family_queues import family_policy
from support.cores.timed_cores import TimedCores

GPU = "gpu"
LOWER = {"withinClusterQueue": "LowerPriority"}
"""Preemption of workloads of lower priority in the same queue."""


class Row(NamedTuple):
    """The state of a family. ``on``: the flavor of the admitted parent; "": not admitted.
    ``active``: the active variants, the best first; ``mig``: migrations so far; ``starts``: of the
    job; ``used``: the scheduler's count for each flavor in the queue's order."""

    on: str
    active: str
    mig: int
    starts: int
    used: str


class FamilyCores(TimedCores):
    """``levels``: the quota held of each flavor and resource, with the second since when; a family
    counts once. ``actives``: the active variants of each family, with the second since when.
    ``restarts``: all cores start anew between any two steps. ``loses_decisions``: every decision is
    lost once, and its scheduler starts anew. ``slow_controller``: the workload-controller reads
    decisions only when the scheduler has nothing more to decide."""

    def __init__(self, config: Config | None = None, limits: Limits | None = None) -> None:
        self.levels: list[tuple[float, dict[tuple[str, str], int]]] = []
        self.actives: dict[str, list[tuple[float, str]]] = {}
        self.restarts = False
        self.loses_decisions = False
        self.slow_controller = False
        self._heard_of: dict[int, str] = {}
        self._late: list[facts.Decision] = []
        self.offered: dict[str, Any] = {}
        self._cycles = 0
        self._restarted = 0
        self._made: set[tuple[type[facts.Decision], str, int]] = set()
        self._tried: dict[str, list[int]] = {}
        super().__init__(config, limits)

    # Configuration. -------------------------------------------------------------------------

    def offer(self, flavors: Mapping[str, int | str], **spec: Any) -> None:
        """``cq`` offers so much gpu of each flavor, in this order, the best first. ``checks``:
        flavor to the names of its checks."""
        checks: Mapping[str, Sequence[str]] = spec.pop("checks", {})
        for name in flavors:
            self.put("ResourceFlavor", name)
            for check in checks.get(name, ()):
                if self.object_at("AdmissionCheck", check) is None:
                    self.check(check)
        self.edit_queue(resourceGroups=resource_groups(flavors, GPU, checks), **spec)

    def edit_queue(self, **spec: Any) -> None:
        """Replaces these fields of the spec of ``cq``; None removes a field."""
        whole = {**self.offered, **spec}
        self.offered = {name: value for name, value in whole.items() if value is not None}
        self.queue("cq", **self.offered)

    def nominal(self) -> dict[tuple[str, str], int]:
        """Flavor and resource to the quota of ``cq``, in accounting units."""
        return {
            (flavor["name"], resource["name"]): amount(resource["name"], resource["nominalQuota"])
            for group in self.offered["resourceGroups"]
            for flavor in group["flavors"]
            for resource in flavor["resources"]
        }

    def flavors(self) -> list[str]:
        """The flavors that ``cq`` offers, in order."""
        return [
            flavor["name"]
            for group in self.offered["resourceGroups"]
            for flavor in group["flavors"]
        ]

    def policy(
        self,
        mode: str = "UpgradeOnly",
        floor: str = "",
        explicit: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Makes the workloads of ``cq`` families. ``floor``: minFlavor, or minVariant."""
        self.edit_queue(concurrentAdmission=family_policy(mode, floor, explicit))

    # What happens. --------------------------------------------------------------------------

    def job(
        self,
        name: str = "j",
        gpu: int = 4,
        *,
        queue: str = "cq",
        allowed: Sequence[str] | None = None,
        pods: Iterable[Mapping[str, Any]] | None = None,
        step_by_step: bool = False,
        **spec: Any,
    ) -> None:
        """A job of so many pods with a gpu each, and what follows at once, unless that is looked at
        ``step_by_step``. ``allowed``: the only flavors that it may have. ``pods``: its pod sets,
        said otherwise."""
        if allowed is not None:
            spec["admissionConstraints"] = {"allowedResourceFlavors": list(allowed)}
        if pods is not None:
            spec["podSets"] = list(pods)
        manifest = a_manifest(
            name, self.namespace, requests={GPU: "1"}, count=gpu, queue=queue, **spec
        )
        self.submit_manifest(manifest)
        if not step_by_step:
            self.go()

    def one_step(self) -> None:
        """Applies the orders of the variant-controller; without orders, runs one cycle."""
        if not self.orders_of_families():
            self.cycle(later=0)

    def submit_regular(self, name: str, flavor: str, gpu: int = 4, priority: int = 100) -> None:
        """Submits a regular workload on that flavor: a workload with ``minCount`` is never a
        family."""
        container = {"name": "c", "command": ["true"], "resources": {"requests": {GPU: "1"}}}
        template = {"spec": {"containers": [container]}}
        pods = {"name": "main", "count": gpu, "minCount": gpu, "template": template}
        self.job(name, pods=[pods], allowed=[flavor], priority=priority)

    def done(self, name: str) -> None:
        """Reports that the job has finished, and runs all cores until they are idle."""
        self.publish(facts.Finished, name, revision=self.stored(name).status.admitted_revision)
        self.go()

    def cycle(self, *, apply: bool = True, later: float = 1) -> list[facts.Decision]:
        self._cycles += 1
        if self.slow_controller:
            self._late += super().cycle(apply=False, later=later)
            if not self.scheduler.has_work():
                late, self._late = self._late, []
                for postponed in late:
                    self.apply(postponed)
            return []
        if not self.loses_decisions:
            return super().cycle(apply=apply, later=later)
        decisions = super().cycle(apply=False, later=later)
        made = {(type(decision), decision.name, decision.revision) for decision in decisions}
        if made - self._made:
            self._made |= made
            self.restart_scheduler()
            return []
        for decision in decisions:
            self.apply(decision)
        return decisions

    def in_vain(self) -> list[str]:
        """The decisions that were not applied, each with its workload and the reason."""
        return [
            f"{name}: {self.settled[sequence].reason}"
            for sequence, name in self._heard_of.items()
            if sequence in self.settled
        ]

    def by_hand(self, name: str, workload: StoredWorkload | None) -> None:
        """Writes to the bucket without a service, as a user might. None: deletes the key."""
        self.write(self.namespace, name, workload)

    @property
    def is_calm(self) -> bool:
        """No message is lost and no service restarts, so that attempts can be counted."""
        return not (
            self.restarts or self.loses_decisions or self.slow_variants or self.slow_controller
        )

    def apply(self, decision: facts.Decision) -> None:
        if isinstance(decision, facts.Assigned):
            self._tried.setdefault(decision.name, []).append(self._cycles)
        if not isinstance(decision, facts.Refused):
            self._heard_of[self.sequence + 1] = decision.name
        super().apply(decision)

    def attempts(self) -> int:
        """The number of cycles so far."""
        return self._cycles

    def assigned_in(self, name: str) -> int:
        """The number of the cycle that last assigned quota to it."""
        return self._tried[name][-1]

    def step(self) -> None:
        if self.restarts and self._restarted < self.revision:
            self._restarted = self.revision
            self.restart()

    def wrote(self) -> None:
        super().wrote()
        if not self.family_watch:
            return
        held = charged(self.workloads()).get("cq", {})
        before = self.levels[-1][1] if self.levels else {}
        if before != held:
            self.levels.append((self.seconds(), held))
            nominal = self.nominal()
            over = {
                cell: much
                for cell, much in held.items()
                if much > max(nominal.get(cell, 0), before.get(cell, 0))
            }
            assert not over or "cohortName" in self.offered, f"{over} of {nominal}"
        for parent in self.family_watch.parents.values():
            name = parent.metadata.name
            actives = self.actives.setdefault(name, [])
            active = self.active(name)
            if not actives or actives[-1][1] != active:
                actives.append((self.seconds(), active))

    # Looking. -------------------------------------------------------------------------------

    def variants(self, parent: str = "j") -> dict[str, StoredWorkload]:
        """Its variants by their tag, the best first."""
        uid = self.stored(parent).metadata.uid
        variants = self.family_watch.variants.get(uid, {}).values()
        ordered = sorted(variants, key=lambda variant: head(variant).sibling_index or 0)
        return {head(variant).variant: variant for variant in ordered}

    def active(self, parent: str = "j") -> str:
        """The tags of its active variants, the best first."""
        variants = self.variants(parent).items()
        return " ".join(tag for tag, variant in variants if head(variant).active)

    def why(self, parent: str = "j") -> dict[str, str]:
        """Tag of a variant to the reason in the parent's status why the variant is active or
        not."""
        return {row.variant: row.why for row in self.stored(parent).status.variants}

    def on(self, name: str = "j") -> str:
        """The flavor of the workload's gpus; "" if it is not admitted or has no gpus."""
        admission = self.stored(name).status.admission
        if admission is None or not is_true(self.stored(name), "Admitted"):
            return ""
        flavors = [assignment.flavors for assignment in admission.pod_set_assignments]
        return next((flavor[GPU] for flavor in flavors if GPU in flavor), "")

    def flavors_of(self, name: str) -> set[str]:
        """Every flavor in the workload's admission."""
        admission = self.stored(name).status.admission
        rows = admission.pod_set_assignments if admission is not None else ()
        return {flavor for row in rows for flavor in row.flavors.values()}

    def migrations(self, parent: str = "j") -> int:
        """How often its variants were evicted for a better one."""
        return sum(
            self.evictions(variant.metadata.name).get("FlavorMigration", 0)
            for variant in self.variants(parent).values()
        )

    def reserved(self, parent: str = "j") -> str:
        """The tags of its variants that hold a reservation and are not admitted."""
        return " ".join(
            tag
            for tag, variant in self.variants(parent).items()
            if variant.status.admission is not None and not is_true(variant, "Admitted")
        )

    def used(self, queue: str = "cq") -> str:
        """What is reserved of each flavor's gpus, in the queue's order."""
        cells = self.cells(queue)
        order = [flavor for flavor in self.flavors() if (flavor, GPU) in cells]
        return "/".join(str(cells[flavor, GPU]) for flavor in order)

    def row(self, parent: str = "j") -> Row:
        """The visible state of the family."""
        return Row(
            self.on(parent),
            self.active(parent),
            self.migrations(parent),
            self.starts(parent),
            self.used(),
        )

    def lived(self, name: str = "j") -> list[tuple[str, float]]:
        """When the workload's job started and stopped."""
        return [(what, at) for what, job, at in self.job_events if job == name and what != "freed"]

    def tallied(self, since: int = 0) -> WorkloadMetrics:
        """The workload-controller's metrics of all writes after the first ``since`` revisions."""
        tally = WorkloadMetrics()
        before: dict[str, StoredWorkload | None] = {}
        for number, (name, workload) in enumerate(self.revisions):
            if workload is not None and number >= since:
                tally.written(self.controller, before.get(name), workload)
            before[name] = workload
        return tally

    def considered(self) -> list[str]:
        """The workloads of the scheduler's decisions, in order."""
        return [decision.name for decision in self.decided]


def cores_with_families(
    flavors: Mapping[str, int | str],
    mode: str = "UpgradeOnly",
    floor: str = "",
    explicit: Sequence[Mapping[str, Any]] = (),
    *,
    foreign: Mapping[str, str] | None = None,
    config: Config | None = None,
    limits: Limits | None = None,
    restarts: bool = False,
    loses_decisions: bool = False,
    slow_variants: bool = False,
    slow_controller: bool = False,
    **spec: Any,
) -> FamilyCores:
    """``foreign``: name to the flavor that it fills, from before there were families."""
    cores = FamilyCores(config, limits)
    cores.restarts, cores.loses_decisions = restarts, loses_decisions
    cores.slow_variants, cores.slow_controller = slow_variants, slow_controller
    cores.offer(flavors, **spec)
    for name, flavor in (foreign or {}).items():
        cores.job(name, int(flavors[flavor]), allowed=[flavor], priority=0)
    cores.policy(mode, floor, explicit)
    cores.go()
    return cores
