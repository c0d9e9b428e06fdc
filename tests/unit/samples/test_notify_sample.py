"""deploy/samples/notify: which facts are sent, and that apprise delivers them."""

from __future__ import annotations

import asyncio
import json
import runpy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import pytest

from admittance.client import Client
from admittance.events.requests.history import LogEntry

SAMPLE = Path(__file__).parents[3] / "deploy" / "samples" / "notify" / "notify.py"
NAMED = {"namespace": "lab", "name": "fit"}
APPROVAL = {**NAMED, "controller": "admittance.dev/approval", "state": "Pending"}
REPORTED = "admit.check.reported.admittance_dev=2Fapproval.lab.fit"
FINISHED = "admit.workload.finished.lab.fit"


@pytest.mark.parametrize(
    ("subject", "fact", "text"),
    [
        (FINISHED, NAMED, "workload lab/fit has succeeded"),
        (FINISHED, {**NAMED, "succeeded": False, "message": "exit 3"}, "…has failed: exit 3"),
        ("admit.owner.ada.finished.lab.fit", NAMED, "workload lab/fit has succeeded"),
        ("admit.workload.started.lab.finished", NAMED, ""),
        (REPORTED, APPROVAL, "workload lab/fit waits for approval"),
        (REPORTED, {**APPROVAL, "message": "waits for a person"}, "…lab/fit waits for a person"),
        (REPORTED, {**APPROVAL, "state": "Ready"}, ""),
        ("admit.check.reported.x.lab.fit", {**APPROVAL, "controller": "x"}, ""),
    ],
)
def test_ends_and_waits_for_approval_are_sent(
    subject: str, fact: dict[str, Any], text: str
) -> None:
    said = runpy.run_path(str(SAMPLE))["text_of"](subject, fact)
    assert said.endswith(text.removeprefix("…")) and bool(said) == bool(text)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_message_reaches_a_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("apprise", reason="apprise is not installed")
    got: list[dict[str, Any]] = []

    class Sink(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Prints nothing."""

    class Log:
        async def events(self, **_: Any) -> AsyncIterator[LogEntry]:
            for outcome, subject in (("", FINISHED), ("ignored", FINISHED), ("", "admit.a.b.c")):
                data = msgspec.Raw(json.dumps(NAMED).encode())
                now = datetime(2026, 1, 1, tzinfo=UTC)
                yield LogEntry(sequence=1, time=now, subject=subject, data=data, outcome=outcome)

    @asynccontextmanager
    async def opened() -> AsyncIterator[Log]:
        yield Log()

    async def connect() -> Any:
        return opened()

    monkeypatch.setattr(Client, "connect", connect)
    with HTTPServer(("127.0.0.1", 0), Sink) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        main = runpy.run_path(str(SAMPLE))["main"]
        asyncio.run(main([f"json://127.0.0.1:{server.server_address[1]}"]))
        server.shutdown()
    assert [sent["message"] for sent in got] == ["workload lab/fit has succeeded"]
