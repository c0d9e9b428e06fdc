"""Checks of `admit doctor`: services, and its own login, that lack permissions."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Final

from admittance.access.missing_right import other_version, rule_of
from admittance.access.roles import ROLES
from admittance.access.server_config import quoted
from admittance.access.users import User
from admittance.doctor.finding import Finding, wrong
from admittance.events.requests.services import HealthReply

PROVIDER: Final = "built-in-provider"


def permission_findings(
    answers: Iterable[HealthReply], *, with_jwts: bool = False
) -> list[Finding]:
    """A finding for each subject that the server refused to a service lately, with the line to
    add to the configuration of the server. ``with_jwts``: users have JWTs."""
    return [
        _found(reply, *denied.split(" ", 1), with_jwts=with_jwts)
        for reply in answers
        for denied in reply.denied
    ]


def _found(reply: HealthReply, verb: str, subject: str, *, with_jwts: bool) -> Finding:
    what = f"permissions of {reply.service}"
    role = reply.service if reply.service in ROLES else PROVIDER
    user = reply.user or reply.service
    rule = rule_of(User(name=user, role=role, key=""), verb, subject)
    if rule is None:
        return wrong(
            what,
            f"{reply.instance} may not {verb} {subject}, which is none of the subjects of its role "
            f"{role}",
            "report it as a bug",
        )
    text = (
        f"{reply.instance} may not {verb} {rule.pattern}, which its role {role} needs to "
        f"{rule.purpose}"
    )
    if with_jwts:
        return wrong(
            what,
            text,
            f"let `admit auth renew {shlex.quote(user)} -o FILE` write its credentials file with "
            "the permissions of this version, and start the service again",
        )
    return wrong(
        what,
        text,
        f"add {quoted(rule.pattern)} to `{verb}: {{ allow: [ … ] }}` of its user, or let `admit "
        "auth reload` write the configuration, and start the service again",
    )


def login_findings(
    role: str,
    namespaces: Sequence[str],
    user: str,
    denials: Iterable[str],
    *,
    has_jwt: bool,
) -> list[Finding]:
    """A finding if the server refuses the login of this command what its role allows: then findings
    are missing. ``denials``: what it refused, such as ``publish admit.api.runners``. Rights that
    the role does not have are no finding."""
    if role not in ROLES:
        return []
    login = User(name=user, role=role, key="", namespaces=tuple(namespaces))
    split = (denied.split(" ", 1) for denied in denials)
    rules = (rule_of(login, verb, subject) for verb, subject in split)
    lacks = dict.fromkeys(rule.purpose for rule in rules if rule is not None)
    if not lacks:
        return []
    return [
        wrong(
            "login of this command",
            f"{user or 'it'} may not {', nor '.join(lacks)}, so that findings are missing",
            other_version(role, user, has_jwt=has_jwt),
        )
    ]
