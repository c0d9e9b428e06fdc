"""Data folders of other runners that this runner can read: on its machine, or on a shared disk.

An expired claim means that a runner is away, not that its job has no result: the job's shim lives
on for most of the claim's TTL and may have written a result. If the folder can be read, the result
counts. Each runner writes the path of its folder to ``_runner.<id>`` in the bucket of claims; the
file ``id`` in the folder shows whether the path leads to that runner's folder on this machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import structlog

from admittance.events.subjects import CLAIMS
from admittance.runner.folder import DataFolder, RunFolder, open_run
from admittance.runtime.bus.bucket import put_message, read_all
from admittance.runtime.bus.bus import Bus

PREFIX: Final = "_runner"
KNOWN_SECONDS: Final = 2 * 86_400.0
"""How long an announced folder is remembered."""
SHIM_END_SECONDS: Final = 60.0
"""Longest wait for a shim that has outlived its claim: twice the usual grace period."""
LOOK_SECONDS: Final = 0.2

log = structlog.get_logger(service="runner")


class _Value(msgspec.Struct, frozen=True):
    root: str = ""


class OtherRun(NamedTuple):
    """A run in the folder of another runner. ``secret``: of that folder; None: not readable."""

    folder: RunFolder
    secret: bytes | None


class OtherFolders:
    """Folders that other runners have announced."""

    def __init__(self, bus: Bus, folder: DataFolder) -> None:
        self._bus = bus
        self._folder = folder

    async def announce(self) -> None:
        """Writes the path of our folder for other runners. Raises Unavailable."""
        value = msgspec.json.encode(_Value(str(self._folder.root)))
        key = f"{PREFIX}.{self._folder.runner}"
        await self._bus.publish(
            put_message(key, value, expected=None, ttl_seconds=KNOWN_SECONDS, bucket=CLAIMS)
        )

    async def find(self, key: str) -> OtherRun | None:
        """The run of that key in a readable folder of another runner; None: not found.

        Raises Unavailable.
        """
        roots = {}
        for entry in await read_all(self._bus, f"{PREFIX}.>", bucket=CLAIMS):
            runner = entry.key.removeprefix(f"{PREFIX}.")
            if runner != self._folder.runner and entry.value is not None:
                with suppress(msgspec.MsgspecError):
                    roots[runner] = read_root(entry.value)
        return await asyncio.to_thread(find_run, roots, key)


def read_root(value: bytes) -> str:
    """The path of a runner's folder as stored in the bucket of claims. Raises MsgspecError."""
    return msgspec.json.decode(value, type=_Value).root


async def wait_for_shim(run: OtherRun) -> None:
    """Waits until the run's shim has ended, at most SHIM_END_SECONDS. A shim ends by itself before
    the claim expires, but it may hang."""
    for _ in range(int(SHIM_END_SECONDS / LOOK_SECONDS)):
        run.folder.read_journal()
        if run.folder.journal.outcome is not None or not run.folder.shim_lives():
            break
        await asyncio.sleep(LOOK_SECONDS)
    else:
        log.warning("shim_outlives_its_claim", run=run.folder.identity.key)
    run.folder.read_journal()


def find_run(roots: Mapping[str, str], key: str) -> OtherRun | None:
    """The run of that key in one of the folders; ``roots``: runner id to path."""
    for runner, root in roots.items():
        path = Path(root)
        try:
            if not path.is_absolute() or (path / "id").read_text().strip() != runner:
                continue
            found = open_run(path, key)
        except (OSError, ValueError):
            continue
        if found is None:
            continue
        try:
            return OtherRun(found, (path / "secret").read_text().strip().encode())
        except (OSError, ValueError):
            return OtherRun(found, None)
    return None
