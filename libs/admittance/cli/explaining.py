"""``admit explain``: why a workload waits, flavor by flavor, and what would unblock it."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from admittance.cli import check_rows, kinds, output, tables, why
from admittance.cli.errors import AnswerIsNo
from admittance.cli.link import Link, link
from admittance.cli.objects import Found, field
from admittance.cli.options import Call, Output
from admittance.cli.output import Table
from admittance.cli.reading import find
from admittance.events.requests import Explain, ExplainReply
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
    if reply.error:
        raise AnswerIsNo(reply.error)
    reply = up_to_a_user(workload, reply, now)
    rows = field(found.plain(), "status", "admissionChecks", default=[])
    checks = check_rows.check_values(rows, workload)
    value = {"namespace": call.namespace, "name": name, **output.plain_of(reply), "checks": checks}
    value["phase"] = reply.phase or str(phase(workload, now))
    match call.output:
        case Output.JSON:
            output.show_json(value)
        case Output.YAML:
            output.show_yaml(value)
        case _:
            _tell(found, reply, value["phase"])


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


def _tell(found: Found, reply: ExplainReply, shown_phase: str) -> None:
    now = clock.now()
    reason, message = reply.reason, reply.message
    if not reason:
        reason, message = tables.reason_of(found.workload(), now)
    because = ": ".join(part for part in (reason, message) if part)
    output.say(
        f"{found.namespace}/{found.name} is {shown_phase}" + (f" ({because})" if because else "")
    )
    for line in why.place(reply, now):
        output.say(line)
    _table("Flavors", why.flavor_table(reply.flavors))
    if reply.preempted_by is not None:
        _list("It was preempted", tuple(why.preempted(reply.preempted_by, now)))
    _table("It waits for the end of", why.going_table(reply.waits_for, now))
    if reply.outlook is not None and not reply.waits_for:
        _table("Would have to go for it", why.going_table(reply.outlook.victims, now))
    _list("Preemption does not help", why.barriers(reply.flavors))
    _table("Checks", check_rows.check_table(found.workload(), now))
    if attempt := check_rows.next_attempt(found.workload(), now):
        output.say(f"\nNext attempt not before {attempt}")
    if reply.held_by:
        _table("Quota is held by", why.holder_table(reply.held_by))
    else:
        _list("Quota is held by", reply.holders)
    _list("It goes on with", reply.unblocked_by)


def _table(title: str, table: Table) -> None:
    if table.rows:
        output.say(f"\n{title}")
        output.show_table(table, indent=2)


def _list(title: str, lines: tuple[str, ...]) -> None:
    if lines:
        output.say(f"\n{title}")
        for line in lines:
            output.say(f"  - {output.clean(line)}")


async def explained(bus: Link, namespace: str, name: str) -> ExplainReply | None:
    """The scheduler's answer, or None when it gives none: for whoever can do without."""
    try:
        reply = await bus.ask("explain", Explain(name=name), ExplainReply, namespace=namespace)
    except AnswerIsNo:
        return None
    return None if reply.error else reply
