"""Writes the configuration text that a nats-server includes: the accounts, the border between the
accounts, and the users."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from admittance.access.border import ASKED_OUTSIDE, INWARDS, OUTWARDS, Crossing
from admittance.access.permissions import Permissions, Rule
from admittance.access.roles import ROLES, Account, permissions_of
from admittance.access.users import User

ANSWER_SECONDS: Final = 120
"""Seconds within which a program may answer a request, if its role may publish answers to received
requests only."""

HEAD: Final = """\
# Written by `admit auth`: do not edit. Include this file in the configuration of nats-server.
"""


def server_config(users: Iterable[User], system_key: str) -> str:
    """The configuration of all accounts, as text. ``system_key``: the public key of the user that
    may tell the server to reload its configuration."""
    by_account: dict[Account, list[User]] = {account: [] for account in Account}
    for user in sorted(users, key=lambda one: one.name):
        by_account[ROLES[user.role].account].append(user)
    return HEAD + "\n".join(
        [
            "accounts {",
            "  CORE {",
            "    jetstream: enabled",
            "    exports: [",
            *_exports("service", INWARDS, "OUT"),
            *_exports("stream", OUTWARDS, "OUT"),
            "    ]",
            "    imports: [",
            *_imports("service", ASKED_OUTSIDE, "OUT"),
            "    ]",
            *_users(by_account[Account.CORE]),
            "  }",
            "  OUT {",
            "    exports: [",
            *_exports("service", ASKED_OUTSIDE, "CORE"),
            "    ]",
            "    imports: [",
            *_imports("service", INWARDS, "CORE"),
            *_imports("stream", OUTWARDS, "CORE"),
            "    ]",
            *_users(by_account[Account.OUT]),
            "  }",
            f"  SYS {{ users: [ {{ nkey: {system_key} }} ] }}",
            "}",
            "system_account: SYS",
            "",
        ]
    )


def _exports(kind: str, crossings: Iterable[Crossing], account: str) -> Iterator[str]:
    for one in crossings:
        answers = ", response: stream" if one.many else ""
        yield f"      {{ {kind}: {quoted(one.exported)}, accounts: [{account}]{answers} }}"


def _imports(kind: str, crossings: Iterable[Crossing], account: str) -> Iterator[str]:
    for one in crossings:
        # In an import, `to` is the subject in the importing account, for services and for streams.
        to = f", to: {quoted(one.subject)}" if one.to else ""
        source = f"{{ account: {account}, subject: {quoted(one.exported)} }}"
        yield f"      {{ {kind}: {source}{to} }}"


def _users(users: Iterable[User]) -> Iterator[str]:
    yield "    users: ["
    for user in users:
        yield f"      # {user.role} {user.name}"
        yield f"      {{ nkey: {user.key}, permissions: {{"
        yield from _permissions(permissions_of(user))
        yield "      } }"
    yield "    ]"


def _permissions(given: Permissions) -> Iterator[str]:
    denied = f", deny: {_list(given.denied)}" if given.denied else ""
    yield f"        publish: {{ allow: {_list(given.publish)}{denied} }}"
    yield f"        subscribe: {{ allow: {_list(given.subscribe)}{denied} }}"
    if given.answers:
        yield f'        allow_responses: {{ max: -1, expires: "{ANSWER_SECONDS}s" }}'


def _list(rules: Iterable[Rule]) -> str:
    return f"[{', '.join(quoted(one.pattern) for one in rules)}]"


def quoted(text: str) -> str:
    """The text as a quoted string of the nats-server configuration."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
