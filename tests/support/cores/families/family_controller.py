"""A family in the workload-controller's core: facts come in, commits are performed at once, and
every revision is held against what must be true of a family. Decisions are forged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from admittance.control.batch import fold
from admittance.control.commit import Commit, LogMessage, Message
from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.codec import decode
from admittance.events.names import token
from admittance.events.requests.history import SettledReply
from admittance.events.shapes import Admission, HandedOn
from admittance.events.subjects import applied_subject
from admittance.events.system import ObjectApplied
from admittance.system.local_system import APPLIED, LocalSystem
from admittance.workload.conditions import find
from admittance.workload.due_times import due_times
from admittance.workload.families.roles import manifest_of, name_of, planned_variants
from admittance.workload.limits import Limits
from admittance.workload.stored import VARIANT, StoredWorkload, head, owner_of
from admittance.workload_controller.commit_writer import split_groups
from admittance.workload_controller.workload_metrics import WorkloadMetrics
from support.builders import NOON, a_manifest, an_admission, an_object, resource_groups
from support.cores.families.family_invariants import FamilyWatch

UPGRADE: dict[str, Any] = {"migrationConstraints": {"mode": "UpgradeOnly"}}


def key_of_workload(name: str) -> str:
    return f"workload.ns.{token(name)}"


class FamilyController(LocalSystem):
    """``flavors``: what the queue offers, the best first. ``checks``: per flavor. ``published``:
    kind and workload of every event so far. ``outcome``: what became of the last fact."""

    def __init__(
        self,
        flavors: Iterable[str] = ("a", "b", "c"),
        checks: Mapping[str, tuple[str, ...]] | None = None,
        policy: dict[str, Any] | None = UPGRADE,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(NOON, limits=limits)
        self.published: list[tuple[str, str]] = []
        self.facts: list[Fact] = []
        self.outcome = ""
        self.reason = ""
        self.starts: list[tuple[str, str]] = []
        self.family_watch = FamilyWatch()
        self.log: list[LogMessage] = []
        self.tally: WorkloadMetrics | None = None
        self.queue_spec: dict[str, Any] = {}
        self.put("LocalQueue", "lq", {"clusterQueue": "cq"}, namespace="ns")
        self.offer(flavors, checks, policy)

    # Configuration. -------------------------------------------------------------------------

    def put(self, kind: str, name: str, spec: Any, namespace: str = "") -> None:
        self.apply_manifest(an_object(kind, name, spec, namespace))
        applied = ObjectApplied(kind=kind, namespace=namespace, name=name, revision=self.revision)
        subject = applied_subject(kind.lower(), namespace, name)
        self.take([self.logged(subject, msgspec.json.encode(applied))])

    def offer(
        self,
        flavors: Iterable[str],
        checks: Mapping[str, tuple[str, ...]] | None = None,
        policy: dict[str, Any] | None = UPGRADE,
        **more: Any,
    ) -> None:
        checks = checks or {}
        for name in flavors:
            self.put("ResourceFlavor", name, {})
            for check in checks.get(name, ()):
                self.put("AdmissionCheck", check, {"controllerName": f"ctl-{check}"})
        spec: dict[str, Any] = {
            "namespaceSelector": {},
            "resourceGroups": resource_groups(dict.fromkeys(flavors, 9), checks=checks),
            **({"concurrentAdmission": policy} if policy else {}),
            **more,
        }
        self.queue_spec = spec
        self.put("ClusterQueue", "cq", spec)

    def edit_queue(self, **more: Any) -> None:
        """The queue says this, too."""
        self.queue_spec = {k: v for k, v in (self.queue_spec | more).items() if v is not None}
        self.put("ClusterQueue", "cq", self.queue_spec)

    # Facts. ---------------------------------------------------------------------------------

    def happens(self, *several: Fact) -> FamilyController:
        """In one batch."""
        self.take([self.logged_fact(fact) for fact in several])
        return self

    def take(self, batch: list[LogMessage]) -> None:
        self.log += batch
        self.fold(batch)

    def fold(self, batch: list[LogMessage]) -> dict[int, SettledReply]:
        outcomes = super().fold(batch)
        last = [*outcomes.values()][-1] if outcomes else APPLIED
        self.outcome, self.reason = last.outcome, last.reason
        return outcomes

    def fold_once(self, batch: list[LogMessage]) -> Commit:
        """A finished workload is as good as deleted: its name may be used again at once."""
        return fold(self.controller, batch, self.now)

    def crashes(self, batch: list[LogMessage], through: Sequence[bool]) -> None:
        """Only some writes of the first commit go through; then the next leader reads the batch."""
        self.log += batch
        commit = self.fold_once(batch)
        alone, groups = split_groups(commit.puts)
        pieces = [*([put] for put in alone), *groups]
        for piece, goes in zip(pieces, [*through, *[False] * len(pieces)], strict=False):
            if goes:
                self.perform(commit._replace(puts=piece, notes=[]))
        self.restart()
        self.fold(batch)

    def read_again(self, many: int) -> None:
        """Repeats the facts that were not acknowledged; they must not change the state."""
        self.restart()
        self.fold(self.log[-many:])

    def saw(self, key: str, before: StoredWorkload | None, after: StoredWorkload | None) -> None:
        if after is not None and self.tally is not None:
            self.tally.written(self.controller, before, after)
        self.family_watch.saw(key, after)

    def perform(self, commit: Commit) -> list[Message]:
        messages = super().perform(commit)
        for message in messages:
            fact = decode(message.subject, message.data)
            self.facts.append(fact)
            what = message.subject.split(".")[2]
            self.published.append((what, fact.name))
            if isinstance(fact, facts.Admitted):
                flavors = sorted({f for pod_set in fact.pod_sets for f in pod_set.flavors.values()})
                self.starts.append((fact.name, ",".join(flavors)))
        self.look()
        return messages

    # What there is. -------------------------------------------------------------------------

    def get(self, name: str = "j") -> StoredWorkload:
        workload = self.controller.workloads.get(key_of_workload(name)).workload
        assert workload is not None, f"there is no {name}"
        return workload

    def is_there(self, name: str = "j") -> bool:
        """The controller holds it: it has neither finished nor been deleted."""
        return self.controller.workloads.get(key_of_workload(name)).workload is not None

    def revision_of(self, name: str) -> int:
        return self.controller.workloads.get(key_of_workload(name)).revision

    def workloads(self) -> list[StoredWorkload]:
        return [
            workload.workload
            for _, workload in self.controller.workloads.items()
            if workload.workload
        ]

    def variants(self, parent: str = "j") -> list[StoredWorkload]:
        """The best first."""
        variants = [
            workload
            for workload in self.workloads()
            if head(workload).role == VARIANT and owner_of(workload)[0] == parent
        ]
        return sorted(variants, key=lambda variant: head(variant).sibling_index or 0)

    def active(self, parent: str = "j") -> str:
        return "".join(
            head(variant).variant for variant in self.variants(parent) if head(variant).active
        )

    def condition(self, kind: str, name: str = "j") -> str:
        found_condition = find(self.get(name), kind)
        return (
            f"{found_condition.status}: {found_condition.reason}"
            if found_condition is not None
            else ""
        )

    # What happens. --------------------------------------------------------------------------

    def submission(self, name: str = "j", **spec: Any) -> Fact:
        workload = msgspec.Raw(msgspec.json.encode(a_manifest(name, **spec)))
        return facts.Submitted(namespace="ns", name=name, workload=workload)

    def submit(self, name: str = "j", **spec: Any) -> FamilyController:
        return self.happens(self.submission(name, **spec))

    def admission(self, flavor: str) -> Admission:
        return an_admission(flavor=flavor)

    def variant_facts(self, name: str = "j") -> list[Fact]:
        """The facts of the variant-controller about a new parent."""
        parent = self.get(name)
        rules = self.controller.queues.family_rules("ns", head(parent).queue_name)
        if rules is None:
            return []
        submitted: list[Fact] = []
        for plan in planned_variants(parent, rules):
            called = name_of(parent, plan.tag.name)
            manifest = msgspec.Raw(manifest_of(parent, called, plan.spec))
            submitted.append(facts.Submitted(namespace="ns", name=called, workload=manifest))
        return submitted

    def family(self, name: str = "j", **spec: Any) -> FamilyController:
        """A parent with all its variants."""
        self.submit(name, **spec)
        return self.happens(*self.variant_facts(name))

    def me(self, name: str) -> dict[str, Any]:
        return {"namespace": "ns", "name": name}

    def decided(self, name: str) -> dict[str, Any]:
        return {
            **self.me(name),
            "uid": self.get(name).metadata.uid,
            "revision": self.revision_of(name),
            "seen": self.revision,
            "domain": "queue-cq",
        }

    def assigned(self, tag: str, parent: str = "j", *, source: str = "", **more: Any) -> Fact:
        name = f"{parent}-variant-{tag}"
        handed = None
        if source:
            other = f"{parent}-variant-{source}"
            handed = HandedOn(
                namespace="ns",
                name=other,
                uid=self.get(other).metadata.uid,
                revision=self.revision_of(other),
                reason="FlavorMigration",
            )
        decision = self.decided(name) | {"admission": an_admission(flavor=tag)} | more
        return facts.Assigned(**decision, migrates_from=handed)

    def assign(self, tag: str, parent: str = "j", **more: Any) -> FamilyController:
        return self.happens(self.assigned(tag, parent, **more))

    def verdict(self, tag: str, check: str, state: str = "Ready", **more: Any) -> FamilyController:
        name = f"j-variant-{tag}"
        cycle = more.pop("cycle", self.get(name).status.admission_cycle)
        return self.happens(
            facts.CheckReported(
                **self.me(name),
                controller=f"ctl-{check}",
                check=check,
                cycle=cycle,
                state=state,
                **more,
            )
        )

    def confirm(self, tag: str) -> FamilyController:
        return self.happens(facts.Confirmed(**self.decided(f"j-variant-{tag}")))

    def preempt(self, tag: str) -> FamilyController:
        return self.happens(
            facts.Preempted(
                **self.decided(f"j-variant-{tag}"), reason="InClusterQueue", message="m"
            )
        )

    def stop(self, name: str = "j") -> FamilyController:
        """The job has stopped."""
        return self.happens(
            facts.Stopped(**self.me(name), revision=self.get(name).status.evicted_revision)
        )

    def later(self, seconds: float) -> FamilyController:
        self.now += timedelta(seconds=seconds)
        return self

    def due(self, kind: str, name: str = "j") -> FamilyController:
        times = due_times(self.get(name), self.now, self.controller.queues)
        at = next((at for timer, at in times.items() if str(timer) == kind), None)
        if at is not None:
            self.now = max(self.now, at)
        return self.happens(facts.TimerDue(**self.me(name), kind=kind))

    # What must be true. ---------------------------------------------------------------------

    def look(self) -> None:
        """Checks the invariants of every family at every revision."""
        self.family_watch.settled()
        named = {name for what, name in self.published if what in ("admitted", "evicted")}
        assert not any("-variant-" in name for name in named), named
