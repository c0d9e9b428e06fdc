"""Facts of the log in words, one line for each."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from admittance.api.fields.units import render
from admittance.client.arguments.times import span, stamp
from admittance.client.errors import sentence
from admittance.client.requests.objects import field
from admittance.client.wording.phrases import (
    admission_text,
    amount_text,
    retries_text,
)
from admittance.client.wording.variants import SENTENCES
from admittance.events import codec, facts, provisioning, reasons
from admittance.events.base import Fact
from admittance.events.names import BadToken, plain
from admittance.events.provisioning import (
    CapacityRevoked,
    ProvisioningCancelled,
    ProvisioningFact,
    ProvisioningFailed,
    ProvisioningRequested,
    ProvisioningStatus,
)
from admittance.events.reader import BROKEN
from admittance.events.requests.history import LogEntry
from admittance.events.shapes import HandedOn, PendingPreemption, Taken
from admittance.events.subjects import user_of

FAILED = "the request had failed"
CANCELLED = "the request was cancelled"
UNKNOWN_REQUEST = "this workload has no such request"


class FactEffects:
    """Which facts have no effect, computed from entries in log order: answers to requests that are
    not open, reports about an earlier admission, decisions about an older revision.

    Requests and revisions before the first entry are unknown.
    """

    def __init__(self) -> None:
        self._cycles: dict[tuple[str, str, str], int] = {}
        self._asked: dict[tuple[str, str], dict[str, str]] = {}
        self._over: dict[str, str] = {}
        self._revisions: dict[tuple[str, str], int] = {}
        self._admissions: dict[tuple[str, str], int] = {}

    def remark(self, fact: Fact) -> str:
        """Why a fact has no effect; "" if the fact has an effect or if this is unknown."""
        workload = fact.namespace, fact.name
        match fact:
            case facts.CommitFact(revision=revision):
                self._revisions[workload] = max(revision, self._revisions.get(workload, 0))
                if isinstance(fact, facts.Admitted):
                    self._admissions[workload] = revision
                return ""
            case facts.Decision(revision=revision):
                now = self._revisions.get(workload, 0)
                stale = revision < now
                return f"it is about revision {revision}, not {now}" if stale else ""
            case facts.Stopped():
                return ""
            case facts.JobFact(revision=revision) | facts.Finished(revision=revision):
                now = self._admissions.get(workload, 0)
                stale = 0 < revision < now
                return f"it is of admission {revision}, not {now}" if stale else ""
            case facts.CheckRequested(check=check, cycle=cycle):
                self._cycles[fact.namespace, fact.name, check] = cycle
            case facts.CheckReported(check=check, cycle=cycle):
                wanted = self._cycles.get((fact.namespace, fact.name, check), cycle)
                return "" if cycle == wanted else f"it is of cycle {cycle}, not {wanted}"
        if not isinstance(fact, ProvisioningFact):
            return ""
        asked = self._asked.setdefault((fact.namespace, fact.name), {})
        match fact:
            case ProvisioningRequested():
                asked.setdefault(fact.id, fact.provisioning_class)
            case ProvisioningCancelled():
                self._over[fact.id] = CANCELLED
            case ProvisioningStatus():
                reason_of = self._uncounted(fact, asked)
                if not reason_of and isinstance(fact, ProvisioningFailed):
                    self._over[fact.id] = FAILED
                return reason_of
        return ""

    def _uncounted(self, fact: ProvisioningStatus, asked: dict[str, str]) -> str:
        of = asked.get(fact.id)
        if of is None:
            uids = {request_id.partition("/")[0] for request_id in asked}
            return UNKNOWN_REQUEST if uids and fact.id.partition("/")[0] not in uids else ""
        if of != fact.provisioning_class:
            return f"the request went to {of}"
        over = self._over.get(fact.id, "")
        # After a failure of provisioned capacity a revocation still counts, since the job kept
        # running on that capacity.
        return "" if over == FAILED and isinstance(fact, CapacityRevoked) else over


REFUSED: Final = "submit refused"
"""The event of a submission that became no workload: on the log it is `rejected` with revision 0.
"""
VICTIMS_MAX: Final = 5
NO_TAGS: Final[Mapping[str, str]] = MappingProxyType({})
CREATED: Final = "CreatedVariant"
DELETED: Final = "DeletedVariant"
ACTIVATED: Final = "ActivatedVariant"
DEACTIVATED: Final = "DeactivatedVariant"
UNGATED: Final = "PreemptionUngatedVariant"
"""The reason shown for the fact `ungated` about a variant: docs/spec/lifecycle.md#8."""


CAPACITY: Final[Mapping[str, str]] = MappingProxyType(
    {
        "requested": "capacity asked",
        "cancelled": "capacity let go",
        "accepted": "capacity coming",
        "provisioned": "capacity there",
        "failed": "capacity failed",
    }
)
"""Short words for facts about capacity requests."""


class EventLine(NamedTuple):
    """One fact of the log in words. ``subject``: what the fact is about: ``namespace/name`` of a
    workload, or another object.
    """

    sequence: int
    time: datetime
    what: str
    subject: str
    reason: str = ""
    message: str = ""

    def line(self, *, numbered: bool = False) -> str:
        """The fact as ``time what subject reason: message``; ``numbered``: the log sequence comes
        first.
        """
        why = sentence(self.reason, self.message)
        number = f"{self.sequence:>8}  " if numbered else ""
        return f"{number}{stamp(self.time)}  {self.what:<16}  {self.subject}  {why}".rstrip()


_BOOKKEEPING: Final = tuple(
    f"admit.workload.{key}."
    for key in (
        "aggregated",
        "dependencies_judged",
        "elements_counted",
        "quota_released",
        "renewed",
    )
)


def is_bookkeeping(entry: LogEntry) -> bool:
    """Whether the entry only refreshes a parent's summary of its variants or elements, or only
    states the quota that the workload had, which is in other events, too."""
    return entry.subject.startswith(_BOOKKEEPING)


def line_of(
    entry: LogEntry, tags: Mapping[str, str] = NO_TAGS, effects: FactEffects | None = None
) -> EventLine:
    """One line for an entry of the log. A message of unknown shape is described by its subject.

    ``tags``: variant by workload name, for workloads known to be variants. ``effects``: passed
    when all entries are described in log order."""
    parts = entry.subject.split(".")
    try:
        fact = codec.decode(entry.subject, bytes(entry.data))
    except codec.Undecodable:
        return EventLine(entry.sequence, entry.time, *_of_other(parts, bytes(entry.data)))
    what = parts[2] if parts[1] == "workload" else " ".join(parts[1:3])
    if user := user_of(entry.subject):
        what = parts[3]
    if isinstance(fact, facts.Rejected) and not fact.revision:
        what = REFUSED
    if isinstance(fact, provisioning.ProvisioningFact):
        what = CAPACITY.get(parts[2], parts[2])
    tag = tags.get(fact.name, "")
    reason, message = variant_reason(fact, tag) or reason_of(fact)
    if part := getattr(fact, "part", 0):
        message = f"part {part}: {message}" if message else f"part {part}"
    if user:
        message = f"by {user}, {message}" if message else f"by {user}"
    inferred = effects.remark(fact) if effects is not None else ""
    if uncounted := without_effect(entry) or inferred:
        message = f"{message} (does not count: {uncounted})".lstrip()
    subject = f"{fact.namespace}/{fact.name}"
    return EventLine(entry.sequence, entry.time, what.replace("_", " "), subject, reason, message)


def without_effect(entry: LogEntry) -> str:
    """Why the workload-controller did not apply the fact; "" if it applied the fact, if a fact of
    this kind never changes a workload, or if the outcome is no longer known.
    """
    if entry.outcome in ("", "applied") or entry.reason == reasons.NOTED:
        return ""
    return sentence(entry.reason, entry.message) or entry.outcome


def variant_reason(fact: Fact, tag: str) -> tuple[str, str] | None:
    """Reason and message of a fact that only variants have; None for any other fact.
    ``tag``: the variant that the workload is; "" if unknown."""
    match fact:
        case facts.Submitted() if _role(fact) == "variant":
            manifest = _plain(bytes(fact.workload))
            name = field(manifest, "spec", "variant", default="")
            owner = field(manifest, "metadata", "ownerReferences", default=[{}])[0]
            return CREATED, f"{name} of {owner.get('name', '?')}"
        case facts.Deleted() if tag:
            return DELETED, tag
        case facts.Activated() if tag:
            return ACTIVATED, tag
        case facts.Deactivated(reason=reason) if tag or reason:
            word = reason or "User"
            said = SENTENCES.get(word, "")
            shown = ", ".join(part for part in (word, said) if part)
            return DEACTIVATED, f"{tag}: {shown}" if tag else shown
        case facts.Ungated():
            return UNGATED, f"{tag} may preempt" if tag else "it may preempt"
        case facts.Assigned(migrates_from=HandedOn() as left):
            numbered = "; ".join(filter(None, (admission_text(fact.admission), numbers(fact))))
            return "", f"{numbered}; takes over from {left.name} once its job has stopped"
        case facts.Evicted(
            reason=reasons.VARIANT_EVICTED, underlying_cause=reasons.FLAVOR_MIGRATION
        ):
            return fact.reason, fact.message or "moves to a better variant"
    return None


def _role(fact: facts.Submitted) -> str:
    return str(field(_plain(bytes(fact.workload)), "spec", "role", default=""))


def reason_of(fact: Fact) -> tuple[str, str]:
    """Reason and message of a fact; built from other fields of the fact if it has no reason."""
    match fact:
        case facts.Submitted():
            return "", _submitted(fact)
        case facts.Assigned(admission=admission):
            return "", "; ".join(
                filter(None, (fact.message or admission_text(admission), numbers(fact)))
            )
        case facts.Refused(refusal=refusal):
            return refusal.reason, refusal.message
        case facts.Planned(pending_preemption=plan):
            return "", _planned(plan)
        case facts.Preempted(reason=reason, message=message, by=by):
            return reason, message or (f"by {by}" if by else "")
        case facts.Rejected(revision=0, reason=reasons.ALREADY_EXISTS as reason, message=message):
            return (
                reason,
                f"{message}; that submission was refused, the existing workload is unchanged",
            )
        case facts.Reprioritized(priority=priority):
            return "", f"priority {priority}"
        case facts.PodsFailed(retries=retries):
            return "", retries_text(retries)
        case facts.Finished(succeeded=succeeded, reason=reason, message=message):
            return reason or (reasons.SUCCEEDED if succeeded else reasons.FAILED), message
        case facts.Admitted(reason=reason, message=message, cluster_queue=queue):
            return reason, message or (f"in {queue}" if queue else "")
        case facts.CheckRequested(check=check, cycle=cycle):
            return check, f"cycle {cycle}"
        case facts.CheckWithdrawn(check=check, cycle=cycle, reason=reason):
            return check, f"cycle {cycle}: {reason}" if reason else f"cycle {cycle}"
        case facts.CheckReported(check=check, state=state, message=message):
            delay = fact.requeue_after_seconds
            asked = f"{delay} s" if isinstance(delay, int | float) else delay
            later = f" (retry in {asked})" if delay else ""
            return check, f"{state}{later}: {message}" if message else f"{state}{later}"
        case provisioning.ProvisioningFact():
            return request_reason(fact)
        case facts.Verdict(check=check, message=message):
            return check, message
        case facts.TimerDue(kind=kind, at=at):
            return kind, f"set for {stamp(at)}" if at else ""
        case _:
            return getattr(fact, "reason", ""), getattr(fact, "message", "")


def request_reason(fact: provisioning.ProvisioningFact) -> tuple[str, str]:
    """The columns REASON and MESSAGE of a provisioning fact in `admit events`: the provisioning
    class, and the request to the provider or the provider's answer.
    """
    match fact:
        case provisioning.ProvisioningRequested(check=check, attempt=attempt):
            pods = ", ".join(f"{pod_set.count} pods of {pod_set.name}" for pod_set in fact.pod_sets)
            until = f", until {stamp(fact.deadline)}" if fact.deadline is not None else ""
            message = f"attempt {attempt} of check {check}, cycle {fact.cycle}: {pods}{until}"
        case provisioning.ProvisioningCancelled(reason=reason):
            message = f"attempt {fact.attempt} of check {fact.check}: {reason}"
        case provisioning.ProvisioningFailed(retryable=False, message=said):
            message = f"{said} (not retryable)"
        case provisioning.ProvisioningFailed(retry_after=int() as seconds, message=said):
            message = f"{said} (retry in {seconds} s)"
        case _:
            message = str(getattr(fact, "message", ""))
    return fact.provisioning_class, message


def numbers(fact: facts.Assigned) -> str:
    """The quota that an assignment took, and how long the workload had waited, as text."""
    parts = [_took(taken) for taken in fact.taken]
    if fact.waited_seconds:
        parts.append(f"after {span(fact.waited_seconds)}")
    return ", ".join(parts)


def _took(taken: Taken) -> str:
    free = amount_text(taken.resource, taken.available)
    borrowed = f", {render(taken.resource, taken.borrowed)} borrowed" if taken.borrowed else ""
    amount = render(taken.resource, taken.amount)
    return f"{amount} {taken.resource} of {free} in {taken.flavor}{borrowed}"


def _planned(plan: PendingPreemption) -> str:
    if not plan.victims:
        return "needs no preemption any more"
    named = ", ".join(f"{victim.namespace}/{victim.name}" for victim in plan.victims[:VICTIMS_MAX])
    if (more := len(plan.victims) - VICTIMS_MAX) > 0:
        named += f" and {more} more"
    return f"preempts now: {named}" if plan.issued else f"will preempt: {named}"


def _submitted(fact: facts.Submitted) -> str:
    manifest = _plain(bytes(fact.workload))
    queue = field(manifest, "spec", "queueName", default="")
    return f"to {queue}" if queue else ""


def _of_other(parts: list[str], data: bytes) -> tuple[str, str, str, str]:
    value = _plain(data)
    reason, message = str(value.get("reason", "")), str(value.get("message", ""))
    match parts:
        case ["admit", "object", what, kind, namespace, name]:
            where = "" if namespace == "_" else f"{_name(namespace)}/"
            if user := str(value.get("user", "")):
                message = f"by {user}"
            return f"object {what}", f"{_name(kind)} {where}{_name(name)}", reason, message
        case ["admit", "lease", what, domain]:
            owner = str(value.get("owner", ""))
            return f"lease {what}", _name(domain), "", f"owner {owner}" if owner else ""
        case ["admit", "deadletter", service]:
            about = str(value.get("subject", ""))
            match about.split("."):
                case ["admit", "workload", what, namespace, name]:
                    refused = what.replace("_", " ")
                case ["admit", "user", user, what, namespace, name]:
                    refused = f"{what} by {_name(user)}"
                case ["admit", "check" | "provisioning" as of, what, program, namespace, name]:
                    refused = f"{of} {what} of {_name(program)}"
                case _:
                    return "dead letter", _name(service), about, reason
            subject = f"{_name(namespace)}/{_name(name)}"
            return "dead letter", subject, "", f"{_name(service)} refused {refused}: {reason}"
        case _:
            return " ".join(parts[1:3]).replace("_", " "), ".".join(parts[3:]), reason, message


def _plain(data: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(data)
    except BROKEN:
        return {}
    return value if isinstance(value, dict) else {}


def _name(token: str) -> str:
    try:
        return plain(token)
    except BadToken:
        return token
