"""A role of users as a value."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from admittance.access.permissions import Permissions
from admittance.access.users import User


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
