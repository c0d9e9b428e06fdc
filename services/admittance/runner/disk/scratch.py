# ruff: noqa: PTH118
# (pathlib and contextlib are not worth their import time here)
"""The scratch folders of a run, with the volumes of its pods: measures them, and removes those of
ended pods. The shim imports this module, so the module imports little.

A walk takes at most a twentieth of the shim's time, in steps of some milliseconds, whatever the job
has written: between two steps the shim serves its pods. One program at a time removes folders, for
a pod may have left a million files, and a run may have a million pods.
"""

from __future__ import annotations

import os

from admittance.runner.disk.walk import DEPTH_MAX, VOLUMES, DiskWalk

TYPE_CHECKING = False  # to import `typing` would cost milliseconds in every shim
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any

FIRST_SECONDS = 1.0
"""When the first walk begins after the start of the run: shorter jobs are not measured."""
PAUSE_SECONDS = 5.0
"""The shortest pause after a walk."""
QUIET_SECONDS = 20.0
"""The longest pause while nothing changes."""
LONG_SECONDS = 60.0
"""The longest pause after a long walk, which rests as long as it has walked."""
STEP_ENTRIES = 500
STEP_SECONDS = 0.005
REST_SECONDS = 0.05
"""The shortest rest between two steps: so a walk sees at most 10,000 entries in a second."""
REST_FACTOR = 20
DISCARDED_AT_ONCE = 64
"""The most ended pods of which one program removes the folders."""
NEVER = float("inf")
_UNITS = ("", "Ki", "Mi", "Gi", "Ti")


def size_text(size: int) -> str:
    """The size as a quantity such as 50Gi."""
    number = 0
    while size and size % 1024 == 0 and number + 1 < len(_UNITS):
        size //= 1024
        number += 1
    return f"{size}{_UNITS[number]}"


class ScratchDisk:
    """The folder ``root`` with the scratch folders of a run. ``limit``: the most bytes of all files
    in it; 0: any number. ``clock``: a function that returns the time in seconds since boot.

    ``due``: when `look` must be called. ``too_much``: why the job must fail; "": it need not.

    Files that come and go during a long walk are added up although they never existed together, so
    only two walks in a row that find too much are believed.
    """

    def __init__(self, root: str, limit: int, clock: Callable[[], float]) -> None:
        self._root = root
        self._limit = limit
        self._clock = clock
        self.due = clock() + FIRST_SECONDS
        self.too_much = ""
        self._walk: DiskWalk | None = None
        self._began = 0.0
        self._pause = PAUSE_SECONDS
        self._used = -1
        self._suspects: set[tuple[str, str]] = set()
        self._is_suspect = False
        self._unneeded: list[str] = []
        self._removing: list[str] = []
        self._remover = 0
        self._is_urgent = False

    # Measuring. ------------------------------------------------------------------------

    def look(self, volumes: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[tuple[str, str]]:
        """Takes the next step; returns the scratch folders of pods that must fail, each with the
        reason, as a clause. ``volumes``: for the scratch folder of each pod that runs the plans of
        the pod's volumes.
        """
        began = self._clock()
        if self._walk is None:
            self._began = began
            limits = volume_limits(volumes)
            if not limits and not self._limit:
                self.due = began + PAUSE_SECONDS
                return []
            # A backlog of removals counts: the job makes files faster than they can be removed.
            leaving = {*self._removing, *self._unneeded[:DISCARDED_AT_ONCE]}
            self._walk = DiskWalk(self._root, limits, leaving)
        walk, left, is_done, now = self._walk, STEP_ENTRIES, False, began
        while left > 0 and not is_done and now - began < STEP_SECONDS:
            is_done = walk.step(min(left, 50))
            left -= 50
            now = self._clock()
        is_too_much = bool(self._limit) and walk.used > self._limit
        sure = walk.over & self._suspects
        if is_done or is_too_much or walk.is_too_deep:
            self._suspects = walk.over - sure
            self._end_walk(walk, now, is_too_much=is_too_much)
        else:
            self.due = now + max(REST_SECONDS, REST_FACTOR * (now - began))
        return list(_reasons(sure, volumes))

    def _end_walk(self, walk: DiskWalk, now: float, *, is_too_much: bool) -> None:
        walk.close()
        self._walk = None
        if walk.is_too_deep:
            self.too_much = (
                f"the runner cannot measure its files: they lie in more than {DEPTH_MAX} folders "
                "inside each other"
            )
        elif is_too_much and self._is_suspect:
            self.too_much = (
                f"its scratch folders and emptyDir volumes have more than {size_text(self._limit)} "
                f"of files (--scratch-limit of the runner)"
            )
        self._is_suspect = is_too_much
        if is_too_much or walk.over:
            self.due = now + REST_SECONDS
            return
        quiet = min(2 * self._pause, QUIET_SECONDS)
        self._pause = quiet if walk.used == self._used else PAUSE_SECONDS
        self._used = walk.used
        self.due = now + max(self._pause, min(now - self._began, LONG_SECONDS))

    # Removing. -------------------------------------------------------------------------

    def discard(self, name: str, *, at_once: bool = False) -> None:
        """Notes that the scratch folder ``name`` and its volumes are not needed any more. They are
        removed with others, or, with ``at_once``, as soon as no other removal goes on."""
        self._unneeded.append(name)
        self._is_urgent = self._is_urgent or at_once
        self._remove()

    def has_ended(self, pid: int) -> None:
        """Records that the process ``pid`` has ended, which may be the removing program."""
        if pid == self._remover:
            self._remover = 0
            self._removing = []
            self._remove()

    def _remove(self) -> None:
        enough = self._is_urgent or len(self._unneeded) >= DISCARDED_AT_ONCE
        if self._remover or not self._unneeded or not enough:
            return
        names = self._unneeded[:DISCARDED_AT_ONCE]
        paths = [os.path.join(self._root, name + end) for name in names for end in ("", VOLUMES)]
        try:
            argv = ["rm", "-rf", "--", *paths]
            self._remover = os.posix_spawn("/bin/rm", argv, {}, setsid=True)
        except OSError:
            return  # the runner removes the folders when it closes the run
        self._removing = names
        del self._unneeded[:DISCARDED_AT_ONCE]
        self._is_urgent = self._is_urgent and bool(self._unneeded)


def volume_limits(volumes: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, dict[str, int]]:
    """The limits of volumes, by the folder in which they lie and the volume. ``volumes``: for each
    scratch folder the plans of the volumes beside it."""
    by_folder = {}
    for name, plans in volumes.items():
        limits = {plan["name"]: plan["limit"] for plan in plans if plan.get("limit")}
        if limits:
            by_folder[name + VOLUMES] = limits
    return by_folder


def _reasons(
    over: Iterable[tuple[str, str]], volumes: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Iterator[tuple[str, str]]:
    for folder, volume in sorted(over):
        name = folder.removesuffix(VOLUMES)
        for plan in volumes.get(name, ()):
            if plan["name"] == volume:
                text = plan["limit_text"]
                yield name, f'usage of EmptyDir volume "{volume}" exceeds the limit "{text}"'
