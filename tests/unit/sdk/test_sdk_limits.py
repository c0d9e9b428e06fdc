"""Limits of answers: some values are refused with an error, messages are cut. The error of a
program that cannot start is one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from admittance.checks import AdmissionCheckController, Pending, Ready, Reference, Rejected
from admittance.checks.controller import message_of
from admittance.events.base import MESSAGE_MAX, WHOLE_MAX, clipped_message
from admittance.providers import Accepted, Provisioned
from admittance.providers.answers import DETAILS_MAX, VALUE_MAX, fitting_details
from admittance.runtime.nats.connection_options import NO_OPTIONS

LONG = {f"key-{number}": "x" * VALUE_MAX for number in range(DETAILS_MAX)}
UPDATES = [{"name": name, "annotations": LONG} for name in ("a", "b")]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        pytest.param(
            lambda: Provisioned(details=LONG),
            "details: 2,097,911 bytes of JSON in all, 131,072 are allowed",
            id="details that fit one by one",
        ),
        pytest.param(
            lambda: Accepted(details={"x" * 200_000: "y"}), "details: 200,008", id="a long key"
        ),
        pytest.param(
            lambda: Provisioned(details={"a": "\0" * VALUE_MAX}),
            "details: 196,616",
            id="characters that take six bytes each",
        ),
        pytest.param(
            lambda: Provisioned(pod_set_updates=UPDATES),
            "pod_set_updates: 4,19",
            id="updates of a provider",
        ),
        pytest.param(
            lambda: Ready(pod_set_updates=UPDATES), "pod_set_updates: 4,19", id="updates of a check"
        ),
        pytest.param(
            lambda: Ready(pod_set_updates=[{"name": "a", "tolerations": [{"a": object()}]}]),
            "the field pod_set_updates cannot be encoded",
            id="updates that cannot be said",
        ),
        pytest.param(
            lambda: Provisioned(details={"a": "\ud800"}),
            "the field details cannot be encoded",
            id="details that are no text",
        ),
        pytest.param(lambda: Pending("", reason="x" * 2000), "the reason", id="a long reason"),
    ],
)
def test_a_value_over_its_limit_is_refused_when_it_is_created(
    make: Callable[[], Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()


def test_a_value_at_its_limit_is_accepted() -> None:
    value = "x" * VALUE_MAX
    most = {"a": value, "b": value, "c": value, "d": value[: WHOLE_MAX - 3 * VALUE_MAX - 29]}
    assert Provisioned(details=most).details == most
    with pytest.raises(ValueError, match="131,073 bytes"):
        Provisioned(details={**most, "d": most["d"] + "x"})


def test_foreign_details_are_cut_to_the_limits() -> None:
    details = fitting_details({"long": "x" * (VALUE_MAX + 1), **LONG, "last": "short"})
    assert list(details) == ["key-0", "key-1", "key-2", "last"]
    assert Provisioned(details=details).details == details
    assert len(fitting_details({str(number): "" for number in range(100)})) == DETAILS_MAX


@pytest.mark.parametrize(
    "message",
    [
        pytest.param("x" * 2_000_000, id="longer than the bus takes"),
        pytest.param("\ud800", id="the name of a file that is not text"),
    ],
)
def test_a_message_of_any_length_is_cut(message: str) -> None:
    assert len(clipped_message(message)) <= MESSAGE_MAX
    about = Reference(namespace="ns", name="w", check="c", cycle=1)
    said = message_of("a", about, Rejected(message), ordinal=1, secret=b"")
    assert len(said.data) < 2 * MESSAGE_MAX
    # The server drops the second message of one id, so both must have one content.
    assert said == message_of("a", about, Rejected(message), ordinal=1, secret=b"")


def test_a_program_that_cannot_start_ends_with_one_line_of_its_error() -> None:
    with pytest.raises(SystemExit) as ended:
        AdmissionCheckController("example.com/x").run(creds="x.creds", connection=NO_OPTIONS)
    assert str(ended.value.code).startswith("error: creds and connection are both given: ")
