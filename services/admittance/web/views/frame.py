"""What every page has: its title, its menu, its time."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from admittance.web.views.past import PastBar


class Place(NamedTuple):
    """A page of the menu. ``key``: the letter that opens it after ``g``; ``roles``: the roles that
    may see it, "" for a server without users; None: all roles; ``is_lesser``: it stands under
    *More*, unless it is the page that is shown."""

    text: str
    href: str
    key: str
    roles: frozenset[str] | None = None
    is_lesser: bool = False


MENU: Final = (
    Place("Workloads", "/", "w"),
    Place("Queues", "/queues", "q"),
    Place("Pending", "/pending", "p"),
    Place("Checks", "/checks", "c"),
    Place("Machines", "/machines", "m", frozenset({"", "viewer", "admin"}), is_lesser=True),
    Place("Capacity", "/capacity", "a", is_lesser=True),
    Place(
        "Usage",
        "/usage",
        "u",
        frozenset({"", "owner", "user", "viewer", "admin"}),
        is_lesser=True,
    ),
    Place("Events", "/events", "e", is_lesser=True),
    Place("What if", "/whatif", "i", frozenset({"", "viewer", "admin", "user", "owner"})),
    Place("Health", "/health", "h", frozenset({"", "viewer", "admin"})),
)


def menu_of(role: str) -> tuple[Place, ...]:
    """The pages of the menu for a role."""
    return tuple(place for place in MENU if place.roles is None or role in place.roles)


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """``title``: says the state, such as "w-17 Pending"; ``at``: the path of the page in the menu;
    ``trouble``: whether the favicon shows trouble; ``live``: whether the page changes with the log;
    ``every``: the seconds after which it asks again without a fact of the log, 0: never; ``as_of``:
    the time of the answers; ``past``: the bar of a page that shows a past moment."""

    title: str
    as_of: datetime
    at: str = ""
    past: PastBar | None = None
    trouble: bool = False
    live: bool = True
    every: int = 0

    @property
    def as_of_text(self) -> str:
        """The time of day of the answers."""
        return f"{self.as_of:%H:%M:%S}"
