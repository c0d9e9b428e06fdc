"""A receiver of traces by OTLP over HTTP, which decodes what it gets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class ReceivedSpan(NamedTuple):
    """One span as it came, with the attributes of its resource. ``scope``: what made it."""

    span: Span
    resource: dict[str, Any]
    scope: str

    @property
    def attributes(self) -> dict[str, Any]:
        return _values(self.span.attributes)


class OtlpReceiver:
    """``status``: what it answers. While ``hangs`` is set, requests get no answer."""

    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self.requests = 0
        self._answers = threading.Event()
        self._answers.set()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.receiver = self
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def hang(self) -> None:
        """Requests get no answer from now on."""
        self._answers.clear()

    def answer(self) -> None:
        """Ends `hang`, also for requests under way."""
        self._answers.set()

    def take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        self.requests += 1
        self._answers.wait(300)
        if self.status == 200:
            assert path == "/v1/traces", path
            request = ExportTraceServiceRequest.FromString(body)
            self.headers.append(headers)
            self.spans += [
                ReceivedSpan(span, _values(resource_span.resource.attributes), scope.scope.name)
                for resource_span in request.resource_spans
                for scope in resource_span.scope_spans
                for span in scope.spans
            ]
        return self.status

    def close(self) -> None:
        self.answer()
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    receiver: OtlpReceiver
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed needs no traceback."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = self.server.receiver.take(self.path, dict(self.headers.items()), body)
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Prints nothing."""


def _values(attributes: Any) -> dict[str, Any]:
    return {
        attribute.key: getattr(attribute.value, attribute.value.WhichOneof("value"))
        for attribute in attributes
    }


@contextmanager
def otlp_receiver() -> Iterator[OtlpReceiver]:
    """A receiver on a free port of the loopback address."""
    receiver = OtlpReceiver()
    try:
        yield receiver
    finally:
        receiver.close()
