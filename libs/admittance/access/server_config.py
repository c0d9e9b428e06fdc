"""Writes the configuration text that a nats-server includes: the accounts, the messages that cross
the border between the accounts CORE and OUT, and the users.

Within one account, permissions are no border: the server does not check the subject on which an
answer is asked for, so a client could make the server write anywhere. Across accounts an answer
reaches only the client that asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from admittance.access.outside_roles import (
    ADMIN_REQUESTS,
    ADMIN_VERBS,
    GENERAL_QUESTIONS,
    NAMESPACE_QUESTIONS,
    RUNNER_FACTS,
    USER_VERBS,
)
from admittance.access.parts import (
    JS,
    KV,
    KV_CLAIMS,
    KV_PROVIDERS,
    PROVIDER_FACTS,
    STREAMS,
    cluster_keys,
    direct_get,
    each,
    read_stream,
)
from admittance.access.permissions import Permissions, Rule
from admittance.access.role import Account
from admittance.access.roles import ROLES, permissions_of
from admittance.access.users import User, logins
from admittance.events import subjects
from admittance.events.files import FILES, PARTS
from admittance.events.stored.machines import ALIVE_RUNNERS, OF_RUNNERS

LOG: Final = subjects.STREAM
WORKLOAD_ORDERS: Final = ("admitted", "evicted")


class Crossing(NamedTuple):
    """A subject that crosses the border.

    ``subject``: as the importing account names the subject. ``to``: the subject as the exporting
    account names it, if that name differs. ``many``: a request may have several answers.
    """

    subject: str
    to: str = ""
    many: bool = False

    @property
    def exported(self) -> str:
        """The subject of the crossing as the exporting account names it."""
        return self.to or self.subject


def _crossings(*patterns: str, many: bool = False) -> tuple[Crossing, ...]:
    return tuple(Crossing(pattern, many=many) for pattern in patterns)


_KEYS: Final = (f"$KV.{subjects.BUCKET}.*.*.*", *cluster_keys())
_CLAIMS: Final = f"$KV.{subjects.CLAIMS}.*.*.*"
_STATUSES: Final = f"$KV.{subjects.PROVIDERS}.*.*"

ANSWERED_OUTSIDE: Final = frozenset({"logs", "provider.*"})
"""The ends of ``admit.api.<end>``: requests that runners and providers of OUT answer, so that they
need no border."""


def _people(*tails: str) -> tuple[Crossing, ...]:
    return tuple(
        Crossing(f"{subjects.USER_FACTS}{tail}", f"{subjects.USER_REQUESTS}{tail}")
        for tail in tails
    )


def _owners(*tails: str) -> tuple[Crossing, ...]:
    return tuple(
        Crossing(f"{subjects.OWNER_FACTS}{tail}", f"{subjects.OWNER_REQUESTS}{tail}")
        for tail in tails
    )


INWARDS: Final[tuple[Crossing, ...]] = (
    *_crossings(f"{JS}.INFO", *each(f"{JS}.STREAM.INFO.{{}}", STREAMS)),
    *_crossings(f"{JS}.CONSUMER.LIST.{LOG}", f"{JS}.CONSUMER.INFO.{LOG}.*"),
    *_crossings(
        f"{JS}.CONSUMER.MSG.NEXT.{LOG}.*", f"{JS}.CONSUMER.MSG.NEXT.{KV_CLAIMS}.*", many=True
    ),
    *_crossings(
        *each(f"{subjects.RUNNER_CONSUMER}{{}}", ("*", "*.*")), subjects.TELEMETRY_CONSUMER
    ),
    *_crossings(f"$JS.ACK.{LOG}.>"),
    *_crossings(
        *direct_get(KV, f"$KV.{subjects.BUCKET}.*.*.*", f"$KV.{subjects.BUCKET}.*.*"),
        *direct_get(KV_CLAIMS, _CLAIMS, f"$KV.{subjects.CLAIMS}.{ALIVE_RUNNERS}.*"),
        *direct_get(KV_PROVIDERS, _STATUSES),
        *direct_get(
            LOG,
            *each("admit.workload.{}.*.*", WORKLOAD_ORDERS),
            f"{subjects.EPOCH}*",
        ),
        *direct_get(FILES, PARTS),
        *read_stream(LOG, subjects.CHECKPOINTS, KV_PROVIDERS),
        many=True,
    ),
    *_crossings(_CLAIMS, f"$KV.{subjects.CLAIMS}._runner.*"),
    *_crossings(*each(f"$KV.{subjects.CLAIMS}.{{}}.*", OF_RUNNERS)),
    # A header of nats-server may empty a whole bucket: the provisioning check leaves it out.
    Crossing(_STATUSES, f"{subjects.PROVIDER_STATUSES}*.*"),
    *_crossings(PARTS),
    *_crossings("admit.check.reported.*.*.*"),
    *_crossings(*each("admit.provisioning.{}.*.*.*", PROVIDER_FACTS)),
    *_crossings(*each("admit.workload.{}.*.*", RUNNER_FACTS)),
    *_crossings(f"{subjects.ALIVE_CHECK}*", f"{subjects.ALIVE_PROVISIONING}*"),
    *_crossings(
        *(f"admit.api.{what}" for what in GENERAL_QUESTIONS if what not in ANSWERED_OUTSIDE),
        *(f"admit.api.{what}.*" for what in NAMESPACE_QUESTIONS if what not in ANSWERED_OUTSIDE),
        *each("$SRV.{}", ("PING", "INFO", "STATS")),
        many=True,
    ),
    *_people(*each("*.{}.*.*", ADMIN_VERBS)),
    *_owners(*each("*.{}.*.*", USER_VERBS)),
    *_people(*each("*.{}", ADMIN_REQUESTS), *each("*.{}.*", ADMIN_REQUESTS)),
)
"""The requests that cross from OUT to CORE, as service imports; the permissions of a user of OUT
allow some of these requests."""

OUTWARDS: Final[tuple[Crossing, ...]] = _crossings(
    "admit.workload.*.*.*",
    "admit.check.*.*.*.*",
    "admit.provisioning.*.*.*.*",
    f"{subjects.USER_FACTS}*.*.*.*",
    f"{subjects.OBJECTS}*.*.*.*",
    f"{subjects.CHANGED}*",
    *_KEYS,
)
"""The messages that cross from CORE to OUT, as stream imports; the permissions of a user of OUT
allow some of these subscriptions."""

ASKED_OUTSIDE: Final[tuple[Crossing, ...]] = _crossings("admit.api.provider.*")
"""The requests of services of CORE that programs of OUT answer."""


HEAD: Final = """\
# Written by `admit auth`: do not edit. Include this file in the configuration of nats-server.
"""


def server_config(users: Iterable[User], system_key: str) -> str:
    """The configuration of all accounts, as text. ``system_key``: the public key of the user that
    may tell the server to reload its configuration."""
    by_account: dict[Account, list[User]] = {account: [] for account in Account}
    for user in sorted(logins(users), key=lambda user: user.name):
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
    for crossing in crossings:
        answers = ", response: stream" if crossing.many else ""
        yield f"      {{ {kind}: {quoted(crossing.exported)}, accounts: [{account}]{answers} }}"


def _imports(kind: str, crossings: Iterable[Crossing], account: str) -> Iterator[str]:
    for crossing in crossings:
        # In an import, `to` is the subject in the importing account, for services and for streams.
        to = f", to: {quoted(crossing.subject)}" if crossing.to else ""
        source = f"{{ account: {account}, subject: {quoted(crossing.exported)} }}"
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


def _list(rules: Iterable[Rule]) -> str:
    return f"[{', '.join(quoted(rule.pattern) for rule in rules)}]"


def quoted(text: str) -> str:
    """The text as a quoted string of the nats-server configuration."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
