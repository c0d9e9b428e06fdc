"""What the export of traces costs: throughput and latency with it, beside those without it.

``python -m benchmarks.traces [GENERATOR.yaml] [--sample 0.01] [--scale 1] [--rounds 3] [--rate 50]
[--seconds 20]``

Each round measures `admit up` without and with the telemetry service, one after the other. The
receiver of traces is a thread of the benchmark that takes everything.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from admittance.bench.run import loop_factory, main_of
from benchmarks.pairs import in_turns, loads_of, of_up, options


class _Receiver(ThreadingHTTPServer):
    daemon_threads = True
    requests = 0
    received = 0


class _Handler(BaseHTTPRequestHandler):
    server: _Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests += 1
        self.server.received += len(body)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Prints nothing."""


@contextmanager
def _receiver() -> Iterator[_Receiver]:
    found = _Receiver(("127.0.0.1", 0), _Handler)
    threading.Thread(target=found.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield found
    finally:
        found.shutdown()
        found.server_close()


def command() -> list[str]:
    """Runs the benchmark with the options of the command line; returns the lines to print."""
    parser = options((__doc__ or "").splitlines()[0])
    parser.add_argument("--sample", type=float, default=0.01, help="share of traces to export")
    given = parser.parse_args()
    loads = loads_of(given)
    with _receiver() as receiver, asyncio.Runner(loop_factory=loop_factory()) as runner:
        env = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{receiver.server_address[1]}",
            "OTEL_TRACES_SAMPLER": "traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": str(given.sample),
        }
        systems = {"none": partial(of_up, loads), "traces": partial(of_up, loads, env=env)}
        (off, on), lines = runner.run(in_turns(systems, given.rounds))
    return [
        *lines,
        f"received: {receiver.requests} requests, {receiver.received / 1000:.0f} kB",
        f"medians of {given.rounds} rounds, {given.sample:.0%} of traces to none: "
        f"throughput {on.rate / off.rate:.2f} (at least 0.9), "
        f"p99 {on.p99 / off.p99:.2f} (at most 1.2)",
    ]


if __name__ == "__main__":
    main_of(command)
