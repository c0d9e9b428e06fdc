"""What is wrong with the answer to the question what became of a request. Pure."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from admittance.events.requests import ProviderReply
from admittance.trials.faults import quoted


def reply_faults(
    request_id: str, data: bytes | None, expected: Collection[str], *, known: bool = True
) -> list[str]:
    """Sentences. ``expected``: statuses that it may tell; ``known`` False: it cannot know it."""
    asked = f"asked about {request_id} it answered"
    if data is None:
        return [f"{asked} nothing, and before that it did answer"]
    try:
        reply = msgspec.json.decode(data, type=ProviderReply)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return [f"{asked} {quoted(data)}: {error}"]
    if reply.error:
        return []
    found = []
    if reply.id not in ("", request_id):
        found.append(f"{asked} about {reply.id}")
    if not known and reply.known:
        found.append(f"{asked} as if it knew it: known: false has it asked again")
    if (reply.known or not known) and reply.status not in expected:
        may = " or ".join(repr(one) for one in sorted(expected))
        found.append(f"{asked} {reply.status!r}, and not {may}")
    return found
