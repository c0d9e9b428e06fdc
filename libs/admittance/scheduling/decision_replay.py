"""Makes a decision once more, from the state that it was made from.

What the state and the log do not hold is said with the decision, as its `Scan`: who had its turn
in the cycle, and where their scans began. Those, and nobody else, are the heads here; what becomes
of them is worked out by the cycle itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from admittance.events.facts import (
    Assigned,
    Confirmed,
    Decision,
    Planned,
    Preempted,
    Refused,
    Revoked,
)
from admittance.events.shapes import Refusal
from admittance.scheduling.cycle import recheck
from admittance.scheduling.cycle.outcomes import Decided, Outcomes
from admittance.scheduling.cycle.reasons import complete
from admittance.scheduling.cycle.refusals import standing_of
from admittance.scheduling.families import migration
from admittance.scheduling.preemption import quota_reduction
from admittance.scheduling.preemption.quota_handover import hand_on
from admittance.scheduling.scheduler import Scheduler
from admittance.scheduling.state import charging, planned
from admittance.scheduling.state.assignment import Cursor, charges_of
from admittance.scheduling.state.equivalence import Key
from admittance.scheduling.state.in_flight import WAITS_FOR_VICTIMS
from admittance.scheduling.state.queue import remove_from_queue
from admittance.scheduling.state.workload_info import (
    Domain,
    InFlight,
    SavedCursor,
    WorkloadInfo,
    family_quota_of,
)

_SAYS: Final[Mapping[type[Decision], InFlight]] = {
    Confirmed: InFlight.CONFIRMED,
    Planned: InFlight.PLANNED,
    Preempted: InFlight.PREEMPTED,
    Refused: InFlight.REFUSED,
    Revoked: InFlight.REVOKED,
}


class CannotRepeat(Exception):
    """What would be needed to make the decision again is not known; the text says what."""


class Turn(NamedTuple):
    """A head of the cycle, and behind which flavors its scan began; (): at the first ones."""

    key: Key
    cursor: Cursor = ()


class Again(Scheduler):
    """A scheduler that is told what it had decided, and who its heads are."""

    # What was on its way. -------------------------------------------------------------------

    def assume(self, decision: Decision) -> bool:
        """The decision is on its way. False: it is not, the state has heard of its workload."""
        state = self._state
        workload = state.workloads.get((decision.namespace, decision.name))
        domain = state.domains.get(decision.domain)
        if workload is None or domain is None or workload.revision != decision.revision:
            return False
        if isinstance(decision, Assigned):
            self._assign(workload, domain, decision)
            workload.in_flight = InFlight.ASSIGNED
        else:
            workload.in_flight = _SAYS.get(type(decision), InFlight.NOTHING)
            if isinstance(decision, Planned):
                planned.assume_plan(state, workload, decision.pending_preemption)
            elif isinstance(decision, Confirmed):
                planned.assume_plan(state, workload, None)
                state.pods_ready.assume_admitted(workload, domain)
            workload.preemptor_waits = workload.preemptor_waits or isinstance(decision, Preempted)
        workload.seen = decision.seen
        domain.in_flight[workload] = None
        return True

    def _assign(self, workload: WorkloadInfo, domain: Domain, decision: Assigned) -> None:
        state = self._state
        queue = state.queue(decision.admission.cluster_queue)
        if workload.queue is not None:
            workload.queue.forget_preemptor(workload)
            remove_from_queue(workload.queue, workload)
        givers = []
        for given in decision.preempts:
            giver = state.workloads.get((given.namespace, given.name))
            if giver is not None and giver.revision == given.revision and giver.charge is not None:
                givers.append(giver)
        if givers:
            hand_on(state, domain, workload, givers)
        cells = []
        if queue.node is not None and workload.shape is not None:
            cells = charges_of(queue.node, decision.admission, workload.shape)
        charging.charge(state, workload, queue, decision.admission, cells)
        planned.set_plan(state, workload, decision.pending_preemption)
        migration.gives_way(state, workload, queue.name, decision.admission)
        source = decision.migrates_from
        giver = state.workloads.get((source.namespace, source.name)) if source is not None else None
        if giver is not None and giver.charge is not None and workload.family is not None:
            migration.begin(state, domain, workload, giver)
            return
        state.assume_admitted(workload, queue, decision.admission)
        state.add_candidate(workload, decision.time or state.now)

    # Deciding. ------------------------------------------------------------------------------

    def turns(
        self,
        domain: str,
        turns: Iterable[Turn],
        *,
        now: datetime,
        usages: Mapping[str, float] | None = None,
    ) -> list[Decided]:
        """What a cycle with these heads states. ``usages``: what LocalQueues were compared by.
        Raises CannotRepeat when one of the heads is none."""
        found = self._domain(domain)
        self.wake(now=now)
        for one in found.queues:
            if one.lanes is not None:
                one.lanes.set_usages(usages or {})
        self._cycle.number += 1
        found.flush = False
        found.ready.clear()
        for key, cursor in turns:
            workload = self._head(key)
            queue = workload.queue
            assert queue is not None and workload.cls is not None, "it is a head"
            if queue in found.ready and queue.preemptor is not workload:
                raise CannotRepeat(f"two workloads of ClusterQueue {queue.name} had their turn")
            queue.preemptor = workload
            found.ready[queue] = None
            workload.cursor = None
            if cursor:
                generation = queue.generation + found.generation
                workload.cursor = SavedCursor(cursor, self._cycle.number, generation, workload.cls)
        decided: list[Decided] = []
        outcomes = Outcomes(self._state, found, decided, now)
        self._cycle.run(found, outcomes.accept, outcomes.preempt, outcomes.is_blocked, now=now)
        return decided

    def before_turns(self, domain: str, keys: Iterable[Key], *, now: datetime) -> list[Decided]:
        """What is stated of the domain for quotas that were cut, checks that passed, and plans to
        preempt. ``keys``: the reservations that were looked at, in order."""
        self.wake(now=now)
        found = self._domain(domain)
        decided: list[Decided] = [*quota_reduction.due(self._state, found, now)]
        workloads = [one for key in keys if (one := self._state.workloads.get(key)) is not None]
        return decided + recheck.due(self._state, found, self._cycle, now, only=workloads)

    def refusal(self, key: Key) -> Refusal | None:
        """Why the workload is parked, or blocks its queue; None: it does not."""
        workload = self._state.workloads.get(key)
        if workload is None:
            return None
        if workload.inadmissible is not None:
            return Refusal(
                reason=workload.inadmissible.reason, message=workload.inadmissible.message
            )
        if workload.cls is not None and workload.cls.parked is not None:
            return workload.cls.parked
        standing = standing_of(workload)
        return standing.refusal if standing is not None else None

    def completed(self, key: Key, refusal: Refusal) -> Refusal:
        """The refusal with the numbers of every flavor, as they are in this picture."""
        workload = self._head(key)
        plan = workload.queue.plan if workload.queue is not None else None
        if plan is None or workload.shape is None:
            return refusal
        held = family_quota_of(workload)
        return complete(refusal, plan, workload.shape, own=workload.is_variant, held=held)

    def _domain(self, name: str) -> Domain:
        found = self._state.domains.get(name)
        if found is None:
            raise CannotRepeat(f"there was no domain {name} in the picture")
        return found

    def _head(self, key: Key) -> WorkloadInfo:
        workload = self._state.workloads.get(key)
        name = "/".join(key)
        if workload is None:
            raise CannotRepeat(f"workload {name} was not in the picture")
        if workload.queue is None or workload.entry is None or workload.in_flight:
            raise CannotRepeat(f"workload {name} did not compete in the picture")
        return workload


def is_turn(decision: Decision) -> bool:
    """It was stated in somebody's turn, not when it was time to tell who is parked."""
    if isinstance(decision, Refused):
        return decision.refusal.reason == WAITS_FOR_VICTIMS
    return isinstance(decision, Assigned | Preempted) and not is_recheck(decision)


def is_recheck(decision: Decision) -> bool:
    """It was stated of a reservation, before the turns of its cycle."""
    if isinstance(decision, Preempted):
        return decision.planned
    return isinstance(decision, Planned | Confirmed | Revoked)


def rechecked(decisions: Iterable[Decision]) -> list[Key]:
    """Which reservations were looked at when these were stated, in order."""
    return list(
        dict.fromkeys(
            key_of(one.by) if isinstance(one, Preempted) else (one.namespace, one.name)
            for one in decisions
        )
    )


def turns_of(decisions: Iterable[Decision]) -> list[Turn]:
    """Whose turns led to these decisions of one cycle, in order."""
    turns: dict[Key, Cursor] = {}
    for one in decisions:
        scan = one.scan
        if scan is not None:
            if scan.lost:
                raise CannotRepeat("too many had their turn before it in the same cycle")
            for head in scan.heads:
                turns.setdefault(key_of(head.name), head.cursor)
        key = (one.namespace, one.name)
        if isinstance(one, Preempted):
            key = key_of(one.by)
        turns.setdefault(key, scan.cursor if scan is not None else ())
    return [Turn(key, cursor) for key, cursor in turns.items()]


def usages_of(decisions: Iterable[Decision]) -> dict[str, float]:
    """What LocalQueues were compared by in the cycle of these decisions."""
    found: dict[str, float] = {}
    for one in decisions:
        if one.scan is not None:
            found |= one.scan.usages
    return found


def key_of(name: str) -> Key:
    """Of ``namespace/name``."""
    namespace, _, plain = name.partition("/")
    return namespace, plain
