"""Repeats a decision from the log and compares the result. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from admittance.api.kinds import OBJECT_KINDS
from admittance.api.reading.manifest import decode_object
from admittance.control.commit import LogMessage
from admittance.events.codec import Undecodable, decode
from admittance.events.facts import Assigned, Decision, Preempted, Refused
from admittance.events.reader import BucketEntry
from admittance.scheduling.cycle.outcomes import Decided
from admittance.scheduling.decision_replay import (
    Again,
    Turn,
    is_recheck,
    is_turn,
    key_of,
    rechecked,
    turns_of,
    usages_of,
)
from admittance.scheduling.state.config import Config
from admittance.workload import stored
from admittance.workload.bucket_reader import names_of

NOT_COMPARED: Final = frozenset({"time", "scan", "localUsage"})
"""Fields that describe how a decision was made, not the decision."""


class LoggedDecision(NamedTuple):
    """A decision on the log. ``epoch``: of the leader that made it."""

    sequence: int
    epoch: int
    decision: Decision


class Repetition(NamedTuple):
    """``differences``: a sentence each; empty: the same decision. ``made``: the repeated decision.
    ``turns``: the heads; ``workloads``, ``objects``, ``inflight``: the size of the scheduler's
    state and the number of decisions in flight."""

    differences: list[str]
    made: list[Any]
    turns: list[str]
    workloads: int
    objects: int
    inflight: int


def logged_decision(heard: LogMessage) -> LoggedDecision | None:
    """The decision in a message; None: not a decision by a leader of its domain."""
    try:
        fact = decode(heard.subject, heard.data)
    except Undecodable:
        return None
    if not isinstance(fact, Decision) or heard.fence is None:
        return None
    if heard.fence.domain != fact.domain:
        return None
    return LoggedDecision(heard.sequence, heard.fence.epoch, fact)


def revisions_needed(decision: Decision) -> list[int]:
    """The revisions of the bucket that the decision was made from, oldest first."""
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
    """Makes the decision again. ``before``: earlier decisions on the log, in order, as far back as
    they may have been in flight; ``bucket_at``: returns the bucket at a revision.

    Raises CannotRepeat.
    """
    decision = target.decision
    of_leader = [
        one
        for one in before
        if one.epoch == target.epoch and one.decision.domain == decision.domain
    ]
    scan = decision.scan
    if isinstance(decision, Refused) and not is_turn(decision):
        if scan is not None and scan.seen:
            return _repeat_parked(decision, of_leader, bucket_at, config)
        return _repeat_inadmissible(decision, of_leader, bucket_at(decision.seen), config)
    same_cycle = [
        one for one in of_leader if _is_of_cycle(one.decision, decision.time, decision.seen)
    ]
    earlier = [one for one in of_leader if one not in same_cycle]
    if is_recheck(decision):
        # All rechecks of reservations are published together, before the heads are considered.
        rechecks = [one.decision for one in of_leader if _is_same_recheck(one.decision, decision)]
        earlier = [one for one in earlier if not _is_same_recheck(one.decision, decision)]
        rebuilt = RebuiltScheduler(bucket_at(decision.seen), earlier, config, decision)
        looked_at = rechecked([*rechecks, decision])
        made: list[Decided] = rebuilt.core.before_turns(decision.domain, looked_at, now=rebuilt.now)
        return rebuilt.repetition(_differences(decision, made), made, [])
    rebuilt = RebuiltScheduler(bucket_at(decision.seen), earlier, config, decision)
    cycle = [*(one.decision for one in same_cycle), decision]
    turns = turns_of(cycle)
    usages = usages_of(cycle)
    made = rebuilt.core.turns(decision.domain, turns, now=rebuilt.now, usages=usages)
    return rebuilt.repetition(_differences(decision, made), made, turns)


def _repeat_parked(
    decision: Refused,
    of_leader: Sequence[LoggedDecision],
    bucket_at: Callable[[int], Sequence[BucketEntry]],
    config: Config,
) -> Repetition:
    """Repeats the refusal of a workload whose class was parked in an earlier cycle. Flavors that
    were not tried then have the numbers of the time when the refusal was published."""
    scan = decision.scan
    assert scan is not None, "only such a refusal"
    then = scan.at or decision.time
    assert then is not None, "a scheduler says when"
    same_cycle = [one.decision for one in of_leader if _is_of_cycle(one.decision, then, scan.seen)]
    earlier = [
        one for one in of_leader if one.decision.time is not None and one.decision.time < then
    ]
    first = RebuiltScheduler(
        bucket_at(scan.seen), earlier, config, decision, seen=scan.seen, now=then
    )
    own = (decision.namespace, decision.name)
    head = key_of(scan.head) if scan.head else own
    turns = [turn for turn in turns_of(same_cycle) if turn.key != head]
    turns.append(Turn(head, scan.cursor))
    made = first.core.turns(decision.domain, turns, now=then)
    parked = first.core.refusal(head)
    if parked is None:
        return first.repetition(["it would not be parked now"], made, turns)
    second = RebuiltScheduler(bucket_at(decision.seen), of_leader, config, decision)
    again = second.core.completed(own, parked)
    return second.repetition(_field_differences(decision.refusal, again), [again], turns)


def _repeat_inadmissible(
    decision: Refused,
    of_leader: Sequence[LoggedDecision],
    entries: Sequence[BucketEntry],
    config: Config,
) -> Repetition:
    """Repeats the refusal of a single workload."""
    rebuilt = RebuiltScheduler(entries, of_leader, config, decision)
    turns = [Turn((decision.namespace, decision.name))]
    made = rebuilt.core.turns(decision.domain, turns, now=rebuilt.now)
    again = rebuilt.core.refusal(turns[0].key)
    if again is None:
        return rebuilt.repetition(["it would not be set aside now"], made, turns)
    return rebuilt.repetition(_field_differences(decision.refusal, again), [again], turns)


def _is_of_cycle(one: Decision, time: datetime | None, seen: int) -> bool:
    return one.time == time and one.seen == seen and is_turn(one)


def _is_same_recheck(one: Decision, other: Decision) -> bool:
    return is_recheck(one) and (one.time, one.seen) == (other.time, other.seen)


class RebuiltScheduler:
    """A scheduler with the state of the one that decided."""

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
        assert time is not None, "a scheduler says when"
        self.now = time
        self.core = Again(config)
        self.core.own(decision.domain)
        self.inflight = 0
        self._entries = entries
        waiting = deque(before)
        for entry in entries:
            while waiting and waiting[0].decision.seen < entry.revision:
                self._assume(waiting.popleft().decision)
            self._read(entry)
        for one in waiting:
            self._assume(one.decision)
        self.core.seen(seen or decision.seen)

    def _assume(self, decision: Decision) -> None:
        self.inflight += self.core.assume(decision)

    def _read(self, entry: BucketEntry) -> None:
        prefix = entry.key.partition(".")[0]
        value = entry.value
        if prefix == "workload":
            found = stored.decode(value) if value is not None else None
            self.core.apply_workload(*names_of(entry.key), found, entry.revision, now=self.now)
        elif prefix in OBJECT_KINDS:
            manifest = decode_object(value).manifest if value is not None else None
            names = names_of(entry.key)
            self.core.apply_object(OBJECT_KINDS[prefix], *names, manifest, entry.revision)

    def repetition(
        self, differences: Iterable[str], made: Iterable[Any], turns: Iterable[Turn]
    ) -> Repetition:
        """The result, with the size of its inputs."""
        present = [entry for entry in self._entries if entry.value is not None]
        workloads = sum(entry.key.startswith("workload.") for entry in present)
        return Repetition(
            list(differences),
            [msgspec.to_builtins(one) for one in made],
            ["/".join(turn.key) for turn in turns],
            workloads,
            len(present) - workloads,
            self.inflight,
        )


# Comparing. ---------------------------------------------------------------------------------


def _differences(decision: Decision, made: Sequence[Decided]) -> Iterator[str]:
    own = [one for one in made if (one.namespace, one.name) == (decision.namespace, decision.name)]
    for one in own:
        if type(one) is type(decision):
            yield from _field_differences(decision, one)
            return
    if own:
        yield f"it would be {type(own[0]).__name__.lower()} now"
        return
    if isinstance(decision, Assigned | Preempted):
        by = decision.by if isinstance(decision, Preempted) else ""
        others = ", ".join(f"{one.namespace}/{one.name}" for one in made) or "no workload"
        yield f"nothing would be stated about it{f' for {by}' if by else ''} now, but of {others}"
        return
    yield "nothing would be stated about it now"


def _field_differences(logged: Any, again: Any) -> Iterator[str]:
    """The differences field by field, as on the log."""
    left, right = msgspec.to_builtins(logged), msgspec.to_builtins(again)
    for field in sorted({*left, *right} - NOT_COMPARED):
        if left.get(field) != right.get(field):
            was, is_now = (_shown(side.get(field)) for side in (left, right))
            yield f"{field}: logged {was}, now {is_now}"


def _shown(value: Any) -> str:
    return "nothing" if value is None else msgspec.json.encode(value).decode()
