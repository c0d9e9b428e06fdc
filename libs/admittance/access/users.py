"""Users: the programs and people that may connect, each with one role."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

import msgspec

from admittance.events.names import token

NAME_MAX: Final = 253
"""The most characters in the name of a user, a namespace, a controller or a class."""
_KEY: Final = re.compile(r"\AU[A-Z2-7]{55}\Z")


class FurtherKey(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A further key of a user, which ends by itself. ``purpose``: what it was made for: "link" for
    the links of `admit up` and `admit web`; "": a token."""

    key: str
    created: datetime
    expires: datetime
    purpose: str = ""


class User(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A user of the server. ``key``: the public NKey. ``namespaces``: the namespaces that the user
    may act in; empty: all, for the roles that allow it. ``controller``: the controllerName of a
    check. ``class_name``: the provisioning class of a provider. ``expires``: from this time on the
    user may not connect; None: never. ``issued``: when its newest JWT was made, in seconds since
    1970; 0: with the user. ``keys``: further keys with the same rights.
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
    keys: tuple[FurtherKey, ...] = ()

    @property
    def token(self) -> str:
        """The user's name as one token of a subject."""
        return token(self.name)

    @property
    def namespace_tokens(self) -> tuple[str, ...]:
        """The user's namespaces as tokens of subjects; ``*``: all namespaces."""
        return tuple(token(namespace) for namespace in self.namespaces) or ("*",)


def login_with(user: User, further: FurtherKey) -> User:
    """The user as it logs in with a further key."""
    ends = further.expires if user.expires is None else min(further.expires, user.expires)
    return msgspec.structs.replace(
        user, key=further.key, created=further.created, expires=ends, issued=0, keys=()
    )


def logins(users: Iterable[User]) -> Iterator[User]:
    """The users, each followed by what logs in with its further keys."""
    for user in users:
        yield user
        for further in user.keys:
            yield login_with(user, further)


def without_expired(users: Iterable[User], now: datetime) -> tuple[User, ...]:
    """The users that have not expired, with the further keys that have not."""
    kept = (user for user in users if not is_expired(user, now))
    return tuple(
        msgspec.structs.replace(user, keys=tuple(k for k in user.keys if k.expires > now))
        for user in kept
    )


def is_expired(user: User, now: datetime) -> bool:
    """Whether the user's ``expires`` has passed."""
    return user.expires is not None and user.expires <= now


def expired_users(users: Iterable[User], now: datetime) -> list[User]:
    """The users with an ``expires`` in the past."""
    return [user for user in users if is_expired(user, now)]


def next_expiry(users: Iterable[User], now: datetime) -> datetime | None:
    """The earliest ``expires`` after ``now`` of all users and their further keys; None if there is
    none."""
    times = [
        user.expires for user in logins(users) if user.expires is not None and user.expires > now
    ]
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
