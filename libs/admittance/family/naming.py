"""Names of variants. They are deterministic, so that creating a variant again finds the existing
one."""

from __future__ import annotations

from hashlib import sha1
from typing import Final

NAME_MAX: Final = 253
"""Characters of an object's name."""
_MIDDLE: Final = "-variant-"
_HASH: Final = 5
_TAG_LEAST: Final = 8
"""Characters of the tag that are kept when a name is cut."""


def variant_name(
    parent: str, parent_uid: str, tag: str, *, limit: int = NAME_MAX, force_hash: bool = False
) -> str:
    """The name of the parent's variant ``tag`` (a flavor, or an explicit variant's name).

    A name that is too long is cut and gets a hash of the parent's uid and the tag. ``force_hash``:
    another workload has the plain name.
    """
    tail = f"{_MIDDLE}{tag}"
    if not force_hash and len(parent) + len(tail) <= limit:
        return parent + tail
    digest = sha1(f"{parent_uid}\n{tag}".encode(), usedforsecurity=False).hexdigest()[:_HASH]
    room = limit - len(_MIDDLE) - len(digest) - 1
    kept = tag[: max(_TAG_LEAST, room // 2)]
    head = parent[: room - len(kept)].rstrip("-.")
    return f"{head}{_MIDDLE}{kept.rstrip('-.')}-{digest}"
