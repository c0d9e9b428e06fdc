"""A family in the workload-controller's core: facts come in, commits are performed at once, and
every revision is held against what must be true of a family. Decisions are forged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from admittance.api.reading.manifest import decode_object
from admittance.control.batch import fold
from admittance.control.commit import Commit, LogMessage
from admittance.control.controller import HEADER_FACT, Controller
from admittance.control.objects import key_of
from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.codec import decode, encode
from admittance.events.names import token
from admittance.events.shapes import Admission, HandedOn
from admittance.events.subjects import applied_subject, subject_of
from admittance.events.system import ObjectApplied
from admittance.replay.log_messages import log_message
from admittance.workload.conditions import find
from admittance.workload.due_times import due_times
from admittance.workload.families.roles import manifest_of, name_of, planned_variants
from admittance.workload.limits import Limits
from admittance.workload.stored import VARIANT, StoredWorkload, head, owner_of
from admittance.workload.stored import encode as stored_bytes
from admittance.workload_controller.commit_writer import split_groups
from admittance.workload_controller.workload_metrics import WorkloadMetrics
from support.builders import NOON, a_manifest, an_admission, an_object, resource_groups
from support.cores.family_invariants import FamilyWatch

UPGRADE: dict[str, Any] = {"migrationConstraints": {"mode": "UpgradeOnly"}}


def fence(fact: Fact) -> dict[str, str]:
    """The headers of a decision of the domain's first leader; none for any other fact."""
    if not isinstance(fact, facts.Decision):
        return {}
    return {
        "Nats-Expected-Last-Subject-Sequence": "1",
        "Nats-Expected-Last-Subject-Sequence-Subject": f"admit.lease.epoch.{fact.domain}",
    }


def key_of_workload(name: str) -> str:
    return f"workload.ns.{token(name)}"


class FamilyController:
    """``flavors``: what the queue offers, the best first. ``checks``: per flavor. ``published``:
    kind and workload of every event so far. ``outcome``: what became of the last fact."""

    def __init__(
        self,
        flavors: Iterable[str] = ("a", "b", "c"),
        checks: dict[str, tuple[str, ...]] | None = None,
        policy: dict[str, Any] | None = UPGRADE,
        limits: Limits | None = None,
    ) -> None:
        self.controller = Controller(b"secret", limits)
        self.now: datetime = NOON
        self.sequence = self.revision = 0
        self.published: list[tuple[str, str]] = []
        self.facts: list[Fact] = []
        self.outcome = ""
        self.reason = ""
        self.starts: list[tuple[str, str]] = []
        self.families = FamilyWatch()
        self.log: list[LogMessage] = []
        self.tally: WorkloadMetrics | None = None
        self.queue_spec: dict[str, Any] = {}
        self.put("LocalQueue", "lq", {"clusterQueue": "cq"}, namespace="ns")
        self.offer(flavors, checks, policy)

    # Configuration. -------------------------------------------------------------------------

    def put(self, kind: str, name: str, spec: Any, namespace: str = "") -> None:
        value = an_object(kind, name, spec, namespace)
        manifest = decode_object(value).manifest
        self.revision += 1
        data = msgspec.json.encode(value)
        self.controller.keep_object(key_of(manifest), manifest, data, self.revision)
        applied = ObjectApplied(kind=kind, namespace=namespace, name=name, revision=self.revision)
        self.happens_raw(
            applied_subject(kind.lower(), namespace, name), msgspec.json.encode(applied)
        )

    def offer(
        self,
        flavors: Iterable[str],
        checks: dict[str, tuple[str, ...]] | None = None,
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

    def happens_raw(self, subject: str, data: bytes, headers: dict[str, str] | None = None) -> None:
        self.sequence += 1
        heard = log_message(self.sequence, subject, data, headers or {}, self.now)
        self.perform([heard])

    def heard(self, fact: Fact) -> LogMessage:
        self.sequence += 1
        subject, data = subject_of(fact), encode(fact)
        return log_message(self.sequence, subject, data, fence(fact), self.now)

    def happens(self, *several: Fact) -> FamilyController:
        """In one batch."""
        self.perform([self.heard(fact) for fact in several])
        return self

    def perform(self, batch: list[LogMessage]) -> None:
        self.log += batch
        self.fold(batch)

    def fold(self, batch: list[LogMessage]) -> None:
        self.outcome, self.reason = "applied", ""
        rest = batch
        while rest:
            commit = fold(self.controller, rest, self.now)
            for settled in commit.outcomes.values():
                self.outcome, self.reason = settled.outcome, settled.reason
            self.write(commit)
            rest = commit.rest
            self.look()

    def crashes(self, batch: list[LogMessage], through: Sequence[bool]) -> None:
        """Only some writes of the first commit go through; then its heir reads the batch."""
        self.log += batch
        commit = fold(self.controller, batch, self.now)
        alone, groups = split_groups(commit.puts)
        pieces = [*([one] for one in alone), *groups]
        for piece, goes in zip(pieces, [*through, *[False] * len(pieces)], strict=False):
            if goes:
                self.write(commit._replace(puts=piece, notes=[]))
                self.look()
        self.restart()
        self.fold(batch)

    def read_again(self, many: int) -> None:
        """Repeats the facts that were not acknowledged; they must not change the state."""
        self.restart()
        self.fold(self.log[-many:])

    def restart(self) -> None:
        """A new leader reads the bucket."""
        old = self.controller
        self.controller = Controller(b"secret", old.queues.limits)
        for key, kept in old.objects:
            self.controller.load(key, kept.value, kept.revision, {})
        for key, known in old.workloads.items():
            value = stored_bytes(known.workload) if known.workload is not None else None
            self.controller.load(key, value, known.revision, {HEADER_FACT: str(known.fact)})
        self.controller.settle_load(0)

    def write(self, commit: Commit) -> None:
        spoken = []
        for put in commit.puts:
            assert put.expected == self.controller.workloads.get(put.key).revision
            self.revision += 1
            if put.workload is not None and self.tally is not None:
                before = self.controller.workloads.get(put.key).workload
                self.tally.written(self.controller, before, put.workload)
            spoken += self.controller.committed(put, self.revision, self.now)
            self.families.saw(put.key, put.workload)
        for message in [*spoken, *commit.notes]:
            fact = decode(message.subject, message.data)
            self.facts.append(fact)
            what = message.subject.split(".")[2]
            self.published.append((what, fact.name))
            if isinstance(fact, facts.Admitted):
                flavors = sorted({f for one in fact.pod_sets for f in one.flavors.values()})
                self.starts.append((fact.name, ",".join(flavors)))
        for put in commit.puts:
            self.controller.outbox_published(put.key)

    # What there is. -------------------------------------------------------------------------

    def get(self, name: str = "j") -> StoredWorkload:
        found = self.controller.workloads.get(key_of_workload(name)).workload
        assert found is not None, f"there is no {name}"
        return found

    def is_there(self, name: str = "j") -> bool:
        return self.controller.workloads.get(key_of_workload(name)).workload is not None

    def revision_of(self, name: str) -> int:
        return self.controller.workloads.get(key_of_workload(name)).revision

    def workloads(self) -> list[StoredWorkload]:
        return [one.workload for _, one in self.controller.workloads.items() if one.workload]

    def variants(self, parent: str = "j") -> list[StoredWorkload]:
        """The best first."""
        found = [
            one
            for one in self.workloads()
            if head(one).role == VARIANT and owner_of(one)[0] == parent
        ]
        return sorted(found, key=lambda one: head(one).sibling_index or 0)

    def active(self, parent: str = "j") -> str:
        return "".join(head(one).variant for one in self.variants(parent) if head(one).active)

    def condition(self, kind: str, name: str = "j") -> str:
        found = find(self.get(name), kind)
        return f"{found.status}: {found.reason}" if found is not None else ""

    # What happens. --------------------------------------------------------------------------

    def submission(self, name: str = "j", **spec: Any) -> Fact:
        workload = msgspec.Raw(msgspec.json.encode(a_manifest(name, **spec)))
        return facts.Submitted(namespace="ns", name=name, workload=workload)

    def submit(self, name: str = "j", **spec: Any) -> FamilyController:
        return self.happens(self.submission(name, **spec))

    def admission(self, flavor: str) -> Admission:
        return an_admission(flavor=flavor)

    def variant_facts(self, name: str = "j") -> list[Fact]:
        """What the variant-controller states of a new parent."""
        parent = self.get(name)
        rules = self.controller.queues.family_rules("ns", head(parent).queue_name)
        if rules is None:
            return []
        found: list[Fact] = []
        for one in planned_variants(parent, rules):
            called = name_of(parent, one.tag.name)
            manifest = msgspec.Raw(manifest_of(parent, called, one.spec))
            found.append(facts.Submitted(namespace="ns", name=called, workload=manifest))
        return found

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
        at = next((at for one, at in times.items() if str(one) == kind), None)
        if at is not None:
            self.now = max(self.now, at)
        return self.happens(facts.TimerDue(**self.me(name), kind=kind))

    # What must be true. ---------------------------------------------------------------------

    def look(self) -> None:
        """What is true of every family at every revision."""
        self.families.settled()
        heard = {name for what, name in self.published if what in ("admitted", "evicted")}
        assert not any("-variant-" in name for name in heard), heard
