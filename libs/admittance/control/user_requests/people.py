"""Translates facts that people cause, ``admit.user.<user>.<verb>.<ns>.<name>``, into facts of
workloads. Pure. The user in the subject is the user that is connected: only the
workload-controller publishes on these subjects, for requests whose subject the server's
permissions guard.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from msgspec.structs import replace

from admittance.control.commit import LogMessage
from admittance.control.user_requests.submissions import claim_of
from admittance.control.workloads import VersionedWorkload
from admittance.events import facts
from admittance.events.base import HEADER_RIGHTS, Fact
from admittance.events.codec import decode
from admittance.events.subjects import APPROVAL_CONTROLLER, OWNER, user_of, workload_key


def user_behind(logged: LogMessage) -> str:
    """The user that caused the fact; "": a service, or a client without a name. The subject must be
    decodable."""
    return user_of(logged.subject)


def fact_of(logged: LogMessage) -> Fact:
    """The fact that the workload-controller applies for the message. Raises Undecodable."""
    fact = decode(logged.subject, logged.data)
    user = user_of(logged.subject)
    return _meant(fact, user, logged.time) if user else fact


def _meant(fact: Fact, user: str, now: datetime) -> Fact:
    match fact:
        case facts.Verdict():
            return _verdict(fact, user, now)
        case facts.Activated() | facts.Deactivated() if fact.reason:
            # Only facts of the variant-controller have a reason.
            return replace(fact, reason="")
        case facts.Finished() if fact.revision:
            # A fact `finished` with a revision would count as a runner's report that the job has
            # ended by itself.
            return replace(fact, revision=0)
    return fact


def is_of_owner(logged: LogMessage) -> bool:
    """Whether a person with the role owner caused the fact: it changes own workloads only."""
    return logged.headers.get(HEADER_RIGHTS) == OWNER


def not_owned(user: str, fact: Fact, known: Callable[[str], VersionedWorkload]) -> str:
    """Why the user, which has the role owner, may not cause the fact, as a sentence; "": the user
    may. ``known``: returns the workload at a key of the bucket."""
    name = fact.name
    present = known(workload_key(fact.namespace, name))
    claim = claim_of(fact) if isinstance(fact, facts.Submitted) else None
    parent = claim.owner[0] if claim is not None else ""
    if parent and present.workload is None and not present.unreadable:
        # A new variant changes the family of its parent.
        name = parent
        present = known(workload_key(fact.namespace, parent))
    if present.workload is None and not present.unreadable:
        return ""
    owner = present.workload.status.submitted_by if present.workload is not None else ""
    if owner == user:
        return ""
    whose = f"belongs to {owner}" if owner else "has no known owner"
    return f"role {OWNER}: workload {name} {whose}"


def _verdict(fact: facts.Verdict, user: str, now: datetime) -> facts.CheckReported:
    approves = isinstance(fact, facts.Approved)
    return facts.CheckReported(
        namespace=fact.namespace,
        name=fact.name,
        uid=fact.uid,
        controller=APPROVAL_CONTROLLER,
        check=fact.check,
        cycle=fact.cycle,
        state="Ready" if approves else "Rejected",
        message=verdict_message("approved" if approves else "denied", user, fact.message, now),
    )


def verdict_message(word: str, user: str, message: str, now: datetime) -> str:
    """The message of a verdict, like ``approved by ada at 2026-01-01T12:00:00Z: looks fine``."""
    moment = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    text = f"{word} by {user} at {moment}"
    return f"{text}: {message}" if message else text
