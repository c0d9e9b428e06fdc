"""The claims of JWTs for a nats-server with an operator: the accounts with their border, and users
with their permissions. The roles and the border are those of `server_config`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from admittance.access.permissions import Rule
from admittance.access.role import Account
from admittance.access.roles import ROLES, permissions_of
from admittance.access.server_config import (
    ASKED_OUTSIDE,
    HEAD,
    INWARDS,
    OUTWARDS,
    Crossing,
    quoted,
)
from admittance.access.users import User

CONTROL_LINE_MAX: Final = 1 << 18
"""The most bytes of a client's first message, which has its JWT with all permissions; the default
of nats-server, 4 KiB, is too small for a service."""
RESOLVER_SECONDS: Final = 5
"""How often the servers of a cluster compare their JWTs: a server that was down learns then which
users were revoked."""
_UNLIMITED: Final = {"subs": -1, "data": -1, "payload": -1}
_ACCOUNT: Final = {
    **_UNLIMITED,
    **dict.fromkeys(("imports", "exports", "conn", "leaf"), -1),
    "wildcards": True,
}
_STORAGE: Final = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)


class Revoked(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A user that was revoked. ``key``: the user's public key; ``at``: the user's JWTs issued until
    this time are revoked, in seconds since 1970; ``expires``: when the user's JWT expires; 0:
    never.
    """

    key: str
    account: str
    at: int
    expires: int = 0


def operator_claims(system: str) -> dict[str, Any]:
    """The claims of the operator. ``system``: the public key of the system account."""
    return {"type": "operator", "version": 2, "system_account": system}


def account_claims(
    account: Account, keys: Mapping[str, str], revoked: Iterable[Revoked]
) -> dict[str, Any]:
    """The claims of one account. ``keys``: the public keys of all accounts, by name."""
    claims: dict[str, Any] = {"type": "account", "version": 2, "limits": _ACCOUNT}
    if gone := {
        revocation.key: revocation.at for revocation in revoked if revocation.account == account
    }:
        claims["revocations"] = gone
    if account is Account.CORE:
        claims["limits"] = {**_ACCOUNT, **_STORAGE}
        claims["exports"] = [*_exports("service", INWARDS), *_exports("stream", OUTWARDS)]
        claims["imports"] = [*_imports("service", ASKED_OUTSIDE, keys[Account.OUT])]
    elif account is Account.OUT:
        core = keys[Account.CORE]
        claims["exports"] = [*_exports("service", ASKED_OUTSIDE)]
        claims["imports"] = [
            *_imports("service", INWARDS, core),
            *_imports("stream", OUTWARDS, core),
        ]
    return claims


def _exports(kind: str, crossings: Iterable[Crossing]) -> list[dict[str, Any]]:
    return [
        {"name": crossing.exported, "subject": crossing.exported, "type": kind}
        | (
            {"response_type": "Stream" if crossing.many else "Singleton"}
            if kind == "service"
            else {}
        )
        for crossing in crossings
    ]


def _imports(kind: str, crossings: Iterable[Crossing], account: str) -> list[dict[str, Any]]:
    return [
        {"name": crossing.subject, "subject": crossing.exported, "account": account, "type": kind}
        | ({"local_subject": _numbered(crossing.subject)} if crossing.to else {})
        for crossing in crossings
    ]


def _numbered(pattern: str) -> str:
    """The pattern with ``$1``, ``$2``, … in place of its wildcards, in their order."""
    numbers = iter(range(1, 1 + pattern.count("*")))
    return re.sub(r"\*", lambda _: f"${next(numbers)}", pattern)


def user_claims(user: User) -> dict[str, Any]:
    """The claims of a user with the permissions of its role."""
    given = permissions_of(user)
    denied = {"deny": _patterns(given.denied)} if given.denied else {}
    return {
        "type": "user",
        "version": 2,
        **_UNLIMITED,
        "pub": {"allow": _patterns(given.publish), **denied},
        "sub": {"allow": _patterns(given.subscribe), **denied},
    }


def system_user_claims() -> dict[str, Any]:
    """The claims of the user that tells servers of changed accounts."""
    return {"type": "user", "version": 2, **_UNLIMITED}


def _patterns(rules: Iterable[Rule]) -> list[str]:
    return [rule.pattern for rule in rules]


def account_of(user: User) -> Account:
    """The account of the user's role."""
    return ROLES[user.role].account


def jwt_config(operator: str, accounts: Mapping[str, str], system: str, folder: str) -> str:
    """The configuration that a nats-server includes, as text. ``operator``: the operator's JWT;
    ``accounts``: the JWTs of the accounts by public key; ``system``: the public key of the system
    account; ``folder``: where the server keeps JWTs.
    """
    return HEAD + "\n".join(
        [
            f"operator: {operator}",
            f"system_account: {system}",
            f"max_control_line: {CONTROL_LINE_MAX}",
            "resolver {",
            "  type: full",
            f"  dir: {quoted(folder)}",
            "  allow_delete: false",
            f'  interval: "{RESOLVER_SECONDS}s"',
            "}",
            "resolver_preload {",
            *(f"  {key}: {jwt}" for key, jwt in accounts.items()),
            "}",
            "",
        ]
    )
