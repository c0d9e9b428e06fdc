"""How often streams have to be stored, as `admit doctor` judges it."""

from __future__ import annotations

from typing import Any

from admittance.runtime.bus import streams


def made(replicas: int) -> dict[str, dict[str, Any] | None]:
    return {one.name: {**one.required, **one.adjustable} for one in streams.all_streams(replicas)}


def test_streams_that_are_all_stored_three_times_are_well() -> None:
    assert streams.problems(made(3)) == []


def test_a_stream_that_is_stored_less_often_than_the_others_is_told() -> None:
    found = made(3)
    found["ADMITTANCE"] = made(1)["ADMITTANCE"]
    assert streams.problems(found) == ["stream ADMITTANCE: num_replicas is 1, 3 is needed"]


def test_missing_streams_are_told_and_want_nothing() -> None:
    found: dict[str, dict[str, Any] | None] = {**made(1), "ADMITTANCE": None}
    assert streams.problems(found) == ["stream ADMITTANCE is missing"]
