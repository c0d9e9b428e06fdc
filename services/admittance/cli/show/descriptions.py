"""Descriptions of single objects, with their status and latest events."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from admittance.api.fields.problems import ManifestError
from admittance.api.queues import ClusterQueue
from admittance.cli.show import budgets, lists, sections, tables, variants
from admittance.cli.show.capacity import capacity_requests, pools
from admittance.cli.show.explanations import explained, preempted
from admittance.cli.support import output
from admittance.cli.support.output import pairs
from admittance.cli.support.times import age
from admittance.client import kinds
from admittance.client.arguments.times import stamp
from admittance.client.errors import RequestFailed, sentence
from admittance.client.requests.link import Link
from admittance.client.requests.objects import BucketObject, field, find
from admittance.client.requests.queues.capacity import of_family, silent_classes
from admittance.client.requests.workloads.explanation import answer_of_runner, corrected
from admittance.client.requests.workloads.families import (
    Family,
    family_of,
    is_parent,
    is_variant,
    parent_of,
)
from admittance.client.requests.workloads.history import VariantNames, history_of, is_of
from admittance.client.wording.facts import EventLine, FactEffects, is_bookkeeping, line_of
from admittance.client.wording.phrases import admission_text
from admittance.events.requests.queues import NodeStatus, QueueStatus
from admittance.events.shapes import PreemptedBy
from admittance.family import rules_of
from admittance.provisioning.records import Record
from admittance.runtime import clock
from admittance.workload.family_info import allowed_flavors
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import StoredWorkload, head
from admittance.workload.waiting_reason import reason_of

LAST_EVENTS: Final = 12


async def show_workload(bus: Link, stored: BucketObject) -> None:
    """Prints a workload."""
    family = await _family(bus, stored)
    events = await _events(bus, stored)
    asked = await of_family(bus, stored, family)
    silent = await silent_classes(bus, asked)
    because = await _because(bus, stored, clock.now())
    answer = await answer_of_runner(bus, stored.workload(), clock.now())
    failed = sections.retry_lines(answer.retries, clock.now())
    _show_workload(stored, events, clock.now(), family, because, asked, silent, failed)


async def _family(bus: Link, stored: BucketObject) -> Family | None:
    """The family of a parent, or of a variant if its parent exists."""
    workload = stored.workload()
    if is_parent(workload):
        return await family_of(bus, stored)
    if not is_variant(workload):
        return None
    parent = await parent_of(bus, stored)
    return None if parent is None else await family_of(bus, parent)


async def _because(bus: Link, stored: BucketObject, now: datetime) -> tuple[str, str]:
    """Reason and message of the workload's phase. For a pending workload reason and message come
    from the scheduler, which knows more than the stored status, such as an inactive queue.
    """
    workload = stored.workload()
    if phase(workload, now) is Phase.PENDING:
        reply = await explained(bus, stored.namespace, stored.name)
        if reply is not None and (reply := corrected(workload, reply, now)).reason:
            return reply.reason, reply.message
    return reason_of(workload, now)


async def _events(bus: Link, stored: BucketObject) -> Sequence[EventLine] | None:
    try:
        return await _recent(bus, stored, LAST_EVENTS)
    except RequestFailed as error:
        output.warn(f"no events: {error}")
        return None


async def _recent(bus: Link, stored: BucketObject, count: int) -> list[EventLine]:
    """The last ``count`` events of one workload, oldest first; for a parent including its variants.
    Events of an earlier workload of the same name are left out."""
    variants = VariantNames(bus, stored.namespace, stored.name)
    meta = stored.workload().metadata
    said = history_of(bus, stored.namespace, stored.name, variants)
    told = [entry async for entry in said if not is_bookkeeping(entry)]
    effects = FactEffects()
    own = [entry for entry in told if is_of(entry, meta)]
    return [line_of(entry, variants.tags, effects) for entry in own][-count:]


def _show_workload(
    stored: BucketObject,
    events: Sequence[EventLine] | None,
    now: datetime,
    family: Family | None,
    because: tuple[str, str],
    asked: Sequence[Record] = (),
    silent: Collection[str] = (),
    failed: Sequence[str] = (),
) -> None:
    workload = stored.workload()
    plain = stored.plain()
    spec = head(workload)
    meta = workload.metadata
    status = workload.status
    shown_phase = str(phase(workload, now))
    members = [variant.workload for variant in family.variants] if family is not None else []
    output.facts(
        [
            ("Name", stored.name),
            ("Namespace", stored.namespace),
            ("Uid", meta.uid),
            ("Created", _moment(meta.creation_timestamp, now)),
            ("Submitted by", status.submitted_by),
            ("Labels", pairs(meta.labels)),
            ("Annotations", pairs(meta.annotations)),
            (
                "Part of",
                ", ".join(
                    f"{reference.kind} {reference.name}" for reference in meta.owner_references
                ),
            ),
            ("Queue", spec.queue_name),
            ("Priority", str(spec.priority or 0)),
            ("Phase", shown_phase),
            ("Because", sentence(*because)),
            ("Reserved in", admission_text(status.admission) if status.admission else ""),
            ("Preempted by", _preempted_by(status.preempted_by, now)),
            *variants.family_facts(workload, family, now),
            ("Flavors allowed", _allowed(workload)),
            ("Not before", sections.next_attempt(workload, now, members)),
            ("Timeouts", sections.pods_ready_evictions(workload)),
            ("Time limit", _limit(spec.maximum_execution_time_seconds)),
            ("Check cycle", str(status.admission_cycle) if status.admission_checks else ""),
        ]
    )
    if family is not None and is_parent(workload):
        output.section("Variants, best first", variants.variant_table(family, now))
        output.section("Checks of the variants", variants.check_table(family, now))
    output.section("Pod sets", sections.pod_sets(plain))
    if failed:
        output.say("\nFailed pods")
        for line in failed:
            output.say(f"  {output.clean(line)}")
    output.section("Checks", sections.check_table(workload, now))
    for record in asked:
        capacity_requests.show(record, now, silent)
    output.section("Outputs", sections.outputs(workload))
    output.section("Conditions", sections.conditions(plain, now))
    if events:
        output.say("\nLast events")
        for event in events:
            output.say(f"  {output.clean(event.line())}")


async def show_request(bus: Link, record: Record) -> None:
    """Prints a request for capacity."""
    silent, now = await silent_classes(bus, [record]), clock.now()
    meta = record.metadata
    output.facts(
        [
            ("Name", meta.name),
            ("Namespace", meta.namespace),
            ("Created", _moment(meta.creation_timestamp, now)),
            *capacity_requests.facts_of(record, now, silent),
        ]
    )
    output.section("Asked for", capacity_requests.pod_set_table(record))
    output.section("Conditions", sections.conditions(output.plain_of(record), now))
    capacity_requests.show_notes(record)


def _allowed(workload: StoredWorkload) -> str:
    allowed = allowed_flavors(workload)
    if allowed is None:
        return ""
    return ", ".join(sorted(allowed)) or "none: it can never be admitted"


def _preempted_by(by: PreemptedBy | None, now: datetime) -> str:
    if by is None:
        return ""
    first, *_ = preempted(by, now)
    return first.removeprefix("by ")


def _moment(moment: datetime | None, now: datetime) -> str:
    return "" if moment is None else f"{stamp(moment)} ({age(moment, now)})"


def _limit(seconds: int | None) -> str:
    return "" if seconds is None else f"{seconds} s"


async def show_cohort(bus: Link, name: str) -> None:
    """Prints a cohort and its tree. A cohort that has no object, since only ClusterQueues or other
    cohorts name it, still has a tree.
    """
    tree = await sections.tree_of(bus, name)
    try:
        cohort = await find(bus, kinds.COHORT, name)
    except RequestFailed:
        if not tree:
            raise
        facts = [("Name", name), ("Object", "none: other objects name it"), ("Kind", "Cohort")]
        output.facts([*facts, *sections.facts_of(tree, name)])
        output.section("Tree", sections.tree_table(tree, name))
        return
    if not tree:
        output.warn("no live counters: the scheduler does not answer, or does not know it yet")
    _show_object(kinds.COHORT, cohort, {}, clock.now(), tree)


async def show_object(bus: Link, kind: kinds.ObjectKind, stored: BucketObject) -> None:
    """Prints an object that is no workload, with its live counters or bookings."""
    counters = await lists.live_counters(bus, kind, [stored])
    [stored] = await lists.with_live(bus, kind, [stored])
    _show_object(kind, stored, counters, clock.now())


def _show_object(
    kind: kinds.ObjectKind,
    stored: BucketObject,
    counters: tables.Counters,
    now: datetime,
    tree: Sequence[NodeStatus] = (),
) -> None:
    plain = stored.plain()
    namespace = stored.namespace if kind.namespaced else ""
    counted = counters.get((namespace, stored.name))
    created = stored.created()
    output.facts(
        [
            ("Name", stored.name),
            ("Namespace", stored.namespace),
            ("Kind", f"{plain.get('kind', kind.manifest)} ({plain.get('apiVersion', '')})"),
            ("Created", _moment(created, now)),
            ("Generation", str(field(plain, "metadata", "generation", default=""))),
            ("Labels", pairs(field(plain, "metadata", "labels", default={}))),
            ("Annotations", pairs(field(plain, "metadata", "annotations", default={}))),
            *(_counted(counted) if counted is not None else ()),
            *sections.facts_of(tree, stored.name),
            *(budgets.facts(stored, now) if kind is kinds.BUDGET else ()),
            ("Wrong", pools.wrong(stored) if kind is kinds.MACHINE_POOL else ""),
        ]
    )
    output.section("Tree", sections.tree_table(tree, stored.name))
    if kind is kinds.CLUSTER_QUEUE:
        _show_policy(plain)
    if kind is kinds.MACHINE_POOL:
        output.section("Machines", pools.kind_table(stored))
        output.section("Booked by", pools.booking_table(stored, now))
    if kind is kinds.BUDGET:
        budgets.show_state(stored)
    if counted is not None and counted.usage:
        output.section("Usage", sections.usage(counted, quota=kind is kinds.CLUSTER_QUEUE))
    if counted is not None and counted.persons:
        output.section("Held by", sections.persons(counted))
    if counted is not None and counted.users:
        output.section("Used by", sections.users(counted))
    output.section("Conditions", sections.conditions(plain, now))
    rest = {
        key: value
        for key, value in plain.items()
        if key not in ("apiVersion", "kind", "metadata", "status")
    }
    if rest:
        output.say("")
        output.show_yaml(rest)


def _show_policy(plain: Mapping[str, Any]) -> None:
    """Prints the policy of a ClusterQueue for families of variants."""
    from admittance.api.reading.objects import decode_object

    try:
        manifest = decode_object(plain).manifest
    except ManifestError:
        return  # The object was written by another program or version, so only its spec is printed.
    rules = rules_of(manifest.spec) if isinstance(manifest, ClusterQueue) else None
    if rules is not None:
        output.say(f"\nFamilies of variants\n  {variants.policy_text(rules)}")
        output.show_table(variants.tag_table(rules), indent=2)


def _counted(counted: QueueStatus) -> Iterator[tuple[str, str]]:
    active = "yes" if counted.active else f"no ({counted.reason}: {counted.message})"
    parked = f" ({counted.parked} parked)" if counted.parked else ""
    yield "Active", active
    yield "Pending", f"{counted.pending}{parked}"
    yield "Reserving", str(counted.reserving)
    yield "Admitted", str(counted.admitted)
    yield "Domain", counted.domain
    if counted.weighted_share is not None:
        yield "Weighted share", sections.share(counted.weighted_share)
    if counted.used is not None:
        yield "Usage", sections.usage_of(counted.used)
    elif counted.by_usage:
        first = "user" if counted.by_user else "LocalQueue"
        yield "Order", f"the {first} with the least usage first, then by priority and age"
