"""``admit approve`` and ``admit deny``: a person gives the verdict of a check.

The verdict is a fact on the log, like the verdict of any check controller. The message of the
verdict names the person and the time.
"""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any, Final

from admittance.api.checks import AdmissionCheck
from admittance.api.workload import CheckState
from admittance.cli.get import find
from admittance.cli.lifecycle import outcome_of
from admittance.cli.show import tables
from admittance.cli.show.families import Family, family_of, is_parent
from admittance.cli.show.objects import Found, lookup
from admittance.cli.support import kinds, output
from admittance.cli.support.errors import AnswerIsNo, BadInput
from admittance.cli.support.link import Link, link
from admittance.cli.support.options import Call
from admittance.cli.support.output import sentence
from admittance.cli.wait import follow
from admittance.control.people import verdict_message
from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.subjects import APPROVAL_CONTROLLER
from admittance.runtime import clock
from admittance.workload.phase import Phase, holds_quota, is_stopping, phase
from admittance.workload.stored import StoredWorkload

USER_VARIABLE: Final = "ADMIT_USER"
FOLLOW_SECONDS: Final = 5.0
"""How long to wait after an approval for the workload to be admitted."""
MESSAGE_MAX: Final = 2048


def user_of(typed: str | None) -> str:
    """The name of the person: --as, ADMIT_USER or the login. Raises BadInput."""
    if typed is not None and not typed.strip():
        raise BadInput("--as is empty")
    named = typed or os.environ.get(USER_VARIABLE)
    if named:
        return named.strip()
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise BadInput(
            f"your user name is unknown: give --as NAME, or set {USER_VARIABLE}"
        ) from None


async def give_verdict(
    call: Call, name: str, check: str | None, message: str, user: str | None, *, approve: bool
) -> None:
    """Approves or denies a check. Raises AnswerIsNo if no verdict is possible."""
    word, state = ("approved", "Ready") if approve else ("denied", "Rejected")
    if len(message) > MESSAGE_MAX:
        raise BadInput(f"--message has {len(message)} characters, {MESSAGE_MAX} are allowed")
    async with link(call) as bus:
        if user is not None and bus.user and user.strip() != bus.user:
            raise BadInput(f"--as {user}: you act as {bus.user}, by your credentials file")
        found = await find(bus, kinds.WORKLOAD, name)
        now = clock.now()
        if is_parent(found.workload()):
            found = variant_with_check(await family_of(bus, found), check, now)
            name = found.name
        workload = found.workload()
        refuse_without_quota(workload, now)
        rows = workload.status.admission_checks
        controllers = await _controllers(bus, rows)
        row = chosen_row(name, rows, controllers, check, state)
        controller = controllers.get(row.name)
        if controller is None:
            raise AnswerIsNo(f'AdmissionCheck "{row.name}" of workload "{name}" does not exist')
        about: dict[str, Any] = {
            "namespace": found.namespace,
            "name": found.name,
            "uid": workload.metadata.uid,
            "check": row.name,
            "cycle": workload.status.admission_cycle,
        }
        fact: Fact
        if bus.user:
            # The workload-controller adds the name of the connected user to the message.
            fact = (facts.Approved if approve else facts.Denied)(**about, message=message)
        else:
            said = verdict_message(word, user_of(user), message, now)
            fact = facts.CheckReported(**about, controller=controller, state=state, message=said)
        reply = await outcome_of(bus, fact)
        if reply.outcome == "ignored":
            # Another verdict, an eviction or a requeue took effect before the verdict of `admit
            # approve`.
            why = sentence(reply.reason, reply.message)
            raise AnswerIsNo(f'workload "{name}" was not {word}: it changed meanwhile ({why})')
        output.outcome(f"{kinds.WORKLOAD.qualified}/{name}", f"{word} (check {row.name})")
        await _print_effect(bus, found, row.name, state)


def variant_with_check(family: Family, check: str | None, now: datetime) -> Found:
    """The only variant of a parent that waits for any check, or for ``check`` if it is given.

    Raises AnswerIsNo with the candidates if there is not exactly one such variant.
    """
    name = family.found.name
    asked = [
        one
        for one in family.variants
        if holds_quota(one.workload)
        and not is_stopping(one.workload)
        and any(
            row.name == check if check is not None else row.state == "Pending"
            for row in one.workload.status.admission_checks
        )
    ]
    if len(asked) == 1:
        return asked[0].found
    if asked:
        several = ", ".join(f"{one.found.name} ({one.tag})" for one in asked)
        raise AnswerIsNo(
            f'several variants of workload "{name}" wait for a check: name one of them: {several}'
        )
    which = f'has the check "{check}"' if check is not None else "waits for a check"
    states = ", ".join(f"{one.tag} is {phase(one.workload, now)}" for one in family.variants)
    raise AnswerIsNo(
        f'no variant of workload "{name}" with quota reserved {which}: {states or "it has none"}'
    )


async def _controllers(bus: Link, rows: Sequence[CheckState]) -> dict[str, str]:
    """Maps each check name to its controller; checks that do not exist are left out."""
    found = {}
    for row in rows:
        stored = await lookup(bus, kinds.CHECK.object_key("", row.name))
        if stored is None:
            continue
        check = stored.decoded(AdmissionCheck)
        if check is None:
            raise AnswerIsNo(f"{stored.key} in the bucket is not an AdmissionCheck")
        found[row.name] = check.spec.controller_name
    return found


def refuse_without_quota(workload: StoredWorkload, now: datetime) -> None:
    """Raises AnswerIsNo if no verdict on the workload's checks counts: no quota is reserved, or the
    job is stopping.
    """
    name, where = workload.metadata.name, phase(workload, now)
    if holds_quota(workload) and not is_stopping(workload):
        return
    reason, message = tables.reason_of(workload, now)
    because = sentence(reason, message)
    state = f"{where} ({because})" if because else str(where)
    if where in (Phase.PENDING, Phase.BACKOFF):
        raise AnswerIsNo(
            f'workload "{name}" has no quota reserved, so no check is requested: it is {state}'
        )
    raise AnswerIsNo(f'workload "{name}" waits for no check: it is {state}')


def chosen_row(
    name: str,
    rows: Sequence[CheckState],
    controllers: Mapping[str, str],
    check: str | None,
    state: str,
) -> CheckState:
    """The check row that the verdict is about: of the named check; without a name, of the pending
    approval check, else the only pending row.

    Raises AnswerIsNo with the candidates if there is no such row.
    """
    listed = ", ".join(f"{row.name} ({row.state})" for row in rows)
    if not rows:
        raise AnswerIsNo(f'workload "{name}" has no checks')
    if check is not None:
        row = next((one for one in rows if one.name == check), None)
        if row is None:
            raise AnswerIsNo(f'workload "{name}" has no check "{check}"; it has {listed}')
        if row.state == state:
            said = f": {row.message}" if row.message else ""
            raise AnswerIsNo(f'check "{check}" of workload "{name}" is {state} already{said}')
        return row
    pending = [row for row in rows if row.state == "Pending"]
    if not pending:
        raise AnswerIsNo(
            f'no check of workload "{name}" is Pending; it has {listed}; '
            "--check NAME replaces the verdict of a check"
        )
    ours = [row for row in pending if controllers.get(row.name) == APPROVAL_CONTROLLER]
    meant = ours or pending
    if len(meant) > 1:
        several = ", ".join(row.name for row in meant)
        raise AnswerIsNo(f'workload "{name}" waits for several checks: say --check {several}')
    return meant[0]


async def _print_effect(bus: Link, found: Found, check: str, state: str) -> None:
    """Prints the phase of the workload a few seconds after the verdict."""
    workload = (await find(bus, kinds.WORKLOAD, found.name)).workload()
    others = [
        row.name
        for row in workload.status.admission_checks
        if row.name != check and row.state != "Ready"
    ]
    if state == "Ready" and not others and phase(workload, clock.now()) is Phase.QUOTA_RESERVED:
        # After the last Ready the scheduler checks the quota again before the workload is admitted.
        workload = await _settled(bus, found, workload)
    now = clock.now()
    where = phase(workload, now)
    if where is Phase.QUOTA_RESERVED and others:
        output.note(f"{found.name} still waits for {', '.join(others)}")
        return
    reason, message = tables.reason_of(workload, now)
    because = sentence(reason, message)
    running = where in (Phase.ADMITTED, Phase.RUNNING)
    output.note(f"{found.name} is {where}" + (f" ({because})" if because and not running else ""))


async def _settled(bus: Link, found: Found, workload: StoredWorkload) -> StoredWorkload:
    try:
        async with (
            asyncio.timeout(FOLLOW_SECONDS),
            aclosing(follow(bus, found.namespace, found.name)) as states,
        ):
            async for seen in states:
                if seen is None:
                    return workload
                workload = seen.workload()
                if phase(workload, clock.now()) is not Phase.QUOTA_RESERVED:
                    return workload
    except TimeoutError:
        pass
    return workload
