"""Explanations of waiting workloads: flavor by flavor, and what would unblock them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from admittance.cli.show import sections
from admittance.cli.show.sections import share
from admittance.cli.show.starts import expected
from admittance.cli.support import output
from admittance.cli.support.options import Call
from admittance.cli.support.output import NOTHING, Column, Table, columns_of
from admittance.cli.support.times import age
from admittance.client.arguments.times import span, stamp
from admittance.client.errors import RequestFailed, sentence
from admittance.client.requests.link import Link
from admittance.client.requests.objects import BucketObject, field
from admittance.client.requests.workloads.explanation import NO_RUNNER, Explanation, corrected
from admittance.client.requests.workloads.families import Family, FamilyMember
from admittance.client.wording.phrases import amount_text
from admittance.events.requests.explanation import (
    Ahead,
    Explain,
    ExplainReply,
    FlavorVerdict,
    HeldLease,
    Holder,
    Outlook,
    PreemptionVictim,
    Room,
    VariantVerdict,
)
from admittance.events.shapes import Grounds, PreemptedBy, Shares
from admittance.runtime import clock
from admittance.workload.phase import Phase
from admittance.workload.stored import StoredWorkload
from admittance.workload.waiting_reason import reason_of


async def capacity_waits(bus: Link, answer: Explanation, now: datetime) -> tuple[str, ...]:
    """One sentence for each capacity request that the workload waits for."""
    stored, family = answer.found, answer.family
    if family is None and not stored.workload().status.admission_checks:
        return ()
    from admittance.cli.show.capacity.capacity_requests import waits_for
    from admittance.client.requests.queues.capacity import of_family

    return tuple(waits_for(await of_family(bus, stored, family), now))


def value_of(call: Call, name: str, answer: Explanation, waits: Sequence[str]) -> dict[str, Any]:
    """The explanation as JSON and YAML output shows it."""
    rows = field(answer.found.plain(), "status", "admissionChecks", default=[])
    checks = sections.check_values(rows, answer.found.workload())
    reply, (held_back, retries) = answer.reply, answer.runner
    value = {"namespace": call.namespace, "name": name, **output.plain_of(reply), "checks": checks}
    if waits:
        value["capacityAwaitedOf"] = waits
    if held_back:
        value["waitsOnRunner"] = held_back
    if retries is not None:
        value["podRetries"] = output.plain_of(retries)
    if answer.refused.why:
        value["noRunnerStarts"] = answer.refused.why
    value["phase"] = reply.phase
    return value


def show(answer: Explanation, waits: Sequence[str], at: datetime | None = None) -> None:
    """Prints the scheduler's answer and the admission checks of the stored workload. ``at``: the
    time of the answer; None: now."""
    held_back, retries = answer.runner
    now = clock.now() if at is None else at
    _show(answer.found, answer.reply, answer.family, answer.refused.why, now)
    if held_back and held_back != NO_RUNNER:
        output.say(f"its runner has not started it yet: {output.clean(held_back)}")
    _list("Failed pods", sections.retry_lines(retries, now))
    _list("Waits for capacity", waits)


def _show(
    stored: BucketObject, reply: ExplainReply, family: Family | None, refused: str, now: datetime
) -> None:
    shown_phase = reply.phase
    reason, message = reply.reason, reply.message
    if not reason:
        reason, message = reason_of(stored.workload(), now)
    because = reason_text(shown_phase, reason, message)
    output.say(
        f"{stored.namespace}/{stored.name} is {shown_phase}" + (f" ({because})" if because else "")
    )
    if refused:
        output.say(f"after its admission its job will fail: {output.clean(refused)}")
    if user := stored.workload().status.submitted_by:
        output.say(f"submitted by {output.clean(user)}")
    if reply.lease is not None:
        output.say(lease_text(reply.lease, shown_phase, now))
    if reply.parent:
        output.say(f"a variant of workload {reply.parent}: `admit explain workload {reply.parent}`")
    for line in place(reply, now):
        output.say(line)
    members = (
        {variant.found.name: variant for variant in family.variants} if family is not None else {}
    )
    _details(
        stored.workload(), reply, now, variants=[member.workload for member in members.values()]
    )
    # The variants of a finished parent wait for nothing.
    if family is not None and not reply.variants and shown_phase != Phase.FINISHED:
        from admittance.cli.show import variants

        output.section("Variants", variants.variant_table(family, now))
    for number, verdict in enumerate(reply.variants, 1):
        _show_variant(number, verdict, members.get(verdict.name), now)


def _show_variant(
    number: int, verdict: VariantVerdict, member: FamilyMember | None, now: datetime
) -> None:
    """Prints what one variant of a parent waits for, under a title with the variant's name."""
    if member is not None and verdict.active:
        verdict = replace(verdict, explained=corrected(member.workload, verdict.explained, now))
    output.say(f"\n{number}. {output.clean(variant(verdict))}")
    if verdict.admitted or not verdict.active:
        return
    for line in place(verdict.explained, now):
        output.say(f"  {line}")
    _details(member.workload if member is not None else None, verdict.explained, now, indent=2)


def _details(
    workload: StoredWorkload | None,
    reply: ExplainReply,
    now: datetime,
    *,
    indent: int = 0,
    variants: Sequence[StoredWorkload] = (),
) -> None:
    """Prints flavors, victims, checks, quota holders, and what would unblock the workload.
    ``workload``: None if the workload is not in the bucket yet. ``variants``: the rows of a
    parent's variants.
    """
    table, listed = partial(output.section, indent=indent), partial(_list, indent=indent)
    table("Flavors", flavor_table(reply.flavors))
    if reply.preempted_by is not None:
        listed("Preempted", tuple(preempted(reply.preempted_by, now)))
    table("Waits for these workloads to stop", going_table(reply.waits_for, now))
    if reply.outlook is not None and not reply.waits_for:
        table("Would be preempted", going_table(reply.outlook.victims, now))
    listed("Preemption does not help", barriers(reply.flavors))
    if workload is not None:
        inactive = {check.name: check.inactive for check in reply.checks if check.state != "Ready"}
        table("Checks", sections.check_table(workload, now, inactive))
        if attempt := sections.next_attempt(workload, now, variants):
            output.say(f"\n{' ' * indent}Next attempt not before {attempt}")
    if reply.held_by:
        table("Quota is held by", holder_table(reply.held_by))
    else:
        listed("Quota is held by", reply.holders)
    listed("Unblocked by", reply.unblocked_by)


def _list(title: str, lines: Sequence[str], *, indent: int = 0) -> None:
    if lines:
        output.say(f"\n{' ' * indent}{title}")
        for line in lines:
            output.say(f"{' ' * indent}  - {output.clean(line)}")


async def explained(bus: Link, namespace: str, name: str) -> ExplainReply | None:
    """Returns the scheduler's answer, or None if the scheduler does not answer."""
    try:
        reply = await bus.ask("explain", Explain(name=name), ExplainReply, namespace=namespace)
    except RequestFailed:
        return None
    return None if reply.error else reply


OFF: Final = frozenset({Phase.DEACTIVATED, Phase.REJECTED})


def place(reply: ExplainReply, now: datetime) -> Iterator[str]:
    """Lines about the workload's place: its queue, its position, and the workloads ahead."""
    if reply.local_queue:
        parts = [f"cohort {reply.cohort}"] if reply.cohort else []
        parts += [reply.strategy] if reply.strategy else []
        inside = f" ({', '.join(parts)})" if parts else ""
        through = f" of clusterqueue {reply.cluster_queue}{inside}" if reply.cluster_queue else ""
        yield f"queue {reply.local_queue}{through}, priority {reply.priority}"
    if reply.position:
        of_all = f" of {reply.pending}" if reply.pending else ""
        parked = ", parked until something changes" if reply.parked else ""
        since = f", waiting for {age(reply.waiting_since, now)}" if reply.waiting_since else ""
        yield f"position {reply.position}{of_all}{since}{parked}"
    if reply.ahead:
        yield f"behind {', '.join(_ahead(ahead) for ahead in reply.ahead)}"
    if reply.outlook is not None:
        yield f"next cycle: {outlook(reply.outlook)}"
    if reply.start is not None:
        yield f"start: {expected(reply.start, now)}"
    elif reply.start_unknown:
        yield f"start: unknown, {output.clean(reply.start_unknown)}"


def reason_text(phase: str, reason: str, message: str) -> str:
    """``reason: message``; the reason is left out if it only repeats the phase."""
    return sentence(reason if reason != phase else "", message)


def variant(verdict: VariantVerdict) -> str:
    """One line about a variant: whether it is active, and its phase."""
    from admittance.client.wording.variants import SENTENCES

    said = verdict.explained
    tries = "active" if verdict.active else "inactive"
    clause = SENTENCES.get(verdict.why, "")
    because = ", ".join(part for part in (verdict.why, clause) if part)
    text = f"{verdict.variant} ({verdict.name}) is {tries}" + (f" ({because})" if because else "")
    # The phase and reason of a deactivated variant would only repeat that the variant is inactive.
    if said.phase and (verdict.active or said.phase not in OFF):
        reason = reason_text(said.phase, said.reason, said.message)
        text += f", {said.phase}" + (f" ({reason})" if reason and not verdict.admitted else "")
    if verdict.set_aside:
        text += f"; not tried now: {verdict.set_aside}"
    if verdict.gate == "Open" and not verdict.admitted:
        text += "; its preemption gate is open"
    return text


def _ahead(ahead: Ahead) -> str:
    held = ", preempting" if ahead.holds_place else ""
    parked = f", parked: {ahead.reason}" if ahead.reason else ""
    number = f"number {ahead.position}, " if ahead.position else ""
    return f"{ahead.namespace}/{ahead.name} ({number}priority {ahead.priority}{held}{parked})"


def outlook(seen: Outlook) -> str:
    """One line: what the next scheduling cycle would decide about the workload."""
    flavors = "; ".join(
        f"{pod_set} on {', '.join(f'{flavor} ({resource})' for resource, flavor in got.items())}"
        for pod_set, got in seen.flavors.items()
    )
    counts = ", ".join(f"{count} pods of {pod_set}" for pod_set, count in seen.counts.items())
    less = f", with {counts} only" if counts else ""
    borrowing = f", borrowing at level {seen.level}" if seen.level else ""
    where = f"{flavors}{less}{borrowing}"
    match seen.outcome:
        case "Fits":
            return f"it fits: {where}"
        case "Preempts":
            count = len(seen.victims) + seen.victims_left_out
            others = "1 workload has" if count == 1 else f"{count} workloads have"
            return f"it fits once {others} gone: {where}"
        case "NoCandidates":
            return f"it does not fit, and preemption does not help ({seen.reason})"
        case "NoFit":
            return f"it does not fit ({seen.reason})"
        case _:
            return f"it is not considered ({seen.reason})"


def flavor_table(verdicts: Sequence[FlavorVerdict]) -> Table:
    """Current numbers of each flavor for each pod set: one row per resource."""
    columns = columns_of(
        "POD SET",
        "FLAVOR",
        "RESOURCE",
        "#ASKED",
        "#FREE",
        "#SHORT",
        "#USED",
        "#NOMINAL",
        "#AT MOST",
        "FITS",
        "WHY",
    )
    rows: list[tuple[str, ...]] = []
    for verdict in verdicts:
        why = sentence(verdict.reason, _message(verdict)) or NOTHING
        fits = "yes" if verdict.fits else "no"
        flavor = verdict.flavor or NOTHING
        if not verdict.rooms:
            resources = ",".join(verdict.resources) or NOTHING
            blank = (NOTHING,) * 6
            rows.append((verdict.pod_set, flavor, resources, *blank, fits, why))
        for at, room in enumerate(verdict.rooms):
            shown = (fits, why) if not at else ("", "")
            rows.append((verdict.pod_set, flavor, room.resource, *_numbers(room), *shown))
    return Table(columns, rows)


def _numbers(room: Room) -> tuple[str, ...]:
    """The cells asked, free, short, used, nominal and at most of one resource in a flavor."""
    asked = amount_text(room.resource, room.requested)
    if room.taken:
        asked = f"{amount_text(room.resource, room.taken)}+{asked}"
    return (
        asked,
        amount_text(room.resource, room.available),
        amount_text(room.resource, room.short) if room.short else NOTHING,
        amount_text(room.resource, room.usage),
        amount_text(room.resource, room.nominal),
        amount_text(room.resource, room.potential),
    )


def _message(verdict: FlavorVerdict) -> str:
    if verdict.message:
        return verdict.message
    return "; ".join(short.message for short in verdict.shortfalls if short.message)


def going_table(going: Sequence[PreemptionVictim], now: datetime) -> Table:
    """The table of workloads to be preempted, with the rule that selects each."""
    columns = columns_of("WORKLOAD", "CLUSTERQUEUE", "#PRIORITY", "RULE", "REQUESTED")
    rows = [
        (
            f"{victim.namespace}/{victim.name}",
            victim.cluster_queue,
            str(victim.priority),
            victim.rule + (f" ({shares(victim.shares)})" if victim.shares is not None else ""),
            f"{age(victim.since, now)} ago" if victim.since is not None else NOTHING,
        )
        for victim in going
    ]
    return Table(columns, rows)


def lease_text(lease: HeldLease, phase: str, now: datetime) -> str:
    """The line about the lease of a program."""
    holds = phase not in (Phase.PENDING, Phase.BACKOFF)
    what = "a program holds its quota" if holds else "a program waits for its quota"
    renewed = f"renewed {age(lease.renewed_at, now)} ago" if lease.renewed_at else "not renewed yet"
    left = (lease.until - now).total_seconds()
    ends = f"ends in {span(left)} ({stamp(lease.until)}) unless the program renews it"
    if left <= 0:
        ends = f"has ended ({stamp(lease.until)})"
    return f"{what}: its lease of {lease.duration_seconds} s, {renewed}, {ends}"


def holder_table(holders: Sequence[Holder]) -> Table:
    """The table of workloads that hold the scarce quota."""
    columns = columns_of(
        "WORKLOAD", "CLUSTERQUEUE", "FLAVOR", "#AMOUNT", "#PRIORITY", "BORROWING", "PREEMPTION"
    )
    rows: list[tuple[str, ...]] = [
        (
            f"{holder.namespace}/{holder.name}",
            holder.cluster_queue,
            holder.flavor,
            f"{amount_text(holder.resource, holder.amount)} {holder.resource}",
            str(holder.priority),
            "yes" if holder.borrowed else "no",
            "stopping" if holder.leaving else holder.spared_by or "candidate",
        )
        for holder in holders
    ]
    if any(holder.leased for holder in holders):
        columns = (*columns, Column("HELD"))
        rows = [
            (*row, "by a program until its lease ends" if holder.leased else "by a job")
            for row, holder in zip(rows, holders, strict=True)
        ]
    return Table(columns, rows)


def barriers(verdicts: Sequence[FlavorVerdict]) -> tuple[str, ...]:
    """Lines that say for each flavor why preemption does not help."""
    lines = [
        f"{bar.resource} in flavor {bar.flavor}: {bar.message} ({bar.rule})"
        for verdict in verdicts
        for bar in verdict.barriers
    ]
    return tuple(dict.fromkeys(lines))


def preempted(by: PreemptedBy, now: datetime) -> Iterator[str]:
    """Lines about a preemption: the preempting workload, the rule and the decision's numbers."""
    when = f", {age(by.at, now)} ago ({stamp(by.at)})" if by.at is not None else ""
    submitted = f", submitted by {by.submitted_by}" if by.submitted_by else ""
    yield f"by workload {by.by}{submitted}{when}, rule {by.rule}"
    if by.grounds is not None:
        yield from grounds(by.grounds)


def grounds(why: Grounds) -> Iterator[str]:
    """Lines with the numbers of a preemption."""
    yield (
        f"priority {why.by_priority} in clusterqueue {why.by_cluster_queue} against priority "
        f"{why.priority} in clusterqueue {why.cluster_queue}"
    )
    if why.policy:
        upto = f", up to priority {why.threshold}" if why.threshold is not None else ""
        yield f"allowed by {why.policy} of clusterqueue {why.by_cluster_queue}{upto}"
    if why.shares is not None:
        yield shares(why.shares)
    for short in why.short:
        asked = amount_text(short.resource, short.amount)
        free = amount_text(short.resource, short.available)
        yield f"for {asked} {short.resource} in flavor {short.flavor}, where {free} was free"


def shares(compared: Shares) -> str:
    """The compared shares as text, like ``LessThanInitialShare: 250 against 333``."""
    text = f"{compared.strategy}: share {share(compared.preemptor)} against "
    if compared.after is not None:
        return f"{text}{share(compared.after)}, what is left of {share(compared.victim)}"
    return text + share(compared.victim)
