"""The private names of nats-py that the product uses: listed in one module, and there.

A release of nats-py that lacks one of them fails here by the name.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport
from nats.micro.request import Request

from admittance.runtime.nats import reconnecting_client
from admittance.runtime.nats.reconnecting_client import PRIVATE_NAMES, ReconnectingClient

ROOT = Path(__file__).parents[4]
ONE_MODULE = Path(reconnecting_client.__file__)
DERIVED = {"connection.py", "protocol.py", "reconnecting_client.py"}
"""The modules with classes derived from those of nats-py, where ``self`` has private names."""
OBJECTS = {
    "Client": Client(),
    "Request": Request(Msg(Client())),
    "Subscription": Subscription(Client(), 1),
    "TcpTransport": TcpTransport(),
}


class Place(NamedTuple):
    """Has the private names that every NamedTuple has."""

    path: str


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_names(path: Path, *, of_self: bool) -> Iterator[tuple[str, int]]:
    """The private attributes and methods in a module, with their lines. ``of_self``: also those
    that its classes define and reach by ``self``."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            on_self = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if of_self or not on_self:
                yield node.attr, node.lineno
        elif of_self and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from [(node.name, node.lineno)] * is_private(node.name)


OF_NAMED_TUPLES = frozenset(vars(Place))


@cache
def theirs() -> frozenset[str]:
    """All private names of nats-py."""
    return frozenset(
        name
        for path in Path(nats.__file__).parent.rglob("*.py")
        for name, _ in private_names(path, of_self=True)
        if name not in OF_NAMED_TUPLES
    )


def test_the_release_of_nats_py_has_the_private_names() -> None:
    for listed, use in PRIVATE_NAMES.items():
        kind, name = listed.split(".")
        assert hasattr(OBJECTS[kind], name), f"nats-py has no {listed}: {use}"


def test_an_overridden_method_has_the_parameters_of_nats_py() -> None:
    ours = {
        name: method
        for name, method in vars(ReconnectingClient).items()
        if inspect.isfunction(method) and name in vars(Client) and is_private(name)
    }
    assert ours
    for name, method in ours.items():
        parameters = inspect.signature(getattr(Client, name)).parameters
        assert list(inspect.signature(method).parameters) == list(parameters), name


def test_the_list_has_the_private_names_that_the_module_uses() -> None:
    used = {name for name, _ in private_names(ONE_MODULE, of_self=True)}
    assert {listed.split(".")[1] for listed in PRIVATE_NAMES} == used & theirs()


def test_no_other_module_uses_a_private_name_of_nats_py() -> None:
    any_of_theirs = re.compile(rf"\.(?:{'|'.join(theirs())})\b")
    used = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for room in ("libs", "services")
        for path in (ROOT / room).rglob("*.py")
        if path != ONE_MODULE and any_of_theirs.search(path.read_text())
        for name, line in private_names(path, of_self=path.name in DERIVED)
        if name in theirs()
    ]
    assert not used
