"""Files that only their owner may read.

Root may write into the folder of another Unix user: each new file gets the owner of its folder.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from admittance.runtime.errors import SetupError

_BYTES_MAX: Final = 64 << 20


def read_own(path: Path) -> bytes:
    """The content of a file. Raises SetupError unless the file belongs to this Unix user and no
    other Unix user may read it."""
    try:
        with path.open("rb") as file:
            check_own(path, os.fstat(file.fileno()), "600")
            data = file.read(_BYTES_MAX + 1)
    except OSError as error:
        raise SetupError(f"cannot read {path}: {error.strerror}") from None
    if len(data) > _BYTES_MAX:
        raise SetupError(f"{path} is damaged (it is too long): restore it from a backup")
    return data


def check_own(path: Path, status: os.stat_result, mode: str) -> None:
    """Raises SetupError if the file or folder belongs to another Unix user, unless this process is
    root, or if other Unix users may use it. ``mode``: the file mode that the error names for
    ``chmod``."""
    if os.geteuid() not in (status.st_uid, 0):
        raise SetupError(
            f"{path} belongs to another Unix user (uid {status.st_uid}): run this command as that "
            "user"
        )
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise SetupError(f"other users may use {path}: run `chmod {mode} {path}`")


def create_file(path: Path, text: str) -> None:
    """Writes a new file that only its owner may read."""
    try:
        with os.fdopen(open_new(path, os.O_WRONLY | os.O_EXCL), "wb") as file:
            file.write(text.encode())
    except FileExistsError:
        raise SetupError(f"{path} exists: delete it, or name another file with -o") from None
    except OSError as error:
        raise SetupError(f"cannot write {path}: {error.strerror}") from None


def write_secret_file(path: Path, text: str) -> None:
    """Writes a file that only its owner may read. A reader sees the old content or the new content,
    never a part. Raises SetupError."""
    _write(path, text, None)


def change_secret_file(path: Path, text: str) -> None:
    """Writes a file that exists, as `write_secret_file` does; its owner and mode stay, and a
    symbolic link to it stays one. Raises SetupError."""
    try:
        target = path.resolve()
        status = target.stat()
    except OSError as error:
        raise SetupError(f"cannot write {path}: {error.strerror}") from None
    if os.geteuid() not in (status.st_uid, 0):
        raise SetupError(f"cannot write {path}: it belongs to another Unix user ({status.st_uid})")
    _write(target, text, status)


def _write(path: Path, text: str, before: os.stat_result | None) -> None:
    draft = path.with_name(f".{path.name}.new")
    try:
        with os.fdopen(open_new(draft, os.O_WRONLY | os.O_TRUNC), "wb") as file:
            file.write(text.encode())
            file.flush()
            if before is not None:
                if os.geteuid() == 0:
                    os.fchown(file.fileno(), before.st_uid, before.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
            os.fsync(file.fileno())
        if path.is_dir():
            # Docker makes an empty folder in place of a secret file that is missing.
            path.rmdir()
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise SetupError(f"cannot write {path}: {error.strerror}") from None


def open_new(path: Path, flags: int) -> int:
    """Opens a file that only its owner may read, and makes the file if it does not exist. As root:
    the file gets the owner of its folder.
    """
    flags |= os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
        if os.geteuid() == 0:
            owner = path.parent.stat()
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
