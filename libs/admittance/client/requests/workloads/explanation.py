"""Explains why a workload waits: the scheduler's answer, corrected by what is stored, with what
runners say.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import chain
from typing import Final, NamedTuple

from msgspec.structs import replace

from admittance.api.array_status import summary
from admittance.api.arrays import ARRAY_LABEL
from admittance.api.dependencies import DEPENDENCIES_GATE, described
from admittance.api.workload import ARRAY_GATE, gate_names
from admittance.client import kinds
from admittance.client.arguments.times import span, stamp
from admittance.client.errors import NoResponder, RequestFailed
from admittance.client.requests.forecasts import starts_beside
from admittance.client.requests.link import Link
from admittance.client.requests.objects import BucketObject, find, is_array, lookup
from admittance.client.requests.workloads.families import (
    Family,
    family_of,
    is_parent,
    is_variant,
    parent_of,
)
from admittance.events import reasons
from admittance.events.requests.explanation import (
    Explain,
    ExplainReply,
    HeldLease,
    remedies_of,
    with_remedies,
)
from admittance.events.requests.history import Logs, LogsReply
from admittance.events.requests.reading import Runners, RunnersReply
from admittance.events.requests.remedies import Remedy, RemedyKind, of_command, together
from admittance.events.shapes import PodRetries
from admittance.runtime import clock
from admittance.workload.conditions import gated_by, is_held, unmet
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import StoredWorkload, head
from admittance.workload.waiting_reason import reason_of

ENDED: Final = frozenset({Phase.FINISHED, Phase.DEACTIVATED, Phase.REJECTED})
"""Phases in which no program holds or awaits the quota of a workload."""


class Explanation(NamedTuple):
    """Why a workload waits. ``found``: the workload; ``family``: of a parent; ``runner``: what its
    runner says; ``refused``: why no runner would start its job."""

    found: BucketObject
    reply: ExplainReply
    family: Family | None
    runner: RunnerAnswer
    refused: RunnersReply


async def explanation(
    link: Link, name: str, namespace: str = "", *, start: bool = True
) -> Explanation:
    """The explanation of a workload. ``start``: with its expected start, for which it waits up to a
    third of a second; of an array always. Raises NotFound, and RequestFailed if the scheduler does
    not answer."""
    stored = await find(link, kinds.WORKLOAD, name, namespace)
    workload, now = stored.workload(), clock.now()
    if is_array(workload):
        return await _of_array(link, stored, now)
    # The scheduler keeps no finished workloads, so the explanation is made from the stored
    # workload.
    reply = ExplainReply()
    if phase(workload, now) is not Phase.FINISHED:
        request = Explain(name=stored.name)
        reply = await link.ask("explain", request, ExplainReply, namespace=stored.namespace)
    if waits := await _dependencies(link, workload, now):
        opens = of_command(f"admit release workload {stored.name} --gate {DEPENDENCIES_GATE}")
        reply = with_remedies(replace(reply, message=waits), (*_known_remedies(reply), opens))
    elif phase(workload, now) is Phase.PENDING:
        reply = with_turn(workload, reply)
    family = await family_of(link, stored) if is_parent(workload) else None
    parent = await parent_of(link, stored) if is_variant(workload) else None
    runner = await answer_of_runner(link, workload, now)
    refused = await refused_by_runners(link, workload, now)
    if reply.error:
        raise RequestFailed(reply.error)
    reply = corrected(workload, reply, now, parent.workload() if parent is not None else None)
    reply = with_runners(reply, runner.held_back, refused)
    if start and phase(workload, now) is Phase.PENDING and not waits:
        reply = await _with_start(link, stored, reply)
    if not reply.phase:
        reply = replace(reply, phase=str(phase(workload, now)))
    reply = replace(reply, lease=lease_of(workload, now))
    return Explanation(stored, reply, family, runner, refused)


def lease_of(workload: StoredWorkload, now: datetime) -> HeldLease | None:
    """The lease of a workload for a program; None: it has none, or the program has ended."""
    seconds = head(workload).lease_duration_seconds
    if seconds is None:
        return None
    from admittance.workload.due_times import lease_end

    until = lease_end(workload)
    if until is None or phase(workload, now) in ENDED:
        return None
    return HeldLease(duration_seconds=seconds, until=until, renewed_at=workload.status.renewed_at)


async def _with_start(link: Link, stored: BucketObject, reply: ExplainReply) -> ExplainReply:
    """The explanation with the expected start of the workload, if the forecast answers."""
    found = (await starts_beside(link, [stored.name], stored.namespace)).get(stored.name)
    if found is None:
        return reply
    if found.p50 is None:
        return replace(reply, start_unknown=found.unknown)
    return replace(reply, start=found)


async def _dependencies(link: Link, workload: StoredWorkload, now: datetime) -> str:
    """What the workload waits for and what becomes of that, such as ``waits for prep to succeed:
    prep is Running since 12 min``; "": it waits for no other workload."""
    if DEPENDENCIES_GATE not in gated_by(workload):
        return ""
    namespace = workload.metadata.namespace
    said = []
    for row in workload.status.dependencies:
        if row.since is not None or row.elementwise:
            continue
        target = await lookup(link, kinds.WORKLOAD.object_key(namespace, row.workload))
        what = f"waits for {described(row.workload, row.condition, row.index)}"
        if target is None or target.workload().metadata.uid != row.uid:
            said.append(f"{what}: {row.workload} was deleted")
            continue
        said.append(f"{what}: {row.workload} is {state_of(target.workload(), now)}")
    if why := unmet(workload):
        said.append(f"{why}, so it will never start by itself")
    return "; ".join(said)


def state_of(workload: StoredWorkload, now: datetime) -> str:
    """The state of a workload that another one waits for, such as ``Running since 12m``, or
    ``Deactivated since 12m, because prep failed`` if it waited in vain itself."""
    where = phase(workload, now)
    times = [each.last_transition_time for each in workload.status.conditions]
    since = max(
        (time for time in times if time is not None), default=workload.metadata.creation_timestamp
    )
    ago = f" since {span((now - since).total_seconds())}" if since is not None else ""
    array = workload.status.array
    counts = f" ({summary(array)})" if array is not None else ""
    is_stopped = where is Phase.DEACTIVATED and DEPENDENCIES_GATE in gate_names(gated_by(workload))
    because = f", because {why}" if is_stopped and (why := unmet(workload)) else ""
    return f"{where}{ago}{counts}{because}"


async def _of_array(link: Link, stored: BucketObject, now: datetime) -> Explanation:
    """The explanation of an array: its counts, and why its first waiting element waits."""
    from admittance.client.requests.workloads.arrays import first_waiting

    workload = stored.workload()
    where = phase(workload, now)
    reason, message = reason_of(workload, now)
    if not message and workload.status.array is not None:
        reason, message = reason or reasons.ARRAY, summary(workload.status.array)
    spec = head(workload)
    about = ExplainReply(
        phase=str(where), reason=reason, message=message, priority=spec.priority or 0
    )
    nothing = Explanation(stored, about, None, RunnerAnswer(), RunnersReply())
    waits = await _dependencies(link, workload, now) if where is Phase.PENDING else ""
    if waits:
        return nothing._replace(reply=replace(about, message=waits))
    is_open = where not in (Phase.FINISHED, Phase.DEACTIVATED) and not gated_by(workload)
    element = await first_waiting(link, stored) if is_open else None
    if element is None:
        return nothing
    first = await explanation(link, element.name, element.namespace)
    said = f"{message}; {element.name} waits: {first.reply.message or first.reply.reason}"
    reply = replace(first.reply, phase=str(where), message=said)
    return first._replace(found=stored, reply=reply)


def with_turn(workload: StoredWorkload, reply: ExplainReply) -> ExplainReply:
    """The explanation of an element that has to wait for other elements of its array."""
    if ARRAY_GATE not in gate_names(gated_by(workload)):
        return reply
    array = workload.metadata.labels.get(ARRAY_LABEL, "")
    text = f"the end of an earlier element of array {array}"
    ends = Remedy(text=text, kind=RemedyKind.TURN)
    opens = of_command(f"admit release workload {workload.metadata.name} --gate {ARRAY_GATE}")
    message = f"waits for its turn: array {array} has as many open elements as it may have at once"
    changed = replace(reply, message=message)
    return with_remedies(changed, (ends, *_known_remedies(reply), opens))


# What the stored workload knows better. -------------------------------------------------


def _known_remedies(reply: ExplainReply) -> Iterator[Remedy]:
    """Yields the remedies without those of an obstacle that the scheduler does not name, because
    the stored workload says what it is."""
    for remedy in remedies_of(reply):
        if remedy.kind != RemedyKind.OBSTACLE:
            yield remedy


OF_QUEUE: Final = frozenset({RemedyKind.STOP_POLICY, RemedyKind.ACTIVE_QUEUE})
"""Changes that the queue of the workload needs, however the workload waits."""


def corrected(
    workload: StoredWorkload,
    reply: ExplainReply,
    now: datetime,
    parent: StoredWorkload | None = None,
) -> ExplainReply:
    """Returns reply with phase and reason of the stored workload, if the workload runs or does not
    compete for quota now: then the stored phase and reason are more exact than the scheduler's.

    The verdicts about flavors stay in the reply, since they say whether the workload would fit.
    ``parent``: the parent workload if the workload is a variant.
    """
    where = phase(workload, now)
    reason, message = reason_of(workload, now)
    match where:
        case Phase.FINISHED | Phase.DEACTIVATED | Phase.REJECTED | Phase.BACKOFF:
            pass
        case Phase.PENDING if reason == reasons.ON_HOLD:
            pass
        case Phase.RUNNING if reply.phase == Phase.ADMITTED:
            # Only the stored workload says whether its pods are ready.
            return replace(reply, phase=str(where))
        case Phase.QUOTA_RESERVED if reason and reply.reason == where:
            # The scheduler only knows that the workload holds quota; the stored status says what
            # the workload waits for.
            return replace(reply, reason=reason)
        case _:
            return reply
    if where is Phase.BACKOFF:
        silent = [
            f"{check.name} is inactive ({check.inactive})"
            for check in reply.checks
            if check.inactive
        ]
        message = "; ".join([message, *silent] if message else silent)
    of_queue = (remedy for remedy in remedies_of(reply) if remedy.kind in OF_QUEUE)
    steps = together(chain(_steps(workload, parent, now), of_queue))
    if where is Phase.FINISHED:
        steps = ()
    spec = head(workload)
    changed = replace(
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
    )
    return with_remedies(changed, steps)


def _steps(
    workload: StoredWorkload, parent: StoredWorkload | None, now: datetime
) -> Iterator[Remedy]:
    """Yields each step that is needed before the workload competes for quota again."""
    name, where = workload.metadata.name, phase(workload, now)
    of_parent = list(_steps(parent, None, now)) if parent is not None else []
    yield from of_parent
    follows = False
    if of_parent:
        from admittance.family import STOPPED

        # A variant that only follows its parent becomes active with the parent.
        follows = workload.status.stopped_by not in STOPPED
    if where in (Phase.DEACTIVATED, Phase.REJECTED) and not follows:
        yield of_command(f"admit activate workload {name}")
    if is_held(workload):
        yield of_command(f"admit release workload {name}")
    if where is Phase.BACKOFF:
        yield _retry(workload, now)


def _retry(workload: StoredWorkload, now: datetime) -> Remedy:
    state = workload.status.requeue_state
    until = state.requeue_at if state is not None else None
    text = "its retry"
    if until is not None:
        text += f" at {stamp(until)} (in {span((until - now).total_seconds())})"
    return Remedy(text=text, kind=RemedyKind.TIME, at=until)


# What runners say. ----------------------------------------------------------------------

ASK_SECONDS: Final = 2.0
"""How long a runner has for its answer: less than for other requests, since most workloads wait for
nothing on their runner."""


NO_RUNNER: Final = "no runner answers"
START_A_RUNNER: Final = "a runner: `admit serve runner`, or `admit up` without --no-runner"


class RunnerAnswer(NamedTuple):
    """What the runner of a workload says about its job. ``held_back``: why it has not started the
    job yet; ""; it has started the job, or does not say. ``retries``: the pods that failed and run
    again; None: there are none, or it does not say."""

    held_back: str = ""
    retries: PodRetries | None = None


async def answer_of_runner(link: Link, workload: StoredWorkload, now: datetime) -> RunnerAnswer:
    """What the runner of an admitted workload says, with `NO_RUNNER` if the job has not started and
    no runner listens; nothing if it does not answer in time, or if the user may not ask."""
    where = phase(workload, now)
    if where not in (Phase.ADMITTED, Phase.RUNNING):
        return RunnerAnswer()
    asked = Logs(name=workload.metadata.name, tail=0)
    try:
        reply = await link.ask(
            "logs",
            asked,
            LogsReply,
            namespace=workload.metadata.namespace,
            timeout=ASK_SECONDS,
        )
    except NoResponder:
        return RunnerAnswer(NO_RUNNER if where is Phase.ADMITTED else "")
    except RequestFailed:
        return RunnerAnswer()
    return RunnerAnswer(reply.waiting, reply.retries)


WAITING: Final = frozenset({Phase.PENDING, Phase.BACKOFF, Phase.QUOTA_RESERVED})


async def refused_by_runners(link: Link, workload: StoredWorkload, now: datetime) -> RunnersReply:
    """Why no runner would start the job of the workload; empty if the workload does not wait, if
    one would start it, or if there is no answer: the user may not ask, or the workload-controller
    is away or older than this program."""
    if not link.user or phase(workload, now) not in WAITING:
        # On a server without users no runner announces rules that count.
        return RunnersReply()
    asked = Runners(name=workload.metadata.name)
    namespace = workload.metadata.namespace
    try:
        reply = await link.ask(
            "runners", asked, RunnersReply, namespace=namespace, timeout=ASK_SECONDS
        )
    except RequestFailed:
        return RunnersReply()
    return RunnersReply() if reply.error else reply


def with_runners(reply: ExplainReply, held_back: str, refused: RunnersReply) -> ExplainReply:
    """The explanation with what the runners add: the answers of `answer_of_runner` and
    `refused_by_runners`."""
    if held_back == NO_RUNNER:
        # Another program may run workloads too, but none of ours will.
        reply = replace(reply, message=f"{reply.message}; {NO_RUNNER}")
        a_runner = Remedy(text=START_A_RUNNER, kind=RemedyKind.RUNNER)
        return with_remedies(reply, (*remedies_of(reply), a_runner))
    if refused.why:
        text = f"besides: {refused.needed}"
        rule = Remedy(text=text, kind=RemedyKind.RUNNER, besides=True)
        return with_remedies(reply, (*remedies_of(reply), rule))
    return reply
