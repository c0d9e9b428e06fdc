"""Stands in for your meters: a counter per namespace, for Prometheus to scrape.

``GET /metrics`` is what Prometheus reads; ``POST /spend?namespace=research&amount=20`` spends. In a
deployment of yours the counters come from wherever money is counted.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

NAME = "namespace_spend_total"
spent: dict[str, float] = dict.fromkeys(
    os.environ.get("SPENDING_NAMESPACES", "default").split(","), 0.0
)
"""Every counter is there from the start: of one that appears with its first amount Prometheus could
not tell that it has risen."""
lock = threading.Lock()


def exposed() -> str:
    """The counters, as Prometheus reads them."""
    with lock:
        lines = [f'{NAME}{{namespace="{name}"}} {amount:g}' for name, amount in spent.items()]
    return "\n".join([f"# TYPE {NAME} counter", *lines, ""])


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = urlsplit(self.path).path == "/metrics"
        self._answer(200 if found else 404, exposed() if found else "try /metrics\n")

    def do_POST(self) -> None:
        asked = parse_qs(urlsplit(self.path).query)
        try:
            name, amount = asked["namespace"][0], float(asked["amount"][0])
            if amount < 0:
                raise ValueError("a counter only rises")
        except (KeyError, ValueError) as error:
            self._answer(400, f"say /spend?namespace=…&amount=…: {error}\n")
            return
        with lock:
            spent[name] = spent.get(name, 0.0) + amount
        self._answer(200, f"{name} has spent {spent[name]:g}\n")

    def _answer(self, status: int, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Scrapes come every few seconds."""


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    address = (os.environ.get("SPENDING_HOST", "127.0.0.1"), int(os.environ.get("PORT", "9108")))
    server = ThreadingHTTPServer(address, Handler)
    sys.stderr.write(f"spending is at http://{address[0]}:{server.server_port}\n")
    server.serve_forever()


if __name__ == "__main__":
    main()
