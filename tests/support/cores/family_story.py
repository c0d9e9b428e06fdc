"""A scheduler that is told stories of families, and a stand-in for the services that store its
decisions and activate variants, as far as the scheduler can see them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from admittance.api.meta import ObjectMeta, OwnerReference
from admittance.api.workload import FAMILY_GATE, CheckState, GateHolder, GatePosition
from admittance.events.facts import Assigned, Confirmed, Decision, Preempted, Refused, Revoked
from admittance.family import FamilyRules, desired_variants, rules_of
from admittance.scheduling.state.config import Config
from admittance.scheduling.state.queue import in_order
from admittance.workload.family_info import parent_state, variant_state
from admittance.workload.stored import StoredWorkload, head
from support.cores.stepped_scheduler import NOON, SteppedScheduler, groups

API = "kueue.x-k8s.io/v1beta2"


class FamilyStory(SteppedScheduler):
    """``follows``: variants are turned on and off as policy wants it, after every write; else they
    stay as they are. ``decisions``: of the last cycle."""

    def __init__(self, config: Config | None = None) -> None:
        super().__init__(config)
        self.follows = True
        self.decisions: list[Decision] = []
        self.parents: dict[str, list[str]] = {}
        self._more: Mapping[str, str] = {}

    # Configuration. -------------------------------------------------------------------------

    def families(
        self,
        name: str = "cq",
        *,
        mode: str = "UpgradeOnly",
        explicit: Sequence[Mapping[str, Any]] = (),
        floor: str = "",
        flavors: Mapping[str, Any] | None = None,
        checks: Mapping[str, Sequence[str]] | None = None,
        **spec: Any,
    ) -> None:
        """A ClusterQueue of families. ``flavors``: to its cpu, the best first; ``checks``: flavor
        to those that it brings."""
        offered = dict(flavors or {"best": "4", "mid": "4", "worst": "4"})
        for flavor in offered:
            self.flavor(flavor)
        made = groups(**offered)
        for one in made[0]["flavors"]:
            if checks and one["name"] in checks:
                one["admissionChecks"] = list(checks[one["name"]])
        constraints = {"mode": mode}
        if floor:
            constraints["minVariant" if explicit else "minFlavor"] = floor
        said: dict[str, Any] = {"migrationConstraints": constraints}
        if explicit:
            said["explicitVariants"] = list(explicit)
        self.queue(name, **{"resourceGroups": made, "concurrentAdmission": said, **spec})

    def check(self, name: str, **spec: Any) -> None:
        """An AdmissionCheck that is active."""
        self.put("AdmissionCheck", name, {"controllerName": f"c/{name}", **spec})

    def rules(self, queue: str) -> FamilyRules:
        """What the ClusterQueue says of families."""
        found = rules_of(self.core.catalog.cluster_queues[queue].spec)
        assert found is not None
        return found

    # Families. ------------------------------------------------------------------------------

    def family(
        self,
        name: str,
        queue: str = "cq",
        cpu: str = "4",
        *,
        priority: int = 0,
        age: float = 0,
        tags: Sequence[str] | None = None,
        parent_first: bool = True,
        **more: str,
    ) -> None:
        """A parent and its variants, ``<parent>-<tag>``, or only those of ``tags``. ``more``: what
        it asks for beside cpu."""
        self._more = more
        if parent_first:
            self._put_parent(name, queue, cpu, priority, age)
        self.parents[name] = []
        for tag in self.rules(queue).tags:
            if tags is None or tag.name in tags:
                self._put_variant(name, queue, cpu, priority, age, tag.name, tag.flavors)
        if not parent_first:
            self._put_parent(name, queue, cpu, priority, age)
        self.follow()

    def _put_parent(self, name: str, queue: str, cpu: str, priority: int, age: float) -> None:
        spec = _spec(queue, {"cpu": cpu, **self._more}, priority, role="parent")
        self._write("ns", name, _stored(name, f"uid-{name}", spec, age))

    def _put_variant(
        self,
        parent: str,
        queue: str,
        cpu: str,
        priority: int,
        age: float,
        tag: str,
        flavors: Iterable[str],
    ) -> None:
        spec = _spec(
            queue,
            {"cpu": cpu, **self._more},
            priority,
            role="variant",
            variant=tag,
            admissionConstraints={"allowedResourceFlavors": list(flavors)},
            preemptionGates=[{"name": FAMILY_GATE}],
        )
        name = f"{parent}-{tag}"
        owner = OwnerReference(api_version=API, kind="Workload", name=parent, uid=f"uid-{parent}")
        self.parents[parent].append(name)
        # Their own ids and ages tell nothing: they stand where their parent does.
        self._write(
            "ns",
            name,
            _stored(name, f"v-{len(self.stored)}", spec, age - 1, owner_references=(owner,)),
        )

    def parent_of(self, variant: str) -> str:
        """The parent of the variant."""
        return self.stored[variant].metadata.owner_references[0].name

    def admitted(self, parent: str) -> str:
        """The tag of the variant that is admitted; "" is none."""
        name = self.stored[parent].status.admitted_variant
        return name.removeprefix(f"{parent}-")

    def follow(self) -> None:
        """Variants are turned on and off as policy wants it now."""
        for parent in self.parents if self.follows else ():
            stored = self.stored.get(parent)
            if stored is None:
                continue
            states = [variant_state(self.stored[one]) for one in self.parents[parent]]
            rules = rules_of(self.core.catalog.cluster_queues[head(stored).queue_name].spec)
            for name, wish in desired_variants(
                parent_state(stored), states, rules, self.now
            ).items():
                if head(self.stored[name]).active != wish.active:
                    if not wish.active and self.stored[name].status.admission is not None:
                        self.release(name)
                    self.respec(name, active=wish.active)

    def later(self, seconds: float) -> None:
        """It is so much later, and nothing else has happened."""
        self.now += timedelta(seconds=seconds)
        self.core.wake(now=self.now)

    # What is written. -----------------------------------------------------------------------

    def cycle(self, *, confirm: bool = True) -> list[str]:
        decisions = self.core.cycle(now=self.now)
        self.decisions = [*decisions, *self.core.refusals(now=self.now)]
        self.decided = [one for one in decisions if isinstance(one, Assigned)]
        self.preempted = [one for one in decisions if isinstance(one, Preempted)]
        self.told += self.preempted
        if confirm:
            for one in self.decisions:
                self.write(one)
        return [one.name for one in self.decided]

    def write(self, one: Decision) -> None:
        """The decision is applied, as far as the scheduler can tell."""
        match one:
            case Assigned():
                for giver in one.preempts:
                    self.release(giver.name)
                self._assign(one)
            case Confirmed():
                self._admit(one.name)
            case Preempted():
                self.lose(one.name, "Preempted")
            case Revoked():
                self.lose(one.name, one.reason)
            case Refused():
                self.waiting.append(one)
                conditions = {"QuotaReserved": (False, one.refusal.reason)}
                if one.refusal.reason == "AdmissionGated":
                    conditions["BlockedOnPreemptionGates"] = (True, "PreemptionGated")
                self.change(one.name, conditions=conditions)
        self.follow()

    def _assign(self, one: Assigned) -> None:
        checks = self.core.catalog.checks_to_pass(one.admission.cluster_queue, one.admission)
        if one.migrates_from is not None:
            self._migrate(one)
            return
        waits = bool(checks) or one.pending_preemption is not None
        self.change(
            one.name,
            conditions={"QuotaReserved": (True, "QuotaReserved"), "Evicted": (False, "x")},
            admission=one.admission,
            pending_preemption=one.pending_preemption,
            admission_checks=tuple(CheckState(name=name, state="Pending") for name in checks),
        )
        if not waits:
            self._admit(one.name)

    def _migrate(self, one: Assigned) -> None:
        assert one.migrates_from is not None
        parent = self.parent_of(one.name)
        self.change(one.migrates_from.name, conditions={"Evicted": (True, "FlavorMigration")})
        self.change(
            one.name,
            promised=one.admission,
            conditions={"QuotaReserved": (False, "WaitingForPreemptedWorkloads")},
        )
        self.change(parent, conditions={"Evicted": (True, "VariantEvicted")}, migrating_to=one.name)

    def _admit(self, name: str) -> None:
        stored = self.stored[name]
        if not stored.metadata.owner_references:
            self.change(name, conditions={"Admitted": (True, "Admitted")})
            return
        parent = self.parent_of(name)
        before = self.stored[parent].status.admitted_variant
        if before:  # With checks: the reservation stays while the job stops.
            self.change(before, conditions={"Evicted": (True, "FlavorMigration")})
            self.change(parent, conditions={"Evicted": (True, "VariantEvicted")}, migrating_to=name)
            return
        self._runs(parent, name)

    def _runs(self, parent: str, name: str) -> None:
        runs = {
            "QuotaReserved": (True, "x"),
            "Admitted": (True, "Admitted"),
            "Evicted": (False, "x"),
        }
        stored = self.stored[name].status
        admission = stored.admission or stored.promised
        self.change(name, conditions=runs, admission=admission, promised=None)
        self.change(
            parent,
            conditions=runs,
            admission=admission,
            admitted_variant=name,
            migrating_to="",
            first_admitted_at=self.stored[parent].status.first_admitted_at or self.now,
        )

    def release(self, name: str) -> None:
        """It holds nothing any more."""
        self.change(
            name,
            conditions={"QuotaReserved": (False, "Pending"), "Admitted": (False, "NoReservation")},
            admission=None,
            admission_checks=(),
            pending_preemption=None,
            preemption_gates=(),
            promised=None,
        )

    def lose(self, name: str, reason: str) -> None:
        """It is evicted: with its job still running, if it has one."""
        stored = self.stored[name]
        if not stored.metadata.owner_references:
            self.evict(name, reason)
            return
        parent = self.parent_of(name)
        if self.stored[parent].status.admitted_variant != name:
            self.release(name)
            return
        self.change(name, conditions={"Evicted": (True, reason)})
        self.change(parent, conditions={"Evicted": (True, "VariantEvicted")})

    def stops(self, parent: str) -> None:
        """The job has stopped: its successor takes over, or the family competes again."""
        status = self.stored[parent].status
        self.release(status.admitted_variant)
        heir = status.migrating_to
        if heir and (self.stored[heir].status.admission or self.stored[heir].status.promised):
            self._runs(parent, heir)
        else:
            for one in self.parents[parent]:
                self.change(one, promised=None)
            self.change(
                parent,
                conditions={"QuotaReserved": (False, "Pending"), "Admitted": (False, "x")},
                admission=None,
                admitted_variant="",
                migrating_to="",
                first_admitted_at=None,
                family_start=self.now,
            )
        self.follow()

    def passes(self, *names: str, state: str = "Ready") -> None:
        """All its checks say so."""
        for name in names:
            rows = self.stored[name].status.admission_checks
            self.change(
                name,
                admission_checks=tuple(msgspec.structs.replace(one, state=state) for one in rows),
            )
        self.follow()

    def opens(self, name: str) -> None:
        """Its gate on preemption is open."""
        self.change(name, preemption_gates=(GatePosition(name=FAMILY_GATE, position="Open"),))
        self.change(self.parent_of(name), preemption_gate=GateHolder(holder=name, since=self.now))

    # Looking. -------------------------------------------------------------------------------

    def tried(self, queue: str = "cq") -> list[str]:
        """The variants that are tried, in order."""
        return [one.key[1] for one in in_order(self.core._state.queues[queue])]


def full(scheduler: FamilyStory, queue: str = "cq", **flavors: str) -> None:
    """So much of each flavor is taken by workloads that run, ``r-<flavor>``."""
    for flavor, cpu in (flavors or {"best": "4", "mid": "4", "worst": "4"}).items():
        scheduler.submit(
            f"r-{flavor}",
            queue,
            cpu,
            age=1_000,
            annotations={"kueue.x-k8s.io/workload-allowed-resource-flavors": flavor},
        )
    scheduler.settle()


def _spec(queue: str, requests: Mapping[str, str], priority: int, **more: Any) -> dict[str, Any]:
    return {
        "queueName": queue,
        "priority": priority,
        "podSets": [
            {
                "name": "main",
                "count": 1,
                "template": {"spec": {"containers": [{"resources": {"requests": requests}}]}},
            }
        ],
        **more,
    }


def _stored(
    name: str, uid: str, spec: Mapping[str, Any], age: float, **meta: Any
) -> StoredWorkload:
    return StoredWorkload(
        api_version=API,
        kind="Workload",
        metadata=ObjectMeta(
            name=name,
            namespace="ns",
            uid=uid,
            creation_timestamp=NOON - timedelta(seconds=age),
            **meta,
        ),
        spec=msgspec.Raw(json.dumps(spec).encode()),
    )


__all__ = ["FamilyStory", "full"]
