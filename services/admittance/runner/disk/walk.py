"""Adds up the files below a folder, a few at a time. The shim imports this module, so the module
imports little.

A job chooses how many files and folders there are, may change them at any time, and may belong to a
user that must not lead the shim to other places. So each folder is opened inside the one above it
without following a link, no other file system is entered, and every step is bounded.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # to import `typing` would cost milliseconds in every shim
if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

VOLUMES = ".volumes"
"""What the name of the folder with the volumes of a pod ends with, after the name of the pod's
scratch folder."""
BLOCK_BYTES = 4_096
"""What an entry takes at least of the sum of all: a million empty files are a burden, too."""
DEPTH_MAX = 100
"""The most folders inside each other. Each of them is an open file of the shim while the shim is in
it."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class DiskWalk:
    """One walk through the scratch folders of a run. ``limits``: for each folder of volumes the
    most bytes of some of its volumes. ``leaving``: the scratch folders that are left out, with the
    volumes beside them.

    ``used``: what all entries take that were seen so far. ``over``: the volumes that have more than
    their limits, with the folders in which they lie. ``is_too_deep``: whether folders lie so deep
    that the walk does not enter them. Of a file with several names, each name takes its part.
    """

    def __init__(
        self, root: str, limits: Mapping[str, Mapping[str, int]], leaving: Container[str] = ()
    ) -> None:
        self.used = 0
        self.over: set[tuple[str, str]] = set()
        self.is_too_deep = False
        self._limits = limits
        self._leaving = leaving
        self._volumes: dict[tuple[str, str], int] = {}
        self._names: list[str] = []
        self._stack: list[tuple[int, Iterator[os.DirEntry[str]]]] = []
        self._device = -1
        self._enter(root, None)

    def step(self, most: int) -> bool:
        """Looks at up to ``most`` further entries; returns whether all have been seen."""
        while self._stack and most > 0:
            most -= 1
            try:
                entry = next(self._stack[-1][1], None)
            except OSError:
                entry = None  # the folder was removed
            if entry is None:
                self._leave()
            else:
                self._count(entry)
        return not self._stack

    def close(self) -> None:
        """Ends the walk where it is."""
        while self._stack:
            self._leave()

    def _count(self, entry: os.DirEntry[str]) -> None:
        if not self._names and entry.name.removesuffix(VOLUMES) in self._leaving:
            return
        try:
            info = entry.stat(follow_symlinks=False)
        except OSError:
            return  # it was removed
        is_folder = entry.is_dir(follow_symlinks=False)
        size = info.st_blocks * 512
        if not is_folder and info.st_nlink > 1:
            size //= info.st_nlink
        self.used += max(BLOCK_BYTES, size)
        names = [*self._names[:2], entry.name][:2]
        limit = self._limits.get(names[0], {}).get(names[1]) if len(names) > 1 else None
        if limit:
            volume = names[0], names[1]
            self._volumes[volume] = self._volumes.get(volume, 0) + size
            if self._volumes[volume] > limit:
                self.over.add(volume)
        if not is_folder or info.st_dev != self._device:
            return
        if len(self._stack) > DEPTH_MAX:
            self.is_too_deep = True
        else:
            self._enter(entry.name, self._stack[-1][0])

    def _enter(self, name: str, above: int | None) -> None:
        try:
            folder = os.open(name, _FOLDER, dir_fd=above)
        except OSError:
            return  # it was removed, is a link by now, or belongs to a user of a container
        try:
            entries = os.scandir(folder)
        except OSError:
            os.close(folder)
            return
        if above is None:
            self._device = os.fstat(folder).st_dev
        else:
            self._names.append(name)
        self._stack.append((folder, entries))

    def _leave(self) -> None:
        folder, entries = self._stack.pop()
        entries.close()  # type: ignore[attr-defined]
        os.close(folder)
        if self._names:
            self._names.pop()
