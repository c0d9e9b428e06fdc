"""When a family is to be looked at again though nothing of it has moved: its time has come, or a
name that it would take is somebody else's, or free. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from heapq import heappop, heappush
from typing import Final

from admittance.variant_controller.known import Name

SPARE: Final = 1000


class Times:
    """One time for each family. What holds no longer is dropped from the heap in passing, or when
    it is most of it."""

    def __init__(self) -> None:
        self._at: dict[Name, datetime] = {}
        self._heap: list[tuple[datetime, Name]] = []

    def set(self, family: Name, at: datetime | None) -> None:
        """To be looked at then, and not before; None: at no time."""
        if at is None:
            self._at.pop(family, None)
        elif self._at.get(family) != at:
            self._at[family] = at
            heappush(self._heap, (at, family))
            if len(self._heap) > 2 * len(self._at) + SPARE:
                self._heap = sorted((when, who) for who, when in self._at.items())

    def sooner(self, family: Name, at: datetime) -> None:
        """To be looked at then at the latest."""
        set_for = self._at.get(family)
        if set_for is None or at < set_for:
            self.set(family, at)

    def next(self) -> datetime | None:
        """The first of them; None: there is none."""
        while self._heap:
            at, family = self._heap[0]
            if self._at.get(family) == at:
                return at
            heappop(self._heap)
        return None

    def due(self, now: datetime) -> Iterator[Name]:
        """Families whose time has come; they have none any more."""
        while (at := self.next()) is not None and at <= now:
            _, family = heappop(self._heap)
            del self._at[family]
            yield family

    def __len__(self) -> int:
        return len(self._at)


class Names:
    """Which family would take which names."""

    def __init__(self) -> None:
        self._of: dict[Name, tuple[Name, ...]] = {}
        self._who: dict[Name, set[Name]] = {}

    def set(self, family: Name, names: tuple[Name, ...]) -> None:
        """These, and no others."""
        # A long name is the same whether somebody else has it or not.
        names = tuple(dict.fromkeys(names))
        for name in self._of.pop(family, ()):
            self._who[name].discard(family)
            if not self._who[name]:
                del self._who[name]
        if names:
            self._of[family] = names
        for name in names:
            self._who.setdefault(name, set()).add(family)

    def who(self, name: Name) -> list[Name]:
        """The families that would take it."""
        return sorted(self._who.get(name, ()))

    def __len__(self) -> int:
        return len(self._who)
