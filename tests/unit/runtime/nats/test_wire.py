"""Protocol bytes, headers, trace contexts, fences, message ids: pure parts of the runtime."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admittance.lease import Fence
from admittance.runtime.bus import timers
from admittance.runtime.bus.bus import EXPECTED, FENCE
from admittance.runtime.bus.pull_consumer import read_reply
from admittance.runtime.errors import BusRefused, Busy, Fenced, Full, StaleRevision, TooBig, refusal
from admittance.runtime.leader import lease_store
from admittance.runtime.nats.protocol import Headers, frame, parse_headers, status
from admittance.runtime.telemetry import tracing

TRACE = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"


def test_a_frame_follows_the_protocol() -> None:
    assert frame("a.b", "r", b"xy", None) == b"PUB a.b r 2\r\nxy\r\n"
    assert (
        frame("a.b", "r", b"xy", {"K": "v"})
        == b"HPUB a.b r 18 20\r\nNATS/1.0\r\nK: v\r\n\r\nxy\r\n"
    )


@pytest.mark.parametrize(
    ("subject", "headers"),
    [
        pytest.param("", None, id="an empty subject"),
        pytest.param("a b", None, id="a subject with a space"),
        pytest.param("a\r\nPUB b", None, id="a subject with a line break"),
        pytest.param("a", {"K": "v\r\nL: w"}, id="a value with a line break"),
        pytest.param("a", {"K\n": "v"}, id="a name with a line break"),
    ],
)
def test_a_subject_or_header_cannot_change_the_protocol(
    subject: str, headers: dict[str, str] | None
) -> None:
    with pytest.raises(ValueError):
        frame(subject, "r", b"", headers)


def test_the_first_of_repeated_headers_counts_as_in_the_server() -> None:
    assert parse_headers(b"NATS/1.0\r\nA: 1\r\nA: 2\r\n\r\n") == {"A": "1"}


def test_a_header_name_with_a_space_differs_as_in_the_server() -> None:
    assert "A" not in parse_headers(b"NATS/1.0\r\nA : 1\r\n A: 2\r\n\r\n")


PIECES = (b"A", b"B", b"A:", b"A: ", b":", b" 1\t", b"\r\n", b"\r\nA:", b"\n", b"\r", b"\xff\xc3")


@given(st.lists(st.sampled_from(PIECES), max_size=12))
def test_a_single_header_is_found_as_all_headers_are_parsed(pieces: list[bytes]) -> None:
    raw = b"NATS/1.0\r\n" + b"".join(pieces)
    parsed = parse_headers(raw)
    for name in ("A", "B", "a", "\xff"):
        assert Headers(raw).get(name, "none") == parsed.get(name, "none")
        assert (name in Headers(raw)) == (name in parsed)
        whole = Headers(raw)
        assert dict(whole) == parsed
        assert whole.get(name) == parsed.get(name)


def test_the_status_of_the_server_s_own_messages() -> None:
    assert status(b"NATS/1.0 503\r\n\r\n") == "503"
    assert status(b"NATS/1.0\r\nA: 1\r\n\r\n") == ""


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(b"$JS.ACK.S.C.2.30.4.50.6", id="the older form"),
        pytest.param(b"$JS.ACK._.HASH.S.C.2.30.4.50.6", id="the form with domain and account"),
        pytest.param(b"$JS.ACK._.HASH.S.C.2.30.4.50.6.rnd", id="the form with a random token"),
    ],
)
def test_the_reply_subject_has_the_position_of_a_delivery(reply: bytes) -> None:
    assert read_reply(reply) == (2, 30, 4, 50, 6)


@pytest.mark.parametrize(
    ("code", "fenced", "want"),
    [
        pytest.param(10071, False, StaleRevision, id="a wrong sequence of a key is stale"),
        pytest.param(10071, True, Fenced, id="a wrong sequence of a fence is fenced"),
        pytest.param(10164, True, Busy, id="10164 means busy and never fenced"),
        pytest.param(10210, False, Busy, id="too many batches at once is busy"),
        pytest.param(10077, False, Full, id="a full log is refused at once"),
        pytest.param(10054, False, TooBig, id="too long"),
        pytest.param(10000, False, BusRefused, id="anything else is refused"),
    ],
)
def test_a_refusal_has_the_class_of_its_error_code(code: int, fenced: bool, want: type) -> None:
    assert type(refusal(code, "…", fenced=fenced)) is want


def test_a_following_message_has_the_same_trace_and_a_new_span() -> None:
    following = tracing.follow(TRACE)
    assert following[:36] == TRACE[:36]
    assert following[52:] == "-01"
    assert following != TRACE
    assert tracing.extract({"traceparent": following}) == following
    assert tracing.trace_id(following) == "a" * 32


@pytest.mark.parametrize("bad", ["", "x", TRACE + "\r\nA: b", TRACE.replace("a", "0"), TRACE[:-1]])
def test_a_malformed_trace_context_is_ignored(bad: str) -> None:
    assert tracing.extract({"traceparent": bad}) == ""
    assert tracing.inject({}, tracing.extract({"traceparent": bad})) == {}


def test_a_new_trace_is_well_formed() -> None:
    begun = tracing.start()
    assert tracing.extract({"traceparent": begun}) == begun


def test_a_fence_names_domain_and_epoch() -> None:
    headers = lease_store.fence("cohort-a.b", 7)
    assert lease_store.fence_of(headers) == Fence("cohort-a.b", 7)


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({}, id="none at all"),
        pytest.param({"Nats-Expected-Last-Subject-Sequence": "7"}, id="a revision is not a fence"),
        pytest.param(lease_store.fence("d", 7) | {EXPECTED: "-7"}, id="a negative epoch"),
        pytest.param(lease_store.fence("d", 7) | {FENCE: "admit.x"}, id="another subject"),
    ],
)
def test_headers_without_a_fence_have_none(headers: dict[str, str]) -> None:
    assert lease_store.fence_of(headers) is None


def test_a_schedule_is_in_utc() -> None:
    at = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    message = timers.schedule_message("requeue", "a", "b", at, b"")
    assert message.headers is not None
    assert message.headers["Nats-Schedule"] == "@at 2026-01-01T10:00:00.000000Z"
    assert at.astimezone(UTC).hour == 10
