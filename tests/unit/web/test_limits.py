"""What sign-ins and streams that begin at the same time cannot exceed."""

from __future__ import annotations

import asyncio
import socket

import pytest

from admittance.web import sessions
from admittance.web.limits import StreamLimit
from admittance.web.sessions import NotSignedIn, Sessions, Target


@pytest.mark.asyncio
async def test_sign_ins_that_wait_count_as_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        made = Sessions(Target(f"nats://127.0.0.1:{port}"))
        waiting = [asyncio.create_task(made.open("")) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(NotSignedIn, match="Too many people"):
            await made.open("")
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        again = asyncio.create_task(made.open(""))
        await asyncio.sleep(0)
        assert not again.done()
        again.cancel()
        await asyncio.gather(again, return_exceptions=True)


def test_streams_of_one_person_and_of_all_are_limited() -> None:
    limit = StreamLimit(most=3, most_of_one=2)
    assert [limit.take("ada") for _ in range(3)] == [True, True, False]
    assert [limit.take("bob") for _ in range(2)] == [True, False]
    limit.give_back("ada")
    assert limit.take("bob")
