"""Checks of `admit doctor`: services that lack permissions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from admittance.access.permissions import Rule, first_match
from admittance.access.roles import ROLES, permissions_of
from admittance.access.server_config import quoted
from admittance.access.users import User
from admittance.doctor.finding import Finding, wrong
from admittance.events.requests import HealthReply

PROVIDER: Final = "built-in-provider"


def permission_findings(answers: Iterable[HealthReply]) -> list[Finding]:
    """A finding for each subject that the server refused to a service lately, with the line to
    add to the configuration of the server."""
    return [_found(one, *denied.split(" ", 1)) for one in answers for denied in one.denied]


def _found(one: HealthReply, verb: str, subject: str) -> Finding:
    what = f"permissions of {one.service}"
    role = one.service if one.service in ROLES else PROVIDER
    rule = _rule(one, role, verb, subject)
    if rule is None:
        return wrong(
            what,
            f"{one.instance} may not {verb} {subject}, which is none of the subjects of its role "
            f"{role}",
            "report it as a bug",
        )
    return wrong(
        what,
        f"{one.instance} may not {verb} {rule.pattern}, which its role {role} needs to "
        f"{rule.purpose}",
        f"add {quoted(rule.pattern)} to `{verb}: {{ allow: [ … ] }}` of its user, or let `admit "
        "auth reload` write the configuration, and start the service again",
    )


def _rule(one: HealthReply, role: str, verb: str, subject: str) -> Rule | None:
    """The rule of the role that allows the subject. The server reports the subject in lower
    case.
    """
    permissions = permissions_of(User(name=one.user or one.service, role=role, key=""))
    rules = permissions.publish if verb == "publish" else permissions.subscribe
    lowered = [Rule(rule.pattern.lower(), rule.pattern) for rule in rules]
    found = first_match(lowered, subject)
    if found is None:
        return None
    return next(rule for rule in rules if rule.pattern == found.purpose)
