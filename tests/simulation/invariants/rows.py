"""What must hold of the rows of checks in every write: they say what was said, and count it once.

docs/spec/lifecycle.md#2.3, #2.5, #3.1, #3.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from admittance.api.workload import CheckState
from admittance.events.facts import CheckReported
from admittance.workload.conditions import Type, find, is_false, is_true
from admittance.workload.limits import Limits
from admittance.workload.stored import StoredWorkload, head
from simulation.invariants import gates
from simulation.invariants.effects import Effects
from simulation.invariants.fact_rules import reserved
from simulation.invariants.seen import Manifests
from simulation.invariants.siblings import PARENT


def broken(
    key: str,
    before: StoredWorkload | None,
    after: StoredWorkload,
    around: Manifests,
    effects: Effects,
) -> list[str]:
    """The broken invariants of this write."""
    broken_rules: list[str] = []
    if before is not None:
        broken_rules += _rows(key, before, after, effects)
    if before is not None and head(after).role != PARENT:
        broken_rules += _frozen_rows(before, after, around)
        if head(before).role != PARENT:
            broken_rules += _rejected(before, after)
    if reserved(after):
        broken_rules += _asked(before, after)
    else:
        broken_rules += _wait(after)
    return broken_rules


def _asked(before: StoredWorkload | None, after: StoredWorkload) -> Iterator[str]:
    """Each check that gets a row under a reservation is asked in the same write, whether the
    workload is admitted by then or not. 2.5."""
    cycle = after.status.admission_cycle
    had: set[str] = set()
    if before is not None and reserved(before) and before.status.admission_cycle == cycle:
        had = {row.name for row in before.status.admission_checks}
    asked = {say.detail for say in after.status.log.says if say.what == "check_requested"}
    for row in after.status.admission_checks:
        # A row with a message says why its controller cannot be asked.
        if row.name not in had | asked and row.state == "Pending" and not row.message:
            yield f"{row.name} is listed and never asked (2.5)"


def _rows(
    key: str, before: StoredWorkload, after: StoredWorkload, effects: Effects
) -> Iterator[str]:
    """A row says what its controller said, and counts what there was to count."""
    since, through = before.status.log.fact, after.status.log.fact
    rows = {row.name: row for row in before.status.admission_checks}
    conflicting = {
        saying.detail for saying in after.status.log.says if saying.reason == "ConflictingChecks"
    }
    for row in after.status.admission_checks:
        old = rows.get(row.name)
        said = [
            verdict
            for sequence, verdict in effects.verdicts[key][row.name]
            if since < sequence <= through
        ]
        timers = len(effects.timed(key, since, through))
        was = old.state if old is not None else "Pending"
        if row.state not in ("Pending", was) and not timers and row.name not in conflicting:
            states = [verdict.state for verdict in said]
            if row.state not in states and "Retry" not in states:
                yield f"{row.name} turned {row.state}, and no verdict says so (2.5)"
        kept = before.status.check_retry_counts.get(row.name, 0)
        count = old.retry_count if old is not None else kept
        retries = sum(verdict.state == "Retry" for verdict in said) + timers
        if row.retry_count > count + (was == "Retry") + retries:
            yield f"{row.name} counts {row.retry_count} retries after {count} (3.1)"
        round_over = before.status.admission_cycle < after.status.admission_cycle
        if row.retry_count > count and not (said or timers or (was == "Retry" and round_over)):
            yield f"{row.name} counts a retry that is not over (3.1)"
    if effects.is_timed(key, before, after) and _woke(before, after):
        yield from _round(before, after)


def _rejected(before: StoredWorkload, after: StoredWorkload) -> Iterator[str]:
    """Whatever a check has turned off shows its Rejected until it is turned on again. T11."""
    if not _is_off_by_check(after):
        return
    said = {(row.name, row.message) for row in _in_rejected(after)}
    if not said:
        yield "a check turned it off, and no row says so (T11)"
    if _is_off_by_check(before):
        for row in _in_rejected(before):
            if (row.name, row.message) not in said:
                yield f"{row.name} says no more that it rejected (T11)"


def _in_rejected(workload: StoredWorkload) -> list[CheckState]:
    return [row for row in workload.status.admission_checks if row.state == "Rejected"]


def _is_off_by_check(workload: StoredWorkload) -> bool:
    evicted = find(workload, Type.EVICTED)
    return (
        not head(workload).active
        and evicted is not None
        and evicted.reason == "DeactivatedDueToAdmissionCheck"
        and not is_true(workload, Type.FINISHED)
    )


def _frozen_rows(before: StoredWorkload, after: StoredWorkload, around: Manifests) -> Iterator[str]:
    """A workload that a check evicted keeps its rows until its wait is over. 2.3."""
    evicted = find(after, Type.EVICTED)
    if (
        before.status.admission_cycle != after.status.admission_cycle
        or evicted is None
        or (evicted.status, evicted.reason) != ("True", "AdmissionCheck")
        or is_true(after, Type.REQUEUED)
    ):
        return
    rows = {row.name for row in after.status.admission_checks}
    local = around.locals.get((after.metadata.namespace, head(after).queue_name))
    queue = around.queues.get(local.spec.cluster_queue) if local is not None else None
    if queue is not None:
        listed = set(queue.spec.admission_checks)
        listed |= {"machines"} if gates.covered(queue, around) else set()
        for group in queue.spec.resource_groups:
            for flavor in group.flavors:
                listed |= set(flavor.admission_checks)
        for row in before.status.admission_checks:
            if row.name in listed and row.name not in rows:
                yield f"the row of {row.name} went while it waits (2.3)"
    was = find(before, Type.EVICTED)
    fresh = was is None or was.status != "True" or was.reason != "AdmissionCheck"
    if fresh and not any(row.state == "Retry" for row in after.status.admission_checks):
        yield "a check evicted it, and no row says so (T10)"


def _woke(before: StoredWorkload, after: StoredWorkload) -> bool:
    requeued = find(after, Type.REQUEUED)
    return (
        is_false(before, Type.REQUEUED)
        and requeued is not None
        and (requeued.status, requeued.reason) == ("True", "BackoffFinished")
    )


def _round(before: StoredWorkload, after: StoredWorkload) -> Iterator[str]:
    """T20, alone in its write."""
    if after.status.admission_cycle != before.status.admission_cycle + 1:
        yield "it woke, and its cycle did not go on by one (T20)"
    if after.status.rounds_since != before.status.rounds_since:
        yield "it woke, and its rounds began anew (1.1)"
    state = after.status.requeue_state
    # A parent goes on to wait for the first of its variants.
    if state is not None and state.requeue_at is not None and head(after).role != PARENT:
        yield "it woke and waits for a time (T20)"
    now = dict(after.status.check_retry_counts)
    now |= {row.name: row.retry_count for row in after.status.admission_checks}
    for row in before.status.admission_checks:
        want = row.retry_count + (row.state == "Retry")
        if now.get(row.name, 0) != want:
            yield f"{row.name} counts {now.get(row.name, 0)} retries, not {want} (3.1)"
    for row in after.status.admission_checks:
        if row.state != "Pending" or row.requeue_after_seconds or row.pod_set_updates:
            yield f"{row.name} was not reset (T20)"


def _wait(workload: StoredWorkload) -> Iterator[str]:
    """A workload that waits for checks waits for the last of them. 3.2."""
    requeued = find(workload, Type.REQUEUED)
    if requeued is None or (requeued.status, requeued.reason) != ("False", "AdmissionCheck"):
        return
    if not head(workload).active or is_true(workload, Type.FINISHED):
        return
    state = workload.status.requeue_state
    until = state.requeue_at if state is not None else None
    for row in workload.status.admission_checks:
        if row.state != "Retry" or not row.requeue_after_seconds:
            continue
        if row.last_transition_time is None:
            continue
        end = row.last_transition_time + timedelta(seconds=row.requeue_after_seconds)
        if until is None or until < end:
            yield f"it waits until {until}, and {row.name} asks for {end.isoformat()} (3.2)"


IMMEDIATE = 2


class Paced:
    """Retries without a delay: a check sends a workload round at once twice in a row, and then it
    waits, as long as nothing else has changed. What may have begun the count anew is taken to have
    done so, which counts too few rather than too many.

    ``checks``: the AdmissionChecks by name."""

    def __init__(self, limits: Limits, effects: Effects, checks: Mapping[str, Any]) -> None:
        self._on = bool(limits.pacing_max)
        self._delays = limits.requeue_after
        self._effects = effects
        self._checks = checks
        self._rounds: Counter[tuple[str, str]] = Counter()

    def objects_changed(self) -> None:
        """A manifest was written, which begins every count anew."""
        self._rounds.clear()

    def saw(self, key: str, before: StoredWorkload | None, after: StoredWorkload) -> list[str]:
        """What does not hold of this write."""
        if not self._on or before is None:
            return []
        since, through = before.status.log.fact, after.status.log.fact
        said = {
            check: [verdict for at, verdict in verdicts if since < at <= through]
            for check, verdicts in self._effects.verdicts[key].items()
        }
        same = before.metadata.generation == after.metadata.generation
        anew = not same or is_true(after, Type.ADMITTED) or not head(after).active
        if anew:
            for round_key in [round_key for round_key in self._rounds if round_key[0] == key]:
                del self._rounds[round_key]
        for check, verdicts in said.items():
            if any(not self._is_immediate(verdict) for verdict in verdicts):
                del self._rounds[key, check]
        read = self._effects.read(key, since, through)
        spoke = [check for check, verdicts in said.items() if len(verdicts) == 1]
        if len(read) != 1 or len(spoke) != 1 or not _went_round(before, after):
            return []
        (check,) = spoke
        if not self._is_immediate(said[check][0]):
            return []
        self._rounds[key, check] += 1
        if self._rounds[key, check] > IMMEDIATE:
            return [f"{check} sends it round at once for time {self._rounds[key, check]} (3.2)"]
        return []

    def _is_immediate(self, said: CheckReported) -> bool:
        check = self._checks.get(said.check)
        if said.state != "Retry" or check is None:
            return False
        if not self._delays:
            return True
        if said.requeue_after_seconds is None:
            return check.spec.retry is None
        return said.requeue_after_seconds in (0, "0s")


def _went_round(before: StoredWorkload, after: StoredWorkload) -> bool:
    """Whether it lost its reservation and competes again, in one write."""
    requeued = find(after, Type.REQUEUED)
    return (
        reserved(before)
        and not reserved(after)
        and requeued is not None
        and (requeued.status, requeued.reason) == ("True", "BackoffFinished")
        and after.status.admission_cycle > before.status.admission_cycle
    )
