"""How often the server sends heartbeats, and when a consumer looks whether it is silent."""

from __future__ import annotations

import pytest

from admittance.runtime.bus.pull_consumer import heartbeat_of, look_after


@pytest.mark.parametrize(
    ("quiet", "want"), [(0.0, 2.5), (1.0, 1.5), (1.5, 1.0), (2.0, 1.0), (2.5, 1.0), (60.0, 1.0)]
)
def test_a_consumer_looks_when_the_silence_may_be_too_long(quiet: float, want: float) -> None:
    assert look_after(1.0, quiet) == want
    assert look_after(0.5, quiet / 2) == want / 2


@pytest.mark.parametrize(
    ("server", "seconds"),
    [
        ({"jetstream": True}, 2.0),
        ({"jetstream": True, "cluster": "three"}, 0.3),
        ({"version": "2.12.0"}, 0.3),
    ],
)
def test_heartbeats_are_frequent_where_another_server_may_hold_the_consumer(
    server: dict[str, object], seconds: float
) -> None:
    assert heartbeat_of(server) == seconds
