"""Users: the programs and people that may connect, each with one role."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Final

import msgspec

from admittance.events.names import token

NAME_MAX: Final = 253
"""The most characters in the name of a user, a namespace, a controller or a class."""
_KEY: Final = re.compile(r"\AU[A-Z2-7]{55}\Z")


class User(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A user of the server. ``key``: the public NKey. ``namespaces``: the namespaces that the user
    may act in; empty: all, for the roles that allow it. ``controller``: the controllerName of a
    check. ``class_name``: the provisioning class of a provider. ``expires``: from this time on the
    user may not connect; None: never. ``issued``: when its newest JWT was made, in seconds since
    1970; 0: with the user.
    """

    name: str
    role: str
    key: str
    namespaces: tuple[str, ...] = ()
    controller: str = ""
    class_name: str = msgspec.field(default="", name="class")
    created: datetime | None = None
    expires: datetime | None = None
    issued: int = 0

    @property
    def token(self) -> str:
        """The user's name as one token of a subject."""
        return token(self.name)

    @property
    def namespace_tokens(self) -> tuple[str, ...]:
        """The user's namespaces as tokens of subjects; ``*``: all namespaces."""
        return tuple(token(namespace) for namespace in self.namespaces) or ("*",)


def is_expired(user: User, now: datetime) -> bool:
    """Whether the user's ``expires`` has passed."""
    return user.expires is not None and user.expires <= now


def expired_users(users: Iterable[User], now: datetime) -> list[User]:
    """The users with an ``expires`` in the past."""
    return [user for user in users if is_expired(user, now)]


def next_expiry(users: Iterable[User], now: datetime) -> datetime | None:
    """The earliest ``expires`` after ``now`` of all users; None if no user expires after
    ``now``."""
    times = [user.expires for user in users if user.expires is not None and user.expires > now]
    return min(times, default=None)


def is_public_key(text: str) -> bool:
    """Whether the text has the form of a user's public NKey."""
    return _KEY.match(text) is not None


_SPECIAL: Final = frozenset("*>?/\\\"'`$&;|<(){}[]")
"""Characters of wildcards, paths and shells."""


def name_problem(what: str, name: str) -> str:
    """Why the name is not allowed, as a sentence; "" if the name is allowed. ``what``: such as "the
    user's
    name"."""
    if not name:
        return f"{what} is empty"
    if len(name) > NAME_MAX:
        return f"{what} has {len(name)} characters; at most {NAME_MAX} are allowed"
    if not name.isprintable() or name != name.strip():
        return f"{what} {name!r} must have printable characters, and no space at its ends"
    return ""


def user_name_problem(name: str) -> str:
    """Why the name of a user is not allowed, as a sentence; "" if it is allowed. The name becomes a
    file and a token of subjects, and rules of runners name it."""
    if problem := name_problem("the user's name", name):
        return problem
    bad = sorted(set(name) & _SPECIAL)
    if " " in name or bad or name.startswith((".", "-")):
        shown = "a space" if " " in name else " ".join(bad) or f"a {name[0]!r} at its beginning"
        return f"the user's name {name!r} may not have {shown}"
    return ""
