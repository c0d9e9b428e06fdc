"""Checks of `admit doctor`: nats-servers, their storage, and whether a power failure loses data."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from admittance.client.errors import BadInput
from admittance.doctor.finding import Finding, note, ok, wrong
from admittance.doctor.processes.clocks import Offset, offset
from admittance.events import subjects
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.history import time_of
from admittance.runtime.errors import BusRefused, BusUnavailable
from admittance.runtime.nats.opening import WITHOUT_ACCOUNTS, is_open
from admittance.runtime.nats.server_url import DEFAULT_PORT, is_loopback, read_urls, shown
from admittance.runtime.telemetry.findings import (
    DURABILITY,
    disk_findings,
    durability_finding,
    size_of,
)

SECONDS: Final = 3.0
STORAGE_SHARE_MAX: Final = 0.9
"""A storage that is used to a greater share counts as nearly full."""
STORAGE_TODO: Final = (
    "raise max_file_store of the server or the limit of the account, or delete old data: "
    "docs/operations.md#the-disk-is-full"
)
DIED: Final = "docs/operations.md#a-server-died"


async def server_findings(
    bus: Bus, url: str, known: Sequence[Finding], *, quiet: bool
) -> list[Finding]:
    """Findings about the servers at the addresses of the URL. ``known``: the findings that
    services and monitoring ports have reported.
    """
    info: Mapping[str, Any] = bus.nc.server_info
    name = info.get("server_name") or info.get("server_id", "?")
    cluster = info.get("cluster")
    where = f"{shown(url)}, {name}" + (f", cluster {cluster}" if cluster else ", no cluster")
    findings = [ok("server", f"nats-server {info.get('version', '?')} at {where}")]
    findings += await _addresses(url, quiet=quiet)
    if is_open(bus.nc):
        findings.append(note("credentials", WITHOUT_ACCOUNTS))
    if not any(finding.what.startswith(DURABILITY) for finding in known):
        disks = "the disks of a majority" if cluster else "disk"
        text = f"acknowledged writes are on {disks} after sync_interval, which clients cannot read"
        todo = (
            "name the server's HTTP monitoring port with --monitor to check sync_interval; set "
            "sync_interval: always if a power failure must lose nothing"
        )
        findings.append(note(DURABILITY, text, todo))
    with suppress(BusRefused, BusUnavailable):
        findings += account_findings(await bus.api("INFO"))
    return findings


def account_findings(info: Mapping[str, Any]) -> list[Finding]:
    """The finding about the storage limit of the account; empty without a limit."""
    most, used = info.get("limits", {}).get("max_storage", -1), info.get("storage", 0)
    return _storage("storage of the account", used, most) if most > 0 else []


def _storage(what: str, used: int, most: int) -> list[Finding]:
    text = f"{size_of(used)} of {size_of(most)} used"
    if used <= most * STORAGE_SHARE_MAX:
        return [ok(what, text)]
    return [wrong(what, f"{text}: nearly full, then facts are refused", STORAGE_TODO)]


async def _addresses(url: str, *, quiet: bool) -> list[Finding]:
    """A finding for each address that does not answer, if the URL names several."""
    urls = [server.address for server in read_urls(url)]
    if len(urls) == 1:
        return []
    answers = await asyncio.gather(*(_listens(address, quiet=quiet) for address in urls))
    return [
        wrong(f"server {url}", "does not answer", f"start nats-server there: {DIED}")
        for url, answer in zip(urls, answers, strict=True)
        if not answer
    ]


async def _listens(address: str, *, quiet: bool) -> bool:
    """Whether a server answers at the address. ``quiet``: the server sends nothing before the TLS
    handshake.
    """
    parts = urlsplit(address)
    try:
        async with asyncio.timeout(SECONDS):
            reader, writer = await asyncio.open_connection(
                parts.hostname, parts.port or DEFAULT_PORT
            )
            try:
                # A server that is paused accepts connections, but sends no INFO.
                return quiet or parts.scheme.startswith("ws") or bool(await reader.read(1))
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False


async def clock_of_server(bus: Bus) -> Offset | None:
    """The offset of the clock of the server that leads the log; None if the server does not
    answer.
    """
    asked = clock.now()
    try:
        info = await bus.api(f"STREAM.INFO.{subjects.STREAM}")
    except (BusRefused, BusUnavailable):
        return None
    return offset(time_of(info["ts"]), asked, clock.now()) if "ts" in info else None


# HTTP monitoring ports of nats-server. ----------------------------------------------------


def refuse_bad_urls(urls: Sequence[str]) -> None:
    """Raises BadInput for a text that is no URL of a monitoring port."""
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput(f"--monitor {url}: it looks like http://HOST:8222")


async def monitor_findings(urls: Sequence[str]) -> list[Finding]:
    """What the monitoring ports of nats-servers report."""
    findings: list[Finding] = []
    for url in urls:
        asked = clock.now()
        try:
            varz = await asyncio.to_thread(_get, f"{url.rstrip('/')}/varz")
        except (OSError, ValueError) as error:
            todo = "start the server, or give its `http` address (`http: 127.0.0.1:8222`)"
            findings.append(wrong(f"monitor {url}", f"no answer: {error}", todo))
            continue
        findings += server_state(url, varz, offset(time_of(varz["now"]), asked, clock.now()))
    return findings


def _get(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url, timeout=SECONDS) as answer:
        varz = json.load(answer)
    if not isinstance(varz, dict) or "now" not in varz:
        raise ValueError("this is not the monitoring port of a nats-server")
    return varz


def server_state(url: str, varz: Mapping[str, Any], off: Offset) -> list[Finding]:
    """Findings about one server, from its /varz. ``off``: its clock."""
    name = varz.get("server_name", url)
    jetstream = varz.get("jetstream") or {}
    config, stats = jetstream.get("config") or {}, jetstream.get("stats") or {}
    if not config:
        todo = "look at its log; make space if its disk is full, and restart it"
        return [wrong(f"server {name}", "JetStream does not run on it", todo)]
    findings = [durability_finding(name, _sync_interval(config))]
    findings += _storage(
        f"storage of {name}", stats.get("storage", 0), config.get("max_storage", 0)
    )
    store = config.get("store_dir", "")
    if is_loopback(url) and store and Path(store).is_dir():
        findings += disk_findings(f"disk of {name}", Path(store))
    for peer in (jetstream.get("meta") or {}).get("replicas") or []:
        if peer.get("offline"):
            findings.append(
                wrong(f"server {peer.get('name', '?')}", f"away, says {name}", f"start it: {DIED}")
            )
    if off.least > 1.0 or off.most < -1.0:
        text = f"differs from the clock of this machine by {abs(off.least + off.most) / 2:.1f} s"
        findings.append(wrong(f"clock of {name}", text, "docs/operations.md#the-clock-is-off"))
    return findings


def _sync_interval(config: Mapping[str, Any]) -> str:
    if config.get("sync_always"):
        return "always"
    return f"{config.get('sync_interval', 0) / 1e9:g} s"
