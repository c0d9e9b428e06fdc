"""Repeats a scheduler's decision from the log with the scheduler's own code, and compares the
repeated decision with the logged one. The module is pure.

A decision records in its `Scan` what neither the bucket nor the log shows: which heads were
processed earlier in the same cycle, and behind which flavors the scans of these heads began. The
replay sets the same heads and runs one cycle of the live scheduler's code."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from admittance.events.facts import (
    Assigned,
    Confirmed,
    Decision,
    Planned,
    Preempted,
    Refused,
    Revoked,
)
from admittance.events.reader import BucketEntry
from admittance.events.shapes import PromisedStart, Refusal, Scan
from admittance.replay.logged_decisions import (
    CannotRepeat,
    LoggedDecision,
    Turn,
    is_of_cycle,
    is_recheck,
    is_same_recheck,
    is_turn,
    key_of,
    rechecked_reservations,
    turns_of,
    usages_of,
)
from admittance.scheduling import families
from admittance.scheduling.cycle.cycle import refusal_for
from admittance.scheduling.cycle.decisions import Decided
from admittance.scheduling.cycle.promises import promise_from
from admittance.scheduling.cycle.refusals import blocked_head_of, with_all_flavors
from admittance.scheduling.scheduler import Scheduler
from admittance.scheduling.state import assumption
from admittance.scheduling.state.assignment import charges_of
from admittance.scheduling.state.config import Config
from admittance.scheduling.state.equivalence import Key, SavedCursor
from admittance.scheduling.state.queue import remove_from_queue
from admittance.scheduling.state.stored_fields import InFlight
from admittance.scheduling.state.workload_info import Domain, WorkloadInfo
from admittance.system.local_system import apply_entry

NOT_COMPARED: Final = frozenset({"time", "scan", "localUsage"})
"""Fields of a decision that are not compared, because they describe how the decision was made, not
what it decides."""

NONE_MADE: Final = "no decision would be made about the workload now"
_TAKEN: Final = ("flavor", "resource", "amount")
"""What is compared of the quota that a decision takes. The numbers beside it describe the moment,
and earlier versions counted planned victims in them as if they stayed."""

_IN_FLIGHT: Final[Mapping[type[Decision], InFlight]] = {
    Preempted: InFlight.PREEMPTED,
    Refused: InFlight.REFUSED,
    Revoked: InFlight.REVOKED,
}


class Repetition(NamedTuple):
    """The result of repeating a decision. ``differences``: one sentence for each difference between
    the logged decision and the repeated decision; empty: the two decisions are equal. ``made``: all
    decisions of the repeated cycle. ``turns``: the heads that the repeated cycle processed.
    ``workloads``, ``objects``, ``inflight``: the numbers of workloads, manifests and decisions in
    flight in the rebuilt state."""

    differences: list[str]
    made: list[Any]
    turns: list[str]
    workloads: int
    objects: int
    inflight: int


def revisions_needed(decision: Decision) -> list[int]:
    """Returns the revisions of the bucket that a replay of the decision needs, oldest first."""
    scan = decision.scan
    if isinstance(decision, Refused) and scan is not None and scan.seen:
        return [scan.seen, decision.seen]
    return [decision.seen]


def repeat(
    target: LoggedDecision,
    before: Sequence[LoggedDecision],
    bucket_at: Callable[[int], Sequence[BucketEntry]],
    config: Config,
) -> Repetition:
    """Makes the decision ``target`` again and returns the comparison. ``before``: the decisions on
    the log before ``target``, in order, from the oldest that may have been in flight.
    ``bucket_at``: returns the entries that the bucket had at a revision.

    Raises CannotRepeat if a part of the state from which the decision was made is not known."""
    decision = target.decision
    of_leader = [
        logged
        for logged in before
        if logged.epoch == target.epoch and logged.decision.domain == decision.domain
    ]
    scan = decision.scan
    if isinstance(decision, Refused) and not is_turn(decision):
        if scan is not None and scan.promise is not None:
            return _repeat_held_back(decision, scan, of_leader, bucket_at, config)
        if scan is not None and scan.seen:
            return _repeat_parked(decision, of_leader, bucket_at, config)
        return _repeat_inadmissible(decision, of_leader, bucket_at(decision.seen), config)
    same = [
        logged for logged in of_leader if is_of_cycle(logged.decision, decision.time, decision.seen)
    ]
    earlier = [logged for logged in of_leader if logged not in same]
    if is_recheck(decision):
        # A cycle publishes all rechecks of reservations together, before it processes heads.
        rechecks = [
            logged.decision for logged in of_leader if is_same_recheck(logged.decision, decision)
        ]
        earlier = [logged for logged in earlier if not is_same_recheck(logged.decision, decision)]
        rebuilt = _Rebuilt(bucket_at(decision.seen), earlier, config, decision)
        keys = rechecked_reservations([*rechecks, decision])
        made = rebuilt.core.recheck(decision.domain, keys, now=rebuilt.now)
        return rebuilt.repetition(_differences(decision, made), made, [])
    rebuilt = _Rebuilt(bucket_at(decision.seen), earlier, config, decision)
    cycle = [*(logged.decision for logged in same), decision]
    turns = turns_of(cycle)
    promise = scan.promise if scan is not None else None
    made = rebuilt.core.turns(
        decision.domain, turns, now=rebuilt.now, usages=usages_of(cycle), promise=promise
    )
    return rebuilt.repetition(_differences(decision, made), made, turns)


def _repeat_parked(
    decision: Refused,
    of_leader: Sequence[LoggedDecision],
    bucket_at: Callable[[int], Sequence[BucketEntry]],
    config: Config,
) -> Repetition:
    """Repeats the refusal of a workload in an equivalence class that an earlier cycle parked. For
    flavors that the earlier scan did not try, the refusal has the shortfalls of the moment when it
    was published."""
    scan = decision.scan
    assert scan is not None, "the refusal of a class records its scan"
    then = scan.at or decision.time
    assert then is not None, "decisions have a time"
    same = [
        logged.decision for logged in of_leader if is_of_cycle(logged.decision, then, scan.seen)
    ]
    earlier = [logged for logged in of_leader if (logged.decision.time or then) < then]
    first = _Rebuilt(bucket_at(scan.seen), earlier, config, decision, seen=scan.seen, now=then)
    own = (decision.namespace, decision.name)
    head = key_of(scan.head) if scan.head else own
    turns = [turn for turn in turns_of(same) if turn.key != head]
    turns.append(Turn(head, scan.cursor))
    made = first.core.turns(decision.domain, turns, now=then)
    parked = first.core.refusal(head)
    if parked is None:
        return first.repetition(["the workload would not be parked now"], made, turns)
    second = _Rebuilt(bucket_at(decision.seen), of_leader, config, decision)
    again = with_all_flavors(second.core.head(own), parked)
    return second.repetition(_field_differences(decision.refusal, again), [again], turns)


def _repeat_held_back(
    decision: Refused,
    scan: Scan,
    of_leader: Sequence[LoggedDecision],
    bucket_at: Callable[[int], Sequence[BucketEntry]],
    config: Config,
) -> Repetition:
    """Repeats the refusal of a workload that an earlier cycle held back beside a promise."""
    then = scan.at or decision.time
    assert then is not None, "decisions have a time"
    earlier = [logged for logged in of_leader if (logged.decision.time or then) < then]
    rebuilt = _Rebuilt(bucket_at(scan.seen), earlier, config, decision, seen=scan.seen, now=then)
    turns = turns_of([decision])
    made = rebuilt.core.turns(decision.domain, turns, now=then, promise=scan.promise)
    again = rebuilt.core.refusal(turns[-1].key)
    if again is None:
        return rebuilt.repetition(["the workload would not be held back now"], made, turns)
    return rebuilt.repetition(_field_differences(decision.refusal, again), [again], turns)


def _repeat_inadmissible(
    decision: Refused,
    of_leader: Sequence[LoggedDecision],
    entries: Sequence[BucketEntry],
    config: Config,
) -> Repetition:
    """Repeats the refusal of a workload that was parked alone, without the other workloads of its
    equivalence class."""
    rebuilt = _Rebuilt(entries, of_leader, config, decision)
    turns = [Turn((decision.namespace, decision.name))]
    made = rebuilt.core.turns(decision.domain, turns, now=rebuilt.now)
    again = rebuilt.core.refusal(turns[0].key)
    if again is None:
        return rebuilt.repetition(["the workload would not be inadmissible now"], made, turns)
    return rebuilt.repetition(_field_differences(decision.refusal, again), [again], turns)


# The scheduler of that time. ----------------------------------------------------------------


class DecisionReplay(Scheduler):
    """A scheduler that gets its heads and its decisions in flight from logged decisions."""

    def assume(self, decision: Decision) -> bool:
        """Marks a logged decision as in flight. Returns False if the state has another revision of
        the decision's workload, so that the decision has been written already."""
        state = self._state
        workload = state.workloads.get((decision.namespace, decision.name))
        domain = state.domains.get(decision.domain)
        if workload is None or domain is None or workload.revision != decision.revision:
            return False
        self.seen(decision.seen)
        if isinstance(decision, Assigned):
            self._assume_assigned(workload, domain, decision)
            return True
        workload.preemptor_waits = workload.preemptor_waits or isinstance(decision, Preempted)
        if isinstance(decision, Planned):
            assumption.assume_planned(state, domain, workload, decision.pending_preemption)
        elif isinstance(decision, Confirmed):
            assumption.assume_confirmed(state, domain, workload)
        else:
            state.set_in_flight(workload, domain, _IN_FLIGHT[type(decision)])
        return True

    def _assume_assigned(self, workload: WorkloadInfo, domain: Domain, decision: Assigned) -> None:
        state = self._state
        queue = state.queue(decision.admission.cluster_queue)
        if workload.queue is not None:
            workload.queue.forget_preemptor(workload)
            remove_from_queue(workload.queue, workload)
        source = decision.migrates_from
        giver = state.workloads.get((source.namespace, source.name)) if source is not None else None
        if giver is not None and giver.charge is None:
            giver = None
        families.sibling_to_replace(state, workload, queue.name, decision.admission)
        assumption.assume_assigned(
            state,
            domain,
            workload,
            queue,
            decision.admission,
            charges_of(queue.node, decision.admission, workload.shape)
            if queue.node is not None and workload.shape is not None
            else [],
            givers=[
                stored
                for given in decision.preempts
                if (stored := state.workloads.get((given.namespace, given.name))) is not None
                and stored.revision == given.revision
                and stored.charge is not None
            ],
            plan=decision.pending_preemption,
            migrates_from=giver if workload.family is not None else None,
            now=decision.time or state.now,
        )

    def turns(
        self,
        domain: str,
        turns: Iterable[Turn],
        *,
        now: datetime,
        usages: Mapping[str, float] | None = None,
        promise: PromisedStart | None = None,
    ) -> list[Decided]:
        """Runs a cycle that processes the given heads, and returns its decisions. ``usages``: the
        usages of LocalQueues that the logged cycle compared. ``promise``: the promise of a start
        that it kept. Raises CannotRepeat if one of the workloads was not pending."""
        known_domain = self._domain(domain)
        self.wake(now=now)
        for queue_state in known_domain.queues:
            if queue_state.lanes is not None:
                queue_state.lanes.set_usages(usages or {})
        self._cycle.number += 1
        known_domain.flush = known_domain.quota_reduced = False
        known_domain.rechecks.clear()
        known_domain.ready.clear()
        for key, cursor in turns:
            workload = self.head(key)
            queue = workload.queue
            assert queue is not None and workload.cls is not None, "it is a head"
            if queue in known_domain.ready and queue.preemptor is not workload:
                raise CannotRepeat(
                    f"two workloads of ClusterQueue {queue.name} were processed in one cycle"
                )
            queue.preemptor = workload
            known_domain.ready[queue] = None
            workload.cursor = None
            if cursor:
                generation = queue.generation + known_domain.generation
                workload.cursor = SavedCursor(cursor, self._cycle.number, generation, workload.cls)
        self._cycle.promises.is_recorded = True
        known_domain.promise = promise_from(self._state, promise) if promise is not None else None
        # During a handover of quota a domain has no cycles, but the replay needs one.
        known_domain.handover = None
        return self.decide(known_domain, now=now)

    def recheck(self, domain: str, keys: Iterable[Key], *, now: datetime) -> list[Decided]:
        """Runs a cycle without heads, and returns its decisions: about reduced quotas, and about
        the reservations of the workloads ``keys``, in order."""
        known_domain = self._domain(domain)
        self.wake(now=now)
        known_domain.quota_reduced = True
        known_domain.ready.clear()
        known_domain.rechecks = {
            workload: None for key in keys if (workload := self._state.workloads.get(key))
        }
        return self.decide(known_domain, now=now)

    def refusal(self, key: Key) -> Refusal | None:
        """Returns the refusal that says why the workload is parked or blocks its queue as the head;
        None: the workload is neither parked nor a blocked head."""
        workload = self._state.workloads.get(key)
        if workload is None:
            return None
        refusal = refusal_for(workload)
        if refusal is None and (standing := blocked_head_of(workload)) is not None:
            return standing.refusal
        return refusal

    def head(self, key: Key) -> WorkloadInfo:
        """Returns the pending workload ``key``. Raises CannotRepeat if the workload does not exist,
        or waits in no queue."""
        workload = self._state.workloads.get(key)
        name = "/".join(key)
        if workload is None:
            raise CannotRepeat(
                f"workload {name} did not exist at the revision of the decision", key
            )
        if workload.queue is None or workload.entry is None or workload.in_flight:
            raise CannotRepeat(
                f"workload {name} was not pending at the revision of the decision", key
            )
        return workload

    def _domain(self, name: str) -> Domain:
        known_domain = self._state.domains.get(name)
        if known_domain is None:
            raise CannotRepeat(f"domain {name} did not exist at the revision of the decision")
        return known_domain


class _Rebuilt:
    """Builds a `DecisionReplay` with the state that the scheduler had when it made the logged
    decision."""

    def __init__(
        self,
        entries: Sequence[BucketEntry],
        before: Iterable[LoggedDecision],
        config: Config,
        decision: Decision,
        *,
        seen: int = 0,
        now: datetime | None = None,
    ) -> None:
        time = now or decision.time
        assert time is not None, "decisions have a time"
        self.now = time
        self.core = DecisionReplay(config)
        self.core.own(decision.domain)
        self._inflight = 0
        self._entries = entries
        waiting = deque(before)
        for entry in entries:
            while waiting and waiting[0].decision.seen < entry.revision:
                self._inflight += self.core.assume(waiting.popleft().decision)
            apply_entry(self.core, entry, self.now)
        for refusal in waiting:
            self._inflight += self.core.assume(refusal.decision)
        self.core.seen(seen or decision.seen)

    def repetition(
        self, differences: Iterable[str], made: Iterable[Any], turns: Iterable[Turn]
    ) -> Repetition:
        """Returns the result of repeating the decision, with the numbers of workloads and manifests
        in the rebuilt state."""
        present = [entry for entry in self._entries if entry.value is not None]
        workloads = sum(entry.key.startswith("workload.") for entry in present)
        return Repetition(
            list(differences),
            [msgspec.to_builtins(repeated) for repeated in made],
            ["/".join(turn.key) for turn in turns],
            workloads,
            len(present) - workloads,
            self._inflight,
        )


# Comparing. ---------------------------------------------------------------------------------


def _differences(decision: Decision, made: Sequence[Decided]) -> Iterator[str]:
    own = [
        repeated
        for repeated in made
        if (repeated.namespace, repeated.name) == (decision.namespace, decision.name)
    ]
    for repeated in own:
        if type(repeated) is type(decision):
            yield from _field_differences(decision, repeated)
            return
    if own:
        yield f"the workload would be {type(own[0]).__name__.lower()} now"
        return
    yield NONE_MADE


def _field_differences(logged: Any, again: Any) -> Iterator[str]:
    """Yields a sentence for each field in which the logged and the repeated decision differ."""
    left, right = _compared(logged), _compared(again)
    for field in sorted({*left, *right} - NOT_COMPARED):
        if left.get(field) != right.get(field):
            was, is_now = (_shown(side.get(field)) for side in (left, right))
            yield f"{field}: logged {was}, now {is_now}"


def _compared(decision: Any) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(decision)
    if "taken" in fields:
        fields["taken"] = [{name: taken[name] for name in _TAKEN} for taken in fields["taken"]]
    return fields


def _shown(value: Any) -> str:
    return "nothing" if value is None else msgspec.json.encode(value).decode()
