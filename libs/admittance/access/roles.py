"""The table of roles: the account of each role, what a user of the role must name, and what such a
user may publish and subscribe.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from admittance.access import outside_roles, service_roles
from admittance.access.permissions import Permissions
from admittance.access.users import User, is_public_key, name_problem, user_name_problem
from admittance.api.names import label_error
from admittance.events import subjects


class Account(StrEnum):
    """The accounts of the server. CORE: services. OUT: all others. SYS: the system account of
    nats-server, for requests to reload the configuration."""

    CORE = "CORE"
    OUT = "OUT"
    SYS = "SYS"


class Names(StrEnum):
    """What a user of a role names beside its own name: namespaces, a check controller or a
    provisioning class."""

    NAMESPACES = "namespaces"
    CONTROLLER = "controller"
    CLASS = "class"

    @property
    def option(self) -> str:
        """The option of `admit auth add` with which such names are given."""
        return "--namespace" if self is Names.NAMESPACES else f"--{self.value}"


Maker: TypeAlias = Callable[[User], Permissions]


class Role(NamedTuple):
    """A role of users. ``may``: what a user of the role may do, in one line. ``needs``: the names
    that a user must have; ``takes``: the names that a user may have."""

    name: str
    account: Account
    may: str
    permissions: Maker
    needs: tuple[Names, ...] = ()
    takes: tuple[Names, ...] = ()


_CORE, _OUT = Account.CORE, Account.OUT

_ROWS: Final = (
    Role(
        "workload-controller",
        _CORE,
        "write workloads, manifests and their facts; keep streams and consumers",
        service_roles.workload_controller,
    ),
    Role(
        "scheduler",
        _CORE,
        "publish decisions with epochs of all domains; store usage",
        service_roles.scheduler,
    ),
    Role("retry-timer", _CORE, "keep the schedules", service_roles.retry_timer),
    Role(
        "variant-controller",
        _CORE,
        "submit and change variants",
        service_roles.variant_controller,
    ),
    Role(
        "provisioning-check",
        _CORE,
        "ask providers for capacity, report its own check",
        service_roles.provisioning_check,
    ),
    Role(
        "built-in-provider",
        _CORE,
        "provide capacity of one class, or of all, with a provider of Admittance",
        service_roles.built_in_provider,
        takes=(Names.CLASS,),
    ),
    Role(
        "server-watch",
        _CORE,
        "see whether streams store messages, by probes",
        service_roles.server_watch,
    ),
    Role("backup", _CORE, "read and restore whole streams", service_roles.backup),
    Role(
        "runner",
        _OUT,
        "claim, start, stop and report jobs of all or some namespaces",
        outside_roles.runner,
        takes=(Names.NAMESPACES,),
    ),
    Role(
        "check",
        _OUT,
        "receive and answer requests to one controller",
        outside_roles.check,
        needs=(Names.CONTROLLER,),
    ),
    Role(
        "provider",
        _OUT,
        "receive and answer requests for capacity of one class",
        outside_roles.provider,
        needs=(Names.CLASS,),
    ),
    Role("telemetry", _OUT, "read the log", outside_roles.telemetry),
    Role(
        subjects.OWNER,
        _OUT,
        "submit in its namespaces, change its own workloads, explain and follow workloads there",
        outside_roles.owner,
        needs=(Names.NAMESPACES,),
    ),
    Role(
        "user",
        _OUT,
        "submit, change, explain and follow all workloads of its namespaces",
        outside_roles.user,
        needs=(Names.NAMESPACES,),
    ),
    Role(
        "approver",
        _OUT,
        "approve and deny workloads of its namespaces",
        outside_roles.approver,
        needs=(Names.NAMESPACES,),
    ),
    Role("viewer", _OUT, "read everything", outside_roles.viewer),
    Role(
        "admin",
        _OUT,
        "do what users and approvers may in all namespaces, change manifests, read everything",
        outside_roles.admin,
    ),
)

ROLES: Final[dict[str, Role]] = {role.name: role for role in _ROWS}


def permissions_of(user: User) -> Permissions:
    """The subjects that the user may publish and subscribe. Raises KeyError if the user's role does
    not exist."""
    return ROLES[user.role].permissions(user)


def problems(user: User, *, is_stored: bool = False) -> list[str]:
    """The reasons against adding the user, one sentence each; empty if the user can be added.
    ``is_stored``: the user was added before, perhaps by a version that allowed more names."""
    name = name_problem("the user's name", user.name) if is_stored else user_name_problem(user.name)
    found = [name]
    role = ROLES.get(user.role)
    if role is None:
        near = difflib.get_close_matches(user.role, ROLES, n=1)
        hint = f'did you mean "{near[0]}"?' if near else f"known: {', '.join(ROLES)}"
        return [*filter(None, found), f'role "{user.role}" is not known; {hint}']
    for what, values in _named(user).items():
        if what in role.needs and not values:
            made = ", which `user` makes," if role.name == subjects.OWNER else ""
            found.append(f"the role {role.name}{made} needs {what.option}")
        if values and what not in (*role.needs, *role.takes):
            found.append(f"the role {role.name} takes no {what.option}")
        if what is Names.NAMESPACES and not is_stored:
            found += [f"{what.option}: {error}" for one in values if (error := label_error(one))]
        else:
            found += [name_problem(what.option, value) for value in values]
    if not is_public_key(user.key):
        found.append(f"{user.key!r} is not the public key of a user")
    return [one for one in found if one]


def _named(user: User) -> dict[Names, tuple[str, ...]]:
    return {
        Names.NAMESPACES: user.namespaces,
        Names.CONTROLLER: (user.controller,) if user.controller else (),
        Names.CLASS: (user.class_name,) if user.class_name else (),
    }
