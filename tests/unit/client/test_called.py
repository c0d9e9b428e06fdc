"""A job of an executor leaves what its function returned or raised."""

from __future__ import annotations

import asyncio
import pickle
import sys
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from admittance.client import AdmittanceExecutor, BadInput, CallLost, JobFailed, SyncClient
from admittance.client.calling import called

pytest.importorskip("cloudpickle", reason="calls of functions need cloudpickle")


class Odd(Exception):
    """An error that pickling cannot make again."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def raises(error: BaseException) -> None:
    raise error


CASES: dict[str, tuple[Callable[..., object], tuple[object, ...], bool, str]] = {
    "a value": (max, (1, 2), True, "2"),
    "no value": (lambda: None, (), True, "None"),
    "a function of no module": (lambda word: word * 2, ("ab",), True, "'abab'"),
    "an error": (int, ("x",), False, "ValueError(\"invalid literal for int() with base 10: 'x'\")"),
    "an exit": (sys.exit, (3,), False, "SystemExit(3)"),
    "a cancellation": (raises, (asyncio.CancelledError(),), False, "CancelledError()"),
    "an error that cannot be made again": (
        lambda: raises(Odd(1, 2)),
        (),
        False,
        "RuntimeError('Odd: 1 and 2')",
    ),
    "a value that cannot be pickled": (
        threading.Lock,
        (),
        False,
        "TypeError(\"cannot pickle '_thread.lock' object\")",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_call_leaves_its_outcome(case: str) -> None:
    function, args, succeeds, shown = CASES[case]
    returned, outcome = called.called(called.packed(function, args, {}))
    again, value = pickle.loads(outcome)
    assert (returned, again, repr(value)) == (succeeds, succeeds, shown)
    if not succeeds:
        assert value.__notes__[-1].startswith("Traceback (most recent call last):")


def test_a_call_finds_the_modules_of_its_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, "only/there"])
    call = called.packed(len, ([],), {})
    monkeypatch.setattr(sys, "path", sys.path[:-1])
    called.called(call)
    assert [folder for folder in sys.path if folder.endswith("/only/there")] == sys.path[-1:]


def test_a_call_needs_cloudpickle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(BadInput, match="pip install 'admittance\\[executor\\]'"):
        called.packed(len, (), {})


def test_an_executor_refuses_arguments_that_have_no_effect() -> None:
    client = cast(SyncClient, None)
    make: Any = AdmittanceExecutor
    with pytest.raises(TypeError, match="unknown arguments: chdir, signal"):
        make(client, signal="USR1@3", chdir="/")
    with pytest.raises(ValueError, match="max_workers must be greater than 0"):
        make(client, max_workers=0)
    assert issubclass(CallLost, JobFailed)
