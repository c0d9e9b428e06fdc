"""Makes the data folder, and refuses one that another Unix user could change."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from admittance.runtime.errors import SetupError


def own_folder(folder: Path) -> None:
    """Makes the folder and those above it, as far as they are missing. Raises SetupError if it
    belongs to a Unix user other than that of this process and root, or if every user may write in
    it: such a user could put links in place of its files, and choose what this process writes,
    reads and starts. Raises OSError if it cannot be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    status = folder.stat()
    what = ""
    if status.st_uid not in (os.geteuid(), 0):
        what = f"belongs to another Unix user (uid {status.st_uid})"
    elif status.st_mode & stat.S_IWOTH:
        what = "may be changed by every Unix user"
    if what:
        raise SetupError(
            f"the data folder {folder} {what}: change its owner and its mode (chown, chmod 700), "
            "or choose another with --data-dir"
        )
