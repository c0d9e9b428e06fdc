"""``python -m tools.pages.roles`` writes docs/roles.md: what each role may publish and
subscribe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Final

from admittance.access.permissions import Permissions, Rule
from admittance.access.role import Names, Role
from admittance.access.roles import ROLES
from admittance.access.users import User

PAGE: Final = Path(__file__).parents[2] / "docs" / "roles.md"

HEAD: Final = """# Roles

Made by `python -m tools.pages.roles` from the table of roles (`libs/admittance/access/roles.py`).
Do not edit. A test tries every subject of the system as every role against a real nats-server
(`tests/integration/access/test_proof.py`): the server allows exactly what this page lists.

Services are users of the account CORE; persons and all other programs are users of the account OUT.
Users of OUT reach CORE only through the subjects in `libs/admittance/access/server_config.py`; the
answer to a request reaches only the client that sent it
([why](decisions/0035-outsiders-live-behind-an-account-border.md)).

In the subjects on this page, `<user>`, `<namespace>`, `<controller>` and `<class>` stand for the
user's own name, namespaces, controllers and provisioning classes, as tokens (`admit token NAME`);
`*` stands for one token, `>` for one or more tokens. A user with the role runner and without a
namespace may run jobs of all namespaces.

| role | account | needs | may |
| --- | --- | --- | --- |
"""

SUBJECTS: Final = """
## Subjects

| role | to | publish | subscribe |
| --- | --- | --- | --- |
"""

SAMPLE: Final = {
    "USER": "`<user>`",
    "NAMESPACE": "`<namespace>`",
    "CONTROLLER": "`<controller>`",
    "CLASS": "`<class>`",
}


def sample(role: Role) -> User:
    """A user of the role, with names that stand for the user's own."""
    named = (*role.needs, *role.takes)
    return User(
        name="USER",
        role=role.name,
        key="",
        namespaces=("NAMESPACE",) if Names.NAMESPACES in named else (),
        controller="CONTROLLER" if Names.CONTROLLER in named else "",
        class_name="CLASS" if Names.CLASS in named else "",
    )


def page() -> str:
    """The text of docs/roles.md."""
    lines = [HEAD]
    for role in ROLES.values():
        needs = ", ".join(f"`{option.option}`" for option in role.needs)
        needs = needs or ", ".join(f"`{option.option}` if wanted" for option in role.takes)
        lines.append(f"| {role.name} | {role.account} | {needs} | {role.may} |\n")
    lines.append(SUBJECTS)
    for role in ROLES.values():
        lines += _rows(role.name, role.permissions(sample(role)))
    return "".join(lines)


def _rows(role: str, permissions: Permissions) -> Iterator[str]:
    purposes = [rule.purpose for rule in (*permissions.publish, *permissions.subscribe)]
    for purpose in dict.fromkeys(purposes):
        publish = _subjects(rule for rule in permissions.publish if rule.purpose == purpose)
        subscribe = _subjects(rule for rule in permissions.subscribe if rule.purpose == purpose)
        yield f"| {role} | {purpose} | {publish} | {subscribe} |\n"
    for purpose, denied in groupby(permissions.denied, key=lambda rule: rule.purpose):
        patterns = _subjects(denied)
        yield f"| {role} | *never*: {purpose} | {patterns} | {patterns} |\n"


def _subjects(rules: Iterable[Rule]) -> str:
    return " ".join(f"`{_shown(rule.pattern)}`" for rule in rules)


def _shown(pattern: str) -> str:
    for word, shown in SAMPLE.items():
        pattern = pattern.replace(word, shown.strip("`"))
    return pattern


if __name__ == "__main__":
    PAGE.write_text(page())
