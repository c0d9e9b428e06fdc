"""What commands about users share: they tell the running servers of changes, and show users with
what each may publish and subscribe.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from admittance.access.permissions import Rule, answer_for
from admittance.access.roles import ROLES, permissions_of
from admittance.access.users import User, is_expired
from admittance.cli.support import output
from admittance.cli.support.options import Call, Output, UrlFrom
from admittance.client.arguments.times import span, stamp
from admittance.client.errors import BadInput, RequestFailed
from admittance.runtime import clock
from admittance.runtime.errors import AdmittanceError, NoServer
from admittance.runtime.nats_server.auth_store import AuthStore
from admittance.runtime.nats_server.server_reload import apply_users

YEARS_MAX = 100


async def reload_servers(call: Call, store: AuthStore) -> None:
    """Makes the running servers read the users again. Raises AdmittanceError."""
    if call.url_from in (UrlFrom.DEFAULT, UrlFrom.CONTEXT):
        call = replace(call, url=store.servers, url_from=UrlFrom.OPTION)
    await apply_users(call.url, store, call.connection)


async def tell_servers(call: Call, store: AuthStore, *, added: bool = False) -> None:
    """Makes the running servers read the changed users; ``added``: the change is a new user. Raises
    RequestFailed if a server runs and did not accept the change.
    """
    with_jwts = store.has_jwts
    try:
        await reload_servers(call, store)
    except NoServer as error:
        if with_jwts and added:
            return  # A server accepts new JWTs of its accounts without a reload.
        output.note(
            f"takes effect when the server starts; {error}: if it runs elsewhere, "
            + ("name it with --nats" if with_jwts else "reload it there")
        )
    except AdmittanceError as error:
        raise RequestFailed(
            f"{store.folder} is changed, but the server does not know it yet: {error}; after that "
            + ("restart the server" if with_jwts else "run `nats-server --signal reload`")
        ) from None


def expiry_of(now: datetime, seconds: float | None) -> datetime | None:
    """When a user expires that is added now; ``seconds`` None: never. Raises BadInput."""
    if seconds is None:
        return None
    if not 0 < seconds <= YEARS_MAX * 366 * 86_400:
        raise BadInput(f"--expires must be more than 0 s and at most {YEARS_MAX} years")
    return now + timedelta(seconds=seconds)


def list_users(call: Call, folder: Path) -> None:
    """Prints a table of the users."""
    users = AuthStore(folder).users
    now = clock.now()
    match call.output:
        case Output.JSON:
            output.show_json(msgspec.to_builtins(users))
        case Output.YAML:
            output.show_yaml(msgspec.to_builtins(users))
        case Output.NAME:
            for user in users:
                output.say(user.name)
        case _:
            columns = output.columns_of("NAME", "ROLE", "ACCOUNT", "FOR", "EXPIRES", "+KEY")
            rows = [_row(user, now) for user in users]
            if not rows:
                output.note(f"no users in {folder}: admit auth add ROLE NAME -o FILE")
                return
            output.show_table(output.Table(columns, rows), wide=call.output is Output.WIDE)


def _row(user: User, now: datetime) -> list[str]:
    return [
        user.name,
        user.role,
        ROLES[user.role].account.value,
        _purpose(user) or output.NOTHING,
        _expires(user, now),
        user.key,
    ]


def _purpose(user: User) -> str:
    return ",".join((*user.namespaces, *filter(None, (user.controller, user.class_name))))


def _expires(user: User, now: datetime) -> str:
    if user.expires is None:
        return "never"
    if is_expired(user, now):
        return "expired"
    return f"in {span((user.expires - now).total_seconds())}"


def show(call: Call, folder: Path, name: str) -> None:
    """Prints a user, and what the user may publish and subscribe."""
    user = AuthStore(folder).user(name)
    permissions = permissions_of(user)
    if call.output in (Output.JSON, Output.YAML):
        value: dict[str, Any] = msgspec.to_builtins(user)
        for what in ("publish", "subscribe", "denied"):
            value[what] = [
                {"subject": rule.pattern, "purpose": rule.purpose}
                for rule in getattr(permissions, what)
            ]
        (output.show_json if call.output is Output.JSON else output.show_yaml)(value)
        return
    role = ROLES[user.role]
    output.facts(
        [
            ("Name", user.name),
            ("Role", f"{role.name}: {role.may}"),
            ("Account", role.account.value),
            ("For", _purpose(user) or "everything"),
            ("Key", user.key),
            ("Created", stamp(user.created)),
            ("Expires", stamp(user.expires) if user.expires else "never"),
        ]
    )
    _show_rules("May publish", permissions.publish)
    _show_rules("May subscribe", permissions.subscribe)
    _show_rules("May never publish or subscribe", permissions.denied)


def _show_rules(title: str, rules: Iterable[Rule]) -> None:
    groups = [
        (purpose, [rule.pattern for rule in group])
        for purpose, group in groupby(rules, key=lambda rule: rule.purpose)
    ]
    if not groups:
        return
    output.say(f"\n{title}")
    for purpose, patterns in groups:
        output.say(f"  {_why(purpose)}:")
        for pattern in patterns:
            output.say(f"    {pattern}")


def _why(purpose: str) -> str:
    return f"to {purpose}" if not purpose.startswith("only ") else f"because {purpose}"


def check(folder: Path, subject: str, name: str, *, subscribe: bool) -> int:
    """Prints whether the user may publish or subscribe the subject; returns the exit status."""
    _check_subject(subject, wildcards=subscribe)
    user = AuthStore(folder).user(name)
    answer = answer_for(permissions_of(user), subject, subscribe=subscribe)
    what = "subscribe" if subscribe else "publish"
    about = f"{user.name} ({user.role})"
    rule = answer.rule
    if is_expired(user, clock.now()):
        output.say(f"refused: {about} is expired")
        return 1
    if answer.allowed and rule is not None:
        output.say(f"allowed: {about} may {what} {rule.pattern} to {rule.purpose}")
        return 0
    if rule is not None:
        output.say(f"refused: {about} may not {what} {rule.pattern}: {rule.purpose}")
        return 1
    output.say(f"refused: no rule of {about} allows to {what} {subject}")
    return 1


def _check_subject(subject: str, *, wildcards: bool) -> None:
    tokens = subject.split(".")
    if not all(tokens) or not subject.isprintable() or " " in subject:
        raise BadInput(f'"{subject}" is not a subject: it has an empty token or a space')
    wild = [index for index, token in enumerate(tokens) if token in ("*", ">")]
    if wild and not wildcards:
        raise BadInput(f'"{subject}" has a wildcard: only --subscribe takes wildcards')
    if ">" in tokens[:-1]:
        raise BadInput(f'"{subject}" is not a subject: > must be its last token')
