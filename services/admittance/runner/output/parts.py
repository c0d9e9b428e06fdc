# ruff: noqa: PTH118, PTH208
# (pathlib is not worth its import time in a shim)
"""The files that keep the output of a run.

``out/<pod>.log`` has the first bytes of a pod's output, ``out/<pod>.log.<start>`` the bytes from
``start`` on. When a run has too much output, its oldest parts are removed. So the position of a
byte stays the same as long as the byte is kept. The shim imports this module, so the module imports
little.
"""

from __future__ import annotations

import os
import re

_NAME = re.compile(r"(.+)-(\d+)\.log(?:\.(\d+))?", re.ASCII)


def part_name(pod: str, start: int) -> str:
    """The name of the file with the output of a pod from the position ``start`` on."""
    return f"{pod}.log.{start}" if start else f"{pod}.log"


def pods_with_output(folder: str, index: int | None = None) -> dict[str, list[tuple[int, str]]]:
    """For each pod with output in the folder the parts of its output, as start and path, in their
    order. The pods are in the order of their names and indexes. ``index``: the index of the wanted
    pods; None: all pods. Other files are skipped. A folder that cannot be read has no output: a run
    may be removed at this moment, and a job with the runner's Unix user can remove its folder."""
    parts: dict[tuple[str, int], list[tuple[int, str]]] = {}
    try:
        names = os.listdir(folder)
    except OSError:
        return {}
    for name in names:
        named = _NAME.fullmatch(name)
        if named is None or (index is not None and int(named[2]) != index):
            continue
        key = named[1], int(named[2])
        parts.setdefault(key, []).append((int(named[3] or 0), os.path.join(folder, name)))
    return {f"{set_name}-{at}": sorted(parts[set_name, at]) for set_name, at in sorted(parts)}
