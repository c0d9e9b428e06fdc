"""What must hold of arrays, and of workloads that wait for others. docs/spec/arrays.md.

Read plainly from stored workloads, and sharing nothing with `admittance.arrays`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from typing import Any, Final, NamedTuple

from admittance.api.arrays import INDEX_LABEL, parse_indexes
from admittance.api.dependencies import DEPENDENCIES_GATE
from admittance.api.workload import ARRAY_GATE, GATED_BY, DependencyRow
from admittance.events import facts
from admittance.events.codec import Undecodable, decode
from admittance.workload.conditions import Type, find, is_true
from admittance.workload.stored import StoredWorkload, head
from simulation.invariants.seen import Seen
from simulation.nats.observed import MESSAGE_ID, Stored
from simulation.transcript import Broken

ARRAY: Final = "array"
USER: Final = "user/"
"""The message ids of users begin so."""
OPENINGS: Final = frozenset({"activated", "released", "finished"})
FAILURES: Final = frozenset("fdc")


class Index(NamedTuple):
    """An index of the array with that uid."""

    array: str
    number: int


def index_of(workload: StoredWorkload) -> Index | None:
    """The index of an element; None: the workload is no element."""
    written = workload.metadata.labels.get(INDEX_LABEL)
    owners = [owner.uid for owner in workload.metadata.owner_references]
    return Index(owners[0], int(written)) if written is not None and owners else None


class Arrays:
    """``seen``: all workloads by key. ``abandoned``: keys of runs that did not stop in time."""

    def __init__(self, seen: Mapping[str, Seen], abandoned: Set[str]) -> None:
        self._seen = seen
        self._abandoned = abandoned
        self._arrays: dict[str, StoredWorkload] = {}
        """The newest version of each array by uid, also of those that are gone."""
        self._present: set[str] = set()
        """Uids of the arrays that are there."""
        self._elements: dict[str, set[str]] = defaultdict(set)
        """By uid of an array, the keys of its elements that are there."""
        self._made: dict[Index, str] = {}
        """The uid of the element that an index has, or has had."""
        self._over: dict[Index, str] = {}
        """By index, the result of its element."""
        self._ended: dict[str, bool] = {}
        """By uid of a workload that has ended, whether it succeeded."""
        self._started: set[str] = set()
        """Uids of workloads that were admitted, and of arrays with such an element."""
        self._opened: set[str] = set()
        """Keys of workloads that users activated, or a gate of which they opened."""
        self._closed: set[str] = set()
        """Keys of workloads that users ended with a result of their own."""
        self._claimed: dict[Index, tuple[str, str]] = {}
        """Results that arrays got in this batch, with the keys of the arrays."""
        self._running: dict[Index, str] = {}
        """The key of the run of each index."""

    # The log. -------------------------------------------------------------------------

    def logged(self, stored: Stored) -> None:
        """Notes what a user opens or ends."""
        _, thing, what, *rest = stored.subject.split(".")
        if thing != "workload" or what not in OPENINGS:
            return
        if not stored.headers.get(MESSAGE_ID, "").startswith(USER):
            return
        try:
            fact = decode(stored.subject, stored.data)
        except Undecodable:
            return
        key = f"workload.{'.'.join(rest)}"
        gates = (ARRAY_GATE, DEPENDENCIES_GATE)
        if isinstance(fact, facts.Finished):
            self._closed.add(key)
        elif isinstance(fact, facts.Activated) or (
            isinstance(fact, facts.Released) and fact.gate in gates
        ):
            self._opened.add(key)

    # The bucket. ----------------------------------------------------------------------

    def stored(self, key: str, before: Seen, after: Seen) -> None:
        """Checks a write of a workload."""
        old, new = before.workload, after.workload
        self._note_end(key, old, new)
        if new is None:
            return
        if old is not None and old.metadata.uid != new.metadata.uid:
            before, old = Seen(), None  # The name was free in between.
        if is_true(new, Type.ADMITTED):
            self._started.add(new.metadata.uid)
        index = index_of(new)
        if index is not None:
            self._element(key, index, new, after)
        if new.status.array is not None:
            self._array(key, old, new)
        if new.status.dependencies:
            self._dependent(key, old, new)
        if after.usage and not before.usage:
            self._takes_quota(key, new)

    def _note_end(self, key: str, old: StoredWorkload | None, new: StoredWorkload | None) -> None:
        """Notes that a workload has ended or is gone."""
        if new is not None and (finished := find(new, Type.FINISHED)) is not None:
            self._ended.setdefault(new.metadata.uid, finished.reason == "Succeeded")
        if old is None or (new is not None and new.metadata.uid == old.metadata.uid):
            return
        index = index_of(old)
        if index is not None:
            self._over.setdefault(index, "d")
            self._elements[index.array].discard(key)
        self._present.discard(old.metadata.uid)

    def _element(self, key: str, index: Index, new: StoredWorkload, after: Seen) -> None:
        uid = new.metadata.uid
        made = self._made.setdefault(index, uid)
        if made != uid:
            raise Broken(f"{key}: index {index.number} of its array has a second element (2)")
        self._elements[index.array].add(key)
        if is_true(new, Type.ADMITTED):
            self._started.add(index.array)
        finished = find(new, Type.FINISHED)
        if finished is not None:
            letter = {"Succeeded": "s", "ArrayEnded": "c"}.get(finished.reason, "f")
            self._over.setdefault(index, letter)
        if after.usage:
            self._at_once(index.array)

    def _at_once(self, uid: str) -> None:
        """With parallelism N at most N elements hold quota, beside those that users opened."""
        array = self._arrays.get(uid)
        most = head(array).array.parallelism if array is not None else None  # type: ignore[union-attr]
        if most is None:
            return
        held = [key for key in self._elements[uid] if self._seen[key].usage]
        if len(held) > most and len(set(held) - self._opened) > most:
            raise Broken(f"{sorted(held)} hold quota at once, and their array allows {most} (2)")

    def _array(self, key: str, old: StoredWorkload | None, new: StoredWorkload) -> None:
        uid, counted = new.metadata.uid, new.status.array
        assert counted is not None
        self._arrays[uid] = new
        self._present.add(uid)
        before = old.status.array if old is not None else None
        indexes = parse_indexes(head(new).array.indexes)  # type: ignore[union-attr]
        for place, number in enumerate(indexes):
            letter = counted.results[place]
            was = before.results[place] if before is not None else "."
            if letter == was:
                continue
            if was != ".":
                raise Broken(f"{key}: the result of {number} was {was} and is {letter} (3)")
            if letter != "c" or not is_true(new, Type.FINISHED):
                self._claimed[Index(uid, number)] = key, letter
        finished = find(new, Type.FINISHED)
        if finished is None or key in self._closed:
            return
        if "." in counted.results:
            if finished.reason == "Succeeded":
                raise Broken(f"{key} has succeeded with the results {counted.results} (4)")
        elif (set(counted.results) == {"s"}) != (finished.reason == "Succeeded"):
            raise Broken(f"{key} is {finished.reason} with the results {counted.results} (4)")

    def whole(self) -> None:
        """A batch is whole: each result that an array got is that of its element."""
        for index, (key, letter) in self._claimed.items():
            if letter == "d" and index not in self._made:
                # It was created and deleted between two writes, and is not created again.
                self._made[index] = ""
                self._over[index] = letter
            over = self._over.get(index)
            if over != letter:
                number = index.number
                raise Broken(f"{key}: the result of {number} is {letter}, its element has {over}")
        self._claimed.clear()

    # Dependencies. --------------------------------------------------------------------

    def _dependent(self, key: str, old: StoredWorkload | None, new: StoredWorkload) -> None:
        """Whatever is met stays met."""
        if old is None:
            return
        for was, row in zip(old.status.dependencies, new.status.dependencies, strict=True):
            if was.since is not None and row.since != was.since:
                raise Broken(f"{key} waits again for {row.workload} (T31)")

    def _takes_quota(self, key: str, workload: StoredWorkload) -> None:
        index = index_of(workload)
        waiting = [(key, workload)]
        if index is not None and (array := self._arrays.get(index.array)) is not None:
            waiting.append((f"workload.{array.metadata.namespace}.{array.metadata.name}", array))
        for name, waits in waiting:
            if name in self._opened:
                continue
            for row in waits.status.dependencies:
                if not row.elementwise and not self._met(row):
                    raise Broken(f"{key} takes quota before {row.workload} is {row.condition} (5)")

    def _met(self, row: DependencyRow) -> bool:
        if row.index is None:
            succeeded = self._ended.get(row.uid)
        else:
            letter = self._letter(Index(row.uid, row.index))
            succeeded = None if letter == "." else letter == "s"
        match row.condition:
            case "started":
                return row.uid in self._started
            case "any":
                return succeeded is not None
            case "failed":
                return succeeded is False
        return succeeded is True

    def _letter(self, index: Index) -> str:
        array = self._arrays[index.array]
        assert array.status.array is not None
        indexes = parse_indexes(head(array).array.indexes)  # type: ignore[union-attr]
        return array.status.array.results[indexes.index(index.number)]

    def may_wait(self, workload: StoredWorkload) -> bool:
        """Whether the workload waits for another in the end, and not all it waits for is there: it,
        of an array one of its elements, of an element behind a gate one that is open. A condition
        that was not stored as met before its workload was deleted counts as missed."""
        index = index_of(workload)
        uid = workload.metadata.uid
        if index is not None and ARRAY_GATE in workload.metadata.annotations.get(GATED_BY, ""):
            uid = index.array
        elements = (self._seen[key].workload for key in sorted(self._elements.get(uid, ())))
        return any(
            not row.elementwise
            and row.since is None
            and not (self._met(row) and self._exists(row.uid))
            for waiting in (workload, *elements)
            if waiting is not None
            for row in waiting.status.dependencies
        )

    def _exists(self, uid: str) -> bool:
        return any(
            seen.workload is not None and seen.workload.metadata.uid == uid
            for seen in self._seen.values()
        )

    # Jobs. ----------------------------------------------------------------------------

    def started(self, key: str) -> None:
        """The processes of a run start: its index has no other run, and none after its result."""
        seen = self._seen.get(f"workload.{key.rpartition('.')[0]}")
        workload = seen.workload if seen is not None else None
        index = index_of(workload) if workload is not None else None
        if index is None:
            return
        other = self._running.get(index)
        if other is not None and other not in self._abandoned:
            raise Broken(f"{key} starts, and index {index.number} runs as {other} (2)")
        self._running[index] = key

    def ended(self, key: str) -> None:
        """The run has no processes any more."""
        for index in [index for index, run in self._running.items() if run == key]:
            del self._running[index]

    # The end. -------------------------------------------------------------------------

    def at_rest(self) -> None:
        """Checks that arrays and their elements agree when nothing happens any more."""
        for uid, keys in self._elements.items():
            if keys and uid not in self._present:
                raise Broken(f"{sorted(keys)} are elements of no array")
        for uid in sorted(self._present):
            array = self._arrays[uid]
            for wrong in self._disagree(uid, array):
                raise Broken(f"the array {array.metadata.name} {wrong}")

    def _disagree(self, uid: str, array: StoredWorkload) -> Iterator[str]:
        counted: Any = array.status.array
        indexes = parse_indexes(head(array).array.indexes)  # type: ignore[union-attr]
        over = [self._over.get(Index(uid, number), ".") for number in indexes]
        if is_true(array, Type.FINISHED):
            if "." in counted.results:
                yield f"has ended with the results {counted.results} (4)"
            lives = [
                key for key in self._elements[uid] if self._seen[key].where not in ("finished", "")
            ]
            if lives:
                yield f"has ended, and {sorted(lives)} go on (4)"
            return
        if counted.results != "".join(over):
            yield f"says {counted.results}, and its elements have {''.join(over)} (3)"
        if sum(counted.states.values()) != over.count("."):
            yield f"counts {counted.states}, and {over.count('.')} have no result (3)"
        missing = sum(Index(uid, number) not in self._made for number in indexes)
        if counted.states.get("NotCreated", 0) != missing:
            yield f"counts {counted.states}, and {missing} were not created (3)"
