"""Mechanisms of the services that ship, each taken out to see that the simulation misses it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from math import inf
from random import Random
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from msgspec.structs import replace

from admittance.control import controller
from admittance.control.controller import Controller
from admittance.control.manifests.objects import Objects
from admittance.control.workloads import NOTHING, VersionedWorkload, Workloads
from admittance.events.facts import CheckReported, Deleted, Submitted, TimerDue
from admittance.family import GateOpening, Sibling
from admittance.provisioning import next_step, steps
from admittance.provisioning.observed_state import ObservedState
from admittance.provisioning.records import State
from admittance.provisioning.steps import Step, Write
from admittance.provisioning_check.step_performer import StepPerformer
from admittance.runner.runs import run_checks
from admittance.runner.runs.claims import Claim, Claims, ClaimState
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.errors import BusRefused
from admittance.runtime.leader.leader_elector import LeaderElector
from admittance.scheduling import families as family_rules
from admittance.scheduling.cycle import recheck
from admittance.scheduling.cycle.promises import KeptPromise
from admittance.scheduling.preemption import min_run, quota_reduction
from admittance.scheduling.state.config import Config
from admittance.scheduling.state.held.person_limits import LimitedWorkload, PersonLimits
from admittance.scheduling.state.held.shared_quota import FamilyQuota
from admittance.scheduling.state.scheduler_state import PodsReadyTracker
from admittance.timers.core import Schedules
from admittance.variants import required_acts
from admittance.workload.change import Change, ignored, with_status
from admittance.workload.conditions import Type, find
from admittance.workload.families import member_transitions, reconcile
from admittance.workload.limits import Limits, PodsReadyLimits
from admittance.workload.moves import check_retries
from admittance.workload.stored import StoredWorkload
from admittance.workload.transition_context import QueueChanged, TransitionContext
from admittance.workload.transitions import transition
from simulation import world
from simulation.environment.courses import Courses
from simulation.environment.virtual_machine import VirtualMachine
from simulation.nats import core
from simulation.nats.stream import Stream
from simulation.plots.catalog import (
    backfilled,
    checked,
    contested,
    exclusive,
    families,
    limited,
    planned,
    preempting,
    provided,
    reconfigured,
    scenario,
)
from simulation.plots.configuration import NAMESPACE
from simulation.plots.scenario import Fault, Plot, Scenario, UserFact


class Patch(NamedTuple):
    """``name`` of ``where`` is ``instead``."""

    where: Any
    name: str
    instead: Any


class Mutation(NamedTuple):
    """Services without a mechanism. ``breach``: a pattern of the promise that they break.
    ``seed``: one that shows it."""

    patches: tuple[Patch, ...]
    plot: Plot
    breach: str
    seed: int

    @contextmanager
    def applied(self) -> Iterator[None]:
        with ExitStack() as stack:
            for applied_patch in self.patches:
                stack.enter_context(patch.object(*applied_patch))
            yield


# Leadership and commits. ------------------------------------------------------------------

_take: Final = LeaderElector.take
_settle_load: Final = Controller.settle_load
_make: Final = Controller.__init__
_atomic: Final = Bus.atomic


_update: Final = PersonLimits.update


def _update_while_charged(self: PersonLimits, workload: LimitedWorkload) -> None:
    if workload.charge is not None:
        _update(self, workload)


async def _take_without_barrier(self: LeaderElector, domains: Any, *, barrier: bool) -> list[str]:
    return await _take(self, domains, barrier=False)


class _WithoutFacts(Workloads):
    """Workloads that do not know which facts they hold."""

    def get(self, key: str) -> VersionedWorkload:
        known = super().get(key)
        return known if known is NOTHING else known._replace(fact=0)


def _settle_load_without_publishing(self: Controller, *args: Any, **named: Any) -> list[str]:
    for key in _settle_load(self, *args, **named):
        self.outbox_published(key)
    return []


def _make_without_seen(self: Controller, *args: Any, **named: Any) -> None:
    _make(self, *args, **named)
    self.catalog.newest = lambda domain: 0  # type: ignore[method-assign]  # noqa: ARG005


async def _torn(self: Bus, messages: Sequence[Outgoing], *, timeout: float = 10.0) -> int:
    """Each put of a batch for itself, the one that gets before those that give."""
    if not messages[0].subject.startswith("$KV."):
        return await _atomic(self, messages, timeout=timeout)
    outcomes = await self.publish_all(messages[::-1], timeout=timeout)
    for outcome in outcomes:
        if isinstance(outcome, BusRefused):
            raise outcome
    return max(outcome for outcome in outcomes if isinstance(outcome, int))


async def _take_all(self: Claims, keys: Sequence[str], *, again: bool = False) -> list[Claim]:
    return [Claim(ClaimState.HELD, self._runner, 0) for _ in keys]


def _replaced_leaders(rng: Random) -> Scenario:
    """Schedulers die and return at once, with decisions on their way to a slow leader."""
    faults = []
    for after in range(15, 160, 8):
        faults.append(Fault(after, "leader", "slower", 3.0, 0.0))
        struck = after + rng.randint(0, 6)
        faults.append(Fault(struck, "decider", "kill", 0.05, rng.random() * 0.01))
    return contested(rng)._replace(faults=faults, skews={})


def _restarted_leaders(rng: Random) -> Scenario:
    """The workload-controller dies again and again, and returns at once."""
    faults = [
        Fault(after + rng.randint(0, 10), "leader", "kill", 0.05, rng.random() * 0.005)
        for after in range(15, 300, 12)
    ]
    return checked(rng)._replace(faults=faults)


# Checks and waits. ------------------------------------------------------------------------


def _without_asking_later(
    workload: StoredWorkload | None, fact: Any, at: TransitionContext
) -> Change:
    change = transition(workload, fact, at)
    if not isinstance(fact, QueueChanged):
        return change
    outbox = tuple(entry for entry in change.outbox if entry.what != "check_requested")
    return change._replace(outbox=outbox)


def _of_any_cycle(workload: StoredWorkload | None, fact: Any, at: TransitionContext) -> Change:
    if isinstance(fact, CheckReported) and workload is not None:
        fact = replace(fact, cycle=workload.status.admission_cycle)
    return transition(workload, fact, at)


def _without_rounds(workload: StoredWorkload | None, fact: Any, at: TransitionContext) -> Change:
    if isinstance(fact, CheckReported) and workload is not None:
        known = workload.status.rounds_since
        status = replace(workload.status, rounds_since=workload.status.admission_cycle)
        change = transition(replace(workload, status=status), fact, at)
        if change.workload is None or change.workload.status.rounds_since != status.rounds_since:
            return change
        return change._replace(workload=with_status(change.workload, rounds_since=known))
    return transition(workload, fact, at)


def _without_frozen_rows(
    workload: StoredWorkload | None, fact: Any, at: TransitionContext
) -> Change:
    change = transition(workload, fact, at)
    if not isinstance(fact, CheckReported) or change.workload is None or workload is None:
        return change
    before, after = find(workload, Type.EVICTED), find(change.workload, Type.EVICTED)
    if after is None or after.reason != "AdmissionCheck" or before == after:
        return change
    rows = tuple(
        replace(row, state="Pending", requeue_after_seconds=None, pod_set_updates=())
        for row in change.workload.status.admission_checks
    )
    return change._replace(workload=with_status(change.workload, admission_checks=rows))


def _without_drain(workload: StoredWorkload | None, fact: Any, at: TransitionContext) -> Change:
    if isinstance(fact, TimerDue) and fact.kind == "drain":
        return ignored(workload, "NoDrain")
    return transition(workload, fact, at)


def _unpaced(*given: Any) -> tuple[Any, Any]:
    workload, _, _, want, _ = given
    return workload, want


def _losing_timers(rng: Random) -> Scenario:
    return checked(rng)._replace(lost_timers=(4.0, 8.0, 16.0, 32.0))


def _slow(rng: Random) -> Scenario:
    """All pods take long to come up, and others wait for them."""
    waiting = PodsReadyLimits(timeout=timedelta(seconds=30), block_admission=True)
    return checked(rng)._replace(
        courses=Courses(slow=1.0),
        config=Config(block_admission=True),
        limits=Limits(pods_ready=waiting),
    )


# Families. --------------------------------------------------------------------------------


def _opens_every_gate(known: Iterable[Sibling], held: GateOpening | None, now: datetime) -> str:
    del held, now
    return next(
        (condition.name for condition in known if condition.blocked and not condition.open), ""
    )


def _deleted(rng: Random) -> Scenario:
    """In the end every parent is deleted."""
    plan = families(rng)
    names = {fact.fact.name for fact in plan.user_facts if isinstance(fact.fact, Submitted)}
    gone = [
        UserFact(plan.calm + 100.0, Deleted(namespace=NAMESPACE, name=name))
        for name in sorted(names)
        if "-variant-" not in name
    ]
    return plan._replace(user_facts=[*plan.user_facts, *gone])


# Capacity. --------------------------------------------------------------------------------

_write: Final = StepPerformer._write


def _ready_too_soon(record: Any, config: Any, **more: Any) -> Any:
    if record.status.state is State.ACCEPTED:
        record = replace(record, status=replace(record.status, state=State.PROVISIONED))
    return steps.verdict_of_request(record, config, **more)


def _end_in_silence(_: Any, view: Any, kept: Any, *__: Any) -> Step:
    return Step(view.slot, Write(kept.record.metadata.name, None, kept.revision))


async def _ask_before_write(self: StepPerformer, batch: Any) -> None:
    await self._publish_facts(batch)
    await _write(self, batch)


_TRANSITION: Final = (reconcile, "transition")
_OVER_QUOTA: Final = "over quota"
_RUNS_TWICE: Final = "runs on .* and starts on"


def _hanging(rng: Random) -> Scenario:
    """Long jobs, and runners that end in order while the shims of their jobs hang."""
    faults = [Fault(10 * n, rng.choice(("r-a", "r-b")), "kill", 1.0, 0.0) for n in range(1, 20)]
    courses = Courses(lengths=(15.0,), hangs=1.0)
    return checked(rng)._replace(courses=courses, faults=faults)


MUTATIONS: Final = {
    "a deposed leader would hand out quota a second time": Mutation(
        (Patch(Stream, "fences", False),), contested, _OVER_QUOTA, 4
    ),
    "what was stored and not synced would be lost with the machine": Mutation(
        (Patch(core.Server, "unsynced_seconds", 2.0), Patch(Stream, "keeps_replaced", True)),
        scenario,
        "counts, and had no effect|is lost",
        9,
    ),
    "a new leader would not know what its predecessor handed out": Mutation(
        (Patch(LeaderElector, "take", _take_without_barrier),), _replaced_leaders, _OVER_QUOTA, 15
    ),
    "facts read again after a crash would be applied twice": Mutation(
        (Patch(controller, "Workloads", _WithoutFacts),),
        _restarted_leaders,
        "fact .* after|went from",
        3,
    ),
    "messages of a killed leader would never be published": Mutation(
        (Patch(Controller, "settle_load", _settle_load_without_publishing),),
        preempting,
        "was never said",
        41,
    ),
    "decisions made before a quota was cut would be applied after it": Mutation(
        (Patch(Controller, "__init__", _make_without_seen),), reconfigured, _OVER_QUOTA, 6
    ),
    "quota would be handed on that no workload has given up": Mutation(
        (Patch(Bus, "atomic", _torn),), preempting, _OVER_QUOTA, 4
    ),
    "workloads would be preempted before they have run for their time": Mutation(
        (Patch(min_run, "youth_of", lambda *_: None),),
        preempting,
        "was preempted .* before it had run",
        4,
    ),
    "workloads would start past a head that was promised a start": Mutation(
        (Patch(KeptPromise, "allows", lambda *_: True),),
        backfilled,
        "delays the promised start",
        0,
    ),
    "a person would hold more than its limit": Mutation(
        (Patch(PersonLimits, "excess", lambda *_: None),), limited, "takes its person to", 0
    ),
    "quota that a person gives back would count on": Mutation(
        (Patch(PersonLimits, "update", _update_while_charged),), limited, "waits though it fits", 1
    ),
    "two runners would start one admission": Mutation(
        (Patch(Claims, "take", _take_all),), contested, _RUNS_TWICE, 0
    ),
    "jobs of a lost runner would run on beside their second start": Mutation(
        (Patch(VirtualMachine, "renewed_at", property(lambda _: 1e9, lambda *_: None)),),
        scenario,
        f"gives up its quota, and .* runs on|{_RUNS_TWICE}",
        19,
    ),
    "checks that come later would never be asked": Mutation(
        (Patch(*_TRANSITION, _without_asking_later),), checked, "listed and never asked", 31
    ),
    "a verdict on an earlier reservation would judge this one": Mutation(
        (Patch(*_TRANSITION, _of_any_cycle),),
        checked,
        "does not count|no controller said|no verdict says",
        3,
    ),
    "a slow check would never report beside a fast one": Mutation(
        (Patch(*_TRANSITION, _without_rounds),),
        checked,
        "Retry of .* counts, and had no effect",
        29,
    ),
    "delays would be lost with the rows that hold them": Mutation(
        (Patch(*_TRANSITION, _without_frozen_rows),),
        checked,
        "no row says so|went while it waits",
        2,
    ),
    "a runner that says nothing would hold quota forever": Mutation(
        (Patch(*_TRANSITION, _without_drain), Patch(run_checks, "HUNG_SECONDS", inf)),
        _hanging,
        "stuck in its eviction",
        0,
    ),
    "a shim that hangs would keep its claim forever": Mutation(
        (Patch(run_checks, "HUNG_SECONDS", inf),), _hanging, "is admitted and does not run", 26
    ),
    "checks would be asked without their parameters": Mutation(
        (Patch(Objects, "missing_parameters", lambda *_: ""),),
        checked,
        "without its parameters",
        44,
    ),
    "a check would send a workload round forever": Mutation(
        (Patch(check_retries, "with_paced_retry", _unpaced),),
        checked,
        "sends it round at once",
        29,
    ),
    "a lost schedule would never come due": Mutation(
        (
            Patch(world, "COMPARE_SECONDS", 1e6),
            # Also set again without effect at their time.
            Patch(Schedules, "next_overdue_at", lambda _: None),
        ),
        _losing_timers,
        "waits|stuck|never comes to rest|reserved forever",
        3,
    ),
    "a workload would be admitted beside its victims": Mutation(
        (
            Patch(recheck, "decide_victims", lambda *_: None),
            Patch(quota_reduction, "exceeded_cell", lambda *_, **__: None),
        ),
        planned,
        "is admitted, and .* over quota",
        3,
    ),
    "others would get quota while pods come up": Mutation(
        (Patch(PodsReadyTracker, "blocks", lambda *_: False),),
        _slow,
        "gets quota while the pods of",
        20,
    ),
    "a worse variant would be taken before the better one may preempt": Mutation(
        (Patch(family_rules, "_last_to_try", lambda *_: None),),
        exclusive,
        "had no chance|victims have not stopped",
        7,
    ),
    "others would go for two siblings at once": Mutation(
        # The workload-controller looks again: neither may see the other gate.
        (
            Patch(required_acts, "to_open", _opens_every_gate),
            Patch(member_transitions, "holder_of", lambda *_: (None, False)),
        ),
        exclusive,
        "others have gone for",
        23,
    ),
    "a sibling would take what another has only once others have gone": Mutation(
        (Patch(FamilyQuota, "reliable", FamilyQuota.largest),), exclusive, _OVER_QUOTA, 4
    ),
    "variants of no parent would stay": Mutation(
        (
            Patch(
                required_acts,
                "_own_and_orphans",
                lambda family: (list(family.variants.values()), []),
            ),
        ),
        _deleted,
        "is an orphan",
        0,
    ),
    "a parent would run without its variant": Mutation(
        (Patch(Bus, "atomic", _torn),), families, "it runs: True", 1
    ),
    "a job would start before its capacity": Mutation(
        (Patch(next_step, "verdict_of_request", _ready_too_soon),),
        provided,
        "without its capacity",
        19,
    ),
    "bookings would outlive their workloads": Mutation(
        (Patch(next_step, "cancel_reason", lambda *_: ""),),
        provided,
        "booked for no live workload|still kept",
        0,
    ),
    "providers would not be told of an end": Mutation(
        (
            Patch(next_step.SlotDecider, "_end", _end_in_silence),
            # Records that disappear are cancelled as well.
            Patch(ObservedState, "_add_lost", lambda *_: None),
        ),
        provided,
        "booked for no live workload",
        0,
    ),
    "a request that is not kept would be sent": Mutation(
        (Patch(StepPerformer, "_write", _ask_before_write),), provided, "booked twice", 88
    ),
}
"""By what would happen without the mechanism."""
