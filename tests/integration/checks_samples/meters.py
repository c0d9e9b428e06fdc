"""What namespaces spend, by the sample's exporter, and the Prometheus that stores it; on a machine
without Prometheus, a server that answers the same two queries."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import Request, urlopen

from sample_programs import SAMPLES, eventually

from admittance.runtime import clock
from support.servers import LIMIT

SCRAPE_SECONDS = 0.2
CONFIG = """
global: {scrape_interval: 200ms, scrape_timeout: 200ms}
scrape_configs:
  - job_name: spending
    static_configs: [{targets: ["%s"]}]
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def fetched(url: str, *, post: bool = False) -> str:
    with urlopen(Request(url, method="POST" if post else "GET"), timeout=LIMIT) as answer:
        text: str = answer.read().decode()
        return text


class Meters:
    """What the namespaces spend, and the Prometheus that stores it."""

    def __init__(self, spending: str, prometheus: str) -> None:
        self.spending = spending
        self.url = prometheus

    async def spend(self, namespace: str, amount: float) -> None:
        """Spends, and waits until Prometheus has seen it."""
        url = f"{self.spending}/spend?namespace={namespace}&amount={amount}"
        total = (await asyncio.to_thread(fetched, url, post=True)).split()[-1]
        await self.shows(namespace, float(total))

    async def shows(self, namespace: str, total: float) -> None:
        """Waits until Prometheus has seen the counter there for a few scrapes."""
        query = f'min_over_time(namespace_spend_total{{namespace="{namespace}"}}[500ms])'
        url = f"{self.url}/api/v1/query?{urlencode({'query': query})}"

        async def seen() -> bool:
            try:
                result = json.loads(await asyncio.to_thread(fetched, url))["data"]["result"]
            except OSError:
                return False
            return bool(result) and float(result[0]["value"][1]) == total

        await eventually(seen, lambda: f"Prometheus does not show {total} of {namespace}")


@contextmanager
def exporter(folder: Path, *namespaces: str) -> Iterator[str]:
    """The sample's exporter as a process; its URL."""
    port = free_port()
    env = {"PORT": str(port), "SPENDING_NAMESPACES": ",".join(namespaces)}
    command = [sys.executable, str(SAMPLES / "budget" / "spending.py")]
    with ended(folder / "spending.log", command, **env):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def prometheus(folder: Path, scraped: str) -> Iterator[str]:
    """Starts a Prometheus that scrapes the exporter; yields its URL."""
    config = folder / "prometheus.yml"
    config.write_text(CONFIG % scraped.removeprefix("http://"))
    address = f"127.0.0.1:{free_port()}"
    command = [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address={address}",
    ]
    with ended(folder / "prometheus.log", command):
        yield f"http://{address}"


@contextmanager
def ended(log: Path, command: list[str], **env: str) -> Iterator[None]:
    """The command as a process, ended in order."""
    with log.open("ab") as words:
        process = subprocess.Popen(command, env=os.environ | env, stdout=words, stderr=words)
    yield
    process.terminate()
    assert process.wait(LIMIT) == 0, log.read_text()


class StandIn(ThreadingHTTPServer):
    """Scrapes the exporter, and answers `min_over_time` and `increase` of one namespace."""

    daemon_threads = True

    def __init__(self, scraped: str) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self._scraped = scraped
        self._samples: deque[tuple[float, dict[str, float]]] = deque(maxlen=10_000)
        self._over = threading.Event()

    def scrape(self) -> None:
        """Scrapes until `close`."""
        while not self._over.wait(SCRAPE_SECONDS):
            try:
                text = fetched(f"{self._scraped}/metrics")
            except OSError:
                continue
            counters = re.findall(r'namespace="(\w+)"\} (\S+)', text)
            self._samples.append((clock.monotonic(), {name: float(at) for name, at in counters}))

    def answer(self, query: str) -> float | None:
        """The number that answers the query; None: there is no such number."""
        match = re.search(r'namespace="(\w+)"\}\[(\d+)(ms|s)\]', query)
        assert match is not None, query
        seconds = float(match[2]) / (1000 if match[3] == "ms" else 1)
        since = clock.monotonic() - seconds
        seen = [sample[match[1]] for at, sample in list(self._samples) if at >= since]
        if not seen:
            return None
        return min(seen) if query.startswith("min_over_time") else seen[-1] - seen[0]

    def close(self) -> None:
        self._over.set()
        self.shutdown()
        self.server_close()


class Answering(BaseHTTPRequestHandler):
    server: StandIn

    def do_GET(self) -> None:
        number = self.server.answer(parse_qs(urlsplit(self.path).query)["query"][0])
        result = [] if number is None else [{"metric": {}, "value": [0, f"{number:g}"]}]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"status": "success", "data": {"result": result}}).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def stand_in(scraped: str) -> Iterator[str]:
    """Starts a replacement for Prometheus, and yields its URL."""
    server = StandIn(scraped)
    threads = [threading.Thread(target=target) for target in (server.serve_forever, server.scrape)]
    for thread in threads:
        thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.close()
    for thread in threads:
        thread.join()
