"""The page of capacity: the provisioning classes with their providers, the requests of workloads,
and the pools of machines that can be booked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from admittance.api.checks import AdmissionCheck, ProvisioningRequestConfig
from admittance.client.requests.objects import field
from admittance.control.manifests.heartbeats import active_of
from admittance.events import reasons
from admittance.provisioning.records import Record, State
from admittance.web.paths import workload_path
from admittance.web.views.words import Link, Word, between, clock_time, took

ROWS_MAX: Final = 200
"""The most requests of the page, the open ones first."""
OPEN: Final = (State.REQUESTED, State.ACCEPTED)
STATES: Final = {
    State.REQUESTED: "pending",
    State.ACCEPTED: "reserved",
    State.PROVISIONED: "running",
    State.FAILED: "rejected",
    State.BOOKING_EXPIRED: "off",
    State.CAPACITY_REVOKED: "rejected",
}
WORDS: Final = {
    State.REQUESTED: "Asked",
    State.ACCEPTED: "Coming",
    State.PROVISIONED: "Booked",
    State.FAILED: "Failed",
    State.BOOKING_EXPIRED: "Expired",
    State.CAPACITY_REVOKED: "Revoked",
}
"""The states of a request; a request that is cancelled has none of them."""


class ClassRow(msgspec.Struct, frozen=True, kw_only=True):
    """A provisioning class. ``word``: whether its provider is there; ``configs``: the
    ProvisioningRequestConfigs that name it, with their limits of attempts."""

    id: str
    name: str
    word: Word
    configs: str
    open: int
    booked: int
    oldest: str
    pools: str


class RequestRow(msgspec.Struct, frozen=True, kw_only=True):
    """The request of a workload. ``until``: when it fails without an answer, or why it ended;
    ``words``: what the provider says, ``details``: what it gives."""

    id: str
    workload: Link
    word: Word
    check: str
    provisioning_class: str
    attempt: str
    pods: str
    since: str
    until: str
    words: str
    details: tuple[str, ...]


class PoolRow(msgspec.Struct, frozen=True, kw_only=True):
    """Machines of one kind in a MachinePool. ``boots``: how long they take to boot; ``booking``:
    how long a booking lasts."""

    id: str
    pool: str
    provisioning_class: str
    kind: str
    count: str
    resources: str
    boots: str
    booking: str


class CapacityView(msgspec.Struct, frozen=True, kw_only=True):
    """``more``: how many requests are left out."""

    title: str
    say: str
    classes: tuple[ClassRow, ...]
    requests: tuple[RequestRow, ...]
    pools: tuple[PoolRow, ...]
    more: int
    trouble: bool


def build(
    configs: Iterable[ProvisioningRequestConfig],
    records: Sequence[Record],
    pools: Sequence[Mapping[str, Any]],
    answering: Collection[str] | None,
    now: datetime,
    down: Collection[str] = (),
) -> CapacityView:
    """The view. ``answering``: the classes for which a provider answers; None: the user may not
    ask. ``down``: those of `down_classes`. ``pools``: the manifests of MachinePools."""
    named: dict[str, list[ProvisioningRequestConfig]] = {}
    for config in configs:
        named.setdefault(config.spec.provisioning_class_name, []).append(config)
    asked: dict[str, list[Record]] = {}
    for record in records:
        asked.setdefault(record.spec.provisioning_class_name, []).append(record)
    in_class: dict[str, list[str]] = {}
    for pool in pools:
        name = str(field(pool, "spec", "provisioningClassName", default=""))
        in_class.setdefault(name, []).append(str(pool["metadata"]["name"]))
    names = sorted({*named, *asked, *in_class} - {""})
    classes = tuple(
        _class(
            name,
            named.get(name, ()),
            asked.get(name, ()),
            in_class.get(name, ()),
            _provider(name, answering, down),
            now,
        )
        for name in names
    )
    ordered = sorted(records, key=lambda record: (not _is_open(record), _age(record, now)))
    lines = tuple(_request(record, now) for record in ordered[:ROWS_MAX])
    silent = [
        row.name
        for row in classes
        if row.name in down or (row.open and answering is not None and row.name not in answering)
    ]
    waiting = sum(row.open for row in classes)
    booked = sum(row.booked for row in classes)
    return CapacityView(
        title=f"{waiting:,} waiting, {booked:,} booked · Capacity",
        say=_say(classes, waiting, booked, silent, every=answering is not None),
        classes=classes,
        requests=lines,
        pools=tuple(row for pool in pools for row in _pool(pool)),
        more=max(0, len(records) - ROWS_MAX),
        trouble=bool(silent),
    )


def classes_of(
    configs: Iterable[ProvisioningRequestConfig],
    records: Iterable[Record],
    pools: Iterable[Mapping[str, Any]],
) -> list[str]:
    """The provisioning classes that these objects name."""
    names = {
        *(config.spec.provisioning_class_name for config in configs),
        *(record.spec.provisioning_class_name for record in records),
        *(str(field(pool, "spec", "provisioningClassName", default="")) for pool in pools),
    }
    return sorted(names - {""})


def down_classes(
    checks: Iterable[AdmissionCheck], configs: Iterable[ProvisioningRequestConfig]
) -> frozenset[str]:
    """The classes of which a check is inactive, because heartbeats of the provider are missing."""
    classes = {config.metadata.name: config.spec.provisioning_class_name for config in configs}
    down: set[str] = set()
    for check in checks:
        active, parameters = active_of(check), check.spec.parameters
        if active is None or active.reason != reasons.PROVIDER_DOWN or parameters is None:
            continue
        down.add(classes.get(parameters.name, ""))
    return frozenset(down - {""})


def _provider(name: str, answering: Collection[str] | None, down: Collection[str]) -> Word:
    """Whether the provider of the class is there. A provider need not answer questions."""
    if name in down:
        return Word("Down", "rejected")
    if answering is None:
        return Word("Not known", "off")
    return Word("Answers", "finished") if name in answering else Word("No answer", "off")


def _say(
    classes: Sequence[ClassRow], waiting: int, booked: int, silent: Sequence[str], *, every: bool
) -> str:
    """The sentence. ``every``: False if there may be further classes, which no request of these
    has."""
    if not classes and not every:
        return "No workload that you may see asks for capacity."
    if not classes:
        return "No ProvisioningRequestConfig names a class: workloads start without capacity."
    many = "request waits for its provider" if waiting == 1 else "requests wait for their providers"
    say = f"{waiting:,} {many}" if waiting else "No request waits for its provider"
    if booked:
        say += f", {booked:,} {'is' if booked == 1 else 'are'} booked"
    if silent:
        say += f". No provider answers for {', '.join(silent)}"
    return f"{say}."


def _is_open(record: Record) -> bool:
    return record.status.state in OPEN and not record.status.cancelled


def _is_booked(record: Record) -> bool:
    return record.status.state is State.PROVISIONED and not record.status.cancelled


def _age(record: Record, now: datetime) -> float:
    created = record.metadata.creation_timestamp
    return 0.0 if created is None else (now - created).total_seconds()


def _class(
    name: str,
    configs: Sequence[ProvisioningRequestConfig],
    records: Sequence[Record],
    pools: Sequence[str],
    word: Word,
    now: datetime,
) -> ClassRow:
    waits = [_age(record, now) for record in records if _is_open(record)]
    return ClassRow(
        id=name,
        name=name,
        word=word,
        configs=", ".join(config.metadata.name for config in configs) or "no config names it",
        open=len(waits),
        booked=sum(map(_is_booked, records)),
        oldest=took(max(waits)) if waits else "",
        pools=", ".join(pools),
    )


def _request(record: Record, now: datetime) -> RequestRow:
    spec, status, meta = record.spec, record.status, record.metadata
    cancelled = bool(status.cancelled)
    created = meta.creation_timestamp
    word = Word(WORDS[status.state], STATES[status.state])
    said = [status.message, *(note.text for note in status.notes)]
    return RequestRow(
        id=f"{meta.namespace}/{meta.name}",
        workload=Link(
            f"{meta.namespace}/{spec.workload}", workload_path(meta.namespace, spec.workload)
        ),
        word=Word("Cancelled", "off") if cancelled else word,
        check=spec.check,
        provisioning_class=spec.provisioning_class_name,
        attempt=str(spec.attempt),
        pods=f"{sum(pod_set.count for pod_set in spec.pod_sets):,}",
        since="" if created is None else between(created, now),
        until=_until(record, now),
        words="; ".join(text for text in said if text),
        details=tuple(f"{name}={value}" for name, value in sorted(status.details.items())),
    )


def _until(record: Record, now: datetime) -> str:
    if record.status.cancelled:
        return record.status.cancelled
    deadline = record.spec.deadline
    if not _is_open(record) or deadline is None:
        return "no end is set" if _is_booked(record) else ""
    over = " (over)" if deadline < now else ""
    return f"waits until {clock_time(deadline, now, seconds=False)}{over}"


def _pool(pool: Mapping[str, Any]) -> list[PoolRow]:
    name = str(pool["metadata"]["name"])
    seconds = field(pool, "spec", "bookingSeconds", default=None)
    rows = []
    for machine in field(pool, "spec", "machines", default=()):
        boots = machine.get("bootSeconds", 0)
        resources = machine.get("resources") or {}
        rows.append(
            PoolRow(
                id=f"{name}/{machine.get('name', '')}",
                pool=name,
                provisioning_class=str(field(pool, "spec", "provisioningClassName", default="")),
                kind=str(machine.get("name", "")),
                count=f"{machine.get('count', 0):,}",
                resources=", ".join(f"{much} {each}" for each, much in resources.items()),
                boots=took(boots) if boots else "at once",
                booking="until it is cancelled" if seconds is None else took(seconds),
            )
        )
    return rows
