"""A wrong argument of a program is named, with what it should be."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import pytest

from admittance.client import BadInput
from admittance.client.arguments import AMOUNT, at_least, expect, pairs, words
from admittance.client.kinds import kind_named
from admittance.client.requests.changes import check_priority

WRONG: dict[str, Callable[[], object]] = {
    "name 5 is not a text": lambda: expect(str, name=5),
    "name '\\ud800' is not a text": lambda: expect(str, name="\ud800"),
    "count True is not a whole number": lambda: expect(int, count=True),
    "timeout '1' is not a number": lambda: expect(float, timeout="1"),
    "since '1h' is not a datetime": lambda: expect(datetime, since="1h"),
    "cpu [1] is not a text or a number": lambda: expect(AMOUNT, cpu=[1]),
    "count 0 is less than 1": lambda: at_least(1, count=0),
    "env: 1 is not a text": lambda: pairs("env", {"A": 1}),  # type: ignore[dict-item]
    "env 'A=1' is not a dict": lambda: pairs("env", "A=1"),  # type: ignore[arg-type]
    "flavors: None is not a text": lambda: words("flavors", [None]),  # type: ignore[list-item]
    "kind 5 is not a text": lambda: kind_named(5),  # type: ignore[arg-type]
    "the priority 7 is not a 32-bit number": lambda: check_priority("7"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("said", WRONG)
def test_a_wrong_argument_is_named(said: str) -> None:
    with pytest.raises(BadInput) as caught:
        WRONG[said]()
    assert str(caught.value) == said


def test_right_arguments_pass() -> None:
    expect(str, name="x", other=None)
    expect(float, timeout=1)
    at_least(0, tail=0, pod=None)
    assert pairs("env", None) == {}
    assert words("states", "Running") == ("Running",)
