"""The cores of the scheduler and of the workload-controller side by side, without a bus: what one
decides the other applies at once, and the first hears of it. A test takes each step itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from admittance.api.reading.manifest import decode_object
from admittance.control.batch import fold
from admittance.control.commit import Message
from admittance.control.controller import Controller
from admittance.control.manifest_changes import names_others
from admittance.control.objects import key_of
from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.codec import decode, encode
from admittance.events.names import token
from admittance.events.requests import SettledReply
from admittance.events.subjects import applied_subject, subject_of, workload_key
from admittance.events.system import ObjectApplied
from admittance.scheduling.scheduler import Scheduler
from admittance.scheduling.state.config import Config
from admittance.workload import stored
from admittance.workload.conditions import find
from admittance.workload.limits import Limits
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import StoredWorkload
from admittance.workload_controller.commit_writer import log_message
from support.builders import NOON, a_manifest, an_object

NS = "ns"


class SteppedCores:
    """Both cores on one clock. Jobs start when admitted and stop as soon as they are told to,
    unless ``stubborn`` names them.

    ``deaf``: the controller has not read yet that objects changed. ``decided``: every decision so
    far. ``published``: every fact of the controller about a workload; ``check_facts``: to a check.
    ``settled``: what became of facts that were not applied, by their sequence. ``namespace``: of
    the workloads that are spoken of.
    """

    def __init__(self, config: Config | None = None, limits: Limits | None = None) -> None:
        self.config = config
        self.core = Scheduler(config)
        self.controller = Controller(b"secret", limits)
        self.now: datetime = NOON
        self.revision = 0
        self.sequence = 0
        self.decided: list[facts.Decision] = []
        self.published: list[Fact] = []
        self.check_facts: list[Fact] = []
        self.settled: dict[int, SettledReply] = {}
        self.stubborn: set[str] = set()
        self.deaf = False
        self.namespace = NS
        self._objects: dict[tuple[str, str, str], Any] = {}
        self.put("ResourceFlavor", "default")

    # Configuration. -------------------------------------------------------------------------

    def put(self, kind: str, name: str, spec: Any = None, namespace: str = "", **more: Any) -> None:
        """Applies an object of that kind."""
        value = an_object(kind, name, spec, namespace, **more)
        self._keep(kind, namespace, name, decode_object(value).manifest, msgspec.json.encode(value))

    def delete(self, kind: str, name: str, namespace: str = "") -> None:
        """An object is gone."""
        self._keep(kind, namespace, name, None, b"")

    def _keep(self, kind: str, namespace: str, name: str, manifest: Any, value: bytes) -> None:
        self.revision += 1
        key = kind, namespace, name
        about = manifest if manifest is not None else self._objects[key]
        self._objects[key] = about
        before = self.controller.objects.get(key_of(about))
        changed = names_others(before, manifest) if manifest is not None else False
        self.controller.keep_object(key_of(about), manifest, value, self.revision)
        self.core.apply_object(kind, namespace, name, manifest, self.revision)
        self.applied(kind, namespace, name, manifest)
        for domain in self.core.domains() - self.core.owned():
            self.core.own(domain)
        applied = ObjectApplied(
            kind=kind,
            namespace=namespace,
            name=name,
            revision=self.revision,
            parameters_changed=changed,
        )
        subject = applied_subject(kind.lower(), namespace, name, deleted=manifest is None)
        if not self.deaf:
            self._hear(subject, msgspec.json.encode(applied))

    def applied(self, kind: str, namespace: str, name: str, manifest: Any) -> None:
        """Stores an object for observers; None: it is deleted."""

    def known_objects(self) -> Iterator[tuple[tuple[str, str, str], Any]]:
        """Every object that is there, by kind, namespace and name."""
        for key, about in self._objects.items():
            kept = self.controller.objects.get(key_of(about))
            if kept is not None:
                yield key, kept.object

    def is_there(self, kind: str, name: str, namespace: str = "") -> bool:
        """There is such an object."""
        about = self._objects.get((kind, namespace, name))
        return about is not None and self.controller.objects.get(key_of(about)) is not None

    def queue(self, name: str, cohort: str = "", **spec: Any) -> None:
        """A ClusterQueue that takes every namespace, and a LocalQueue of its name."""
        spec.setdefault("namespaceSelector", {})
        if cohort:
            spec["cohortName"] = cohort
        self.put("ClusterQueue", name, spec)
        if self.core.catalog.local_queues.get((NS, name)) is None:
            self.put("LocalQueue", name, {"clusterQueue": name}, namespace=NS)

    def check(self, name: str, controller: str = "", **spec: Any) -> None:
        """An AdmissionCheck; answered by ``ctl-<name>`` unless said."""
        self.put("AdmissionCheck", name, {"controllerName": controller or f"ctl-{name}", **spec})

    # Facts. ---------------------------------------------------------------------------------

    def submit(self, name: str, queue: str, cpu: str = "1", *, age: float = 0, **spec: Any) -> None:
        """A workload of one pod; the older, the larger its age."""
        manifest = a_manifest(name, self.namespace, requests={"cpu": cpu}, queue=queue, **spec)
        self.submit_manifest(manifest, at=self.now - timedelta(seconds=age))

    def submit_manifest(self, manifest: Mapping[str, Any], at: datetime | None = None) -> None:
        """A workload of that manifest."""
        raw = msgspec.Raw(msgspec.json.encode(manifest))
        name = manifest["metadata"]["name"]
        fact = facts.Submitted(namespace=self.namespace, name=name, workload=raw)
        self._hear(subject_of(fact), encode(fact), at=at)

    def publish(self, kind: type[Fact], name: str, /, **fields: Any) -> None:
        """A fact about the workload is published."""
        fact = kind(namespace=self.namespace, name=name, **fields)
        self._hear(subject_of(fact), encode(fact))

    def verdict(self, name: str, check: str, state: str, **fields: Any) -> None:
        """The check's controller answers."""
        cycle = self.stored(name).status.admission_cycle
        controller = f"ctl-{check}"
        more = {"controller": controller, "check": check, "cycle": cycle, "state": state}
        self.publish(facts.CheckReported, name, **{**more, **fields})

    def finish(self, name: str) -> None:
        """The job has ended."""
        self.publish(facts.Finished, name)

    def stop(self, name: str) -> None:
        """The runner has stopped the job."""
        self.stubborn.discard(name)
        status = self.stored(name).status
        self.publish(
            facts.Stopped, name, revision=status.evicted_revision or status.admitted_revision
        )

    def _hear(
        self,
        subject: str,
        data: bytes,
        headers: Mapping[str, str] | None = None,
        at: datetime | None = None,
    ) -> None:
        self.sequence += 1
        rest = [log_message(self.sequence, subject, data, headers or {}, at or self.now)]
        to_stop: list[str] = []
        while rest:
            commit = fold(self.controller, rest, self.now)
            self.settled |= commit.outcomes
            for dead in commit.dead:
                # A refused workload gets a message; any other error is a wrong fact of the test.
                assert self.settled[dead.logged.sequence].outcome == "refused", dead.reason
            for put in commit.puts:
                self.revision += 1
                _, namespace, name = put.key.split(".")
                value = None if put.value is None else stored.decode(put.value)
                self.saw(put.key, value)
                for message in self.controller.committed(put, self.revision, self.now):
                    to_stop += self._told(message)
                self.core.apply_workload(namespace, name, value, self.revision, now=self.now)
            self.wrote()
            for message in commit.notes:
                self._told(message)
            rest = commit.rest
        for name in to_stop:
            if self.has(name) and self.stored(name).status.admission is not None:
                self.stop(name)

    def _told(self, message: Message) -> list[str]:
        """Reads the events of the controller and stops evicted jobs at once."""
        if message.subject.startswith("admit.check."):
            self.check_facts.append(decode(message.subject, message.data))
        if not message.subject.startswith("admit.workload."):
            return []
        fact = decode(message.subject, message.data)
        self.published.append(fact)
        stops = isinstance(fact, facts.Evicted) and fact.name not in self.stubborn
        return [fact.name] if stops else []

    def saw(self, key: str, workload: StoredWorkload | None) -> None:
        """A revision is written; observers override this."""

    def wrote(self) -> None:
        """All that follows from what was heard is written."""

    # Decisions. -----------------------------------------------------------------------------

    def cycle(self, *, apply: bool = True, later: float = 1) -> list[facts.Decision]:
        """One cycle, a second later: what was decided, applied."""
        self.now += timedelta(seconds=later)
        self.core.wake(now=self.now)
        decisions: list[facts.Decision] = []
        if self.core.has_work():
            decisions += self.core.cycle(now=self.now)
        decisions += self.core.refusals(now=self.now)
        self.decided += decisions
        if apply:
            for decision in decisions:
                self.apply(decision)
        return decisions

    def apply(self, decision: facts.Decision) -> None:
        """The workload-controller hears the decision."""
        fence = {
            "Nats-Expected-Last-Subject-Sequence": "1",
            "Nats-Expected-Last-Subject-Sequence-Subject": (
                f"admit.lease.epoch.{token(decision.domain)}"
            ),
        }
        self._hear(subject_of(decision), encode(decision), fence)

    def settle(self, cycles: int = 100) -> int:
        """Cycles until nothing is to be done: how many. Raises AssertionError after as many as
        are given."""
        for number in range(cycles):
            wake = self.core.next_wake()
            soon = wake is not None and wake <= self.now + timedelta(seconds=2)
            if not self.core.has_work() and not soon:
                return number
            self.cycle()
        raise AssertionError("it does not come to rest")

    def restart(self) -> None:
        """The scheduler starts anew from what is stored."""
        self.core = Scheduler(self.config)
        for (kind, namespace, name), manifest in self._objects.items():
            key = key_of(manifest)
            kept = self.controller.objects.get(key)
            if kept is not None:
                self.core.apply_object(kind, namespace, name, kept.object, kept.revision)
        for key, known in self.controller.workloads.items():
            _, namespace, name = key.split(".")
            self.core.apply_workload(namespace, name, known.workload, known.revision, now=self.now)
        self.core.seen(self.revision)
        for domain in self.core.domains():
            self.core.own(domain)

    # Looking. -------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        """There is such a workload."""
        key = workload_key(self.namespace, name)
        return self.controller.workloads.get(key).workload is not None

    def stored(self, name: str) -> StoredWorkload:
        """The workload as it is kept."""
        found = self.controller.workloads.get(workload_key(self.namespace, name)).workload
        assert found is not None
        return found

    def phase(self, name: str) -> Phase:
        """Where the workload is in its life."""
        return phase(self.stored(name), self.now)

    def phases(self, *names: str) -> list[str]:
        """The phases of several."""
        return [str(self.phase(name)) for name in names]

    def reason(self, name: str, condition: str) -> str:
        """``True: Reason`` of a condition; "" when it is absent."""
        found = find(self.stored(name), condition)
        return f"{found.status}: {found.reason}" if found is not None else ""

    def revoked(self) -> list[tuple[str, str]]:
        """The workloads with revoked quota so far, and why."""
        return [(one.name, one.reason) for one in self.decided if isinstance(one, facts.Revoked)]

    def preempted(self) -> list[tuple[str, str]]:
        """The workloads preempted so far, and the preempting workloads."""
        return [
            (one.name, one.by.removeprefix(f"{NS}/"))
            for one in self.decided
            if isinstance(one, facts.Preempted)
        ]
