# ruff: noqa: PTH101, PTH102, PTH112, PTH118, PTH120, PTH123
# (pathlib is not worth its import time here)
"""Makes the volumes of a pod. The shim imports this module, so the module imports little."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # to import `typing` would cost milliseconds in every shim
if TYPE_CHECKING:
    from typing import Any

FOLDER_MODE = 0o777
"""The rights of a volume's folder for any user of a container, inside a folder that only the
runner's Unix user may enter."""


def make_volumes(
    above: str, volumes: list[dict[str, Any]], user: dict[str, Any] | None
) -> dict[str, str]:
    """Makes the folders of the volumes in the folder ``above``, unless they are there; returns the
    variables with their paths. ``user``: the ``uid`` and ``gid`` of the pod's Unix user; None: the
    runner's Unix user. Raises OSError.

    Nothing is written into a folder that already belongs to another Unix user, who could have put a
    link there.
    """
    paths = {}
    for volume in volumes:
        path = volume["host"] or os.path.join(above, volume["name"])
        paths[volume["variable"]] = path
        if volume["host"] or os.path.isdir(path):
            continue
        if not os.path.isdir(above):
            os.mkdir(above)
            os.chmod(above, 0o711 if user else 0o700)
        os.mkdir(path, 0o700)
        made = [path]
        for inner in volume["folders"]:
            made += _make_folders(path, inner)
        for file in volume["files"]:
            made += _make_folders(path, os.path.dirname(file["path"]))
            target = os.path.join(path, file["path"])
            _copy(file["source"], target, file["mode"])
            if user:
                os.chown(target, user["uid"], user["gid"])
        for folder in reversed(made):
            os.chmod(folder, 0o700 if user else FOLDER_MODE)
            if user:
                os.chown(folder, user["uid"], user["gid"])
    return paths


def _make_folders(path: str, inner: str) -> list[str]:
    made = []
    for part in inner.split("/"):
        path = os.path.join(path, part)
        if part and not os.path.isdir(path):
            os.mkdir(path, 0o700)
            made.append(path)
    return made


def _copy(source: str, target: str, mode: int) -> None:
    with open(source, "rb") as read:
        file = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(file, "wb") as written:
            while data := read.read(1 << 20):
                written.write(data)
    os.chmod(target, mode)
