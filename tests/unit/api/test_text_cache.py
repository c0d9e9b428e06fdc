"""Caches of functions of texts keep short texts only: any user may send a text of a megabyte."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from admittance.api.fields import names, units
from admittance.api.validation.pods_ready import timeouts_of
from admittance.events.names import plain, token
from admittance.scheduling.state.requests import Shapes

LENGTH = 100_000
MANY = 40


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(names.name_error, id="name"),
        pytest.param(names.label_error, id="label"),
        pytest.param(names.label_key_error, id="label key"),
        pytest.param(names.label_value_error, id="label value"),
        pytest.param(token, id="token"),
        pytest.param(plain, id="plain"),
        pytest.param(lambda text: timeouts_of('{"timeoutSeconds":1}'.ljust(len(text))), id="json"),
        pytest.param(lambda text: units.units(text, "1"), id="units"),
        pytest.param(lambda text: units.amount(text, "1"), id="amount"),
        pytest.param(lambda text: units.render(text, 1), id="render"),
        pytest.param(units.quantity_error, id="quantity"),
        pytest.param(lambda text: names.check_labels({text: text}), id="labels"),
    ],
)
def test_long_texts_are_not_kept_in_memory(function: Callable[[str], Any]) -> None:
    tracemalloc.start()
    try:
        for number in range(MANY):
            with suppress(ValueError, msgspec.MsgspecError):
                function("k" * (LENGTH + number))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < MANY * LENGTH // 4


def test_a_long_text_has_the_same_answer_as_a_short_one() -> None:
    assert token("a.b" * 400) == token("a.b") * 400
    assert plain(token("a/b" * 400)) == "a/b" * 400
    assert "at most 253" in names.name_error("a" * 600)
    assert units.amount("r" * 600, "1500m") == units.amount("r", "1500m") == 2
    with pytest.raises(units.BadQuantity):
        units.units("cpu", True)


def test_the_shapes_of_large_pod_sets_are_not_all_kept() -> None:
    shapes = Shapes()
    tracemalloc.start()
    try:
        for number in range(80):
            key = "k" * 500_000 + str(number)
            pods = f'{{"template":{{"spec":{{"nodeSelector":{{"{key}":"x"}}}}}}}}'
            shapes.needs(f'{{"podSets":[{pods}]}}'.encode())
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 36 * 1024 * 1024
