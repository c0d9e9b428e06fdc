"""``admit explain``: why a workload waits, flavor by flavor, and what would unblock it."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from admittance.cli import kinds, output, tables
from admittance.cli.errors import AnswerIsNo
from admittance.cli.link import Link, link
from admittance.cli.objects import Found, shown_workload
from admittance.cli.options import Call, Output
from admittance.cli.output import Column, Table
from admittance.cli.reading import find
from admittance.events.requests import Explain, ExplainReply, FlavorVerdict
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
    checks = [
        {**condition} for condition in shown_workload(found)["status"]["admissionChecksConditions"]
    ]
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
        holders=(),
        unblocked_by=remedies,
    )


def _tell(found: Found, reply: ExplainReply, shown_phase: str) -> None:
    reason, message = reply.reason, reply.message
    if not reason:
        reason, message = tables.reason_of(found.workload(), clock.now())
    because = ": ".join(part for part in (reason, message) if part)
    output.say(
        f"{found.namespace}/{found.name} is {shown_phase}" + (f" ({because})" if because else "")
    )
    for line in _place(reply):
        output.say(line)
    if reply.flavors:
        output.say("\nFlavors")
        output.show_table(flavor_table(reply.flavors), indent=2)
    checks = found.workload().status.admission_checks
    if checks:
        output.say("\nChecks")
        rows = [(row.name, row.state, row.message or tables.NOTHING) for row in checks]
        columns = (Column("CHECK"), Column("STATE"), Column("MESSAGE"))
        output.show_table(Table(columns, rows), indent=2)
    _list("Quota is held by", reply.holders)
    _list("It goes on with", reply.unblocked_by)


def _place(reply: ExplainReply) -> list[str]:
    lines = []
    if reply.local_queue:
        through = f" of clusterqueue {reply.cluster_queue}" if reply.cluster_queue else ""
        lines.append(f"queue {reply.local_queue}{through}, priority {reply.priority}")
    if reply.position:
        parked = ", parked until something changes" if reply.parked else ""
        lines.append(f"position {reply.position}{parked}")
    return lines


def flavor_table(verdicts: tuple[FlavorVerdict, ...]) -> Table:
    """What each flavor says to each pod set."""
    columns = (
        Column("POD SET"),
        Column("FLAVOR"),
        Column("RESOURCES"),
        Column("FITS"),
        Column("WHY"),
    )
    rows = [
        (
            one.pod_set,
            one.flavor,
            ",".join(one.resources) or tables.NOTHING,
            "yes" if one.fits else "no",
            ": ".join(part for part in (one.reason, _message(one)) if part) or tables.NOTHING,
        )
        for one in verdicts
    ]
    return Table(columns, rows)


def _message(verdict: FlavorVerdict) -> str:
    if verdict.message:
        return verdict.message
    return "; ".join(short.message for short in verdict.shortfalls if short.message)


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
