"""Removes the files of jobs without delaying anything else: a job may leave a million of them.

A folder is renamed into the folder ``trash``, which takes no time whatever is in it. One program at
a time removes what is there, at the lowest priority, also what an earlier runner left.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Final

import structlog

from admittance.runtime import chance, clock

FEW_MAX: Final = 16
"""The most empty folders that are removed without a program."""
ENTRIES_MAX: Final = 64
"""The most folders that one program removes."""
RETRY_SECONDS: Final = 600.0
"""How long a folder that cannot be removed is left alone."""
REMOVE: Final = (
    # A job can close its folders to its own user.
    *("/bin/sh", "-c"),
    'nice -n 19 rm -rf -- "$@" 2>/dev/null || '
    '{ chmod -R u+rwx -- "$@"; exec nice -n 19 rm -rf -- "$@"; } 2>/dev/null',
    "rm",
)

log = structlog.get_logger(service="runner")


def trash_of(root: Path) -> Path:
    """The trash of the runner with the data folder ``root``."""
    return root / "trash"


def throw_away(path: Path, trash: Path) -> None:
    """Removes ``path`` from its place; its files are freed later. Follows no symbolic link. It may
    take long if nothing can be put into the trash."""
    if not put_away(path, trash):
        _remove_tree(path)


def put_away(path: Path, trash: Path) -> bool:
    """Removes ``path`` from its place as `throw_away` does, if that takes no time; returns whether
    it did."""
    if not os.path.lexists(path) or (not path.is_symlink() and _is_empty_removed(path)):
        return True
    try:
        trash.mkdir(mode=0o700, exist_ok=True)
        path.rename(trash / chance.token_hex(12))
    except OSError:
        return False
    return True


def _is_empty_removed(path: Path) -> bool:
    """Removes a folder that has only a few empty folders; returns whether it did. Most jobs leave
    no files, and to start a program for their folders costs as much CPU as to start a job."""
    try:
        with os.scandir(path) as entries:
            few = [entry.path for entry in islice(entries, FEW_MAX + 1)]
        if len(few) > FEW_MAX:
            return False
        for folder in map(Path, few):
            folder.rmdir()
        path.rmdir()
    except OSError:
        return False
    return True


def _remove_tree(path: Path) -> None:
    """Removes the folder ``path`` with all files that jobs have written there, as far as possible.
    Follows no symbolic link."""
    # `shutil.rmtree` calls itself for each folder in a folder, and a job may nest thousands of
    # folders.
    with contextlib.suppress(RecursionError):
        shutil.rmtree(path, ignore_errors=True)
    if path.is_dir():
        with contextlib.suppress(OSError):
            subprocess.run(["rm", "-rf", "--", path], check=False, stderr=subprocess.DEVNULL)


async def _remove(paths: Iterable[str]) -> str:
    """Removes the files; returns why the removing program did not start; "": it did."""
    try:
        process = await asyncio.create_subprocess_exec(
            *REMOVE, *paths, stdin=asyncio.subprocess.DEVNULL, start_new_session=True
        )
    except OSError as error:
        return error.strerror or str(error)
    try:
        await process.wait()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return ""


class TrashRemover:
    """Empties the trash of a runner: call `empty` from time to time."""

    def __init__(self, root: Path) -> None:
        self._trash = trash_of(root)
        self._kept: dict[str, float] = {}
        """Folders that could not be removed, and when they are tried again."""

    async def empty(self) -> None:
        """Removes what is in the trash, except what cannot be removed."""
        while names := self._names():
            paths = [self._trash / name for name in names]
            why = await _remove(map(str, paths))
            left = set(names) & set(self._names())
            self._kept.update(dict.fromkeys(left, clock.monotonic() + RETRY_SECONDS))
            if left:
                log.warning(
                    "files_not_removed", folder=str(self._trash), folders=len(left), reason=why
                )

    def _names(self) -> list[str]:
        now = clock.monotonic()
        self._kept = {name: due for name, due in self._kept.items() if due > now}
        try:
            folders = sorted(path.name for path in self._trash.iterdir())
        except OSError:
            return []
        return [name for name in folders if name not in self._kept][:ENTRIES_MAX]
