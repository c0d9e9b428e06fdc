"""What a process found out about itself and its machine, for `admit doctor`.

No client can read these facts from the server: free space of a disk, settings of a server that the
process started, an exporter without answers. Every health reply of the process carries its
findings.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from admittance.events.shapes import Finding
from admittance.runtime.telemetry.logger import logger
from admittance.runtime.telemetry.object_faults import faults

OK: Final = "ok"
NOTE: Final = "note"
WRONG: Final = "wrong"

FREE_MIN: Final = 1 << 30
"""With fewer free bytes than this, a disk counts as nearly full."""
FREE_SHARE_MIN: Final = 0.1
"""If the free share of a disk is smaller than this, the process reports a note about the disk."""

DURABILITY: Final = "durability"
"""The first words of every finding about a power failure."""

log = logger()

FindingSource = Callable[[], Iterable[Finding]]
_sources: Final[list[FindingSource]] = [faults.findings]


@contextmanager
def report_findings(source: FindingSource) -> Iterator[None]:
    """While the context is active, health replies of this process carry the findings of
    ``source``, which must not block."""
    _sources.append(source)
    try:
        yield
    finally:
        _sources.remove(source)


def own_findings() -> tuple[Finding, ...]:
    """The findings of all sources of this process. A source that raises an exception is logged, and
    its findings are missing from the result.
    """
    findings: list[Finding] = []
    for source in tuple(_sources):
        try:
            findings += source()
        except Exception:
            log.exception("finding_failed")
    return tuple(findings)


def disk_findings(what: str, folder: Path) -> list[Finding]:
    """The finding about the free space of the folder's disk; empty if the folder is gone.
    ``what``: the use of the folder, such as "disk of the runner"."""
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return []
    return [disk_finding(what, str(folder), usage.free, usage.total)]


def disk_finding(what: str, folder: str, free: int, total: int) -> Finding:
    """The finding about a disk with so many free bytes."""
    free_space = f"{folder}: {size_of(free)} of {size_of(total)} free"
    if free >= FREE_MIN and free >= total * FREE_SHARE_MIN:
        return Finding(state=OK, what=what, found=free_space)
    least = size_of(FREE_MIN) if free < FREE_MIN else f"{FREE_SHARE_MIN:.0%}"
    return Finding(
        state=WRONG if free < FREE_MIN else NOTE,
        what=what,
        found=f"{free_space}, less than {least}: nearly full",
        todo="make space before it is full: docs/operations.md#the-disk-is-full",
    )


def heartbeat_findings(service: str, silent_seconds: float, ttl_seconds: float) -> list[Finding]:
    """The finding about a service without acknowledgements of its writes; empty if its writes are
    acknowledged. ``silent_seconds``: the time since its last acknowledged heartbeat was sent.
    """
    if silent_seconds <= 2 * ttl_seconds:
        return []
    return [
        Finding(
            state=WRONG,
            what=f"writes of {service}",
            found=f"nats-server has acknowledged no heartbeat for {silent_seconds:.0f} s",
            todo="look whether its disk is full or was full, and whether a majority of its servers "
            "runs: docs/operations.md#the-disk-is-full",
        )
    ]


def durability_finding(server: str, sync_interval: str) -> Finding:
    """What a power failure loses with this sync_interval of a nats-server."""
    what = f"{DURABILITY} of {server}"
    if sync_interval == "always":
        promise = "sync_interval: always: a power failure loses no acknowledged write"
        return Finding(state=OK, what=what, found=promise)
    return Finding(
        state=NOTE,
        what=what,
        found=f"sync_interval: {sync_interval}: a power failure may lose the writes of that time",
        todo="if a power failure must lose nothing, set `sync_interval: always` in the jetstream "
        "block of nats-server, or start `admit up` with --sync-always",
    )


def size_of(count: int) -> str:
    """A number of bytes for people, such as 1.5 MiB."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
