"""Where the groups of this process are, from /proc/self/mountinfo and /proc/self/cgroup. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

V1 = ("memory", "pids", "cpu", "freezer", "devices")
"""The controllers of version 1 that are looked for."""


class Mount(NamedTuple):
    """A mounted tree of groups. ``root``: the group that is mounted at ``path``. ``controllers``:
    of version 1; empty: version 2."""

    path: str
    root: str
    controllers: tuple[str, ...]


def mounts_in(mountinfo: str) -> list[Mount]:
    """The trees of groups in the text of /proc/self/mountinfo."""
    mounts = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        options = kind[2].split(",")
        controllers = tuple(name for name in V1 if name in options) if kind[0] == "cgroup" else ()
        if controllers or kind[0] == "cgroup2":
            mounts.append(Mount(_plain(fields[4]), _plain(fields[3]), controllers))
    return mounts


def _plain(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda sign: chr(int(sign[1], 8)), text)


def own_groups(cgroup: str) -> dict[str, str]:
    """The group of this process in each tree, by controller, from the text of /proc/self/cgroup;
    that of version 2 has the name ""."""
    groups = {}
    for line in cgroup.splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if path:
            groups.update(dict.fromkeys(names.split(","), path))
    return groups


def folder_of(mount: Mount, group: str) -> str:
    """The folder of a group. In a container the group may lie outside of what is mounted: then the
    mounted group itself."""
    root = mount.root.rstrip("/")
    inside = group.removeprefix(root) if f"{group}/".startswith(f"{root}/") else ""
    return f"{mount.path}{inside}".rstrip("/") or "/"
