"""The checkpoint folders of workloads: a job finds there what its earlier runs saved.

A folder belongs to a workload, not to a run: ``<base>/<namespace>/<name>/<uid>``, made by the shim
of a run and removed when the workload is gone.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Awaitable, Callable, Collection, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from admittance.events.names import BadToken, plain, token
from admittance.runner.disk.trash import throw_away
from admittance.runtime.errors import SetupError

IN_CONTAINERS: Final = "/admittance/checkpoint"
"""Where a container sees its checkpoint folder."""
CHECKED_MAX: Final = 500
"""The most folders that one look compares with the bucket."""

log = structlog.get_logger(service="runner")


class Owner(NamedTuple):
    """The workload of a checkpoint folder."""

    namespace: str
    name: str
    uid: str


def checkpoint_folder(base: str, owner: Owner) -> str:
    """The path of the workload's checkpoint folder; "": the runner has none."""
    if not base:
        return ""
    return str(Path(base, token(owner.namespace), token(owner.name), token(owner.uid or "_")))


def base_folder(chosen: str, root: Path) -> str:
    """The folder with all checkpoint folders of a runner: the ``chosen`` one, or one in its data
    folder ``root``. Raises SetupError for a chosen folder in which other Unix users may write."""
    if not chosen:
        return str(root / "checkpoints")
    try:
        status = Path(chosen).stat()
    except OSError as error:
        raise SetupError(
            f"--checkpoint-folder {chosen}: it cannot be used ({error.strerror})"
        ) from None
    if not stat.S_ISDIR(status.st_mode):
        raise SetupError(f"--checkpoint-folder {chosen}: it is not a folder")
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
        raise SetupError(
            f"--checkpoint-folder {chosen}: other Unix users may write there: give it to the "
            f"runner's Unix user and close it with chmod go-w {chosen}"
        )
    return chosen


class CheckpointSweeper:
    """Removes the checkpoint folders of workloads that are gone. ``is_gone``: whether a workload
    does not exist; a replica that lags may say so once, so a folder is removed at the second
    time."""

    def __init__(self, base: str, trash: Path, is_gone: Callable[[Owner], Awaitable[bool]]) -> None:
        self._base = Path(base)
        self._trash = trash
        self._is_gone = is_gone
        self._missing: set[Owner] = set()
        self._next = 0

    async def look(self, kept: Collection[str], namespaces: Collection[str] = ()) -> int:
        """Removes folders of workloads that were gone at the last look, too; returns how many.
        ``kept``: the uids of workloads with open runs. ``namespaces``: the only ones whose
        workloads the runner may read; empty: all."""
        owners = [
            owner
            for owner in self._owners()
            if owner.uid not in kept and (not namespaces or owner.namespace in namespaces)
        ]
        start = self._next if self._next < len(owners) else 0
        self._next = start + CHECKED_MAX
        gone = {owner for owner in owners[start : self._next] if await self._is_gone(owner)}
        again = gone & self._missing
        self._missing = gone - again
        for owner in again:
            folder = Path(checkpoint_folder(str(self._base), owner))
            throw_away(folder, self._trash)
            with contextlib.suppress(OSError):
                folder.parent.rmdir()
        if again:
            log.info("checkpoints_removed", workloads=len(again))
        return len(again)

    def _owners(self) -> Iterator[Owner]:
        for namespace in _names(self._base):
            for name in _names(self._base / namespace):
                for uid in _names(self._base / namespace / name):
                    with contextlib.suppress(BadToken):
                        yield Owner(plain(namespace), plain(name), plain(uid))


def _names(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
    except OSError:
        return []
