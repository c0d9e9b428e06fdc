"""Whether the machine of a runner sees the folder in which a job was submitted. Pure.

docs/decisions/0069-a-job-starts-in-the-folder-of-its-submission.md has the reasons.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

import msgspec

SUBMITTED_FROM: Final = "admittance.dev/submitted-from"
"""Annotation of a pod template: a `SubmittedFrom` as JSON. Containers whose ``workingDir`` is its
path start in that folder only."""
PATH_MAX: Final = 4096
OTHER_USER: Final = "it runs the job as another Unix user than the submitter"


class BadFolder(ValueError):
    """The error that the annotation `SUBMITTED_FROM` does not describe a folder."""


class MachineFacts(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What identifies a machine, as one of its processes sees it; "": not known.

    ``host``: its name, for people. ``boot_id``: of its kernel, new after each start of the machine.
    ``mount_namespace``: which file systems the process sees, and where. ``machine_id``: of its
    installation.
    """

    host: str = ""
    boot_id: str = ""
    mount_namespace: str = ""
    machine_id: str = ""


class SubmittedFrom(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A folder on the machine of a submitter. ``inode``, ``owner``: its number in its file system,
    and the id of its Unix user. ``uid``: the Unix user that submitted the job, as which alone the
    job may run there; None: any. ``umask``: the submitter's; None: that of the runner."""

    path: str
    machine: MachineFacts = MachineFacts()
    inode: int = 0
    owner: int = 0
    uid: int | None = None
    umask: int | None = None


class FolderSight(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Which folders the local processes of a runner see.

    ``shared``: folders that are declared to be the same on other machines. ``allowed``: jobs start
    in these folders only; empty: everywhere. ``uids``: the Unix user of a job by the keys of
    `JobRules.run_as`, without ranges.
    """

    machine: MachineFacts = MachineFacts()
    shared: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    uids: dict[str, int] = msgspec.field(default_factory=dict)


def uid_of(uids: Mapping[str, int], user: str, namespace: str) -> int | None:
    """The Unix user as which a runner starts jobs of the user in the namespace; None: not known.
    ``user`` "": the submitter is unknown."""
    first = f"user:{user}" if user else "unknown"
    of_namespace = f"namespace:{namespace}"
    for key in (first, of_namespace, "*") if user else (of_namespace, first, "*"):
        if key in uids:
            return uids[key]
    return None


def sees_folder(sight: FolderSight, uid: int | None, folder: SubmittedFrom) -> str:
    """Why a job that runs as ``uid`` does not see the folder as its submitter does; "": it does.

    A folder is the same on the same machine, seen through the same mounts, or below a folder that
    the runner declares as shared. `is_proven` says whether its number must be compared, too.
    """
    if folder.uid is not None and uid != folder.uid:
        return OTHER_USER
    shared = _is_below(folder.path, sight.shared)
    if not (shared or is_proven(sight, folder) or _is_restarted(sight, folder)):
        if sight.machine.host == folder.machine.host:
            return "it sees other mounts of the machine, and no --shared-folder has it"
        return "it is on another machine, and no --shared-folder has it"
    if sight.allowed and not _is_below(folder.path, sight.allowed):
        return f"its --job-folder allows only {', '.join(sight.allowed)}"
    return ""


def is_proven(sight: FolderSight, folder: SubmittedFrom) -> bool:
    """Whether the path alone says which folder it is: machine and mounts are the same."""
    here, there = sight.machine, folder.machine
    return bool(here.boot_id and here.mount_namespace) and (
        (here.boot_id, here.mount_namespace) == (there.boot_id, there.mount_namespace)
    )


def _is_restarted(sight: FolderSight, folder: SubmittedFrom) -> bool:
    """Whether it is the same installation after another start of the machine."""
    here, there = sight.machine, folder.machine
    return bool(here.machine_id and here.mount_namespace) and (
        here.boot_id != there.boot_id
        and (here.machine_id, here.mount_namespace) == (there.machine_id, there.mount_namespace)
    )


def _is_below(path: str, folders: Sequence[str]) -> bool:
    """Whether the path is one of the folders, or inside of one."""
    plain = PurePosixPath(posixpath.normpath(path))
    return any(plain.is_relative_to(folder) for folder in folders)


_decoder = msgspec.json.Decoder(SubmittedFrom)


def noted_folder(annotations: Mapping[str, str]) -> SubmittedFrom | None:
    """The folder in the annotations of a pod template; None if there is none. Raises BadFolder."""
    written = annotations.get(SUBMITTED_FROM)
    if written is None:
        return None
    try:
        folder = _decoder.decode(written)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        raise BadFolder(f"does not describe a folder: {error}") from error
    if not folder.path.startswith("/") or "\0" in folder.path or len(folder.path) > PATH_MAX:
        raise BadFolder("its path must be an absolute path")
    numbers = (folder.inode, folder.owner, folder.uid or 0)
    if not all(0 <= number < 2**64 for number in numbers) or not 0 <= (folder.umask or 0) <= 0o777:
        raise BadFolder("inode, owner, uid and umask must be numbers of Linux")
    return folder


def written_folder(folder: SubmittedFrom) -> str:
    """The folder as the value of the annotation `SUBMITTED_FROM`."""
    return msgspec.json.encode(folder).decode()
