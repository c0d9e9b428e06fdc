"""What a row keeps of a verdict besides its state: the reason, and remarks about parts of the
verdict that have no effect. docs/spec/lifecycle.md#2.5.

Each remark stands in the message of the row, and is one event of the workload.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from math import ceil, floor
from typing import Final, NamedTuple

from msgspec.structs import replace

from admittance.api.fields.units import BadDuration, seconds
from admittance.api.workload import CheckState
from admittance.events import facts, reasons
from admittance.workload.change import check_note
from admittance.workload.conditions import MESSAGE_MAX
from admittance.workload.stored import OutboxEntry

_SPELLINGS: Final[Mapping[str, str]] = {
    "BookQuotaRequired": reasons.PREEMPTION_REQUIRED,
    "BookCapacity": reasons.PREEMPTION_REQUIRED,
}
"""Other spellings of check reasons in KEP-993."""
_OF_STATE: Final[Mapping[str, frozenset[str]]] = {
    "Pending": frozenset({"Pending"}),
    "Ready": frozenset({"Ready"}),
    "Retry": frozenset({"Retry"}),
    "Rejected": frozenset({"Reject", "Rejected"}),
}
"""Reasons of verdicts that only repeat the state of the check."""
REASON_MAX: Final = 1024
TOO_LATE: Final = "its additions to the pods come after their start"
ASSIGNED_TOO_LATE: Final = "the runners that it assigns come after the start of the pods"
CLOCKS_AGREE: Final = timedelta(minutes=1)
"""A time in a verdict that is at most this far from the time of the log is only information; one
that is farther away was meant to have an effect."""


class Remark(NamedTuple):
    """A part of a verdict without effect. ``event``: the reason of the note."""

    event: str
    text: str


def verdict_remarks(fact: facts.CheckReported, logged_at: datetime) -> tuple[Remark, ...]:
    """Returns a remark for each part of the verdict, as sent, that has no effect because of the
    verdict's state, or another effect than it says. ``logged_at``: when the log stored the
    verdict."""
    remarks = []
    delay = fact.requeue_after_seconds
    if delay and fact.state != "Retry":
        remarks.append(_only_with("requeueAfterSeconds", "Retry", fact.state, many=False))
    elif delay is not None and (whole := _rounded(delay)) is not None:
        text = f"requeueAfterSeconds {delay} counts as {whole} whole seconds"
        remarks.append(Remark(reasons.VERDICT_PART_IGNORED, text))
    if fact.pod_set_updates and fact.state != "Ready":
        remarks.append(_only_with("podSetUpdates", "Ready", fact.state, many=True))
    if fact.placement and fact.state != "Ready":
        remarks.append(_only_with("placement", "Ready", fact.state, many=False))
    reason = _SPELLINGS.get(fact.reason, fact.reason)
    if reason == reasons.PREEMPTION_REQUIRED and fact.state != "Pending":
        text = f"reason {reason} has an effect only with Pending, not with {fact.state}"
        remarks.append(Remark(reasons.UNKNOWN_REASON, text))
    if fact.time is not None and abs(_aware(fact.time) - logged_at) > CLOCKS_AGREE:
        text = "the time in the verdict has no effect: the time at which it is read counts"
        remarks.append(Remark(reasons.VERDICT_PART_IGNORED, text))
    return tuple(remarks)


def _only_with(part: str, needed: str, state: str, *, many: bool) -> Remark:
    verb = "have" if many else "has"
    return Remark(
        reasons.VERDICT_PART_IGNORED,
        f"{part} {verb} an effect only with {needed}, not with {state}",
    )


def _aware(time: datetime) -> datetime:
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _rounded(delay: float | str) -> int | None:
    """The whole seconds for which a delay counts, if it is not written in whole seconds."""
    try:
        exact = seconds(delay) if isinstance(delay, str) else delay
    except BadDuration:
        return None
    whole = _whole(exact)
    return whole if whole != exact else None


def _whole(delay: float | Fraction) -> int:
    """The delay in whole seconds, rounded up; a negative delay stays negative."""
    return ceil(delay) if delay >= 0 else floor(delay)


def with_whole_seconds(fact: facts.CheckReported) -> facts.CheckReported:
    """Returns the verdict with its delay as whole seconds, rounded up; a delay that is not a
    duration stays as text."""
    delay = fact.requeue_after_seconds
    if delay is None or isinstance(delay, int):
        return fact
    try:
        exact = seconds(delay) if isinstance(delay, str) else delay
    except BadDuration:
        return fact
    return replace(fact, requeue_after_seconds=_whole(exact))


def with_remarks(message: str, *remarks: str) -> str:
    """The message of a check with remarks behind it, as long as a message of a row may be."""
    return "; ".join(part for part in (message, *remarks) if part)[:MESSAGE_MAX]


def remark_notes(
    check: str, remarks: tuple[Remark, ...], row: CheckState | None
) -> tuple[OutboxEntry, ...]:
    """Returns one note for each remark that the present row of the check does not have."""
    known = row.message if row is not None else ""
    return tuple(
        check_note(remark.event, check, remark.text)
        for remark in remarks
        if remark.text not in known
    )


def verdict_reason(
    fact: facts.CheckReported, row: CheckState | None
) -> tuple[str, tuple[OutboxEntry, ...]]:
    """Returns the reason of a verdict that its row keeps, and a note if the reason is unknown: an
    unknown reason is kept too."""
    reason = _SPELLINGS.get(fact.reason, fact.reason)[:REASON_MAX]
    if reason in ("", *_OF_STATE.get(fact.state, ())):
        return "", ()
    if reason == reasons.PREEMPTION_REQUIRED:
        return (reason if fact.state == "Pending" else ""), ()
    if row is not None and row.reason == reason:
        return reason, ()
    text = f"reason {reason[:64]!r} is unknown: it is kept, without effect"
    return reason, (check_note(reasons.UNKNOWN_REASON, fact.check, text),)
