"""The cores with a clock: timers fire at their time, and families follow their policy.

Time changes only in `TimedCores.advance`. The invariants of the lifecycle and of families are
checked at every revision, and each reservation must be counted once.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from admittance.api.workload import CheckState
from admittance.control.commit import Message
from admittance.events import facts
from admittance.events.requests.history import SettledReply
from admittance.events.requests.queues import Queues
from admittance.scheduling.state.config import Config
from admittance.workload.conditions import Type, find, is_true
from admittance.workload.due_times import due_times
from admittance.workload.limits import Limits
from admittance.workload.phase import phase
from admittance.workload.stored import PARENT, StoredWorkload, encode, head
from simulation.invariants.quota import charged
from support.builders import NOON
from support.cores.configured_system import NS
from support.cores.families.family_invariants import FamilyWatch
from support.cores.lifecycle_invariants import Watch
from support.cores.stepped_cores import SteppedCores
from support.cores.stepped_scheduler import groups


class TimedCores(SteppedCores):
    """The cores of scheduler, workload-controller, retry-timer and variant-controller, and a clock.

    ``job_events``: ``(event, name, seconds since noon)``; the events are started, stopped and freed
    (the quota of the job). ``watch``: checks every revision. ``slow_variants``: the
    variant-controller publishes only when the other cores have nothing to do.
    """

    def __init__(self, config: Config | None = None, limits: Limits | None = None) -> None:
        self.job_events: list[tuple[str, str, float]] = []
        self.revisions: list[tuple[str, StoredWorkload | None]] = []
        self.slow_variants = False
        self.watch = Watch(self._is_stopped)
        self.family_watch = FamilyWatch()
        super().__init__(config, limits, timers=True)

    def _is_stopped(self, namespace: str, queue: str) -> bool:
        return self.controller.queues.inactive_reason(namespace, queue) is not None

    # What happens. --------------------------------------------------------------------------

    def saw(self, key: str, before: StoredWorkload | None, after: StoredWorkload | None) -> None:
        name = key.rpartition(".")[2]
        self.revisions.append((name, after))
        self.watch.saw(key, after, self.now)
        self.family_watch.saw(key, after)
        if after is not None:
            self._guard(before, after)
            if due_times(after, self.now, self.controller.queues):
                assert self.timers.may_wait(encode(after)), "the retry-timer leaves it out"
        held = before is not None and before.status.admission is not None
        if held and (after is None or after.status.admission is None):
            self.job_events.append(("freed", name, self.seconds()))

    def wrote(self) -> None:
        if self.family_watch:
            self.family_watch.settled()

    def _guard(self, before: StoredWorkload | None, after: StoredWorkload) -> None:
        """The guards of T03, T04 and T08, by what the queues say at the moment of the write."""
        if head(after).role == PARENT:
            return  # It has what its variant has, which was looked at itself.
        around = self.controller.queues
        namespace, queue = after.metadata.namespace, head(after).queue_name
        had = before is not None and before.status.admission is not None
        admission = after.status.admission
        if admission is None or is_true(after, Type.FINISHED):
            return
        if not had:
            assert before is not None, "reserved as it was made"
            assert phase(before, self.now) == "Pending", f"reserved from {phase(before, self.now)}"
            assert around.inactive_reason(namespace, queue) is None, (
                "reserved in a queue that admits no workload"
            )
        if is_true(after, Type.ADMITTED) and not (had and before and is_true(before, "Admitted")):
            required = {r.name for r in around.required_checks(admission.cluster_queue, admission)}
            states = {row.name: row.state for row in after.status.admission_checks}
            assert all(states.get(name) == "Ready" for name in required), f"{required}: {states}"
            assert around.inactive_reason(namespace, queue) is None, "admitted in a stopped queue"
            assert not around.not_offered(admission), "admitted on a flavor that is not offered"

    def reads(self, message: Message) -> None:
        said = len(self.published)
        super().reads(message)
        for fact in self.published[said:]:
            if isinstance(fact, facts.Admitted | facts.Evicted):
                assert fact.name not in self.family_watch.names, (
                    f"a runner got a fact about {fact.name}"
                )
            if isinstance(fact, facts.Admitted):
                self.job_events.append(("started", fact.name, self.seconds()))

    def stop(self, name: str) -> None:
        """Reports that the runner has stopped the job, if there was one."""
        if self.has(name) and self.stored(name).status.admission is not None:
            self.job_events.append(("stopped", name, self.seconds()))
            super().stop(name)

    def ready(self, name: str) -> None:
        """Reports that all pods of the job are ready."""
        self.publish(facts.PodsReady, name, revision=self.stored(name).status.admitted_revision)

    def not_ready(self, name: str) -> None:
        """Reports that a pod of the job is not ready any more."""
        self.publish(facts.PodsNotReady, name, revision=self.stored(name).status.admitted_revision)

    def answer(self, name: str, check: str, state: str, **fields: Any) -> SettledReply | None:
        """The check's controller answers; what became of it, None: it was applied. ``after``: the
        delay of a Retry. ``cycle``: of the verdict, the present one unless given."""
        if "after" in fields:
            fields["requeue_after_seconds"] = fields.pop("after")
        self.verdict(name, check, state, **fields)
        return self.settled.get(self.sequence)

    def report(self, name: str, check: str, state: str, **fields: Any) -> None:
        """The same, and what follows from it at once."""
        self.answer(name, check, state, **fields)
        self.go()

    def starts(self, name: str) -> int:
        """How often the job was started."""
        return sum(1 for what, job, _ in self.job_events if (what, job) == ("started", name))

    # Time. ----------------------------------------------------------------------------------

    def seconds(self) -> float:
        """Since noon."""
        return (self.now - NOON).total_seconds()

    def go(self) -> None:
        """Lets everything happen that is due now, until no core has anything to do."""
        for _ in range(10_000):
            self.step()
            self.scheduler.wake(now=self.now)
            self.set_timers()
            soon = self.next_timer()
            if soon is not None and soon.want.at <= self.now:
                self.fire(soon)
            elif not self.slow_variants and self.orders_of_families():
                continue
            elif self.scheduler.has_work():
                self.cycle(later=0)
            elif not self.cycle_of_refusals() and not self.orders_of_families():
                self.check_usage()
                self.check_families()
                return
        raise AssertionError("it does not come to rest")

    def orders_of_families(self) -> bool:
        """The workload-controller applies the orders of the variant-controller. Returns whether
        there were any."""
        orders = self.orders()
        for order in orders:
            self.apply_facts(order)
        return bool(orders)

    def step(self) -> None:
        """Called between any two events of one moment, for subclasses."""

    def cycle_of_refusals(self) -> bool:
        """Publishes why workloads wait. True: at least one message was published."""
        refusals = self.scheduler.refusals(now=self.now)
        self.decided += refusals
        for refusal in refusals:
            self.apply(refusal)
        return bool(refusals)

    def advance(self, seconds: float) -> None:
        """Lets so many seconds pass. Timers that become due fire at their time."""
        end = self.now + timedelta(seconds=seconds)
        self.go()
        while True:
            times = [at for at in self.wakes() if at > self.now]
            if not times or min(times) > end:
                break
            self.now = min(times)
            self.go()
        self.now = end
        self.go()

    def at(self, seconds: float) -> None:
        """Lets time pass until so many seconds after noon."""
        self.advance(seconds - self.seconds())

    def waits_for(self, name: str) -> dict[str, datetime]:
        """The due times of the workload, by kind of timer."""
        times = due_times(self.stored(name), self.now, self.controller.queues)
        return {str(kind): at for kind, at in times.items()}

    def scheduled(self, name: str) -> set[str]:
        """The kinds of its schedules on the bus, a little later."""
        self.advance(1)
        return {slot.kind for slot in self.schedules if slot.name == name}

    # Looking. -------------------------------------------------------------------------------

    def rows(self, name: str) -> dict[str, CheckState]:
        """The rows of its checks."""
        return {row.name: row for row in self.stored(name).status.admission_checks}

    def states(self, name: str) -> dict[str, str]:
        """The states of its checks."""
        return {row.name: row.state for row in self.stored(name).status.admission_checks}

    def counts(self, name: str) -> dict[str, int]:
        """The retry counts of its checks."""
        return {row.name: row.retry_count for row in self.stored(name).status.admission_checks}

    def message(self, name: str, condition: str) -> str:
        """The message of a condition; "": it is absent."""
        met = find(self.stored(name), condition)
        return met.message if met is not None else ""

    def wait(self, name: str) -> float | None:
        """Seconds until the workload may compete again; None: the workload does not wait for a
        time."""
        state = self.stored(name).status.requeue_state
        if state is None or state.requeue_at is None:
            return None
        return (state.requeue_at - self.now).total_seconds()

    def count(self, name: str) -> int | None:
        """How often the workload's pods were not ready in time."""
        state = self.stored(name).status.requeue_state
        return state.count if state is not None else None

    def flavor(self, name: str) -> str:
        """The flavor of its first pod set; "" without a reservation."""
        admission = self.stored(name).status.admission
        return admission.pod_set_assignments[0].flavors["cpu"] if admission is not None else ""

    def evictions(self, name: str) -> dict[str, int]:
        """How often the workload was evicted, by reason."""
        stats = self.stored(name).status.scheduling_stats
        return {row.reason: row.count for row in stats.evictions} if stats is not None else {}

    def evicted_for(self, name: str) -> list[str]:
        """The reasons of its evictions, in order."""
        return [
            fact.reason
            for fact in self.published
            if isinstance(fact, facts.Evicted) and fact.name == name
        ]

    def noted(self, name: str) -> list[str]:
        """The notes about it, in order."""
        return [
            fact.reason
            for fact in self.published
            if isinstance(fact, facts.Noted) and fact.name == name
        ]

    def requests(self, check: str, name: str = "") -> list[facts.CheckRequested]:
        """The requests to the check, about one workload or all."""
        return [
            fact
            for fact in self.check_facts
            if isinstance(fact, facts.CheckRequested)
            and fact.check == check
            and name in ("", fact.name)
        ]

    def withdrawn(self, check: str, name: str = "") -> list[tuple[str, int]]:
        """The withdrawn requests to the check: reason and cycle."""
        return [
            (fact.reason, fact.cycle)
            for fact in self.check_facts
            if isinstance(fact, facts.CheckWithdrawn)
            and fact.check == check
            and name in ("", fact.name)
        ]

    def spec(self, kind: str, name: str, namespace: str = "") -> dict[str, Any]:
        """The spec of an object, as it was written."""
        kept = self.object_at(kind, name, namespace)
        assert kept is not None
        spec: dict[str, Any] = msgspec.json.decode(kept.value).get("spec", {})
        return spec

    def cells(self, queue: str = "cq") -> dict[tuple[str, str], int]:
        """Flavor and resource to what is reserved, by the scheduler's books."""
        (status,) = self.scheduler.queues(
            Queues(cluster_queue=queue, local_queues=False)
        ).cluster_queues
        return {(row.flavor, row.resource): row.reserved for row in status.usage}

    def usage(self, queue: str, flavor: str = "default") -> int:
        """What is reserved of the flavor's cpu, in thousandths, by the scheduler's books."""
        return self.cells(queue).get((flavor, "cpu"), 0)

    def activity(self, queue: str) -> str:
        """Why the ClusterQueue admits no new workload; "" when it does."""
        (status,) = self.scheduler.queues(Queues(cluster_queue=queue)).cluster_queues
        return "" if status.active else status.reason

    def workloads(self) -> list[StoredWorkload]:
        """All stored workloads."""
        return [
            known.workload
            for _, known in self.controller.workloads.items()
            if known.workload is not None
        ]

    def check_families(self) -> None:
        """Checks that every family follows its policy, and that its parent shows this."""
        for parent in self.family_watch.parents.values():
            meta, around = parent.metadata, self.controller.queues
            queue = head(parent).queue_name
            if around.cluster_queue(meta.namespace, queue):
                rules = around.family_rules(meta.namespace, queue)
                wrong = list(self.family_watch.at_rest(parent, rules, self.now))
                assert not wrong, f"{meta.name}: {'; '.join(wrong)}"

    def check_usage(self) -> None:
        """Checks that every reservation is counted exactly once."""
        counted = {}
        for status in self.scheduler.queues(Queues(local_queues=False)).cluster_queues:
            usage = {(usage.flavor, usage.resource): usage.reserved for usage in status.usage}
            counted[status.name] = {cell: much for cell, much in usage.items() if much}
        counted = {queue: usage for queue, usage in counted.items() if usage}
        known = {
            queue: {cell: much for cell, much in usage.items() if much}
            for queue, usage in charged(self.workloads()).items()
        }
        held = {queue: usage for queue, usage in known.items() if usage}
        assert counted == held, f"counted {counted}, reserved {held}"


def cores_with_queue(
    *checks: str,
    nominal: str = "10",
    config: Config | None = None,
    limits: Limits | None = None,
    **spec: Any,
) -> TimedCores:
    """Cores with one queue ``cq``, and queue-wide checks."""
    cores = TimedCores(config, limits)
    for name in checks:
        cores.check(name)
    spec.setdefault("resourceGroups", groups(default=nominal))
    if checks:
        spec["admissionChecks"] = list(checks)
    cores.queue("cq", **spec)
    return cores


__all__ = ["NS", "TimedCores", "cores_with_queue"]
