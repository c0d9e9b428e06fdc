"""Limits of an answer: messages that are too long are cut, structured values that are too long are
refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from admittance.events.base import MESSAGE_MAX, too_long
from admittance.events.shapes import PodSetUpdate


def clipped_message(message: str, most: int = MESSAGE_MAX) -> str:
    """A message cut to ``most`` characters, with undecodable characters (as in file names)
    replaced."""
    return message[:most].encode("utf-8", "replace").decode()


def check_length(what: str, value: Any) -> None:
    """Raises ValueError, with a sentence about ``what``, if the value is too long or cannot be
    encoded."""
    try:
        found = too_long(what, value)
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise ValueError(f"{what}: {error}") from None
    if found:
        raise ValueError(found)


def updates_of(found: Sequence[PodSetUpdate | Mapping[str, Any]]) -> tuple[PodSetUpdate, ...]:
    """Returns ``pod_set_updates`` all as `PodSetUpdate`. Raises ValueError for an update that is
    not valid.
    """
    what = "pod_set_updates"
    try:
        updates = tuple(
            one if isinstance(one, PodSetUpdate) else msgspec.convert(one, PodSetUpdate)
            for one in found
        )
    except (TypeError, msgspec.ValidationError) as error:
        raise ValueError(f"{what}: {error}") from None
    check_length(what, updates)
    return updates
