"""``admit explain``: why a workload waits, flavor by flavor, and what would unblock it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from msgspec.structs import replace

from admittance.cli.explain import sections
from admittance.cli.get import find
from admittance.cli.show import check_rows, tables
from admittance.cli.show.families import Family, Member, family_of, is_parent
from admittance.cli.show.objects import Found, field
from admittance.cli.support import kinds, output
from admittance.cli.support.errors import AnswerIsNo
from admittance.cli.support.link import Link, link
from admittance.cli.support.options import Call, Output
from admittance.cli.support.output import Table
from admittance.events.requests import Explain, ExplainReply, VariantVerdict
from admittance.runtime import clock
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import StoredWorkload, head


async def explain(call: Call, name: str) -> None:
    """Prints the scheduler's answer, and the checks, which the stored workload tells."""
    async with link(call) as bus:
        found = await find(bus, kinds.WORKLOAD, name)
        workload = found.workload()
        now = clock.now()
        # The scheduler forgets a workload that has finished.
        reply = (
            ExplainReply()
            if phase(workload, now) is Phase.FINISHED
            else await bus.ask(
                "explain", Explain(name=name), ExplainReply, namespace=call.namespace
            )
        )
        family = await family_of(bus, found) if is_parent(workload) else None
        waits = await _capacity(bus, found, family, now)
    if reply.error:
        raise AnswerIsNo(reply.error)
    reply = up_to_a_user(workload, reply, now)
    rows = field(found.plain(), "status", "admissionChecks", default=[])
    checks = check_rows.check_values(rows, workload)
    value = {"namespace": call.namespace, "name": name, **output.plain_of(reply), "checks": checks}
    if waits:
        value["capacityAwaitedOf"] = waits
    value["phase"] = reply.phase or str(phase(workload, now))
    match call.output:
        case Output.JSON:
            output.show_json(value)
        case Output.YAML:
            output.show_yaml(value)
        case _:
            if call.output is Output.WIDE:
                output.cut_nothing()
            _tell(found, reply, value["phase"], family)
            _list("It waits for capacity of", waits)


async def _capacity(
    bus: Link, found: Found, family: Family | None, now: datetime
) -> tuple[str, ...]:
    """The requests for capacity that it waits for, a sentence each."""
    if family is None and not found.workload().status.admission_checks:
        return ()
    from admittance.cli.show.capacity_requests import of_kin, waits_for

    return tuple(waits_for(await of_kin(bus, found, family), now))


def up_to_a_user(workload: StoredWorkload, reply: ExplainReply, now: datetime) -> ExplainReply:
    """reply, corrected where the workload does not compete at all: no quota would help then.

    What its flavors say stays: whether it would fit.
    """
    where = phase(workload, now)
    reason, message = tables.reason_of(workload, now)
    name = workload.metadata.name
    match where:
        case Phase.FINISHED:
            remedies: tuple[str, ...] = ()
        case Phase.DEACTIVATED | Phase.REJECTED:
            remedies = (f"`admit activate workload {name}`",)
        case Phase.PENDING if reason == "OnHold":
            remedies = (f"`admit release workload {name}`",)
        case Phase.QUOTA_RESERVED if reason and reply.reason == where:
            # The scheduler knows that it holds quota; what it waits for is written in its status.
            return replace(reply, reason=reason)
        case _:
            return reply
    spec = head(workload)
    return replace(
        reply,
        phase=str(where),
        reason=reason,
        message=message,
        local_queue=reply.local_queue or spec.queue_name,
        priority=reply.priority or spec.priority or 0,
        position=0,
        outlook=None,
        ahead=(),
        holders=(),
        held_by=(),
        unblocked_by=remedies,
    )


def _tell(found: Found, reply: ExplainReply, shown_phase: str, family: Family | None) -> None:
    now = clock.now()
    reason, message = reply.reason, reply.message
    if not reason:
        reason, message = tables.reason_of(found.workload(), now)
    because = sections.because_of(shown_phase, reason, message)
    output.say(
        f"{found.namespace}/{found.name} is {shown_phase}" + (f" ({because})" if because else "")
    )
    if reply.parent:
        output.say(f"a variant of workload {reply.parent}: `admit explain workload {reply.parent}`")
    for line in sections.place(reply, now):
        output.say(line)
    variants = {one.found.name: one for one in family.variants} if family is not None else {}
    _details(found.workload(), reply, now, variants=[one.workload for one in variants.values()])
    # Once it has finished there is nobody to ask, and nothing to explain.
    if family is not None and not reply.variants and shown_phase != Phase.FINISHED:
        from admittance.cli.events import lanes

        _table("Variants", lanes.lane_table(family, now))
    for number, verdict in enumerate(reply.variants, 1):
        _tell_variant(number, verdict, variants.get(verdict.name), now)


def _tell_variant(number: int, verdict: VariantVerdict, one: Member | None, now: datetime) -> None:
    """What one variant waits for, beneath its own title."""
    output.say(f"\n{number}. {output.clean(sections.variant(verdict))}")
    if verdict.admitted or not verdict.active:
        return
    for line in sections.place(verdict.explained, now):
        output.say(f"  {line}")
    _details(one.workload if one is not None else None, verdict.explained, now, indent=2)


def _details(
    workload: StoredWorkload | None,
    reply: ExplainReply,
    now: datetime,
    *,
    indent: int = 0,
    variants: Sequence[StoredWorkload] = (),
) -> None:
    """Flavors, victims, checks, holders, and what lets it go on. ``workload`` None: it is not in
    the bucket yet. ``variants``: of a parent."""
    table, listed = partial(_table, indent=indent), partial(_list, indent=indent)
    table("Flavors", sections.flavor_table(reply.flavors))
    if reply.preempted_by is not None:
        listed("It was preempted", tuple(sections.preempted(reply.preempted_by, now)))
    table("It waits for the end of", sections.going_table(reply.waits_for, now))
    if reply.outlook is not None and not reply.waits_for:
        table("Would have to go for it", sections.going_table(reply.outlook.victims, now))
    listed("Preemption does not help", sections.barriers(reply.flavors))
    if workload is not None:
        table("Checks", check_rows.check_table(workload, now))
        if attempt := check_rows.next_attempt(workload, now, variants):
            output.say(f"\n{' ' * indent}Next attempt not before {attempt}")
    if reply.held_by:
        table("Quota is held by", sections.holder_table(reply.held_by))
    else:
        listed("Quota is held by", reply.holders)
    listed("It goes on with", reply.unblocked_by)


def _table(title: str, table: Table, *, indent: int = 0) -> None:
    if table.rows:
        output.say(f"\n{' ' * indent}{title}")
        output.show_table(table, indent=indent + 2)


def _list(title: str, lines: tuple[str, ...], *, indent: int = 0) -> None:
    if lines:
        output.say(f"\n{' ' * indent}{title}")
        for line in lines:
            output.say(f"{' ' * indent}  - {output.clean(line)}")


async def explained(bus: Link, namespace: str, name: str) -> ExplainReply | None:
    """The scheduler's answer, or None when it gives none: for whoever can do without."""
    try:
        reply = await bus.ask("explain", Explain(name=name), ExplainReply, namespace=namespace)
    except AnswerIsNo:
        return None
    return None if reply.error else reply
