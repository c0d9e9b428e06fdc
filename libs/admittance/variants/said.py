"""What was said of families and is on its way, so that nothing is said again for nothing. Pure.

It is kept only as long as it is wanted, and whoever takes over knows nothing of it: an act that is
stated twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final, NamedTuple, TypeAlias

from admittance.events import facts
from admittance.events.base import Fact
from admittance.variants.known import Name
from admittance.variants.wanted import Act

PATIENCE: Final = timedelta(seconds=5)
"""After an act was stated and had no effect, until it is stated again; doubled each time."""
PATIENCE_MAX: Final = timedelta(minutes=5)
BEHIND_MAX: Final = timedelta(seconds=30)
"""The writer may be so far behind with what was stated, and further as long as it goes on: said
again meanwhile it is even further."""
COALESCE: Final = timedelta(milliseconds=100)
"""Between two nudges of one parent, while its variants move."""
GATHER: Final = timedelta(milliseconds=100)
"""Before a nudge: most of what moves variants moves their parent, which then tells by itself."""
AGAIN: Final = timedelta(seconds=1)
"""After an act could not be stated."""
STUCK: Final = 2
"""An act that was stated so often before has no effect, it seems."""


class _One(NamedTuple):
    """``due``: when it is said again, if it is still wanted then. ``sequence``: its place on the
    log; 0: nobody knows. ``until``: from when on it is said again also where the writer has not
    come there, and stands still."""

    mark: object
    revision: int
    due: datetime
    tries: int
    until: datetime
    sequence: int = 0


_Key: TypeAlias = tuple[type[Fact], str]


class Said:
    """``coalesce``, ``gather``: see `COALESCE` and `GATHER`."""

    def __init__(self, coalesce: timedelta, gather: timedelta) -> None:
        self._coalesce = coalesce
        self._gather = gather
        self._through = 0
        self._moves: datetime | None = None
        self._said: dict[Name, dict[_Key, _One]] = {}
        self._nudged: dict[Name, datetime] = {}
        self._unlike: dict[Name, datetime] = {}

    def sift(
        self, family: Name, acts: Iterable[Act], now: datetime
    ) -> tuple[list[Act], datetime | None]:
        """Those of all acts that are wanted of the family that are to be stated now, and when to
        ask for the others; None: there are none. What was said and is not wanted is forgotten."""
        before = self._said.get(family, {})
        said: dict[_Key, _One] = {}
        found: list[Act] = []
        looks: list[datetime] = []
        nudge = False
        for act in acts:
            nudge = nudge or isinstance(act.fact, facts.Aggregated)
            key = _key(act.fact)
            mark = act.mark, act.fact.uid
            last = before.get(key)
            if last is not None and last.mark != mark:
                last = None
            if last is not None:
                last = self._patient(last, now)
                wait: datetime | None = last.due
            else:
                wait = self._nudge_after(family, act, now)
            # Further away than that it is only when the clock was set back.
            if wait is not None and now < wait <= now + PATIENCE_MAX:
                if last is not None:
                    said[key] = last
                looks.append(wait)
                continue
            tries = last.tries + 1 if last is not None and last.revision == act.revision else 0
            due = now + min(PATIENCE * 2 ** min(tries, 10), PATIENCE_MAX)
            said[key] = _One(mark, act.revision, due, tries, max(due, now + BEHIND_MAX))
            looks.append(due)
            found.append(act._replace(tries=tries) if tries else act)
            if isinstance(act.fact, facts.Aggregated):
                self._nudged[family] = now
        if said:
            self._said[family] = said
        else:
            self._said.pop(family, None)
        if not nudge:
            self._unlike.pop(family, None)
        return found, min(looks, default=None)

    def through(self, sequence: int, now: datetime) -> None:
        """The writer of workloads has come so far with the log."""
        if sequence > self._through:
            self._through = sequence
            self._moves = now

    def has(self, family: Name, fact: Fact) -> bool:
        """It was said of that family, and is still wanted."""
        return _key(fact) in self._said.get(family, {})

    def stated(self, family: Name, fact: Fact, sequence: int) -> None:
        """It is on the log, there: until the writer is through with that it is not said again."""
        said = self._said[family]
        said[_key(fact)] = said[_key(fact)]._replace(sequence=sequence)

    def failed(self, family: Name, fact: Fact, now: datetime) -> datetime:
        """It was not stated, or nobody knows: when it is given again."""
        said = self._said[family]
        said[_key(fact)] = said[_key(fact)]._replace(due=now + AGAIN)
        return now + AGAIN

    def forget(self, family: Name) -> None:
        """There is no such family any more."""
        for kept in (self._said, self._nudged, self._unlike):
            kept.pop(family, None)

    def __len__(self) -> int:
        """Acts whose effect is not seen yet, and parents that are to be nudged later."""
        waiting = sum(
            not any(kind is facts.Aggregated for kind, _ in self._said.get(family, ()))
            for family in self._unlike
        )
        return waiting + sum(map(len, self._said.values()))

    @property
    def stuck(self) -> int:
        """Acts that were stated again and again, and had no effect."""
        return sum(one.tries >= STUCK for said in self._said.values() for one in said.values())

    def _patient(self, last: _One, now: datetime) -> _One:
        """Due later, where the writer has not come to it."""
        if now < last.due or self._through >= last.sequence:
            return last
        if now < last.until:
            return last._replace(due=min(now + PATIENCE, last.until))
        goes_on = self._moves is not None and self._moves <= now < self._moves + PATIENCE
        return last._replace(due=now + PATIENCE) if goes_on else last

    def _nudge_after(self, family: Name, act: Act, now: datetime) -> datetime | None:
        if not isinstance(act.fact, facts.Aggregated):
            return None
        after = self._unlike.setdefault(family, now) + self._gather
        nudged = self._nudged.get(family)
        return max(after, nudged + self._coalesce) if nudged is not None else after


def _key(fact: Fact) -> _Key:
    return type(fact), fact.name
