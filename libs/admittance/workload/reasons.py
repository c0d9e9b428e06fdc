"""Reasons that a verdict names beside its state: which mean something, in which spellings, and what
becomes of the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from admittance.api.workload import CheckState
from admittance.events import facts
from admittance.workload.stored import Say

PREEMPTION_REQUIRED: Final = "PreemptionRequired"
"""Reason of a Pending: the check can say Ready only once the planned victims are gone."""
_SPELLINGS: Final[Mapping[str, str]] = {
    "BookQuotaRequired": PREEMPTION_REQUIRED,
    "BookCapacity": PREEMPTION_REQUIRED,
}
"""As KEP-993 calls the same in other places."""
_OF_STATE: Final[Mapping[str, frozenset[str]]] = {
    "Pending": frozenset({"Pending"}),
    "Ready": frozenset({"Ready"}),
    "Retry": frozenset({"Retry"}),
    "Rejected": frozenset({"Reject", "Rejected"}),
}
"""Reasons of the conditions that rows are shown as: they say no more than the state."""
REASON_MAX: Final = 1024


def reason_of(fact: facts.CheckReported, row: CheckState | None) -> tuple[str, tuple[Say, ...]]:
    """The reason that the row keeps, and what people should know of it: one that means nothing here
    is kept and noted, once."""
    reason = _SPELLINGS.get(fact.reason, fact.reason)[:REASON_MAX]
    if reason in ("", *_OF_STATE.get(fact.state, ())):
        return "", ()
    if reason == PREEMPTION_REQUIRED:
        if fact.state == "Pending":
            return reason, ()
        return "", (_note(fact, f"reason {reason} counts with Pending alone, not {fact.state}"),)
    if row is not None and row.reason == reason:
        return reason, ()
    return reason, (_note(fact, f"reason {reason[:64]!r} is kept, and means nothing here"),)


def _note(fact: facts.CheckReported, text: str) -> Say:
    said = f'AdmissionCheck "{fact.check}": {text}'
    return Say(what="noted", reason="UnknownReason", message=said, detail=fact.check)
