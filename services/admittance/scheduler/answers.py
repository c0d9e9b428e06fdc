"""Answers from memory: why a workload waits, who waits in which order, how full the queues are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice

from admittance.events.requests import (
    ExplainReply,
    FlavorUsage,
    FlavorVerdict,
    PendingQuery,
    PendingReply,
    PendingRow,
    Queues,
    QueuesReply,
    QueueStatus,
)
from admittance.events.shapes import Refusal
from admittance.scheduler.assign import FIT, Verdict, examine
from admittance.scheduler.cycle import refusal_for
from admittance.scheduler.order import in_order, place
from admittance.scheduler.picture import BACKOFF, Key, Member
from admittance.scheduler.queue import Queue
from admittance.scheduler.reasons import sentence, shortfall
from admittance.scheduler.world import World

HOLDERS_MAX = 10
LOOKED_AT_MAX = 1_000
LEADS_NOWHERE = frozenset({"NotFound", "Stopped", "ClusterQueueDoesNotExist"})
RUNS = frozenset({"Admitted", "Evicting"})


def explain(world: World, key: Key, *, now: datetime) -> ExplainReply:
    """Why the workload waits, flavor by flavor."""
    member = world.members.get(key)
    if member is None or member.shape is None:
        return ExplainReply(error=f"no unfinished workload {key[0]}/{key[1]} is known")
    local = world.catalog.local_queues.get(member.local)
    name = local.spec.cluster_queue if local is not None else ""
    queue = world.queues.get(name)
    charge = member.charge
    if charge is not None:
        state = "QuotaReserved" if member.state == "Pending" else member.state
        holds = f"Holds quota in ClusterQueue {charge.queue.name}"
        return _reply(member, state, Refusal(reason=state, message=holds), charge.queue.name)
    why = _why(world, member, queue, now)
    if queue is None or queue.plan is None:
        return _reply(member, "Pending", why, name)
    verdicts = examine(queue.plan, member.shape)
    phase = "Backoff" if not member.is_due(now) else "Pending"
    return ExplainReply(
        phase=phase,
        reason=why.reason,
        message=why.message,
        cluster_queue=name,
        local_queue=member.local[1],
        position=queue.position(member),
        parked=_is_parked(member),
        priority=member.priority,
        flavors=tuple(_verdict(one) for one in verdicts),
        holders=tuple(_holders(queue, verdicts)),
        unblocked_by=tuple(_remedies(world, member, queue, verdicts, now)),
    )


def _reply(member: Member, phase: str, why: Refusal, cluster_queue: str) -> ExplainReply:
    return ExplainReply(
        phase=phase,
        reason=why.reason,
        message=why.message,
        cluster_queue=cluster_queue,
        local_queue=member.local[1],
        priority=member.priority,
    )


def _is_parked(member: Member) -> bool:
    return member.aside is not None or (member.cls is not None and member.cls.parked is not None)


def _why(world: World, member: Member, queue: Queue | None, now: datetime) -> Refusal:
    activity = world.catalog.local_queue_activity(*member.local)
    if member.problem is not None:
        return Refusal(reason=member.problem.reason, message=member.problem.message)
    if not member.competes:
        return Refusal(reason=member.said or "Suspended", message="It does not compete for quota")
    if not activity.active:
        of_queue = world.catalog.activity(queue.name) if queue is not None else None
        if activity.reason == "ClusterQueueIsInactive" and of_queue is not None:
            return Refusal(reason=of_queue.reason, message=of_queue.message)
        return Refusal(reason=activity.reason, message=activity.message)
    if not member.is_due(now):
        until = f" until {member.requeue_at.isoformat()}" if member.requeue_at is not None else ""
        return Refusal(reason="Backoff", message=f"Waits{until} before it competes again")
    parked = refusal_for(member)
    if parked is not None and member.aside is not BACKOFF:
        return parked
    position = queue.position(member) if queue is not None else 0
    return Refusal(reason="PendingEvaluation", message=f"Number {position} in its ClusterQueue")


def _verdict(one: Verdict) -> FlavorVerdict:
    if one.mode == FIT:
        how = "fits" if not one.level else "fits by borrowing from its cohort"
        reason = ""
    else:
        how = ", ".join(sentence(obstacle) for obstacle in one.obstacles)
        reason = one.obstacles[-1].reason if one.obstacles else ""
    return FlavorVerdict(
        pod_set=one.pod_set,
        flavor=one.option.flavor,
        resources=tuple(resource for resource, _ in one.amounts),
        fits=one.mode == FIT,
        reason=reason,
        message=how,
        shortfalls=tuple(shortfall(obstacle) for obstacle in one.obstacles if obstacle.resource),
    )


def _holders(queue: Queue, verdicts: Iterable[Verdict]) -> Iterator[str]:
    """Some of those that hold what is short, in the queue itself first."""
    short = {
        (obstacle.flavor, obstacle.resource)
        for one in verdicts
        for obstacle in one.obstacles
        if obstacle.reason == "WaitingForQuota"
    }
    if not short or queue.domain is None:
        return
    others = (one for one in queue.domain.queues if one is not queue)
    everyone = (member for one in (queue, *others) for member in one.holding)
    found = (
        f"{member.key[0]}/{member.key[1]}"
        for member in islice(everyone, LOOKED_AT_MAX)
        if member.charge is not None
        and any(amount and cell.fr in short for cell, amount in member.charge.cells)
    )
    yield from islice(found, HOLDERS_MAX)


def _remedies(
    world: World, member: Member, queue: Queue, verdicts: Iterable[Verdict], now: datetime
) -> Iterator[str]:
    if not queue.activity.active:
        yield f"ClusterQueue {queue.name} becoming active"
    if not member.is_due(now):
        yield "the end of its wait"
    namespace = member.key[0]
    if queue.node is not None and not world.catalog.selects_namespace(queue.name, namespace):
        yield f"labels of namespace {namespace} that ClusterQueue {queue.name} selects"
    for one in verdicts:
        for obstacle in one.obstacles:
            if obstacle.reason == "WaitingForQuota":
                yield f"quota being released: {sentence(obstacle)}"
            elif obstacle.reason == "ExceedsMaxQuota":
                yield f"more quota: {sentence(obstacle)}"


def pending(world: World, query: PendingQuery, namespace: str) -> PendingReply:
    """Who waits, queue by queue, in order. Costs what is listed, and a look at each class."""
    target = query.cluster_queue
    if query.local_queue and namespace:
        local = world.catalog.local_queues.get((namespace, query.local_queue))
        if local is None:
            return PendingReply(error=f"no LocalQueue {namespace}/{query.local_queue}")
        target = local.spec.cluster_queue
    if target and (target not in world.queues or world.queues[target].node is None):
        return PendingReply(error=f"no ClusterQueue {target}")
    queues = [world.queues[target]] if target else list(world.queues.values())
    rows: list[PendingRow] = []
    total = 0
    for queue in queues:
        every = not namespace and not query.local_queue
        total += queue.live + len(queue.asides) if every else 0
        if every and len(rows) >= query.limit:
            continue
        for position, member in enumerate(in_order(queue), start=1):
            if namespace and member.key[0] != namespace:
                continue
            if query.local_queue and member.local[1] != query.local_queue:
                continue
            total += not every
            if len(rows) < query.limit:
                rows.append(_row(queue, member, position))
            elif every:
                break
    if not query.cluster_queue:
        for member in _nowhere(world, namespace, query.local_queue):
            total += 1
            if len(rows) < query.limit:
                rows.append(_row_of_nowhere(world, member))
    return PendingReply(rows=tuple(rows), total=total)


def _nowhere(world: World, namespace: str, local_queue: str) -> Iterator[Member]:
    """Who would compete, if only its LocalQueue led to a ClusterQueue and ran. Costs a look at each
    LocalQueue that is named."""
    for key, members in world.locals.items():
        if (namespace and key[0] != namespace) or (local_queue and key[1] != local_queue):
            continue
        if world.catalog.local_queue_activity(*key).reason in LEADS_NOWHERE:
            yield from sorted(
                (one for one in members if one.competes and one.queue is None and not one.charge),
                key=place,
            )


def _row_of_nowhere(world: World, member: Member) -> PendingRow:
    activity = world.catalog.local_queue_activity(*member.local)
    local = world.catalog.local_queues.get(member.local)
    return PendingRow(
        namespace=member.key[0],
        name=member.key[1],
        cluster_queue=local.spec.cluster_queue if local is not None else "",
        local_queue=member.local[1],
        position=0,
        priority=member.priority,
        parked=True,
        reason=activity.reason,
        message=activity.message,
        created=member.created,
    )


def _row(queue: Queue, member: Member, position: int) -> PendingRow:
    why = refusal_for(member)
    return PendingRow(
        namespace=member.key[0],
        name=member.key[1],
        cluster_queue=queue.name,
        local_queue=member.local[1],
        position=position,
        priority=member.priority,
        parked=why is not None,
        reason=why.reason if why is not None else "",
        message=why.message if why is not None else "",
        created=member.created,
    )


def queues(world: World, query: Queues, namespace: str) -> QueuesReply:
    """Counters and usage, of one ClusterQueue or all; of LocalQueues those of the namespace."""
    names = [query.cluster_queue] if query.cluster_queue else list(world.catalog.cluster_queues)
    statuses = [
        _cluster_queue(world.queues[name])
        for name in names
        if name in world.queues and world.queues[name].node is not None
    ]
    locals_ = [
        _local_queue(world, key)
        for key, local in world.catalog.local_queues.items()
        if (not namespace or key[0] == namespace)
        and (not query.cluster_queue or local.spec.cluster_queue == query.cluster_queue)
    ]
    return QueuesReply(cluster_queues=tuple(statuses), local_queues=tuple(locals_))


def _cluster_queue(queue: Queue) -> QueueStatus:
    node = queue.node
    assert node is not None
    admitted: dict[tuple[str, str], int] = {}
    for member in queue.holding:
        if member.charge is not None and member.state in RUNS:
            for cell, amount in member.charge.cells:
                admitted[cell.fr] = admitted.get(cell.fr, 0) + amount
    parked = sum(cls.live for cls in queue.parked) + len(queue.asides)
    return QueueStatus(
        name=queue.name,
        cohort=node.parent.name if node.parent is not None else "",
        domain=queue.domain.name if queue.domain is not None else "",
        active=queue.activity.active,
        reason=queue.activity.reason,
        message=queue.activity.message,
        pending=queue.live + len(queue.asides),
        parked=parked,
        reserving=len(queue.holding),
        admitted=sum(one.state in RUNS for one in queue.holding),
        usage=tuple(
            FlavorUsage(
                flavor=fr[0],
                resource=fr[1],
                nominal=cell.nominal,
                reserved=cell.usage,
                admitted=admitted.get(fr, 0),
                borrowed=max(0, cell.usage - cell.nominal),
            )
            for fr, cell in node.cells.items()
        ),
    )


def _local_queue(world: World, key: Key) -> QueueStatus:
    local = world.catalog.local_queues[key]
    activity = world.catalog.local_queue_activity(*key)
    members = world.locals.get(key, ())
    waiting = [one for one in members if one.charge is None and one.queue is not None]
    holding = [one for one in members if one.charge is not None]
    return QueueStatus(
        name=key[1],
        namespace=key[0],
        cluster_queue=local.spec.cluster_queue,
        domain=world.catalog.domain_of(local.spec.cluster_queue) or "",
        active=activity.active,
        reason=activity.reason,
        message=activity.message,
        pending=len(waiting),
        parked=sum(_is_parked(one) for one in waiting),
        reserving=len(holding),
        admitted=sum(one.state in RUNS for one in holding),
    )
