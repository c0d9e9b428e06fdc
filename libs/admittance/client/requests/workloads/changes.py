"""What people may do to a workload: each is one fact on the log, with its outcome."""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from admittance.api.checks import AdmissionCheck
from admittance.api.fields.limits import INT32
from admittance.api.workload import CheckState
from admittance.client import kinds
from admittance.client.arguments.spelling import IN_PYTHON
from admittance.client.errors import BadInput, NotFound, Refused, RequestFailed
from admittance.client.requests.link import Link
from admittance.client.requests.objects import BucketObject, find, lookup
from admittance.client.requests.workloads.families import (
    Family,
    family_of,
    is_parent,
    refuse_variant,
)
from admittance.events import facts, reasons
from admittance.events.base import Fact
from admittance.events.requests.history import SettledReply
from admittance.events.subjects import APPROVAL_CONTROLLER
from admittance.runtime import clock
from admittance.workload.phase import Phase, holds_quota, is_stopping, phase
from admittance.workload.stored import StoredWorkload
from admittance.workload.waiting_reason import reason_of

NO: Final = frozenset({"refused", "dead-lettered"})
NO_REASONS: Final = frozenset(
    {reasons.NO_MOVE, reasons.NO_SUCH_WORKLOAD, reasons.OTHER_UID, reasons.STALE}
)
"""Reasons of an ignored fact that make a request fail. With all other reasons nothing had to
change, and the request succeeds.
"""
MESSAGE_MAX: Final = 2048
"""The most characters of a message of a verdict."""
USER_VARIABLE: Final = "ADMIT_USER"


def sentence(*parts: str) -> str:
    """``reason: message``; empty parts are left out."""
    return ": ".join(filter(None, parts))


async def outcome_of(link: Link, fact: Fact) -> SettledReply:
    """Publishes a fact and waits for its outcome. Raises Refused if the fact was refused."""
    return accepted(fact, await link.settle(await link.publish(fact), fact.namespace))


def accepted(fact: Fact, reply: SettledReply) -> SettledReply:
    """Returns ``reply``, the outcome of the fact. Raises Refused if the fact was refused."""
    why = sentence(reply.reason, reply.message)
    if reply.error:
        raise RequestFailed(f"workload {fact.namespace}/{fact.name}: {reply.error}")
    if reply.outcome in NO:
        # A fact that became a dead letter is reported like a refused fact.
        raise Refused(
            f"workload {fact.namespace}/{fact.name}: refused" + (f": {why}" if why else ""),
            reason=reply.reason,
        )
    return reply


class ChangeKind(NamedTuple):
    """A change of a workload. ``fact``: the fact that is published. ``on_variants``: False if the
    change is accepted for the parent only.
    """

    fact: type[Fact]
    on_variants: bool = False


STOP: Final = ChangeKind(facts.Deactivated, on_variants=True)
ACTIVATE: Final = ChangeKind(facts.Activated, on_variants=True)
HOLD: Final = ChangeKind(facts.Held)
RELEASE: Final = ChangeKind(facts.Released)
SET_PRIORITY: Final = ChangeKind(facts.Reprioritized)
FINISH: Final = ChangeKind(facts.Finished)


def check_priority(priority: int) -> None:
    """Raises BadInput if the priority is not a 32-bit number."""
    if priority not in INT32:
        raise BadInput(f"the priority {priority} is not a 32-bit number")


class Changed(NamedTuple):
    """The outcome of a change. ``found``: the workload before it."""

    found: BucketObject
    reply: SettledReply


async def change(
    link: Link,
    kind: ChangeKind,
    name: str,
    namespace: str = "",
    *,
    spelled: str,
    instead: str = 'workload "{}"',
    **fields: Any,
) -> Changed:
    """Changes a workload. ``spelled``: how the program names the change; ``instead``: what to use
    on the parent of a variant; ``fields``: fields of the fact. Raises NotFound, and Refused if the
    workload is in no state for the change."""
    workload = await find(link, kinds.WORKLOAD, name, namespace)
    if not kind.on_variants:
        refuse_variant(workload, instead)
    reply = await outcome_of(link, fact_about(workload, kind.fact, **fields))
    if reply.outcome == "ignored" and reply.reason in NO_REASONS:
        raise Refused(why_not(workload, spelled, reply), reason=reply.reason)
    return Changed(workload, reply)


def why_not(workload: BucketObject, spelled: str, reply: SettledReply) -> str:
    """The error text for a change that changed nothing."""
    if reply.reason == reasons.NO_MOVE:
        where = phase(workload.workload(), clock.now())
        return f'workload "{workload.name}" is {where}: {spelled} changes nothing'
    return f'workload "{workload.name}": {reply.message or reply.reason}'


def fact_about(workload: BucketObject, kind: type[Fact], **fields: Any) -> Fact:
    """A fact of that kind about an existing workload."""
    names: dict[str, Any] = {
        "namespace": workload.namespace,
        "name": workload.name,
        "uid": workload.workload().metadata.uid,
    }
    return kind(**names, time=clock.now(), **fields)


# Verdicts of people. --------------------------------------------------------------------


class GivenVerdict(NamedTuple):
    """A verdict that was given. ``found``: the workload before it, of a parent its variant."""

    found: BucketObject
    check: str
    state: str


def user_of(given: str | None, spelled: str = IN_PYTHON.user) -> str:
    """The name of the person: the given one, ADMIT_USER or the login. Raises BadInput."""
    if given is not None and not given.strip():
        raise BadInput(f"{spelled} is empty")
    named = given or os.environ.get(USER_VARIABLE)
    if named:
        return named.strip()
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise BadInput(
            f"your user name is unknown: name yourself with {spelled}, or set {USER_VARIABLE}"
        ) from None


def check_message(message: str, spelled: str = IN_PYTHON.message) -> None:
    """Raises BadInput for a message of a verdict that is too long."""
    if len(message) > MESSAGE_MAX:
        raise BadInput(f"{spelled} has {len(message)} characters, {MESSAGE_MAX} are allowed")


async def give_verdict(
    link: Link,
    name: str,
    namespace: str = "",
    *,
    approve: bool,
    check: str | None,
    message: str,
    user: str | None,
) -> GivenVerdict:
    """Approves or denies a check. Raises NotFound, and Refused if no verdict is possible."""
    # `verdict_message` is imported late: its imports take time, and most programs need none.
    from admittance.control.user_requests.people import verdict_message

    spelled = link.spelled
    word, state = ("approved", "Ready") if approve else ("denied", "Rejected")
    check_message(message, spelled.message)
    if user is not None and link.user and user.strip() != link.user:
        raise BadInput(f"{spelled.user} {user}: you act as {link.user}, by your credentials file")
    stored = await find(link, kinds.WORKLOAD, name, namespace)
    now = clock.now()
    if is_parent(stored.workload()):
        stored = variant_with_check(await family_of(link, stored), check, now)
        name = stored.name
    workload = stored.workload()
    refuse_without_quota(workload, now)
    rows = workload.status.admission_checks
    controllers = await _controllers(link, rows)
    row = chosen_row(name, rows, controllers, check, state, spelled.check)
    controller = controllers.get(row.name)
    if controller is None:
        raise NotFound(f'AdmissionCheck "{row.name}" of workload "{name}" does not exist')
    about: dict[str, Any] = {"check": row.name, "cycle": workload.status.admission_cycle}
    if link.user:
        # The workload-controller adds the name of the connected user to the message.
        kind: type[Fact] = facts.Approved if approve else facts.Denied
        about["message"] = message
    else:
        kind = facts.CheckReported
        said = verdict_message(word, user_of(user, spelled.user), message, now)
        about |= {"controller": controller, "state": state, "message": said}
    uid = workload.metadata.uid
    fact = kind(namespace=stored.namespace, name=stored.name, uid=uid, **about)
    reply = await outcome_of(link, fact)
    if reply.outcome == "ignored":
        # Another verdict, an eviction or a requeue took effect before this verdict.
        why = sentence(reply.reason, reply.message)
        raise Refused(
            f'workload "{name}" was not {word}: it changed meanwhile ({why})', reason=reply.reason
        )
    return GivenVerdict(stored, row.name, state)


def variant_with_check(family: Family, check: str | None, now: datetime) -> BucketObject:
    """The only variant of a parent that waits for any check, or for ``check`` if it is given.

    Raises Refused with the candidates if there is not exactly one such variant.
    """
    name = family.found.name
    asked = [
        variant
        for variant in family.variants
        if holds_quota(variant.workload)
        and not is_stopping(variant.workload)
        and any(
            row.name == check if check is not None else row.state == "Pending"
            for row in variant.workload.status.admission_checks
        )
    ]
    if len(asked) == 1:
        return asked[0].found
    if asked:
        several = ", ".join(f"{variant.found.name} ({variant.tag})" for variant in asked)
        raise Refused(
            f'several variants of workload "{name}" wait for a check: name one of them: {several}'
        )
    which = f'has the check "{check}"' if check is not None else "waits for a check"
    states = ", ".join(
        f"{variant.tag} is {phase(variant.workload, now)}" for variant in family.variants
    )
    raise Refused(
        f'no variant of workload "{name}" with quota reserved {which}: {states or "it has none"}'
    )


async def _controllers(link: Link, rows: Sequence[CheckState]) -> dict[str, str]:
    """Maps each check name to its controller; checks that do not exist are left out."""
    controllers = {}
    for row in rows:
        stored = await lookup(link, kinds.CHECK.object_key("", row.name))
        if stored is None:
            continue
        check = stored.decoded(AdmissionCheck)
        if check is None:
            raise RequestFailed(f"{stored.key} in the bucket is not an AdmissionCheck")
        controllers[row.name] = check.spec.controller_name
    return controllers


def refuse_without_quota(workload: StoredWorkload, now: datetime) -> None:
    """Raises Refused if no verdict on the workload's checks counts: no quota is reserved, or the
    job is stopping.
    """
    name, where = workload.metadata.name, phase(workload, now)
    if holds_quota(workload) and not is_stopping(workload):
        return
    reason, message = reason_of(workload, now)
    because = sentence(reason, message)
    state = f"{where} ({because})" if because else str(where)
    if where in (Phase.PENDING, Phase.BACKOFF):
        raise Refused(
            f'workload "{name}" has no quota reserved, so no check is requested: it is {state}'
        )
    raise Refused(f'workload "{name}" waits for no check: it is {state}')


def chosen_row(
    name: str,
    rows: Sequence[CheckState],
    controllers: Mapping[str, str],
    check: str | None,
    state: str,
    spelled: str = IN_PYTHON.check,
) -> CheckState:
    """The check row that the verdict is about: of the named check; without a name, of the pending
    approval check, else the only pending row. ``spelled``: how the program names a check.

    Raises Refused with the candidates if there is no such row.
    """
    listed = ", ".join(f"{row.name} ({row.state})" for row in rows)
    if not rows:
        raise Refused(f'workload "{name}" has no checks')
    if check is not None:
        row = next((check_row for check_row in rows if check_row.name == check), None)
        if row is None:
            raise Refused(f'workload "{name}" has no check "{check}"; it has {listed}')
        if row.state == state:
            said = f": {row.message}" if row.message else ""
            raise Refused(f'check "{check}" of workload "{name}" is {state} already{said}')
        return row
    pending = [row for row in rows if row.state == "Pending"]
    if not pending:
        raise Refused(
            f'no check of workload "{name}" is Pending; it has {listed}; '
            f"{spelled}NAME replaces the verdict of a check"
        )
    ours = [row for row in pending if controllers.get(row.name) == APPROVAL_CONTROLLER]
    meant = ours or pending
    if len(meant) > 1:
        several = ", ".join(row.name for row in meant)
        raise Refused(
            f'workload "{name}" waits for several checks: choose one with {spelled}NAME: {several}'
        )
    return meant[0]
