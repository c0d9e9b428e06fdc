"""The spans of admission checks, and of the requests for capacity inside these spans."""

from __future__ import annotations

from admittance.events import facts, provisioning
from admittance.events.base import Fact
from admittance.events.span_ids import check_span_id, span_id_of
from admittance.events.subjects import user_of
from admittance.traces.life import Life
from admittance.traces.recorder import OpenSpan
from admittance.traces.spans import Attribute, Kind, LoggedFact, Status


def judge(life: Life, logged: LoggedFact, fact: Fact) -> None:
    """Begins and ends the spans for a fact about an admission check of the workload, or about
    capacity for the workload.
    """
    match fact:
        case facts.CheckRequested():
            _on_requested(life, logged, fact)
        case facts.CheckReported(check=check, cycle=cycle, state=state):
            delay = fact.requeue_after_seconds
            asked = {"requeue_after": f"{delay} s" if isinstance(delay, int | float) else delay}
            _on_verdict(
                life, check, cycle, state, reason=fact.reason, message=fact.message, **asked
            )
        case facts.Verdict(check=check, cycle=cycle, message=message):
            state = "Ready" if isinstance(fact, facts.Approved) else "Rejected"
            user = user_of(logged.subject)
            _on_verdict(life, check, cycle, state, message=message, user=user)
        case facts.CheckWithdrawn(check=check, cycle=cycle, reason=reason):
            span = _of_cycle(life, check, cycle)
            if span is not None:
                span.set(outcome="Withdrawn", reason=reason)
                life.recorder.close(span)
        case provisioning.ProvisioningRequested():
            _on_capacity_requested(life, logged, fact)
        case provisioning.ProvisioningFact():
            _on_capacity_answer(life, fact)


def _of_cycle(life: Life, check: str, cycle: int) -> OpenSpan | None:
    """The open span of the check in this cycle."""
    span = life.checks.get(check)
    if span is None or span.ended or span.attributes.get("admittance.cycle") != cycle:
        return None
    return span


def _on_requested(life: Life, logged: LoggedFact, fact: facts.CheckRequested) -> None:
    known = life.checks.get(fact.check)
    if known is not None and known.attributes.get("admittance.cycle") == fact.cycle:
        # The request of a cycle can be repeated, for example with new parameters.
        life.recorder.event(life.place if known.ended else known, "requested", check=fact.check)
        return
    if known is not None and not known.ended:
        life.recorder.close(known)
    span_id = check_span_id(life.uid, fact.check, fact.cycle)
    span = life.open(f"check {fact.check}", logged, life.place, span_id=span_id, kind=Kind.PRODUCER)
    span.set(check=fact.check, controller=fact.controller, cycle=fact.cycle)
    span.set(retry_count=fact.retry_count or None)
    life.place.set(cycle=fact.cycle)
    life.checks[fact.check] = span


def _on_verdict(life: Life, check: str, cycle: int, state: str, **given: Attribute | None) -> None:
    span = _of_cycle(life, check, cycle)
    if span is None:
        life.recorder.event(life.place, "reported", check=check, cycle=cycle, state=state, **given)
    elif state == "Pending":
        life.recorder.event(span, "reported", state=state, **given)
    else:
        span.set(outcome=state, **given)
        message = str(given.get("message") or "")
        life.recorder.close(span, Status.ERROR if state == "Rejected" else Status.UNSET, message)


def _on_capacity_requested(
    life: Life, logged: LoggedFact, fact: provisioning.ProvisioningRequested
) -> None:
    if fact.id in life.requests:
        return
    parent = _of_cycle(life, fact.check, fact.cycle) or life.place
    span_id = span_id_of(life.uid, "capacity", fact.id)
    span = life.open("capacity", logged, parent, span_id=span_id, kind=Kind.PRODUCER)
    span.set(
        check=fact.check,
        cycle=fact.cycle,
        attempt=fact.attempt,
        provisioning_class=fact.provisioning_class,
    )
    life.requests[fact.id] = span


def _on_capacity_answer(life: Life, fact: provisioning.ProvisioningFact) -> None:
    span = life.requests.get(fact.id)
    name = type(fact).__name__
    message = str(getattr(fact, "message", ""))
    if span is None or span.ended:
        life.recorder.event(life.place, name, id=fact.id, message=message)
        return
    if isinstance(fact, provisioning.Accepted):
        life.recorder.event(span, name, message=message)
        return
    span.set(outcome=name, message=message or str(getattr(fact, "reason", "")))
    failed = isinstance(fact, provisioning.ProvisioningFailed)
    life.recorder.close(span, Status.ERROR if failed else Status.UNSET, message)
