"""What must hold in the end, when faults have stopped and time has run on."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from admittance.api.budgets import BUDGET_CONTROLLER
from admittance.api.fields.units import amount
from admittance.api.reading.canonical import spec_of
from admittance.events.codec import encode
from admittance.events.facts import CheckReported, Deleted, Submitted
from admittance.events.subjects import CAPACITY, subject_of, workload_key
from admittance.family import rules_of
from admittance.scheduling.scheduler import Scheduler
from admittance.workload.conditions import Type, find, is_false
from admittance.workload.families.roles import wanted_tags
from admittance.workload.stored import StoredWorkload, head
from simulation.environment.users import Publisher
from simulation.invariants import reference_quota
from simulation.invariants.machines.bookings import CONTROLLER
from simulation.invariants.observer import Invariants
from simulation.invariants.persons import held_by_persons
from simulation.invariants.seen import Seen
from simulation.invariants.siblings import PARENT, VARIANT
from simulation.nats.observed import Outgoing, Server
from simulation.transcript import Broken
from simulation.virtual_time.kernel import Kernel

ROUNDS = 20
ROUND_SECONDS = 600.0
RESTLESS = 6
"""Rounds without rest in which no check has anything to repeat."""


class Ending:
    """Runs time on until nothing happens any more, then looks at everything."""

    def __init__(
        self,
        server: Server,
        invariants: Invariants,
        kernel: Kernel,
        users: Publisher,
        *,
        heals: bool = False,
    ) -> None:
        """``heals``: whatever may end has ended, since nothing is in its way any more."""
        self._heals = heals
        self._server = server
        self._inv = invariants
        self._kernel = kernel
        self._users = users

    def settle(self) -> None:
        """Until no event is left; check controllers repeat what they think, since what they said
        out of order may have been taken for their last word."""
        restless = 0
        for _ in range(ROUNDS):
            rests = self._kernel.run(self._kernel.now + ROUND_SECONDS)
            spoke = self._remind()
            if rests and not spoke:
                return
            # What waits for room asks again and again, until the others have theirs.
            restless += not rests and not spoke
            if restless == RESTLESS:
                raise Broken("it never comes to rest")
        raise Broken("checks are asked again and again")

    def _remind(self) -> bool:
        spoke = False
        for seen in list(self._inv.seen.values()):
            workload = seen.workload
            if workload is None or seen.where != "reserved":
                continue
            for row in workload.status.admission_checks:
                check = self._inv.checks.get(row.name)
                if row.state == "Ready" or check is None:
                    continue
                if check.spec.controller_name in (CONTROLLER, BUDGET_CONTROLLER):
                    continue  # Its controller is a service that reads what is stored.
                if row.message.endswith("doesn't exist") and self._has_parameters(check):
                    raise Broken(f"{row.name} was never asked: {row.message}")
                report = CheckReported(
                    namespace=workload.metadata.namespace,
                    name=workload.metadata.name,
                    uid=workload.metadata.uid,
                    controller=check.spec.controller_name,
                    check=row.name,
                    cycle=workload.status.admission_cycle,
                    state="Ready",
                )
                message = Outgoing(subject_of(report), encode(report))
                self._kernel.after(0.1, partial(self._publish, message))
                spoke = True
        return spoke

    def _has_parameters(self, check: Any) -> bool:
        """The object that the check names is there; or it names none."""
        named = check.spec.parameters
        if named is None:
            return True
        stored = self._server.bucket.last.get(f"{named.kind.lower()}.{named.name}")
        return stored is not None and not stored.gone

    def _publish(self, message: Outgoing) -> None:
        self._server.publish(message)

    # Checks. --------------------------------------------------------------------------

    def check(self) -> None:
        """Checks that every promise is kept."""
        self._nothing_lost()
        self._all_said()
        for key, seen in sorted(self._inv.seen.items()):
            if seen.workload is not None and seen.role != VARIANT:
                self._truly(key, seen, seen.workload)
        self._inv.families.at_rest(heals=self._heals)
        self._inv.arrays.at_rest()
        if self._inv.running:
            raise Broken(f"jobs run on: {sorted(self._inv.running)}")

    def _nothing_lost(self) -> None:
        said = self._users.acknowledged
        deleted = {(fact.namespace, fact.name) for fact in said if isinstance(fact, Deleted)}
        for fact in said:
            if not isinstance(fact, Submitted) or b'"role": "variant"' in bytes(fact.workload):
                continue  # Only the variant-controller makes variants.
            if (fact.namespace, fact.name) not in deleted:
                key = workload_key(fact.namespace, fact.name)
                seen = self._inv.seen.get(key)
                if key not in self._inv.refused and (seen is None or seen.workload is None):
                    raise Broken(f"{fact.name} was submitted and is lost")

    def _all_said(self) -> None:
        missing = sorted(set(self._inv.owed) - self._inv.said, key=lambda pair: pair[1])
        if missing:
            _, revision, what = missing[0]
            key = self._inv.owed[missing[0]]
            raise Broken(f"{key}: {what} of revision {revision} was never said")
        for key, entry in self._server.bucket.last.items():
            prefix, _, rest = key.partition(".")
            if prefix in ("workload", "barrier", "_admittance", CAPACITY):
                continue
            if prefix != "localqueue":
                rest = f"_.{rest}"
            what = "deleted" if entry.gone else "applied"
            subject = f"admit.object.{what}.{prefix}.{rest}"
            if (subject, entry.sequence) not in self._inv.stated:
                raise Broken(f"{key} at {entry.sequence}: that it was {what} was never said")

    def _truly(self, key: str, seen: Seen, workload: StoredWorkload) -> None:
        match seen.where:
            case "evicting":
                raise Broken(f"{key} is stuck in its eviction")
            case "reserved":
                raise Broken(f"{key} is reserved forever")
            case "admitted":
                raise Broken(f"{key} is admitted and does not run")
            case "off" if seen.booked:
                raise Broken(f"{key} is off and holds quota forever")
            case "waiting" if seen.role == PARENT and self._is_hopeless(workload):
                pass
            case "waiting" | "off" if self._inv.arrays.may_wait(workload):
                pass
            case "waiting" if self._heals:
                raise Broken(f"{key} waits, and everything is there")
            case "off" if self._heals and not self._may_be_off(workload):
                raise Broken(f"{key} is off, and no user turned it off")
            case "waiting":
                self._waits(key, workload)

    def _may_be_off(self, workload: StoredWorkload) -> bool:
        """Whether a reactivated workload may be inactive again, by a clock or a late fact."""
        evicted = find(workload, Type.EVICTED)
        return evicted is not None and evicted.reason.startswith("DeactivatedDueTo")

    def _is_hopeless(self, parent: StoredWorkload) -> bool:
        """Whether the parent's status says that the queue has no matching variant, and the queue's
        rules give none."""
        queue = self._inv.queues.get(self._queue_of(parent))
        rules = rules_of(queue.spec) if queue is not None else None
        reserved = find(parent, Type.QUOTA_RESERVED)
        says = reserved is not None and reserved.reason == "NoMatchingFlavor"
        return says and rules is not None and not wanted_tags(parent, rules)

    def _waits(self, key: str, workload: StoredWorkload) -> None:
        """Raises Broken if the workload could be admitted although its status says that it
        waits."""
        reserved = find(workload, Type.QUOTA_RESERVED)
        if reserved is not None and reserved.reason == "OnHold":
            return
        spec = head(workload)
        local = self._inv.locals.get((workload.metadata.namespace, spec.queue_name))
        if local is None:
            return
        queue = self._inv.queues.get(local.spec.cluster_queue)
        stopped = (
            queue is None
            or queue.metadata.deletion_timestamp is not None
            or queue.spec.stop_policy not in ("", "None")
        )
        if stopped or local.spec.stop_policy not in ("", "None"):
            return
        assert queue is not None
        if is_false(workload, Type.REQUEUED):
            raise Broken(f"{key} waits to be requeued, and nothing will do that")
        waiting = [
            other.workload
            for other in self._inv.seen.values()
            if other.workload is not None
            and other.where == "waiting"
            and self._queue_of(other.workload) == queue.metadata.name
        ]
        if queue.spec.queueing_strategy == "StrictFIFO" and any(
            not self._fitting(workload, queue) for workload in waiting
        ):
            return
        asked = self._asked(workload)
        inv, name = self._inv, queue.metadata.name
        held = held_by_persons(key, workload, name, inv.holding, inv.queues, inv.locals)
        if any(one.resource == "cpu" and asked and one.held + asked > one.limit for one in held):
            return
        for flavor in self._fitting(workload, queue):
            raise Broken(f"{key} waits though it fits {flavor} in {queue.metadata.name}")

    def _queue_of(self, workload: StoredWorkload) -> str:
        where = workload.metadata.namespace, head(workload).queue_name
        local = self._inv.locals.get(where)
        return local.spec.cluster_queue if local is not None else ""

    def _fitting(self, workload: StoredWorkload, queue: object) -> list[str]:
        return list(self._fits(workload, queue))

    def _asked(self, workload: StoredWorkload) -> int:
        """The cpu that the workload asks for."""
        cpu = 0
        for pod_set in spec_of(workload.spec).pod_sets:
            # Fewer pods would do where it says so.
            count = pod_set.count if pod_set.min_count is None else pod_set.min_count
            for container in pod_set.template.spec.containers:
                cpu += amount("cpu", container.resources.requests["cpu"]) * count
        return cpu

    def _fits(self, workload: StoredWorkload, queue: object) -> Iterator[str]:
        inv = self._inv
        cpu = self._asked(workload)
        spec = queue.spec  # type: ignore[attr-defined]
        name = queue.metadata.name  # type: ignore[attr-defined]
        for group in spec.resource_groups:
            for flavor in group.flavors:
                left = reference_quota.available(
                    name, (flavor.name, "cpu"), inv.queues, inv.cohorts, inv.usage
                )
                if cpu <= max(0, left):
                    yield flavor.name

    def check_picture(self, name: str, scheduler: Scheduler) -> None:
        """Checks that the usage that a scheduler counts is the usage in the bucket."""
        for queue, node in scheduler.catalog.tree.queues.items():
            held = self._inv.usage.get(queue, {})
            for fr in {*held, *node.cells}:
                cell = node.cells.get(fr)
                used = cell.usage if cell is not None else 0
                if used != held.get(fr, 0):
                    raise Broken(f"{name} believes {used} of {fr} used in {queue}: {held.get(fr)}")
