"""The table of roles: the account of each role, what a user of the role must name, and what such a
user may publish and subscribe.
"""

from __future__ import annotations

import difflib
from typing import Final

from admittance.access import outside_roles, service_roles
from admittance.access.permissions import Permissions
from admittance.access.role import Names, Role
from admittance.access.users import User, is_public_key, name_problem, user_name_problem
from admittance.api.fields.names import label_error
from admittance.events import subjects

_ROWS: Final = (*service_roles.SERVICE_ROLES, *outside_roles.OUTSIDE_ROLES)
ROLES: Final[dict[str, Role]] = {role.name: role for role in _ROWS}


def permissions_of(user: User) -> Permissions:
    """The subjects that the user may publish and subscribe. Raises KeyError if the user's role does
    not exist."""
    return ROLES[user.role].permissions(user)


def problems(user: User, *, is_stored: bool = False) -> list[str]:
    """The reasons against adding the user, one sentence each; empty if the user can be added.
    ``is_stored``: the user was added before, perhaps by a version that allowed more names."""
    name = name_problem("the user's name", user.name) if is_stored else user_name_problem(user.name)
    texts = [name]
    role = ROLES.get(user.role)
    if role is None:
        near = difflib.get_close_matches(user.role, ROLES, n=1)
        hint = f'did you mean "{near[0]}"?' if near else f"known: {', '.join(ROLES)}"
        return [*filter(None, texts), f'role "{user.role}" is not known; {hint}']
    for what, values in _named(user).items():
        if what in role.needs and not values:
            made = ", which `user` makes," if role.name == subjects.OWNER else ""
            texts.append(f"the role {role.name}{made} needs {what.option}")
        if values and what not in (*role.needs, *role.takes):
            texts.append(f"the role {role.name} takes no {what.option}")
        if what is Names.NAMESPACES and not is_stored:
            texts += [
                f"{what.option}: {error}" for label in values if (error := label_error(label))
            ]
        else:
            texts += [name_problem(what.option, value) for value in values]
    if not is_public_key(user.key):
        texts.append(f"{user.key!r} is not the public key of a user")
    return [problem for problem in texts if problem]


def _named(user: User) -> dict[Names, tuple[str, ...]]:
    return {
        Names.NAMESPACES: user.namespaces,
        Names.CONTROLLER: (user.controller,) if user.controller else (),
        Names.CLASS: (user.class_name,) if user.class_name else (),
    }
