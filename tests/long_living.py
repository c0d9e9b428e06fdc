"""A life by the clock: timers come due just when they should, pods get ready, checks answer late.

Time stands still but for `LongLife.advance`. Every revision is looked at for the invariants of a
workload's life, and every reservation for being counted once.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from admittance.api.workload import CheckState
from admittance.events import facts
from admittance.events.applying import SettledReply
from admittance.events.codec import encode
from admittance.events.requests import Queues
from admittance.events.subjects import subject_of
from admittance.scheduler.config import Config
from admittance.workload.conditions import find
from admittance.workload.due import due_times
from admittance.workload.limits import Limits
from admittance.workload.stored import StoredWorkload
from admittance.workload_controller.commit import Message
from lifecycle_invariants import Watch, booked
from living import NS, Life

from builders import NOON
from scheduling import groups

Due = tuple[datetime, str, str, str]
"""Time, key, uid and kind."""


class LongLife(Life):
    """``story``: what happened to jobs, as ``(what, name, seconds since noon)``: started, stopped
    or freed (its quota). ``watch``: looks at every revision."""

    def __init__(self, config: Config | None = None, limits: Limits | None = None) -> None:
        self.story: list[tuple[str, str, float]] = []
        self.revisions: list[tuple[str, StoredWorkload | None]] = []
        self._due: dict[str, list[Due]] = {}
        self._rung: set[Due] = set()
        self.watch = Watch(self._is_stopped)
        super().__init__(config, limits)

    def _is_stopped(self, namespace: str, queue: str) -> bool:
        return self.controller.around.hindrance(namespace, queue) is not None

    # What happens. --------------------------------------------------------------------------

    def check(self, name: str, controller: str = "", **spec: Any) -> None:
        """An AdmissionCheck; answered by ``ctl-<name>`` unless said."""
        self.put("AdmissionCheck", name, {"controllerName": controller or f"ctl-{name}", **spec})

    def saw(self, key: str, workload: StoredWorkload | None) -> None:
        name = key.rpartition(".")[2]
        self.revisions.append((name, workload))
        self._set_timers(key, workload)
        before = self.controller.workloads.get(key).workload
        self.watch.saw(key, workload, self.now)
        held = before is not None and before.status.admission is not None
        if held and (workload is None or workload.status.admission is None):
            self.story.append(("freed", name, self.seconds()))

    def _told(self, message: Message) -> list[str]:
        said = len(self.said)
        stops = super()._told(message)
        for fact in self.said[said:]:
            if isinstance(fact, facts.Admitted):
                self.story.append(("started", fact.name, self.seconds()))
        return stops

    def stop(self, name: str) -> None:
        """The runner has stopped the job, if there was one."""
        if self.has(name) and self.stored(name).status.admission is not None:
            self.story.append(("stopped", name, self.seconds()))
            super().stop(name)

    def ready(self, name: str) -> None:
        """All pods of the job are ready."""
        self.say(facts.PodsReady, name, revision=self.stored(name).status.admitted_revision)

    def not_ready(self, name: str) -> None:
        """A pod of the job is not ready any more."""
        self.say(facts.PodsNotReady, name, revision=self.stored(name).status.admitted_revision)

    def answer(self, name: str, check: str, state: str, **fields: Any) -> SettledReply | None:
        """The check's controller answers; what became of it, None: it was applied. ``after``: the
        delay of a Retry. ``cycle``: the one that it judged, the present one unless said."""
        if "after" in fields:
            fields["requeue_after_seconds"] = fields.pop("after")
        self.verdict(name, check, state, **fields)
        return self.settled.get(self.sequence)

    def judge(self, name: str, check: str, state: str, **fields: Any) -> None:
        """The same, and what follows from it at once."""
        self.answer(name, check, state, **fields)
        self.go()

    def starts(self, name: str) -> int:
        """How often the job was told to start."""
        return sum(1 for what, who, _ in self.story if (what, who) == ("started", name))

    # Time. ----------------------------------------------------------------------------------

    def seconds(self) -> float:
        """Since noon."""
        return (self.now - NOON).total_seconds()

    def go(self) -> None:
        """All that happens now, and takes no time."""
        for _ in range(10_000):
            self.core.wake(now=self.now)
            soon = self._next_due()
            if soon is not None and soon[0] <= self.now:
                self._ring(soon)
            elif self.core.has_work():
                self.cycle(later=0)
            elif not self.cycle_of_refusals():
                self.check_usage()
                return
        raise AssertionError("it does not come to rest")

    def cycle_of_refusals(self) -> bool:
        """What is to be said to those who wait is said. True: something was."""
        refusals = self.core.refusals(now=self.now)
        self.decided += refusals
        for refusal in refusals:
            self.apply(refusal)
        return bool(refusals)

    def advance(self, seconds: float) -> None:
        """Time passes; whatever comes due does so at its very moment."""
        end = self.now + timedelta(seconds=seconds)
        self.go()
        while True:
            times = [at for at in self._times() if at is not None and at > self.now]
            if not times or min(times) > end:
                break
            self.now = min(times)
            self.go()
        self.now = end
        self.go()

    def at(self, seconds: float) -> None:
        """Time passes until so many seconds after noon."""
        self.advance(seconds - self.seconds())

    def _times(self) -> Iterator[datetime | None]:
        soon = self._next_due()
        yield soon[0] if soon is not None else None
        yield self.core.next_wake()

    def timers(self, name: str) -> dict[str, datetime]:
        """What the workload waits for by the clock."""
        found = due_times(self.stored(name), self.now, self.controller.around)
        return {str(kind): at for kind, at in found.items()}

    def _set_timers(self, key: str, workload: StoredWorkload | None) -> None:
        self._due.pop(key, None)
        if workload is not None:
            times = due_times(workload, self.now, self.controller.around)
            uid = workload.metadata.uid
            found = [(at, key, uid, str(kind)) for kind, at in times.items()]
            self._due[key] = [due for due in found if due not in self._rung]

    def put(self, kind: str, name: str, spec: Any = None, namespace: str = "", **more: Any) -> None:
        super().put(kind, name, spec, namespace, **more)
        if kind == "AdmissionCheck":
            for key, known in self.controller.workloads.items():
                self._set_timers(key, known.workload)

    def _next_due(self) -> Due | None:
        return min((due for found in self._due.values() for due in found), default=None)

    def _ring(self, due: Due) -> None:
        at, key, uid, kind = due
        _, namespace, name = key.split(".")
        self._rung.add(due)
        self._due[key].remove(due)
        fact = facts.TimerDue(namespace=namespace, name=name, uid=uid, kind=kind, at=at)
        self._hear(subject_of(fact), encode(fact))

    # Looking. -------------------------------------------------------------------------------

    def rows(self, name: str) -> dict[str, CheckState]:
        """The rows of its checks."""
        return {row.name: row for row in self.stored(name).status.admission_checks}

    def states(self, name: str) -> dict[str, str]:
        """The states of its checks."""
        return {row.name: row.state for row in self.stored(name).status.admission_checks}

    def counts(self, name: str) -> dict[str, int]:
        """The retry counts of its checks."""
        return {row.name: row.retry_count for row in self.stored(name).status.admission_checks}

    def message(self, name: str, condition: str) -> str:
        """What a condition says; "" when it is absent."""
        found = find(self.stored(name), condition)
        return found.message if found is not None else ""

    def wait(self, name: str) -> float | None:
        """Seconds from now until it may come back; None: it waits for no time."""
        state = self.stored(name).status.requeue_state
        if state is None or state.requeue_at is None:
            return None
        return (state.requeue_at - self.now).total_seconds()

    def count(self, name: str) -> int | None:
        """How often its pods were not ready in time."""
        state = self.stored(name).status.requeue_state
        return state.count if state is not None else None

    def flavor(self, name: str) -> str:
        """The flavor of its first pod set; "" without a reservation."""
        admission = self.stored(name).status.admission
        return admission.pod_set_assignments[0].flavors["cpu"] if admission is not None else ""

    def evictions(self, name: str) -> dict[str, int]:
        """How often it was evicted, by reason."""
        stats = self.stored(name).status.scheduling_stats
        return {row.reason: row.count for row in stats.evictions} if stats is not None else {}

    def evicted_for(self, name: str) -> list[str]:
        """Why it was told to stop or to give up what it held, in order."""
        return [
            one.reason for one in self.said if isinstance(one, facts.Evicted) and one.name == name
        ]

    def requests(self, check: str, name: str = "") -> list[facts.CheckRequested]:
        """What the check was asked, about one workload or all."""
        return [
            one
            for one in self.asked
            if isinstance(one, facts.CheckRequested)
            and one.check == check
            and name in ("", one.name)
        ]

    def withdrawn(self, check: str, name: str = "") -> list[tuple[str, int]]:
        """Why the check was told to stop, and of which cycle."""
        return [
            (one.reason, one.cycle)
            for one in self.asked
            if isinstance(one, facts.CheckWithdrawn)
            and one.check == check
            and name in ("", one.name)
        ]

    def usage(self, queue: str, flavor: str = "default") -> int:
        """What is reserved of the flavor's cpu, in thousandths, by the scheduler's books."""
        reply = self.core.queues(Queues(cluster_queue=queue, local_queues=False))
        (status,) = reply.cluster_queues
        return sum(row.reserved for row in status.usage if row.flavor == flavor)

    def activity(self, queue: str) -> str:
        """Why the ClusterQueue admits nobody new; "" when it does."""
        (status,) = self.core.queues(Queues(cluster_queue=queue)).cluster_queues
        return "" if status.active else status.reason

    def workloads(self) -> list[StoredWorkload]:
        """All of them."""
        return [
            known.workload
            for _, known in self.controller.workloads.items()
            if known.workload is not None
        ]

    def check_usage(self) -> None:
        """(ii): every reservation is counted, and once."""
        told = {}
        for status in self.core.queues(Queues(local_queues=False)).cluster_queues:
            usage = {(one.flavor, one.resource): one.reserved for one in status.usage}
            told[status.name] = {cell: much for cell, much in usage.items() if much}
        told = {queue: usage for queue, usage in told.items() if usage}
        held = {queue: usage for queue, usage in booked(self.workloads()).items() if usage}
        assert told == held, f"counted {told}, reserved {held}"


def a_long_life(
    *checks: str,
    nominal: str = "10",
    config: Config | None = None,
    limits: Limits | None = None,
    **spec: Any,
) -> LongLife:
    """A life with one queue ``cq``, and queue-wide checks."""
    life = LongLife(config, limits)
    for name in checks:
        life.check(name)
    spec.setdefault("resourceGroups", groups(default=nominal))
    if checks:
        spec["admissionChecks"] = list(checks)
    life.queue("cq", **spec)
    return life


__all__ = ["NS", "LongLife", "a_long_life"]
