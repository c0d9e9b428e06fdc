"""Runs from the facts about released quota, and the errors that a process keeps."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from admittance.api.arrays import ARRAY_LABEL, INDEX_LABEL
from admittance.events.facts import QuotaReleased
from admittance.events.reader import Unreadable
from admittance.events.shapes import Admission
from admittance.forecast.past_runs import PastRun, past_run
from admittance.forecast.rows import Source
from admittance.forecast.widening import (
    ERRORS_KEPT,
    TREES_KEPT,
    Widening,
    decode_errors,
    encode_errors,
)
from support.builders import NOON


def fact(**fields: Any) -> bytes:
    minutes = timedelta(minutes=1)
    known: dict[str, Any] = {
        "since": NOON,
        "admitted_at": NOON + 2 * minutes,
        "until": NOON + 12 * minutes,
        "admission": Admission(cluster_queue="cq", pod_set_assignments=()),
        "revision": 9,
        "time": NOON,
        "admission_revision": 7,
        "ended": True,
        "queue": "lq",
        "submitted_by": "ada",
        "script": "train.py",
        "uid": "u1",
    }
    return msgspec.json.encode(QuotaReleased(namespace="ns", name="w", **(known | fields)))


def run(seconds: float = 600, checked: float = 120, **source: str) -> PastRun:
    of = Source("cq", "ada", "train.py")._replace(**source)
    return PastRun(("ns", "w"), "u1", of, seconds, NOON.timestamp() + 720, checked)


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        pytest.param({}, run(), id="a workload that finished"),
        pytest.param({"ended": False}, None, id="one that lost its quota"),
        pytest.param({"admission_revision": 0}, None, id="one that was not admitted"),
        pytest.param(
            {"script": "", "admitted_at": None},
            run(720, 0, script=""),
            id="a fact of an earlier version",
        ),
        pytest.param(
            {"labels": {ARRAY_LABEL: "a", INDEX_LABEL: "3"}}, run(array="a"), id="an element"
        ),
        pytest.param({"labels": {ARRAY_LABEL: "a"}}, run(), id="a label of a user alone"),
        pytest.param({"admitted_at": NOON - timedelta(hours=1)}, run(4320, 0), id="a clock back"),
    ],
)
def test_a_past_run_is_read_from_its_fact(fields: dict[str, Any], found: PastRun | None) -> None:
    assert past_run(fact(**fields)) == found


@pytest.mark.parametrize(
    "data", [b"", b"{", b'{"namespace": 1}', fact().replace(b"2026", b"20x6"), b"[]"]
)
def test_a_fact_that_cannot_be_read_raises_unreadable(data: bytes) -> None:
    with pytest.raises(Unreadable):
        past_run(data)


def test_the_next_process_widens_as_the_last_one_did() -> None:
    known = {"team": Widening([-2.0, 3.0] * 10), "new": Widening()}
    kept = decode_errors(encode_errors(known))
    assert list(kept) == ["team"]
    assert kept["team"].sides == known["team"].sides == (2, 3)


def test_the_stored_errors_are_bounded() -> None:
    known = {f"t{number:03}": Widening([0.123456] * 1000) for number in range(150)}
    known["few"] = Widening([1.0])
    data = encode_errors(known)
    kept = decode_errors(data)
    assert len(kept) == TREES_KEPT and "few" not in kept
    assert kept["t000"].errors == [0.12] * ERRORS_KEPT
    assert len(data) < 300_000


@pytest.mark.parametrize("data", [b"", b"x", b'{"trees": {"t": ["a"]}}', b'{"trees": []}'])
def test_stored_errors_that_cannot_be_read_raise_unreadable(data: bytes) -> None:
    with pytest.raises(Unreadable):
        decode_errors(data)
