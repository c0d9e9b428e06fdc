"""A wrong argument of a program is named, with what it should be, and nothing is sent."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest

from admittance.client import Client, ClientError, ConnectionOptions, Job
from admittance.client.client import BESIDE_A_MANIFEST

JOB = "{apiVersion: batch/v1, kind: Job}"
VALID: dict[str, object] = {
    "runner": "gpu-1",
    "name": "n",
    "kind": "workloads",
    "priority": 1,
    "index": 3,
    "sequence": 7,
    "at": 7,
    "manifests": JOB,
    "workloads": ["n"],
    "classes": ["spot.example.com"],
    "controllers": ["spot.example.com"],
    "resource": "cpu",
}
"""Arguments without a default."""


async def unconnected() -> Client:
    """A client without a connection, for calls that send nothing."""
    return Client(SimpleNamespace(bus=None, namespace="default", user=""))  # type: ignore[arg-type]


def outcome_of(call: Callable[[Client], object]) -> str:
    """The error of the call as text."""

    async def one_call() -> None:
        made = call(await unconnected())
        if isinstance(made, Coroutine):
            await made
        elif isinstance(made, AsyncIterator):
            await anext(made)

    with pytest.raises(ClientError) as caught:
        asyncio.run(one_call())
    return f"{type(caught.value).__name__}: {caught.value}"


def methods() -> Iterator[tuple[type, str]]:
    for cls in (Client, Job):
        for name in dir(cls):
            made = inspect.getattr_static(cls, name)
            if not name.startswith("_") and not isinstance(made, property) and name != "close":
                yield cls, name


def parameters(cls: type, method: str) -> list[str]:
    every = inspect.signature(getattr(cls, method)).parameters
    return [
        name
        for name, parameter in every.items()
        if name != "self" and parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]


NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001
NEVER: tuple[object, ...] = (object(), ["x", object()], "\ud800", NAIVE)
"""Values that no parameter takes."""
SELDOM: dict[str, object] = {"str": "x", "float": 1.5, "bool": True}
"""Values that only parameters of a type take, which is a word of their annotation."""


@pytest.mark.parametrize(("cls", "method"), list(methods()))
def test_every_method_refuses_an_argument_of_a_wrong_type(cls: type, method: str) -> None:
    every = inspect.signature(getattr(cls, method)).parameters
    names = parameters(cls, method)
    needed = {name: VALID[name] for name in names if every[name].default is inspect.Parameter.empty}
    for name in names:
        annotation = str(every[name].annotation).replace("Manifests", "str | Manifests")
        for value in (*NEVER, *(SELDOM[kind] for kind in SELDOM if kind not in annotation)):

            def call(client: Client) -> object:
                made = getattr(client if cls is Client else client.job("n"), method)
                return made(**needed | {name: value})  # noqa: B023  (called in this turn only)

            assert outcome_of(call).startswith(f"BadInput: {name}"), value


SAID: dict[str, Callable[[Client], object]] = {
    "name 5 is not a text": lambda c: c.submit(["x"], name=5),  # type: ignore[arg-type]
    "name is empty": lambda c: c.job(""),
    "name '\\ud800' is not a text of Unicode": lambda c: c.get("workload", "\ud800"),
    "name has 254 characters, at most 253 are allowed": lambda c: c.explain("x" * 254),
    "timeout is too great a number": lambda c: c.wait("x", timeout=10**400),
    "creds of the connection options is not a text": lambda _: Client.connect(
        "nats://127.0.0.1:1",
        options=ConnectionOptions(creds=5),  # type: ignore[arg-type]
    ),
    "environ: the value of A is not a text": lambda _: Client.connect(environ={"A": 5}),  # type: ignore[dict-item]
    "kind is empty": lambda c: c.delete("", "x"),
    "count True is not a whole number": lambda c: c.submit(["x"], count=True),
    "name does not go with all_namespaces": lambda c: c.events("x", all_namespaces=True),
    "namespace does not go with all_namespaces": (
        lambda c: c.list(namespace="x", all_namespaces=True)
    ),
    "count 0 is less than 1": lambda c: c.submit(["x"], count=0),
    f"after {2**63} is too great a number": lambda c: c.events(after=2**63),
    "after -5 is less than 0": lambda c: c.job("x").events(after=-5),
    "timeout '5' is not a number": lambda c: c.wait("x", timeout="5"),  # type: ignore[arg-type]
    "timeout -1 is not a positive number of seconds": lambda c: c.wait("x", timeout=-1),
    "since '1h' is not a datetime": lambda c: c.list(since="1h"),  # type: ignore[arg-type]
    "since 2026-01-01 00:00:00 has no time zone, such as datetime.now(UTC) has": (
        lambda c: c.events(since=NAIVE)
    ),
    "cpu [1] is not a text or a number": lambda c: c.submit(["x"], cpu=[1]),  # type: ignore[arg-type]
    "image 'a b' is not the name of an image: no spaces, no $, and no - first": (
        lambda c: c.submit(["x"], image="a b")
    ),
    "env '1A' is not the name of a variable: letters, digits, _ . and -, and no digit first": (
        lambda c: c.submit(["x"], env={"1A": "b"})
    ),
    "env: 1 is not a text": lambda c: c.submit(["x"], env={"A": 1}),  # type: ignore[dict-item]
    "env ['A=1'] is not a dict": lambda c: c.submit(["x"], env=["A=1"]),  # type: ignore[arg-type]
    "flavors 'spot' is not a list": lambda c: c.submit(["x"], flavors="spot"),
    "flavors: None is not a text": lambda c: c.submit(["x"], flavors=[None]),  # type: ignore[list-item]
    "anyway 'no' is not True or False": lambda c: c.submit(["x"], anyway="no"),  # type: ignore[arg-type]
    "priority 'x' is not a whole number": lambda c: c.set_priority("x", "x"),  # type: ignore[arg-type]
    "priority 1.5 is not a whole number": lambda c: c.set_priority("x", 1.5),  # type: ignore[arg-type]
    f"the priority {2**31} is not a 32-bit number": lambda c: c.set_priority("x", 2**31),
    "options 5 is not of the type ConnectionOptions": lambda _: Client.connect(options=5),  # type: ignore[arg-type]
    "creds '/no/file': there is no such file": lambda _: Client.connect(
        "nats://127.0.0.1:1", options=ConnectionOptions(creds="/no/file")
    ),
    "manifests: 5 is not a dict or a manifest of admittance.api": lambda c: c.apply([5]),  # type: ignore[list-item]
    'deletes is a list of kind/name, such as ["workload/nightly"]': (
        lambda c: c.simulate(deletes="workload/nope")
    ),
    'deletes: "nightly" is not an object; write kind/name, such as workload/nightly': (
        lambda c: c.simulate(deletes=["nightly"])
    ),
    'deletes: "wl" is not an object; write kind/name, such as workload/NAME': (
        lambda c: c.simulate(deletes=["wl"])
    ),
    'command is a list of words, such as ["python", "train.py"]; '
    'a line for the shell is ["sh", "-c", line]': lambda c: c.submit("true"),
}


@pytest.mark.parametrize("said", SAID)
def test_a_wrong_argument_is_named(said: str) -> None:
    assert outcome_of(SAID[said]) == f"BadInput: {said}"


OTHERS: dict[str, object] = {
    "command": ["x"],
    "flavors": ["x"],
    "inputs": ["x"],
    "outputs": ["x"],
    "count": 2,
    "priority": 1,
    "max_seconds": 2,
    "retries": 1,
    "fail_fast": True,
    "after": ["x"],
    "cpu": 1,
    "memory": "1Gi",
    "gpu": 1,
    "env": {},
    "labels": {},
    "anyway": True,
}


@pytest.mark.parametrize(
    "name",
    [
        parameter
        for parameter in inspect.signature(Client.submit).parameters
        if parameter not in BESIDE_A_MANIFEST
    ],
)
def test_a_manifest_takes_no_argument_that_it_states(name: str) -> None:
    given: dict[str, Any] = {name: OTHERS.get(name, "x")}
    said = outcome_of(lambda c: c.submit(manifest=JOB, **given))
    assert said == f"BadInput: the whole job comes from the manifest: leave out {name}"
