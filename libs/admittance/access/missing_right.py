"""Says in words which right a login lacks, from the subject that the server refused."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from admittance.access.permissions import Rule, first_match
from admittance.access.roles import ROLES, permissions_of
from admittance.access.users import User
from admittance.events.names import BadToken, plain
from admittance.events.requests.past import ABOUT, THEN

ASKING: Final = {
    "objects": "list objects",
    "events": "read events",
    "explain": "explain workloads",
    "fit": "ask where workloads fit",
    "forecast": "ask when workloads are expected to start",
    "logs": "read the output of jobs",
    "pending": "list pending workloads",
    "queues": "read the state of queues",
    "replay": "repeat decisions",
    "runners": "ask which jobs runners start",
    "settled": "ask about the effect of facts",
    "simulate": "simulate changes",
    **dict.fromkeys((f"{THEN}{what}" for what in ABOUT), "look at the past"),
}
"""For each request ``admit.api.<what>`` the words that follow "may not"."""
FACTS: Final = ("user", "owner")
ALL: Final = "_"
READ: Final = "$JS.API.DIRECT.GET.KV_admittance.$KV.admittance."


def missing_right(role: str, namespaces: Sequence[str], denial: str) -> str:
    """The right that the login lacks, as a sentence such as ``role user of team-a may not list
    objects of namespace team-b``. ``denial``: what the server refused, which ends with the subject.
    ``role`` "" and no ``namespaces``: unknown."""
    subject = denial.rpartition(" ")[2]
    login = f"role {role}" if role else "this login"
    of = f" of {', '.join(namespaces)}" if role and namespaces else ""
    return f"{login}{of} may not {_words(subject, subscribe='subscribe' in denial)}"


def refusal_of(
    role: str, namespaces: Sequence[str], denial: str, *, user: str = "", has_jwt: bool = False
) -> str:
    """The sentence that the login lacks a right, with what the server refused, and the way out. The
    arguments are those of `missing_right`; ``user``, ``has_jwt``: the login's user, and whether it
    has a JWT."""
    way = "use another login, or have an administrator give it this right"
    subject = denial.rpartition(" ")[2]
    verb = "subscribe" if "subscribe" in denial else "publish"
    login = User(name=user or "x", role=role, key="", namespaces=tuple(namespaces))
    if denial.endswith(" admit.api.objects"):
        way = "read one by its name, or use another login"
    if role in ROLES and rule_of(login, verb, subject) is not None:
        way = other_version(role, user, has_jwt=has_jwt)
    return f"{missing_right(role, namespaces, denial)} ({denial}): {way}"


def rule_of(user: User, verb: str, subject: str) -> Rule | None:
    """The rule of the user's role that allows to publish or subscribe the subject, which the server
    reports in lower case; None: its role does not allow it."""
    try:
        permissions = permissions_of(user)
    except (KeyError, ValueError):
        return None  # Such as a check without its controller.
    rules = permissions.publish if verb == "publish" else permissions.subscribe
    if _in_lower_case(permissions.denied, subject) is not None:
        return None
    return _in_lower_case(rules, subject)


def _in_lower_case(rules: Sequence[Rule], subject: str) -> Rule | None:
    lowered = [Rule(rule.pattern.lower(), rule.pattern) for rule in rules]
    match = first_match(lowered, subject.lower())
    return next((rule for rule in rules if match and rule.pattern == match.purpose), None)


def other_version(role: str, user: str, *, has_jwt: bool) -> str:
    """What is wrong with a login that lacks a right of its role, and the way out."""
    if has_jwt:
        return (
            f"its JWT has the permissions that the role {role} had when it was made: run `admit "
            f"auth renew {shlex.quote(user)}` of this version"
        )
    return (
        f"the server has the permissions of another version for the role {role}: run `admit auth "
        "reload` of this version"
    )


def _words(subject: str, *, subscribe: bool) -> str:
    match subject.split("."):
        case ["admit", "api", "objects"]:
            return "list objects without a namespace"
        case ["admit", "api", what] if what in ASKING:
            return f"{ASKING[what]} of all namespaces"
        case ["admit", "api", what, namespace] if what in ASKING:
            return f"{ASKING[what]} of {_space(namespace)}"
        case ["admit", kind, _, "apply", *rest] if kind in FACTS:
            return "apply manifests" + (f" of {_space(rest[0])}" if rest else "")
        case ["admit", kind, _, "delete", *rest] if kind in FACTS:
            return "delete objects" + (f" of {_space(rest[0])}" if rest else "")
        case ["admit", kind, _, verb, namespace, _] if kind in FACTS:
            return f"publish {verb} about workloads of {_space(namespace)}"
        case _ if subject.lower().startswith(READ.lower()):
            kind, *names = subject[len(READ) :].split(".")
            return f"read a {kind} of " + (_space(names[0]) if len(names) > 1 else "the deployment")
    # The purpose of the subject is the same in whichever role it is allowed.
    for name in ROLES:
        user = User(name="x", role=name, key="", namespaces=("*",), controller="x", class_name="x")
        with suppress(KeyError, ValueError):
            permissions = permissions_of(user)
            rules = permissions.subscribe if subscribe else permissions.publish
            rule = first_match(rules, subject)
            if rule is not None:
                return rule.purpose
    return "do this"


def _space(escaped: str) -> str:
    if escaped == ALL:
        return "all namespaces"
    with suppress(BadToken):
        return f"namespace {plain(escaped)}"
    return f"namespace {escaped}"
