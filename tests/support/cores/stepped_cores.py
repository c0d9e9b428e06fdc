"""A system in memory that a test moves step by step: what the scheduler decides, the
workload-controller applies at once, before the scheduler reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from admittance.api.kinds import KINDS
from admittance.api.reading.manifest import decode_object
from admittance.control.commit import Commit, LogMessage, Message
from admittance.control.manifests.object_messages import message_about
from admittance.control.manifests.objects import StoredObject, key_of
from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.codec import decode, encode
from admittance.events.requests.history import SettledReply
from admittance.events.subjects import object_key, subject_of, user_subject
from admittance.scheduling.state.config import Config
from admittance.workload.conditions import find
from admittance.workload.limits import Limits
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import StoredWorkload
from support.builders import NOON, a_manifest, an_object
from support.cores.configured_system import NS, ConfiguredSystem


class SteppedCores(ConfiguredSystem):
    """A system in memory without the timers' core. Jobs start when admitted and stop when
    evicted, unless ``slow_jobs`` names them.

    ``announces_objects``: the workload-controller reads at once that an object changed.
    ``decided``: every decision so far. ``published``: every fact of the controller about a
    workload; ``check_facts``: to a check. ``settled``: what became of facts that were not applied,
    by their sequence. ``namespace``: of the workloads that the methods name.
    """

    def __init__(
        self, config: Config | None = None, limits: Limits | None = None, *, timers: bool = False
    ) -> None:
        super().__init__(NOON, config, limits, timers=timers)
        self.decided: list[facts.Decision] = []
        self.published: list[Fact] = []
        self.check_facts: list[Fact] = []
        self.settled: dict[int, SettledReply] = {}
        self.slow_jobs: set[str] = set()
        self.announces_objects = True
        self.namespace = NS
        self._to_stop: list[str] = []
        self.put("ResourceFlavor", "default")

    # Configuration. -------------------------------------------------------------------------

    def put(self, kind: str, name: str, spec: Any = None, namespace: str = "", **more: Any) -> None:
        """Applies an object of that kind."""
        self.put_manifest(an_object(kind, name, spec, namespace, **more))

    def put_manifest(self, written: Mapping[str, Any]) -> None:
        """Applies a manifest, about which the workload-controller gets a message."""
        manifest, value = decode_object(written).manifest, msgspec.json.encode(written)
        before = self.controller.objects.get(key_of(manifest))
        revision = self.put_object(key_of(manifest), manifest, value)
        kept = StoredObject(manifest, value, revision)
        self._announce(message_about(self.controller, kept, before=before))

    def delete(self, kind: str, name: str, namespace: str = "") -> None:
        """Deletes an object."""
        key = object_key(KINDS[kind].token, namespace, name)
        kept = self.object_at(kind, name, namespace)
        assert kept is not None
        revision = self.put_object(key, None, b"")
        gone = kept._replace(revision=revision)
        self._announce(message_about(self.controller, gone, deleted=True))

    def _announce(self, message: Message) -> None:
        if self.announces_objects:
            self.apply_message(message.subject, message.data)

    # Facts. ---------------------------------------------------------------------------------

    def submit(self, name: str, queue: str, cpu: str = "1", *, age: float = 0, **spec: Any) -> None:
        """Submits a workload of one pod; a larger ``age`` means an older workload."""
        manifest = a_manifest(name, self.namespace, requests={"cpu": cpu}, queue=queue, **spec)
        self.submit_manifest(manifest, at=self.now - timedelta(seconds=age))

    def submit_manifest(
        self, manifest: Mapping[str, Any], at: datetime | None = None, user: str = ""
    ) -> None:
        """Submits a workload with that manifest. ``user``: "": a client without a name."""
        raw = msgspec.Raw(msgspec.json.encode(manifest))
        name = manifest["metadata"]["name"]
        fact = facts.Submitted(namespace=self.namespace, name=name, workload=raw)
        subject = user_subject(user, fact) if user else subject_of(fact)
        self.fold([self.logged(subject, encode(fact), None, at)])

    def publish(self, kind: type[Fact], name: str, /, **fields: Any) -> None:
        """Publishes a fact about the workload."""
        self.apply_facts(kind(namespace=self.namespace, name=name, **fields))

    def verdict(self, name: str, check: str, state: str, **fields: Any) -> None:
        """Publishes a verdict of the check's controller."""
        cycle = self.stored(name).status.admission_cycle
        controller = f"ctl-{check}"
        more = {"controller": controller, "check": check, "cycle": cycle, "state": state}
        self.publish(facts.CheckReported, name, **{**more, **fields})

    def finish(self, name: str) -> None:
        """Reports that the job has ended."""
        self.publish(facts.Finished, name)

    def stop(self, name: str) -> None:
        """Reports that the runner has stopped the job."""
        self.slow_jobs.discard(name)
        status = self.stored(name).status
        self.publish(
            facts.Stopped, name, revision=status.evicted_revision or status.admitted_revision
        )

    def fold(self, batch: list[LogMessage]) -> dict[int, SettledReply]:
        """Applies messages, then stops the evicted jobs."""
        outcomes = super().fold(batch)
        to_stop, self._to_stop = self._to_stop, []
        for name in to_stop:
            if self.has(name) and self.stored(name).status.admission is not None:
                self.stop(name)
        return outcomes

    def perform(self, commit: Commit) -> list[Message]:
        """Stores a commit and reads what the controller publishes."""
        self.settled |= commit.outcomes
        for dead in commit.dead:
            # A wrong submission gets a message; any other error is a wrong fact of the test.
            refused = self.settled[dead.logged.sequence].outcome == "refused"
            assert refused or ".submitted." in dead.logged.subject, dead.reason
        messages = super().perform(commit)
        self.wrote()
        for message in messages:
            self.reads(message)
        return messages

    def reads(self, message: Message) -> None:
        """Reads a message of the controller."""
        if message.subject.startswith("admit.check."):
            self.check_facts.append(decode(message.subject, message.data))
        if not message.subject.startswith("admit.workload."):
            return
        fact = decode(message.subject, message.data)
        self.published.append(fact)
        if isinstance(fact, facts.Evicted) and fact.name not in self.slow_jobs:
            self._to_stop.append(fact.name)

    def wrote(self) -> None:
        """Hook for subclasses: a commit has been stored."""

    # Decisions. -----------------------------------------------------------------------------

    def cycle(self, *, apply: bool = True, later: float = 1) -> list[facts.Decision]:
        """Runs one cycle a second later, and applies its decisions."""
        self.now += timedelta(seconds=later)
        self.scheduler.wake(now=self.now)
        decisions: list[facts.Decision] = []
        if self.scheduler.has_work():
            decisions += self.run_cycle()
        decisions += self.scheduler.refusals(now=self.now)
        self.decided += decisions
        if apply:
            for decision in decisions:
                self.apply(decision)
        return decisions

    def apply(self, decision: facts.Decision) -> None:
        """Lets the workload-controller read the decision."""
        self.apply_facts(decision)

    def settle(self, cycles: int = 100) -> int:
        """Runs cycles until no work is left, and returns how many. Raises AssertionError after as
        many as are given."""
        for number in range(cycles):
            wake = self.scheduler.next_wake()
            soon = wake is not None and wake <= self.now + timedelta(seconds=2)
            if not self.scheduler.has_work() and not soon:
                return number
            self.cycle()
        raise AssertionError("it does not come to rest")

    # Looking. -------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        """Whether the workload exists."""
        return self.stored_workload(self.namespace, name) is not None

    def stored(self, name: str) -> StoredWorkload:
        """The workload as it is kept."""
        workload = self.stored_workload(self.namespace, name)
        assert workload is not None
        return workload

    def phase(self, name: str) -> Phase:
        """The phase of the workload."""
        return phase(self.stored(name), self.now)

    def phases(self, *names: str) -> list[str]:
        """The phases of several."""
        return [str(self.phase(name)) for name in names]

    def reason(self, name: str, condition: str) -> str:
        """``True: Reason`` of a condition; "" when it is absent."""
        met = find(self.stored(name), condition)
        return f"{met.status}: {met.reason}" if met is not None else ""

    def revoked(self) -> list[tuple[str, str]]:
        """The workloads with revoked quota so far, and why."""
        return [
            (decision.name, decision.reason)
            for decision in self.decided
            if isinstance(decision, facts.Revoked)
        ]

    def preempted(self) -> list[tuple[str, str]]:
        """The workloads preempted so far, and the preempting workloads."""
        return [
            (decision.name, decision.by.removeprefix(f"{NS}/"))
            for decision in self.decided
            if isinstance(decision, facts.Preempted)
        ]
