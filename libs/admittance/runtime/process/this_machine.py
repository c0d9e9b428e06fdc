"""What identifies the machine of this process."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

from admittance.folders import MachineFacts

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_MACHINE_ID: Final = Path("/etc/machine-id")
_MOUNTS: Final = Path("/proc/self/ns/mnt")


def machine_facts() -> MachineFacts:
    """The facts of this machine, as this process sees it; "" for what the system does not say."""
    identity = _text(_MACHINE_ID)
    if identity:
        # machine-id(5): the number itself must not be shown to others.
        identity = hashlib.sha256(f"admittance {identity}".encode()).hexdigest()[:32]
    try:
        mounts = str(_MOUNTS.readlink())
    except OSError:
        mounts = ""
    return MachineFacts(
        host=os.uname().nodename,
        boot_id=_text(_BOOT_ID),
        mount_namespace=mounts,
        machine_id=identity,
    )


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeError):
        return ""
