"""What the export of traces costs: throughput and latency with it, beside those without it.

``python -m benchmarks.traces [GENERATOR.yaml] [--sample 0.01] [--scale 1] [--rounds 3] [--rate 50]
[--seconds 20]``

Each round measures `admit up` without and with the telemetry service, one after the other. The
receiver of traces is a thread of the benchmark that takes everything.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from benchmarks.harness.pairs import COMPARED, medians_in_turns, of_up, steady_and_full
from benchmarks.harness.program import Option, run_program


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
    receiver = _Receiver(("127.0.0.1", 0), _Handler)
    threading.Thread(target=receiver.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield receiver
    finally:
        receiver.shutdown()
        receiver.server_close()


async def measured(
    *, generator: Path, scale: float, rounds: int, rate: float, seconds: float, sample: float
) -> list[str]:
    """The figures of each round, and the comparison of their medians."""
    loads = steady_and_full(generator, scale, rate, seconds)
    with _receiver() as receiver:
        env = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{receiver.server_address[1]}",
            "OTEL_TRACES_SAMPLER": "traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": str(sample),
        }
        systems = {"none": partial(of_up, loads), "traces": partial(of_up, loads, env=env)}
        (off, on), lines = await medians_in_turns(systems, rounds)
    return [
        *lines,
        f"received: {receiver.requests} requests, {receiver.received / 1000:.0f} kB",
        f"medians of {rounds} rounds, {sample:.0%} of traces to none: "
        f"throughput {on.rate / off.rate:.2f} (at least 0.9), "
        f"p99 {on.p99 / off.p99:.2f} (at most 1.2)",
    ]


if __name__ == "__main__":
    share = Option("--sample", 0.01, "share of traces to export", least=0, most=1)
    run_program(measured, __doc__, *COMPARED, share)
