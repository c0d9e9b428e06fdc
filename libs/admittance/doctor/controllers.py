"""Checks of `admit doctor`: check controllers and providers of capacity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import structs

from admittance.api.checks import AdmissionCheck, ProvisioningRequestConfig
from admittance.api.meta import Condition
from admittance.client import kinds
from admittance.client.arguments.times import span
from admittance.client.errors import NotAllowed, RequestFailed
from admittance.client.requests.link import Link
from admittance.client.requests.objects import BucketObject, lookup_all
from admittance.client.requests.queues.capacity import answering as answering_classes
from admittance.client.requests.queues.capacity import record_of
from admittance.client.requests.workloads.facts import last_answers
from admittance.doctor.consumer_progress import backlog, unread_since
from admittance.doctor.finding import NOTE, WRONG, Finding, finding
from admittance.events.system import EVERY_CALL_FAILS
from admittance.providers.request_worker import OBTAINING_FAILED
from admittance.provisioning.records import Record, State
from admittance.runtime import clock
from admittance.runtime.bus.durables import check_durables, provider_durables
from admittance.runtime.errors import BusRefused, BusUnavailable

CHECK_TODO: Final = (
    "look whether the program of the controller runs, and at its log: "
    "docs/operations.md#a-check-does-not-answer"
)
CAPACITY_TODO: Final = (
    "look whether the provider runs, and at its log: docs/operations.md#capacity-does-not-come"
)

CHECK_REQUESTS_UNREAD_MAX = 1_000
"""With more unread requests than this, the check controller is reported as not running."""


async def _listed(bus: Link, kind: kinds.ObjectKind) -> list[BucketObject] | None:
    """All objects of the kind; None if the workload-controller, which lists them for a login of a
    person, does not answer: another finding reports that."""
    try:
        return await lookup_all(bus, kind.patterns(None)[0])
    except NotAllowed:
        raise
    except RequestFailed:
        return None


async def check_controllers(bus: Link) -> list[Finding]:
    """A finding for every check controller that an AdmissionCheck names or that has a durable
    consumer.
    """
    try:
        durables = await check_durables.existing(bus.bus)
    except (BusRefused, BusUnavailable):
        return []
    objects = await _listed(bus, kinds.CHECK)
    if objects is None:
        return []
    checks: dict[str, list[AdmissionCheck]] = {}
    for stored in objects:
        if (check := stored.decoded(AdmissionCheck)) is not None:
            checks.setdefault(check.spec.controller_name, []).append(check)
    names = sorted(durables.keys() | checks.keys())
    try:
        answers = await last_answers(bus, names)
    except RequestFailed:
        answers = {}
    return [
        structs.replace(
            controller_finding(name, durables.get(name), checks.get(name, ())),
            last_answer_at=answers.get(name),
        )
        for name in names
    ]


def _active(check: AdmissionCheck) -> Condition | None:
    conditions = check.status.conditions if check.status else ()
    return next((condition for condition in conditions if condition.type == "Active"), None)


def controller_finding(
    controller: str, durable: Mapping[str, Any] | None, checks: Iterable[AdmissionCheck]
) -> Finding:
    """The finding about one check controller, from the info of its durable consumer and its
    AdmissionChecks. It is wrong if the controller certainly lets no workload pass: the checks are
    inactive, every call of its function fails, or no program reads its requests.
    """
    parts: list[str] = []
    fine, passes = True, True
    named = list(checks)
    states = [(check, _active(check)) for check in named]
    fails = any(
        condition and condition.message.startswith(EVERY_CALL_FAILS) for _, condition in states
    )
    if durable is None:
        parts.append("no durable consumer: requests do not reach it")
        fine = False
    else:
        unread, text = backlog(durable)
        again = durable.get("num_redelivered", 0)
        parts.append(text)
        if again:
            why = "every call fails" if fails else "it does not acknowledge in time"
            parts.append(f"{again:,} redelivered: {why}")
        silent = unread_since(durable)
        if silent:
            parts.append(f"no program has read them for {silent:.0f} s")
        fine = not again and not silent and unread <= CHECK_REQUESTS_UNREAD_MAX
        passes = not (silent and named)
    if not named:
        parts.append("no AdmissionCheck names it")
        fine = False
    for check, active in states:
        if active is None:
            parts.append(f"{check.metadata.name}: no heartbeat yet")
        elif active.status == "True":
            told = "" if active.message.startswith("The admission check") else active.message
            parts.append(f"{check.metadata.name}: active" + (f" ({told})" if told else ""))
            fine = fine and not told.startswith("Different programs")
            passes = passes and not told.startswith(EVERY_CALL_FAILS)
        else:
            parts.append(f"{check.metadata.name}: {active.reason} ({active.message})")
            passes = False
    what = f"check controller {controller}"
    otherwise = NOTE if passes else WRONG
    made = finding(fine and passes, what, "; ".join(parts), todo=CHECK_TODO, otherwise=otherwise)
    inactive = [active for _, active in states if active is not None and active.status != "True"]
    since = [active.last_transition_time for active in inactive if active.last_transition_time]
    return structs.replace(made, since=min(since, default=None))


CAPACITY_REQUESTS_UNREAD_MAX: Final = 100
"""With more unread requests than this, the provider is reported as not running."""
OPEN: Final = (State.REQUESTED, State.ACCEPTED)


async def capacity_classes(bus: Link) -> list[Finding]:
    """A finding for every provisioning class with a ProvisioningRequestConfig, a request or a
    durable consumer.
    """
    try:
        durables = await provider_durables.existing(bus.bus)
    except (BusRefused, BusUnavailable):
        return []
    objects = await _listed(bus, kinds.PROVISIONING)
    requests = await _listed(bus, kinds.REQUEST)
    if objects is None or requests is None:
        return []
    configs: dict[str, list[str]] = {}
    for stored in objects:
        if (config := stored.decoded(ProvisioningRequestConfig)) is not None:
            named = configs.setdefault(config.spec.provisioning_class_name, [])
            named.append(config.metadata.name)
    records: dict[str, list[Record]] = {}
    for stored in requests:
        if (record := record_of(stored)) is not None:
            records.setdefault(record.spec.provisioning_class_name, []).append(record)
    names = sorted(durables.keys() | configs.keys() | records.keys())
    try:
        answering = await answering_classes(bus, names)
    except RequestFailed:
        answering = None
    now = clock.now()
    return [
        class_finding(
            name,
            durables.get(name),
            configs.get(name, ()),
            records.get(name, ()),
            None if answering is None else name in answering,
            now,
        )
        for name in names
    ]


def class_finding(
    provisioning_class: str,
    durable: Mapping[str, Any] | None,
    configs: Sequence[str],
    records: Sequence[Record],
    answers: bool | None,
    now: datetime,
) -> Finding:
    """The finding about one provisioning class, from the info of its durable consumer, the
    ProvisioningRequestConfigs that name the class, its requests, and whether a provider answers;
    None: the provisioning check, which asks providers, does not answer. It is wrong if open
    requests certainly get no capacity.
    """
    parts = []
    open_ = [
        record for record in records if record.status.state in OPEN and not record.status.cancelled
    ]
    fine, comes = True, True
    if open_:
        oldest = min(record.metadata.creation_timestamp or now for record in open_)
        age = span((now - oldest).total_seconds())
        parts.append(f"{len(open_):,} requests open, the oldest {age} old")
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
        silent = unread_since(durable)
        if silent:
            parts.append(f"no program has read them for {silent:.0f} s")
            comes = not open_
    if open_ and all(record.status.message.startswith(OBTAINING_FAILED) for record in open_):
        parts.append(f"every attempt of its provider fails: {open_[-1].status.message}")
        comes = False
    if answers is None:
        parts.append("not known whether a provider answers: the provisioning check does not answer")
    elif not answers:
        # A note, not an error: a provider may obey the protocol without answering queries.
        parts.append("no provider answers: is one running?")
        fine = fine and not open_ and not unread
    if not configs:
        parts.append("no ProvisioningRequestConfig names it any more")
        fine = fine and not records
    what = f"capacity {provisioning_class}"
    otherwise = NOTE if comes else WRONG
    return finding(fine and comes, what, "; ".join(parts), todo=CAPACITY_TODO, otherwise=otherwise)
