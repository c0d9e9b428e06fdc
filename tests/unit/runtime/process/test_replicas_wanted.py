"""The number of replicas that `admit doctor` expects of each stream."""

from __future__ import annotations

from typing import Any

from admittance.runtime.bus import streams


def made(replicas: int) -> dict[str, dict[str, Any] | None]:
    return {
        stream.name: {**stream.required, **stream.adjustable}
        for stream in streams.all_streams(replicas)
    }


def test_streams_with_three_replicas_each_have_no_problems() -> None:
    assert streams.problems(made(3)) == []


def test_a_stream_with_fewer_replicas_than_the_others_is_reported() -> None:
    configs = made(3)
    configs["ADMITTANCE"] = made(1)["ADMITTANCE"]
    [problem] = streams.problems(configs)
    assert (problem.stream, problem.found) == ("ADMITTANCE", "num_replicas is 1, 3 is needed")
    assert problem.todo == "`nats stream edit ADMITTANCE --replicas 3`"


def test_missing_streams_are_reported_without_other_problems() -> None:
    configs: dict[str, dict[str, Any] | None] = {**made(1), "ADMITTANCE": None}
    assert [(problem.stream, problem.found) for problem in streams.problems(configs)] == [
        ("ADMITTANCE", "missing")
    ]
