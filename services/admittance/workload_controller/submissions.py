"""What the publisher of a submission is told where no workload came of it. Pure.

These facts follow from no revision of a workload, so they name the revision 0.
"""

from __future__ import annotations

from datetime import datetime
from hashlib import blake2b
from typing import Any, NamedTuple

from admittance.events import facts
from admittance.events.base import HEADER_MSG_ID, HEADER_TRACE, Fact
from admittance.events.codec import encode
from admittance.events.subjects import subject_of
from admittance.workload_controller.commit import Heard, Message
from admittance.workload_controller.say import Speaker


class About(NamedTuple):
    """A submission as it was heard, and when."""

    heard: Heard
    fact: Fact
    now: datetime
    speaker: Speaker


def rejected(about: About, reason: str, message: str) -> Message:
    """It cannot be: it is no valid workload, or its name is another workload's."""
    fact = facts.Rejected(**_common(about), reason=reason, message=message)
    return _message(about, fact, "rejected")


def unchanged(about: About, message: str) -> Message:
    """The workload is there already, and is the same."""
    said = f"A second submission changes nothing: {message}"
    fact = facts.Noted(**_common(about), reason="AlreadyExists", message=said)
    return _message(about, fact, "noted")


def digest(heard: Heard) -> str:
    """What a workload keeps of the message id of its submission; "" where that had none."""
    message_id = heard.headers.get(HEADER_MSG_ID, "")
    if not message_id:
        return ""
    return blake2b(message_id.encode("utf-8", "replace"), digest_size=6).hexdigest()


def _common(about: About) -> dict[str, Any]:
    fact = about.fact
    return {
        "namespace": fact.namespace,
        "name": fact.name,
        "uid": fact.uid,
        "time": about.now,
        "revision": 0,
    }


def _message(about: About, fact: Fact, what: str) -> Message:
    identity = about.speaker.identity(f"{about.heard.sequence}/{what}")
    trace = about.heard.headers.get(HEADER_TRACE, "")
    return Message(subject_of(fact), encode(fact), identity, trace)
