"""Repeats a decision from the log and compares the result. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from admittance.api.kinds import KINDS
from admittance.api.reading.manifest import decode_object
from admittance.control.commit import LogMessage
from admittance.control.fold import FENCE, FENCE_SUBJECT
from admittance.events.codec import Undecodable, decode
from admittance.events.facts import Assigned, Decision, Preempted, Refused
from admittance.events.names import plain, token
from admittance.events.subjects import EPOCH
from admittance.replay.pieces import Entry
from admittance.scheduling.config import Config
from admittance.scheduling.cycle.outcomes import Decided
from admittance.scheduling.explain.decision_replay import (
    Again,
    Turn,
    is_recheck,
    is_turn,
    key_of,
    rechecked,
    turns_of,
    usages_of,
)
from admittance.workload import stored

KIND_OF_TOKEN: Final = {
    kind.token: kind.name for kind in KINDS.values() if kind.name not in ("Workload", "Job")
}
NOT_COMPARED: Final = frozenset({"time", "scan", "localUsage"})
"""Fields that describe how a decision was made, not the decision."""


class Said(NamedTuple):
    """A decision on the log. ``epoch``: of the leader that made it."""

    sequence: int
    epoch: int
    decision: Decision


class Answer(NamedTuple):
    """``differences``: a sentence each; empty: the same decision. ``made``: the repeated decision.
    ``turns``: the heads; ``workloads``, ``objects``, ``inflight``: the size of the scheduler's
    state and the number of decisions in flight."""

    differences: list[str]
    made: list[Any]
    turns: list[str]
    workloads: int
    objects: int
    inflight: int


def said(heard: LogMessage) -> Said | None:
    """The decision in a message; None: not a decision by a leader of its domain."""
    try:
        fact = decode(heard.subject, heard.data)
    except Undecodable:
        return None
    epoch = heard.headers.get(FENCE, "")
    if not isinstance(fact, Decision) or not epoch.isascii() or not epoch.isdigit():
        return None
    if heard.headers.get(FENCE_SUBJECT) != f"{EPOCH}{token(fact.domain)}":
        return None
    return Said(heard.sequence, int(epoch), fact)


def needed(decision: Decision) -> list[int]:
    """The revisions of the bucket that the decision was made from, oldest first."""
    scan = decision.scan
    if isinstance(decision, Refused) and scan is not None and scan.seen:
        return [scan.seen, decision.seen]
    return [decision.seen]


def repeat(
    target: Said, before: Sequence[Said], at: Callable[[int], Sequence[Entry]], config: Config
) -> Answer:
    """Makes the decision again. ``before``: earlier decisions on the log, in order, as far back as
    they may have been in flight; ``at``: returns the bucket at a revision.

    Raises CannotRepeat.
    """
    decision = target.decision
    ours = [
        one
        for one in before
        if one.epoch == target.epoch and one.decision.domain == decision.domain
    ]
    scan = decision.scan
    if isinstance(decision, Refused) and not is_turn(decision):
        if scan is not None and scan.seen:
            return _parked_again(decision, ours, at, config)
        return _aside_again(decision, ours, at(decision.seen), config)
    mates = [one for one in ours if _is_of_cycle(one.decision, decision.time, decision.seen)]
    earlier = [one for one in ours if one not in mates]
    if is_recheck(decision):
        # All rechecks of reservations are published together, before the heads are considered.
        twins = [one.decision for one in ours if _is_twin(one.decision, decision)]
        earlier = [one for one in earlier if not _is_twin(one.decision, decision)]
        picture = Picture(at(decision.seen), earlier, config, decision)
        looked_at = rechecked([*twins, decision])
        made: list[Decided] = picture.core.before_turns(decision.domain, looked_at, now=picture.now)
        return picture.answer(_differences(decision, made), made, [])
    picture = Picture(at(decision.seen), earlier, config, decision)
    cycle = [*(one.decision for one in mates), decision]
    turns = turns_of(cycle)
    usages = usages_of(cycle)
    made = picture.core.turns(decision.domain, turns, now=picture.now, usages=usages)
    return picture.answer(_differences(decision, made), made, turns)


def _parked_again(
    decision: Refused, ours: Sequence[Said], at: Callable[[int], Sequence[Entry]], config: Config
) -> Answer:
    """Repeats the refusal of a workload whose class was parked in an earlier cycle. Flavors that
    were not tried then have the numbers of the time when the refusal was published."""
    scan = decision.scan
    assert scan is not None, "only such a refusal"
    then = scan.at or decision.time
    assert then is not None, "a scheduler says when"
    mates = [one.decision for one in ours if _is_of_cycle(one.decision, then, scan.seen)]
    earlier = [one for one in ours if one.decision.time is not None and one.decision.time < then]
    first = Picture(at(scan.seen), earlier, config, decision, seen=scan.seen, now=then)
    own = (decision.namespace, decision.name)
    head = key_of(scan.head) if scan.head else own
    turns = [turn for turn in turns_of(mates) if turn.key != head]
    turns.append(Turn(head, scan.cursor))
    made = first.core.turns(decision.domain, turns, now=then)
    parked = first.core.refusal(head)
    if parked is None:
        return first.answer(["it would not be parked now"], made, turns)
    second = Picture(at(decision.seen), ours, config, decision)
    again = second.core.completed(own, parked)
    return second.answer(_unlike(decision.refusal, again), [again], turns)


def _aside_again(
    decision: Refused, ours: Sequence[Said], entries: Sequence[Entry], config: Config
) -> Answer:
    """Repeats the refusal of a single workload."""
    picture = Picture(entries, ours, config, decision)
    turns = [Turn((decision.namespace, decision.name))]
    made = picture.core.turns(decision.domain, turns, now=picture.now)
    again = picture.core.refusal(turns[0].key)
    if again is None:
        return picture.answer(["it would not be set aside now"], made, turns)
    return picture.answer(_unlike(decision.refusal, again), [again], turns)


def _is_of_cycle(one: Decision, time: datetime | None, seen: int) -> bool:
    return one.time == time and one.seen == seen and is_turn(one)


def _is_twin(one: Decision, other: Decision) -> bool:
    return is_recheck(one) and (one.time, one.seen) == (other.time, other.seen)


class Picture:
    """A scheduler with the state of the one that decided."""

    def __init__(
        self,
        entries: Sequence[Entry],
        before: Iterable[Said],
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

    def _read(self, entry: Entry) -> None:
        prefix, _, rest = entry.key.partition(".")
        first, _, second = rest.partition(".")
        if prefix == "workload":
            found = stored.decode(entry.value) if entry.value is not None else None
            self.core.apply_workload(
                plain(first), plain(second), found, entry.revision, now=self.now
            )
        elif prefix in KIND_OF_TOKEN:
            namespace, name = (plain(first), plain(second)) if second else ("", plain(first))
            manifest = decode_object(entry.value).manifest if entry.value is not None else None
            kind = KIND_OF_TOKEN[prefix]
            self.core.apply_object(kind, namespace, name, manifest, entry.revision)

    def answer(
        self, differences: Iterable[str], made: Iterable[Any], turns: Iterable[Turn]
    ) -> Answer:
        """The result, with the size of its inputs."""
        present = [entry for entry in self._entries if entry.value is not None]
        workloads = sum(entry.key.startswith("workload.") for entry in present)
        return Answer(
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
            yield from _unlike(decision, one)
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


def _unlike(logged: Any, again: Any) -> Iterator[str]:
    """The differences field by field, as on the log."""
    left, right = msgspec.to_builtins(logged), msgspec.to_builtins(again)
    for field in sorted({*left, *right} - NOT_COMPARED):
        if left.get(field) != right.get(field):
            was, is_now = (_shown(side.get(field)) for side in (left, right))
            yield f"{field}: logged {was}, now {is_now}"


def _shown(value: Any) -> str:
    return "nothing" if value is None else msgspec.json.encode(value).decode()
