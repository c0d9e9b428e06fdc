"""Names of variants: deterministic, so that creating one again meets the one that is there."""

from __future__ import annotations

from hashlib import sha1
from typing import Final

NAME_MAX: Final = 253
"""Characters of an object's name."""
_MIDDLE: Final = "-variant-"
_HASH: Final = 5
_TAG_LEAST: Final = 8
"""Characters of the tag that survive a cut, where there are so many."""


def variant_name(
    parent: str, parent_uid: str, tag: str, *, limit: int = NAME_MAX, force_hash: bool = False
) -> str:
    """The name of the parent's variant ``tag`` (a flavor, or an explicit variant's name).

    Too long, it is cut and gets a hash of the parent's uid and the tag; what remains still tells
    the variant. ``force_hash``: the plain name belongs to somebody else.
    """
    tail = f"{_MIDDLE}{tag}"
    if not force_hash and len(parent) + len(tail) <= limit:
        return parent + tail
    digest = sha1(f"{parent_uid}\n{tag}".encode(), usedforsecurity=False).hexdigest()[:_HASH]
    room = limit - len(_MIDDLE) - len(digest) - 1
    kept = tag[: max(_TAG_LEAST, room // 2)]
    head = parent[: room - len(kept)].rstrip("-.")
    return f"{head}{_MIDDLE}{kept.rstrip('-.')}-{digest}"
