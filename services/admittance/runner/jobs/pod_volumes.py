# ruff: noqa: PTH101, PTH102, PTH106, PTH112, PTH118, PTH120, PTH123
# (pathlib and contextlib are not worth their import time here)
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


def make_checkpoint_folder(path: str, user: dict[str, Any] | None, *, in_container: bool) -> None:
    """Makes the checkpoint folder of a workload, unless an earlier run or another pod has made it.
    ``user``: the ``uid`` and ``gid`` of the Unix user that writes there; None: the runner's Unix
    user. ``in_container``: whether any user of a container may write there. Raises OSError."""
    for _ in range(3):
        if os.path.isdir(path):
            return
        try:
            above = os.path.dirname(path)
            of_namespace = os.path.dirname(above)
            for folder in (os.path.dirname(of_namespace), of_namespace, above):
                if not os.path.isdir(folder):
                    os.mkdir(folder, 0o700)
                    # If the runner is root, jobs of other Unix users pass through the folders, and
                    # see no names there; none but the engine reaches the folders of containers.
                    closed = os.geteuid() != 0 or (in_container and folder == above)
                    os.chmod(folder, 0o700 if closed else 0o711)
            os.mkdir(path, 0o700)
            if user:
                os.chown(path, user["uid"], user["gid"])
            if in_container:
                os.chmod(path, FOLDER_MODE)
            return
        except (FileExistsError, FileNotFoundError):
            continue  # Another run made it, or removed an empty folder above it, at this moment.
    raise OSError(f"cannot make the checkpoint folder {path}")


def remove_empty_checkpoint(path: str) -> None:
    """Removes the checkpoint folder of a workload if it is there and empty."""
    try:
        os.rmdir(path)
        os.rmdir(os.path.dirname(path))
    except OSError:
        pass
