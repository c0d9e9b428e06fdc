"""The check with delays that double, beside a real system that cuts them short."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from sample_programs import SAMPLES, Admit, program

from admittance.runtime.bus.bus import Bus
from support.forked_system import embedded
from support.servers import within

pytestmark = pytest.mark.bus

FOLDER = SAMPLES / "backoff"


class Capacity(BaseHTTPRequestHandler):
    """There is some once `there` is set."""

    there = threading.Event()

    def do_GET(self) -> None:
        self.send_response(200 if self.there.is_set() else 503)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def capacity() -> Iterator[str]:
    """The URL of a server that answers whether there is capacity."""
    Capacity.there.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Capacity)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.scenario("L25")
async def test_the_sample_delays_30_60_120_240_seconds_without_own_counter(
    capacity: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whatever a check asks for, here it is put off for a second.
    monkeypatch.setenv("ADMIT_CHECK_DELAY_SECONDS", "1")
    manifests = (FOLDER / "manifests.yaml").read_text()
    assert "http://capacity.example.com/free" in manifests
    command = (sys.executable, FOLDER / "backoff.py")
    async with embedded("--insecure") as system:
        admit = Admit(system)
        bus = await Bus.connect(system.url, name="test")
        verdicts = await bus.nc.subscribe("admit.check.reported.>")
        text = manifests.replace("http://capacity.example.com/free", capacity)
        await admit("apply", "-f", "-", text=text)
        found: list[dict[str, Any]] = []

        async def hear(count: int) -> None:
            while len(found) < count:
                message = await within(verdicts.next_msg(timeout=20))
                found.append(json.loads(message.data))

        async with program(tmp_path / "one", *command, ADMIT_NATS_URL=system.url):
            await admit("submit", "-q", "probed", "--name", "patient", "--", "true")
            await hear(2)
        # Another process goes on where the first one was.
        async with program(tmp_path / "two", *command, ADMIT_NATS_URL=system.url):
            await hear(4)
            Capacity.there.set()
            await admit.wait("patient", "Finished")
            await hear(5)
        first = found[0]["cycle"]
        assert [(one["state"], one.get("requeueAfterSeconds")) for one in found] == [
            *(("Retry", seconds) for seconds in (30, 60, 120, 240)),
            ("Ready", None),
        ]
        assert [one["cycle"] - first for one in found] == [0, 1, 2, 3, 4]
        assert (await admit.row("patient")).get("retryCount", 0) == 0
        await bus.close()
