"""A real Prometheus that scrapes an admin port, and its answers to queries."""

from __future__ import annotations

import asyncio
import json
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from support.servers import within


def a_free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


async def ask(port: int, path: str) -> tuple[int, str]:
    def asked() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    return await asyncio.to_thread(asked)


CONFIG = """
global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}
rule_files: [%s]
scrape_configs:
  - job_name: admittance
    static_configs: [{targets: ["127.0.0.1:%d"]}]
"""


@asynccontextmanager
async def prometheus(folder: Path, scraped: int, *rules: Path) -> AsyncIterator[int]:
    """A Prometheus that scrapes the port, with these files of rules; yields its own port."""
    config, port = folder / "prometheus.yml", a_free_port()
    config.write_text(CONFIG % (json.dumps([str(rule) for rule in rules])[1:-1], scraped))
    with (folder / "prometheus.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}",
            stdout=log,
            stderr=log,
        )
    try:
        yield port
    finally:
        process.terminate()
        await within(process.wait())


async def answer(port: int, query: str) -> list[dict[str, Any]]:
    """The series with which Prometheus answers the query; none while it starts. A query that is
    refused fails the test."""
    try:
        status, text = await ask(port, f"/api/v1/query?{urlencode({'query': query})}")
    except OSError:
        return []  # it starts
    if status == 503:
        return []
    assert status == 200, text
    series: list[dict[str, Any]] = json.loads(text)["data"]["result"]
    return series
