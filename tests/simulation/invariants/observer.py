"""What must hold after every step, and what must hold in the end.

Every write to the bucket, every message on the log and every start and end of a job is looked at
as it happens: nothing else can break a promise.
"""

from __future__ import annotations

from datetime import timedelta
from math import inf
from typing import Any

import msgspec

from admittance.api.reading.manifest import decode_object
from admittance.events.base import Fact
from admittance.events.codec import decode
from admittance.events.facts import CheckRequested
from admittance.events.subjects import CAPACITY, DEADLETTER, OUTPUTS, workload_key
from admittance.workload.conditions import Type, find
from admittance.workload.limits import Limits
from admittance.workload.stored import StoredWorkload, head
from simulation.invariants import (
    backfill,
    deadlines,
    gates,
    lifecycle,
    preemption,
    reference_quota,
    rows,
)
from simulation.invariants.arrays import Arrays
from simulation.invariants.budgets import Budgets
from simulation.invariants.effects import Effects
from simulation.invariants.exclusive import Exclusive
from simulation.invariants.fact_rules import Around
from simulation.invariants.holds import Holds
from simulation.invariants.machines.bookings import Bookings
from simulation.invariants.machines.fences import Fences
from simulation.invariants.machines.running import Running
from simulation.invariants.persons import check_limits
from simulation.invariants.preemption import starting
from simulation.invariants.quota import Accounts, Replans, worlds
from simulation.invariants.rows import Paced
from simulation.invariants.seen import Manifests, Seen, legal
from simulation.invariants.siblings import VARIANT, Families
from simulation.nats.observed import Stored
from simulation.transcript import Broken
from simulation.virtual_time.kernel import Kernel

MACHINES = "machines"
MACHINES_CHECK_KEY = f"admissioncheck.{MACHINES}"
EventKey = tuple[str, int, str]
"""Uid, revision, and what was to be said."""


class _Revised(msgspec.Struct):
    uid: str = ""
    revision: int = 0
    reason: str = ""


_said = msgspec.json.Decoder(_Revised)


class Invariants:
    """Looks at every step. Raises Broken."""

    def __init__(
        self,
        kernel: Kernel,
        slack: timedelta,
        limits: Limits,
        *,
        spread: timedelta = timedelta(0),
        blocks: bool = False,
        is_calm: bool = False,
    ) -> None:
        """``slack``: by how much a clock may be ahead. ``spread``: by how much two clocks may
        differ. ``blocks``: no workload may get quota while pods of another come up. ``is_calm``:
        nothing fails."""
        self._spread = spread
        self._blocks = blocks
        self._kernel = kernel
        self._slack = slack
        self._limits = limits
        self.seen: dict[str, Seen] = {}
        self.holding: dict[str, Seen] = {}
        """Those of ``seen`` that hold quota."""
        self.accounts = Accounts()
        self.queues: dict[str, Any] = {}
        self.cohorts: dict[str, Any] = {}
        self.locals: dict[tuple[str, str], Any] = {}
        self.flavors: dict[str, Any] = {}
        self.checks: dict[str, Any] = {}
        self.runners: dict[str, Any] = {}
        self._budgets: dict[str, Any] = {}
        self._objects: dict[str, dict[Any, Any]] = {
            "clusterqueue": self.queues,
            "cohort": self.cohorts,
            "localqueue": self.locals,
            "flavor": self.flavors,
            "admissioncheck": self.checks,
            "runner": self.runners,
            "budget": self._budgets,
        }
        self.effects = Effects(Around(self.checks, limits.requeue_after))
        self._counts_from: dict[str, float] = {}
        self._around = Manifests(
            self.queues, self.checks, self.flavors, self.locals, self._counts_from
        )
        self.paced = Paced(limits, self.effects, self.checks)
        self.owed: dict[EventKey, str] = {}
        self.said: set[EventKey] = set()
        self.stated: set[tuple[str, int]] = set()
        self.job_ends: dict[str, int] = {}
        """By key of a workload, the newest fact that its job has ended or stopped."""
        self.running: dict[str, str] = {}
        self.completed: set[str] = set()
        self.replans = Replans()
        self.abandoned: set[str] = set()
        """Jobs that did not stop in time and are not waited for any more."""
        self.reservations = 0
        self.moves: set[tuple[str, str]] = set()
        """Where workloads went, as pairs of groups of phases."""
        self.families = Families(self.seen, limits.drain, slack, self._variants_of_queue)
        self.exclusive = Exclusive(self.seen, self.families, self._around)
        self.bookings = Bookings(self._around, self.runners, self.effects)
        self.machines = Running(self.seen, self.abandoned)
        self.fences = Fences()
        self.holds = Holds(self.seen, spread)
        self.budgets = Budgets(self._around, self._budgets, spread)
        self.arrays = Arrays(self.seen, self.abandoned)
        self.refused: set[str] = set()
        """Keys of submissions that were refused, since what they wait for was not there."""
        self.promises = backfill.Promises(spread, is_calm=is_calm)

    @property
    def usage(self) -> dict[str, reference_quota.Usage]:
        """The usage by ClusterQueue."""
        return self.accounts.usage

    # The bucket. ----------------------------------------------------------------------

    def stored(self, entry: Stored) -> None:
        """Records and checks a write to the bucket."""
        prefix, _, rest = entry.subject.partition(".")
        if prefix == "workload":
            self._workload(entry)
        elif prefix not in ("barrier", "_admittance", CAPACITY):
            self.paced.objects_changed()
            if entry.subject == MACHINES_CHECK_KEY:
                self._counts_from[MACHINES] = inf
            kept = self._objects.get(prefix, {})
            name = tuple(rest.split(".", 1)) if prefix == "localqueue" else rest
            if entry.gone:
                kept.pop(name, None)
            else:
                kept[name] = decode_object(entry.data).manifest

    def _variants_of_queue(self, parent: StoredWorkload) -> frozenset[str]:
        """Names of the variants that the ClusterQueue of the parent asks for."""
        local = self.locals.get((parent.metadata.namespace, head(parent).queue_name))
        queue = self.queues.get(local.spec.cluster_queue) if local is not None else None
        if queue is None or queue.spec.concurrent_admission is None:
            return frozenset()
        explicit = queue.spec.concurrent_admission.explicit_variants
        groups = queue.spec.resource_groups[:1]
        flavors = (flavor.name for group in groups for flavor in group.flavors)
        return frozenset(variant.name for variant in explicit) if explicit else frozenset(flavors)

    def whole(self) -> None:
        """Is called when the last write was no part of a batch, or was the last part of one."""
        self.families.whole(self._kernel.time(), self.running, self.abandoned)
        self.arrays.whole()

    def _workload(self, entry: Stored) -> None:
        key = entry.subject
        before = self.seen.get(key) or Seen()
        after = Seen.of(entry, self._kernel.time())
        self.families.saw(key, before, after)
        self.seen[key] = after
        now = self._kernel.time()
        self.promises.stored(key, before, after, self.holding, self.seen, self.queues, now)
        if after.usage:
            self.holding[key] = after
        else:
            self.holding.pop(key, None)
        check_limits(key, before, after, self.holding, self.queues, self.locals)
        if before.workload is not None:
            after.seconds = before.seconds
        self.effects.stored(key, entry, after.workload)
        if after.workload is not None:
            self.replans.stored(key, after.workload.status.log.fact)
        self.arrays.stored(key, before, after)
        old, new = before.workload, after.workload
        if old is not None and new is not None and old.metadata.uid != new.metadata.uid:
            self._step(key, before, Seen())
            self._charge(key, before, Seen())
            before, old = Seen(), None
            after.seconds = lifecycle.AdmittedSeconds()
        self._step(key, before, after)
        self._handed_back(key, before, after)
        self.exclusive.saw(key, before, after, self._kernel.time())
        if new is not None:
            self._look(entry, before, after, new)
        self.bookings.stored(key, before, after)
        self.budgets.stored(key, before, after, now)
        self.holds.stored(key, before, after, now)
        self.holds.look(now)
        self._charge(key, before, after)
        if after.usage and after.where == "admitted" and before.where == "reserved":
            self._rechecked(key, after)

    def _look(self, entry: Stored, before: Seen, after: Seen, new: StoredWorkload) -> None:
        """Checks the invariants of one write."""
        key, old = entry.subject, before.workload
        preemption.check(old, new, self.queues, self.cohorts, self._spread)
        preemption.check_reduction(old, before.usage, new, self.queues)
        for say in new.status.log.says:
            if say.what != "check_withdrawn":
                self.owed[new.metadata.uid, entry.sequence, say.what] = key
        latest = self._kernel.time() + self._slack
        broken_rules = lifecycle.broken(old, new, latest)
        if after.usage or not after.booked:
            broken_rules += gates.broken(key, old, new, latest, self._around, self.effects)
        broken_rules += rows.broken(key, old, new, self._around, self.effects)
        broken_rules += self.paced.saw(key, old, new)
        if after.role != VARIANT:
            broken_rules += after.seconds.saw(
                new
            )  # How long a job may run is for its parent to count.
        if old is not None and self.effects.is_timed(key, old, new):
            broken_rules += deadlines.broken(old, new, latest, self._limits)
        if broken_rules:
            raise Broken(f"{key}: {'; '.join(broken_rules)}")

    def _rechecked(self, key: str, after: Seen) -> None:
        """Checks that an admission is within the present quota. docs/spec/lifecycle.md#2.8."""
        assert after.workload is not None
        assert after.workload.status.admission is not None
        queue = after.workload.status.admission.cluster_queue
        for usage in worlds(self.holding, self.accounts, key, self.replans):
            for fr, much in after.usage.items():
                if much and reference_quota.exceeds(queue, fr, self.queues, self.cohorts, usage):
                    raise Broken(f"{key} is admitted, and {fr} of {queue} is over quota")

    def _step(self, key: str, before: Seen, after: Seen) -> None:
        old, new = before.workload, after.workload
        allowed = legal(before, after)
        if before.where == "admitted" and not after.where and old is not None:
            # The job had ended, and that folded into the deletion, of a variant too.
            owners = (reference.name for reference in old.metadata.owner_references)
            keys = (key, *(workload_key(old.metadata.namespace, name) for name in owners))
            allowed = any(self.job_ends.get(job, 0) > old.status.log.fact for job in keys)
        if before.where != after.where:
            self.moves.add((before.where, after.where))
        if not allowed:
            raise Broken(f"{key} went from {before.where} to {after.where or 'nothing'}")
        if old is None or new is None:
            return
        # An older fact, read again, may mean something to one of a family that has a newer one.
        if new.status.log.fact < old.status.log.fact + (not after.family):
            raise Broken(f"{key}: fact {new.status.log.fact} after {old.status.log.fact}")
        if new.status.admission_cycle < old.status.admission_cycle:
            raise Broken(f"{key}: the cycle went back")
        had, has = old.status.admission, new.status.admission
        swapped = before.where == "evicting" and before.booked and not before.usage
        if had is not None and has is not None and had != has and not swapped:
            raise Broken(f"{key}: its admission was edited")
        if has is not None and had is None and before.where != "waiting":
            raise Broken(f"{key}: got an admission while it was {before.where}")

    def _handed_back(self, key: str, before: Seen, after: Seen) -> None:
        """Quota comes free when nothing runs on it any more, unless a user says that it ended."""
        if before.role or not before.usage or after.usage or after.where in ("finished", ""):
            return
        job = f"{key.removeprefix('workload.')}."
        for run, runner in self.running.items():
            if not run.startswith(job) or run in self.abandoned:
                continue
            if self._drained(before):
                self.abandoned.add(run)
            else:
                raise Broken(f"{key} gives up its quota, and {run} runs on {runner}")

    def _drained(self, before: Seen) -> bool:
        """The quota is freed because ``stopped`` did not arrive in time."""
        evicted = find(before.workload, Type.EVICTED) if before.workload is not None else None
        if evicted is None or evicted.status != "True" or evicted.last_transition_time is None:
            return False
        return (
            self._kernel.time() + self._slack >= evicted.last_transition_time + self._limits.drain
        )

    def _charge(self, key: str, before: Seen, after: Seen) -> None:
        if before.usage == after.usage:
            return
        queue = ""
        if after.usage:
            assert after.workload is not None
            assert after.workload.status.admission is not None
            queue = after.workload.status.admission.cluster_queue
        grown = self.accounts.put(key, queue, after.family or key, after.usage)
        if not after.usage:
            return
        self.reservations += 1
        if self._blocks and before.workload is not None:
            other = starting(self.seen, key, self.queues, self.cohorts)
            if other:
                raise Broken(f"{key} gets quota while the pods of {other} come up")
        for usage in worlds(self.holding, self.accounts, key, self.replans):
            for fr in grown:
                left = reference_quota.available(queue, fr, self.queues, self.cohorts, usage)
                if left < 0:
                    raise Broken(f"{key} takes {fr} in {queue} over quota by {-left}")

    # The log. -------------------------------------------------------------------------

    def logged(self, stored: Stored) -> None:
        """Records and checks a message on the log."""
        if stored.subject.startswith(DEADLETTER):
            reason = stored.data.decode()
            if not reason.startswith(("BadDelay", "UnknownState")):
                raise Broken(f"a message is dead: {reason}")
            return
        _, thing, what, rest = stored.subject.split(".", 3)
        self.effects.logged(stored)
        self.fences.logged(stored)
        self.arrays.logged(stored)
        self.holds.logged(stored, self._kernel.time())
        if what in ("assigned", "refused"):
            decision = decode(stored.subject, stored.data)
            self.exclusive.decided(f"workload.{rest}", decision, stored.sequence)
            self.promises.logged(decision, stored.sequence)
        if what == "planned":
            self.replans.logged(f"workload.{rest}", stored.sequence)
        if thing == "object":
            self.stated.add((stored.subject, _said.decode(stored.data).revision))
            if stored.subject.endswith(f".admissioncheck._.{MACHINES}"):
                before = self._counts_from.get(MACHINES, inf)
                self._counts_from[MACHINES] = min(before, stored.sequence)
            return
        if thing == "check" and what == "requested":
            what, rest = "check_requested", rest.partition(".")[2]
            self._has_parameters(decode(stored.subject, stored.data))
        elif thing == "workload" and what in ("finished", "stopped"):
            self.job_ends[f"workload.{rest}"] = stored.sequence
            return
        elif thing != "workload" or what not in OUTPUTS:
            return
        fact = _said.decode(stored.data)
        key = f"workload.{rest}"
        if not fact.revision:
            # A submission that was refused at the door.
            if fact.reason == "NoDependency":
                self.refused.add(key)
            return
        seen = self.seen.get(key)
        if seen is not None and seen.role == VARIANT and what in ("admitted", "evicted"):
            raise Broken(f"{key} is a variant, and runners are told that it is {what} (4.1)")
        if seen is None or fact.revision > seen.revision:
            raise Broken(f"{key}: {what} of revision {fact.revision}, which is not there")
        self.said.add((fact.uid, fact.revision, what))

    def _has_parameters(self, fact: Fact) -> None:
        """Checks that a requested check gets the parameters that its AdmissionCheck names."""
        assert isinstance(fact, CheckRequested)
        check = self.checks.get(fact.check)
        if (
            check is not None
            and check.spec.parameters is not None
            and bytes(fact.parameters) == b"null"
        ):
            raise Broken(f"{fact.check} is asked about {fact.name} without its parameters")

    def timed(self, stored: Stored) -> None:
        """A schedule was set."""
        fact = _said.decode(stored.data)
        self.said.add((fact.uid, fact.revision, "timer"))

    # Jobs. ----------------------------------------------------------------------------

    def started(self, key: str, runner: str) -> None:
        """The processes of an admission are started by a runner."""
        if key in self.running:
            raise Broken(f"{key} runs on {self.running[key]} and starts on {runner}")
        if key in self.completed:
            raise Broken(f"{key} ran to its end and starts again on {runner}")
        job, _, _ = key.rpartition(".")
        seen = self.seen.get(f"workload.{job}") or Seen()
        variants = self.families.members(seen.family)
        # A user may say that it has ended while the runner starts it: then its runner stops it.
        if seen.where != "finished" and not any(
            variant.usage for variant in (seen, *variants.values())
        ):
            raise Broken(f"{key} starts on {runner}, and its workload holds no quota")
        self.families.started(key, self.running, self.abandoned)
        self.running[key] = runner

    def ended(self, key: str, kind: str) -> None:
        """Notes the end of these jobs."""
        self.running.pop(key, None)
        if kind in ("succeeded", "failed"):
            self.completed.add(key)
