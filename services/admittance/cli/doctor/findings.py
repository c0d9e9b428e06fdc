"""Checks of `admit doctor`: controllers, providers, writes to streams, timers, families, and
services with too few permissions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from admittance.access.permissions import Rule, first_match
from admittance.access.roles import ROLES, permissions_of
from admittance.access.server_config import quoted
from admittance.access.users import User
from admittance.api.checks import AdmissionCheck, ProvisioningRequestConfig
from admittance.cli.show.capacity_requests import is_provider_answering, record_of
from admittance.cli.show.objects import lookup_all
from admittance.cli.support import kinds
from admittance.cli.support.link import Link
from admittance.cli.support.times import age
from admittance.events import subjects
from admittance.events.requests import Families, FamiliesReply, HealthReply, Timers, TimersReply
from admittance.provisioning.records import Record, State
from admittance.runtime import clock
from admittance.runtime.bus.bus import NOT_PERMITTED, Bus
from admittance.runtime.bus.durables import check_durables, provider_durables
from admittance.runtime.bus.streams import NO_STREAM, PROBE_SECONDS, write_refusals
from admittance.runtime.errors import AdmittanceError, Refused, Unavailable

OK: Final = "ok"
NOTE: Final = "note"
WRONG: Final = "wrong"


class Finding(NamedTuple):
    """One line of `admit doctor`: the state of one thing. ``state``: ok, note or wrong."""

    state: str
    what: str
    found: str

    @property
    def fine(self) -> bool:
        return self.state == OK


def finding(fine: bool, what: str, found: str, *, otherwise: str = WRONG) -> Finding:
    """A finding with the state ok if ``fine``, else with the state ``otherwise``."""
    return Finding(OK if fine else otherwise, what, found)


CHECK_REQUESTS_UNREAD_MAX = 1_000
"""With more unread requests than this, the check controller is reported as not running."""


async def check_controllers(bus: Link) -> list[Finding]:
    """A finding for every check controller that an AdmissionCheck names or that has a durable
    consumer.
    """
    try:
        durables = await check_durables.existing(bus.bus)
    except (Refused, Unavailable):
        return []
    checks: dict[str, list[AdmissionCheck]] = {}
    for found in await lookup_all(bus, kinds.CHECK.patterns(None)[0]):
        if (check := found.decoded(AdmissionCheck)) is not None:
            checks.setdefault(check.spec.controller_name, []).append(check)
    return [
        controller_finding(name, durables.get(name), checks.get(name, ()))
        for name in sorted(durables.keys() | checks.keys())
    ]


def backlog(consumer: Mapping[str, Any]) -> tuple[int, str]:
    """The number of messages that a consumer has not read, as a number and as text."""
    unread, waiting = consumer.get("num_pending", 0), consumer.get("num_ack_pending", 0)
    return unread, f"{unread:,} not read, {waiting:,} not acknowledged"


def controller_finding(
    controller: str, durable: Mapping[str, Any] | None, checks: Iterable[AdmissionCheck]
) -> Finding:
    """The finding about one check controller, from the info of its durable consumer and its
    AdmissionChecks.
    """
    parts: list[str] = []
    fine = True
    if durable is None:
        parts.append("no durable consumer: requests do not reach it")
        fine = False
    else:
        unread, text = backlog(durable)
        again = durable.get("num_redelivered", 0)
        parts.append(text)
        if again:
            parts.append(f"{again:,} redelivered: it does not acknowledge in time")
        fine = not again and unread <= CHECK_REQUESTS_UNREAD_MAX
    named = list(checks)
    if not named:
        parts.append("no AdmissionCheck names it")
        fine = False
    for check in named:
        active = next(
            (c for c in (check.status.conditions if check.status else ()) if c.type == "Active"),
            None,
        )
        if active is None:
            parts.append(f"{check.metadata.name}: no heartbeat yet")
        elif active.status == "True":
            told = "" if active.message.startswith("The admission check") else active.message
            parts.append(f"{check.metadata.name}: active" + (f" ({told})" if told else ""))
            fine = fine and not told.startswith("Different programs")
        else:
            parts.append(f"{check.metadata.name}: {active.reason} ({active.message})")
            fine = False
    return finding(fine, f"check controller {controller}", "; ".join(parts), otherwise=NOTE)


CAPACITY_REQUESTS_UNREAD_MAX: Final = 100
"""With more unread requests than this, the provider is reported as not running."""
OPEN: Final = (State.REQUESTED, State.ACCEPTED)


async def capacity_classes(bus: Link) -> list[Finding]:
    """A finding for every provisioning class with a ProvisioningRequestConfig, a request or a
    durable consumer.
    """
    try:
        durables = await provider_durables.existing(bus.bus)
    except (Refused, Unavailable):
        return []
    configs: dict[str, list[str]] = {}
    for found in await lookup_all(bus, kinds.PROVISIONING.patterns(None)[0]):
        if (config := found.decoded(ProvisioningRequestConfig)) is not None:
            named = configs.setdefault(config.spec.provisioning_class_name, [])
            named.append(config.metadata.name)
    records: dict[str, list[Record]] = {}
    for found in await lookup_all(bus, kinds.REQUEST.patterns(None)[0]):
        if (record := record_of(found)) is not None:
            records.setdefault(record.spec.provisioning_class_name, []).append(record)
    names = sorted(durables.keys() | configs.keys() | records.keys())
    answers = {name: await is_provider_answering(bus, name) for name in names}
    now = clock.now()
    return [
        class_finding(
            name,
            durables.get(name),
            configs.get(name, ()),
            records.get(name, ()),
            answers[name],
            now,
        )
        for name in names
    ]


def class_finding(
    provisioning_class: str,
    durable: Mapping[str, Any] | None,
    configs: Sequence[str],
    records: Sequence[Record],
    answers: bool,
    now: datetime,
) -> Finding:
    """The finding about one provisioning class, from the info of its durable consumer, the
    ProvisioningRequestConfigs that name the class, its requests, and whether a provider answers.
    """
    parts = []
    open_ = [one for one in records if one.status.state in OPEN and not one.status.cancelled]
    fine = True
    if open_:
        oldest = min(one.metadata.creation_timestamp or now for one in open_)
        parts.append(f"{len(open_):,} requests open, the oldest {age(oldest, now)} old")
    else:
        parts.append("no request open")
    unread = 0
    if durable is None:
        parts.append("no durable consumer: requests do not reach its provider")
        fine = False
    else:
        unread, text = backlog(durable)
        parts.append(text)
        fine = unread <= CAPACITY_REQUESTS_UNREAD_MAX
    if not answers:
        # A note, not an error: a provider may obey the protocol without answering queries.
        parts.append("no provider answers: is one running?")
        fine = fine and not open_ and not unread
    if not configs:
        parts.append("no ProvisioningRequestConfig names it any more")
        fine = fine and not records
    return finding(fine, f"capacity {provisioning_class}", "; ".join(parts), otherwise=NOTE)


UNACKNOWLEDGED: Final = (
    "the server answers, but it does not acknowledge writes. Look at its log for `no space left on "
    "device`, make space, then restart nats-server: it does not recover by itself "
    "(docs/operations.md, A full disk)"
)


async def writes_found(bus: Bus, *, seconds: float = PROBE_SECONDS) -> list[Finding]:
    """A finding for each stream that refuses a probe write; a single finding if all streams take
    the write. Missing streams are left out: `streams.check` names them.
    """
    refused = await write_refusals(bus, seconds=seconds)
    missing = [name for name in refused if await _is_missing(bus, name)]
    for name in missing:
        del refused[name]
    if not refused and missing:
        return []
    if refused and all(_is_not_permitted(error) for error in refused.values()):
        found = "not probed: this login may not write; `admit up` probes its own server"
        return [Finding(NOTE, "writes", found)]
    if not refused:
        return [Finding(OK, "writes", f"all {len(subjects.PROBES)} streams take writes")]
    return [
        Finding(
            WRONG,
            f"stream {name}",
            f"takes no writes: a probe was not acknowledged in {seconds:g} s; {UNACKNOWLEDGED}"
            if isinstance(error, Unavailable)
            else f"takes no writes: {error}",
        )
        for name, error in refused.items()
    ]


def _is_not_permitted(error: AdmittanceError) -> bool:
    return isinstance(error, Refused) and error.code == NOT_PERMITTED


async def _is_missing(bus: Bus, name: str) -> bool:
    try:
        await bus.api(f"STREAM.INFO.{name}")
    except Refused as error:
        return error.code == NO_STREAM
    except Unavailable:
        return False
    return False


LATE_MAX: Final = 1_000
"""The most due timers that may be missing on the log. Thousands of timers may fire at once, and the
server copies them within a second.
"""
OLD_SECONDS: Final = 600.0
"""If the retry-timer has not compared schedules for this long, lost schedules may stay lost."""


async def timers_found(bus: Bus) -> list[Finding]:
    """Findings about the schedules. Empty if the streams are missing."""
    try:
        found = await bus.api(
            f"STREAM.INFO.{subjects.TIMERS}", {"subjects_filter": f"{subjects.TIMER_AT}>"}
        )
        copied = await bus.api(f"STREAM.INFO.{subjects.STREAM}")
    except (Refused, Unavailable):
        return []
    standing = len(found["state"].get("subjects") or {})
    late = sum(_lag(source) for source in copied.get("sources") or [])
    text = f"schedules: {standing:,}; due and not yet on the log: {late:,}"
    lines = [finding(late <= LATE_MAX, "timers", text)]
    # If the retry-timer does not answer, the line about that service reports it.
    with suppress(Unavailable):
        data = await bus.request("admit.api.timers", msgspec.json.encode(Timers()))
        lines.append(_compared(msgspec.json.decode(data, type=TimersReply)))
    return lines


def _lag(source: dict[str, Any]) -> int:
    return int(source.get("lag", 0)) if source.get("name") == subjects.TIMERS else 0


def _compared(reply: TimersReply) -> Finding:
    seconds = None if reply.compared is None else (clock.now() - reply.compared).total_seconds()
    compared = "never compared" if seconds is None else f"compared {seconds:.0f} s ago"
    text = (
        f"{reply.wanted:,} wanted, {reply.pending:,} not set yet, {reply.mended:,} repaired, "
        f"{reply.again:,} set again after they came due, {compared}"
    )
    return finding(seconds is not None and seconds <= OLD_SECONDS, "timers", text)


async def families_found(bus: Bus) -> list[Finding]:
    """The finding about families. Empty if the variant-controller does not answer: the line about
    that service reports it.
    """
    try:
        data = await bus.request("admit.api.families", msgspec.json.encode(Families()))
    except Unavailable:
        return []
    return [families_finding(msgspec.json.decode(data, type=FamiliesReply))]


def families_finding(reply: FamiliesReply) -> Finding:
    """The answer of the variant-controller as a finding."""
    gates = sum(reply.gates_open.values())
    text = (
        f"{reply.families:,} families, {reply.pending:,} changes pending, "
        f"{gates:,} variants may preempt"
    )
    if reply.stuck:
        text += (
            f"; {reply.stuck:,} changes had no effect although requested repeatedly: see its log"
        )
    return finding(not reply.stuck, "families", text)


PROVIDER: Final = "built-in-provider"


def permission_findings(answers: Iterable[HealthReply]) -> list[Finding]:
    """A finding for each subject that the server refused to a service lately, with the line to
    add to the configuration of the server."""
    return [
        Finding(WRONG, f"permissions of {one.service}", _found(one, *denied.split(" ", 1)))
        for one in answers
        for denied in one.denied
    ]


def _found(one: HealthReply, verb: str, subject: str) -> str:
    role = one.service if one.service in ROLES else PROVIDER
    rule = _rule(one, role, verb, subject)
    if rule is None:
        return (
            f"{one.instance} may not {verb} {subject}, which is none of the subjects of its role "
            f"{role}: report it as a bug"
        )
    return (
        f"{one.instance} may not {verb} {rule.pattern}, which its role {role} needs to "
        f"{rule.purpose}: add {quoted(rule.pattern)} to `{verb}: {{ allow: [ … ] }}` of its user, "
        "or let `admit auth` write the configuration"
    )


def _rule(one: HealthReply, role: str, verb: str, subject: str) -> Rule | None:
    """The rule of the role that allows the subject, which the server names in lower case."""
    permissions = permissions_of(User(name=one.user or one.service, role=role, key=""))
    rules = permissions.publish if verb == "publish" else permissions.subscribe
    lowered = [Rule(rule.pattern.lower(), rule.pattern) for rule in rules]
    found = first_match(lowered, subject)
    if found is None:
        return None
    return next(rule for rule in rules if rule.pattern == found.purpose)
