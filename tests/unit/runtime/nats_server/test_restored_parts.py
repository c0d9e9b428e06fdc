"""The parts of a restored snapshot go to the leader of a cluster, which may be another server."""

from __future__ import annotations

from typing import Any, cast

import pytest

from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import NoResponders
from admittance.runtime.nats import jetstream
from admittance.runtime.nats_server.snapshots import restore_snapshot


class RestoringServer:
    """A server that subscribes to the parts after ``refused`` requests."""

    def __init__(self, refused: float) -> None:
        self.refused = refused
        self.parts: list[bytes] = []

    async def api(self, _what: str, _request: Any, **_: Any) -> dict[str, Any]:
        return {"deliver_subject": "$JS.SNAPSHOT.RESTORE.x"}

    async def request(self, subject: str, part: bytes, _timeout: float) -> bytes:
        if self.refused:
            self.refused -= 1
            raise NoResponders(f"no responder on {subject}")
        self.parts.append(part)
        return b"" if part else b'{"state": {"last_seq": 7}}'


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jetstream, "PAUSE_SECONDS", 0.0)


async def test_a_part_that_reached_no_server_is_sent_again() -> None:
    server = RestoringServer(2)
    assert await restore_snapshot(cast(Bus, server), {"name": "x"}, {}, [b"a", b"b"]) == 7
    assert server.parts == [b"a", b"b", b""]


async def test_parts_that_no_server_takes_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jetstream, "RELOAD_SECONDS", 0.0)
    server = RestoringServer(float("inf"))
    with pytest.raises(NoResponders):
        await restore_snapshot(cast(Bus, server), {"name": "x"}, {}, [b"a"])
