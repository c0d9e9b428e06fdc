"""Which messages on the subject of heartbeats are one."""

from __future__ import annotations

import pytest

from admittance.workload_controller.check_heartbeats import BEAT_MAX, decode_heartbeat

NO_HEARTBEAT = [b"junk", b"[]", b'{"active": 7}', b"[" * 5000, b" " * (BEAT_MAX + 1)]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("data", NO_HEARTBEAT, ids=lambda data: repr(data[:10]))
def test_an_unreadable_message_is_not_a_heartbeat(data: bytes, known: bool) -> None:
    assert decode_heartbeat(data, known=known) is None


def test_an_empty_message_begins_no_heartbeats() -> None:
    """A stray one would begin a silence that closes the queues of the controller."""
    assert decode_heartbeat(b"", known=False) is None


def test_an_empty_message_continues_earlier_heartbeats() -> None:
    assert decode_heartbeat(b"", known=True) is not None


@pytest.mark.parametrize("known", [True, False])
def test_an_object_without_fields_is_a_heartbeat(known: bool) -> None:
    assert decode_heartbeat(b"{}", known=known) is not None
