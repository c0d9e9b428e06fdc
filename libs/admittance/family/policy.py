"""Which variants of a family may try to be admitted now, and why. LIFECYCLE 4.3."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal, NamedTuple, TypeAlias

Mode: TypeAlias = Literal["NoMigration", "UpgradeOnly"]


class Why(StrEnum):
    """Why a variant is active, or not."""

    PARENT = "parent"
    """The parent is deactivated or has finished."""
    REJECTED = "Rejected"
    """One of its checks rejected it."""
    USER = "User"
    """A user stopped it."""
    REQUEUING_LIMIT = "RequeuingLimit"
    """Its pods were not ready in time too often."""
    CREATE_DELAY = "createDelay"
    """Its time has not come yet."""
    RACE = "race"
    """Nothing of the family is admitted: everybody tries."""
    ADMITTED = "admitted"
    """It is the one."""
    NO_MIGRATION = "NoMigration"
    """Another one is admitted, and the family stays where it is."""
    LOWER_THAN_ADMITTED = "lowerThanAdmitted"
    """A better one is admitted."""
    BELOW_MIN = "belowMin"
    """Nobody moves up to so little: minFlavor, minVariant."""
    DELETE_DELAY = "deleteDelay"
    """It had its time to become the better place."""
    UPGRADE = "upgrade"
    """It would be better than the admitted one."""


STOPPED = frozenset({Why.REJECTED, Why.USER, Why.REQUEUING_LIMIT})
"""Reasons that policy never undoes; what ends them is a reset of the family, or its user."""


class Variant(NamedTuple):
    """``place``: its place in the order of preference, 0 the best. ``stopped_by``: of `STOPPED`, or
    "". Delays in seconds; ``delete_delay`` None: never."""

    name: str
    place: int
    stopped_by: str = ""
    create_delay: int = 0
    delete_delay: int | None = None


class Family(NamedTuple):
    """``active``: the parent is, and has not finished. ``start``: when the family began, or was
    reset. ``first_admitted``: since then; None: not yet. ``admitted``: the variant that holds the
    admission, also while its job still stops; "" is none. ``floor``: "" is none; ``floor_place``:
    its place, where it is known although the family has no such variant."""

    active: bool
    start: datetime
    mode: Mode = "UpgradeOnly"
    floor: str = ""
    admitted: str = ""
    first_admitted: datetime | None = None
    floor_place: int | None = None


class Wish(NamedTuple):
    """Whether a variant is to be active, and why."""

    active: bool
    why: Why


def wishes(family: Family, variants: Iterable[Variant], now: datetime) -> dict[str, Wish]:
    """What policy wants of each variant now, by name, the best first.

    An admitted variant that is no longer among them counts as none, and so does such a floor,
    unless its place is known.
    """
    ordered = sorted(variants, key=lambda one: one.place)
    by_name = {one.name: one for one in ordered}
    admitted = by_name.get(family.admitted)
    floor = by_name.get(family.floor)
    return {one.name: _wish(family, one, admitted, floor, now) for one in ordered}


def _wish(
    family: Family, one: Variant, admitted: Variant | None, floor: Variant | None, now: datetime
) -> Wish:
    if not family.active:
        return Wish(False, Why.PARENT)
    if one.stopped_by in STOPPED:
        return Wish(False, Why(one.stopped_by))
    # Without a delay there is nothing to wait for, also where our clock is behind the one that
    # stamped the parent.
    if one is not admitted and one.create_delay and now < _begins(family, one):
        return Wish(False, Why.CREATE_DELAY)
    if admitted is None:
        return Wish(True, Why.RACE)
    if one is admitted:
        return Wish(True, Why.ADMITTED)
    if family.mode == "NoMigration":
        return Wish(False, Why.NO_MIGRATION)
    if one.place > admitted.place:
        return Wish(False, Why.LOWER_THAN_ADMITTED)
    lowest = floor.place if floor is not None else family.floor_place
    if lowest is not None and one.place > lowest:
        return Wish(False, Why.BELOW_MIN)
    ends = _ends(family, one)
    if ends is not None and now >= ends:
        return Wish(False, Why.DELETE_DELAY)
    return Wish(True, Why.UPGRADE)


def _begins(family: Family, one: Variant) -> datetime:
    return family.start + timedelta(seconds=one.create_delay)


def _ends(family: Family, one: Variant) -> datetime | None:
    if one.delete_delay is None or family.first_admitted is None:
        return None
    return family.first_admitted + timedelta(seconds=one.delete_delay)


def next_change(family: Family, variants: Iterable[Variant], now: datetime) -> datetime | None:
    """When time alone next changes what `wishes` says; None: never."""
    known = tuple(variants)
    moments = {_begins(family, one) for one in known}
    moments |= {end for one in known if (end := _ends(family, one)) is not None}
    later = sorted(moment for moment in moments if moment > now)
    if not later:
        return None  # As in most families, and this is asked of each whenever it moves.
    present = wishes(family, known, now)
    for moment in later:
        if wishes(family, known, moment) != present:
            return moment
    return None
