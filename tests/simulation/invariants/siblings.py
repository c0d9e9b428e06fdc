"""Invariants between a parent and its variants after each batch. docs/spec/lifecycle.md#4.

Computed from stored workloads only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from admittance.events.subjects import workload_key
from admittance.workload.conditions import Type, find, is_true
from admittance.workload.phase import holds_quota
from admittance.workload.stored import StoredWorkload, head
from simulation.transcript import Broken

if TYPE_CHECKING:
    from simulation.invariants.seen import Seen

PARENT: Final = "parent"
VARIANT: Final = "variant"
_NOTHING: Final[frozenset[str]] = frozenset()


def place(workload: StoredWorkload) -> tuple[str, str]:
    """Role of a workload, and the uid of the parent of its family; "" of regular ones."""
    role = head(workload).role
    if role == PARENT:
        return role, workload.metadata.uid
    if role == VARIANT:
        for owner in workload.metadata.owner_references:
            if owner.kind == "Workload":
                return role, owner.uid
        return role, ""
    return "", ""


def runs(workload: StoredWorkload) -> bool:
    """Whether it is admitted and is not being evicted."""
    return (
        is_true(workload, Type.ADMITTED)
        and not is_true(workload, Type.EVICTED)
        and not is_true(workload, Type.FINISHED)
    )


def stops(workload: StoredWorkload) -> bool:
    """Its job is being stopped."""
    return is_true(workload, Type.ADMITTED) and is_true(workload, Type.EVICTED)


def _waits(parent: StoredWorkload, offered: Set[str]) -> Iterator[str]:
    """While a family waits for a time, none of its variants competes (1.3). The parent's own rows
    are looked at: they can be a moment behind the variants. ``offered``: names of the variants
    that the queue still has; any other never competes, and will be deleted."""
    state = parent.status.requeue_state
    until = state.requeue_at if state is not None else None
    requeued = find(parent, Type.REQUEUED)
    own_backoff = requeued is not None and requeued.status == "False"
    if until is None or own_backoff or parent.status.admission is not None:
        return  # Or a backoff of the family's own, which is decided before its job has stopped.
    for row in parent.status.variants:
        status = next(
            (condition.status for condition in row.conditions if condition.type == Type.REQUEUED),
            "",
        )
        if row.active and status != "False" and row.name in offered:
            yield f"it waits until {until}, and {row.name} competes (1.3)"


def between(
    parent: StoredWorkload | None,
    variants: Iterable[StoredWorkload],
    offered: Set[str] = _NOTHING,
) -> Iterator[str]:
    """The contradictions between a parent and its variants, a sentence each. None: there is no
    parent. ``offered``: tags of the variants that its queue has."""
    alive = {
        variant.metadata.name: variant
        for variant in variants
        if not is_true(variant, Type.FINISHED)
    }
    admitted = [name for name, variant in alive.items() if is_true(variant, Type.ADMITTED)]
    if len(admitted) > 1:
        yield f"two of one family are admitted: {admitted} (4.5)"
    if parent is None:
        held = [name for name, variant in alive.items() if holds_quota(variant)]
        if held:
            yield f"without their parent {held} hold quota (4.10)"
        return
    if is_true(parent, Type.FINISHED):
        if alive:
            yield f"it has finished, and {sorted(alive)} go on (4.10)"
        return
    status = parent.status
    running = [name for name in admitted if runs(alive[name])]
    if runs(parent) != bool(running):
        yield f"it runs: {runs(parent)}, and of its variants {running} do (4.10)"
    if admitted and admitted != [status.admitted_variant]:
        yield f"it runs as {status.admitted_variant!r}, and {admitted} does (4.5)"
    if bool(status.admitted_variant) != holds_quota(parent):
        yield f"it holds quota: {holds_quota(parent)}, and it runs as {status.admitted_variant!r}"
    if running and status.admission != alive[running[0]].status.admission:
        yield f"its admission is not that of {running} (4.10)"
    if is_true(parent, Type.ADMITTED) and len(admitted) != 1:
        yield f"its job has not stopped, and {admitted} hold its quota (4.10)"
    if status.migrating_to and not stops(parent):
        yield f"it migrates to {status.migrating_to}, and its job is not being stopped (4.6)"
    yield from _waits(
        parent, {name for name, variant in alive.items() if head(variant).variant in offered}
    )
    for name, sibling in alive.items():
        if sibling.status.promised is not None and name != status.migrating_to:
            yield f"{name} is promised quota, and no migration to it is under way (4.6)"


class Families:
    """Knows the parent of each variant, and the variants of each parent."""

    def __init__(
        self,
        seen: dict[str, Seen],
        drain: timedelta,
        slack: timedelta,
        offered: Callable[[StoredWorkload], Set[str]],
    ) -> None:
        """``offered``: the variants that the queue of a parent has, by flavor or own name."""
        self._seen = seen
        self._offered = offered
        self._drain = drain
        self._slack = slack
        self.parents: dict[str, str] = {}
        """Uid of a parent to its key."""
        self._variants: dict[str, set[str]] = {}
        self._touched: dict[str, Seen | None] = {}
        """Families that a batch has changed, with their parents as they were before it."""
        self.runs_as: dict[str, str] = {}
        """Admission of a parent, as a job is named, to the key of the variant that it runs as."""

    def saw(self, key: str, before: Seen, after: Seen) -> None:
        """Records a version of any workload."""
        for version in (before, after):
            if version.family and version.family not in self._touched:
                parent = self.parents.get(version.family)
                self._touched[version.family] = None if parent is None else self._seen[parent]
        if before.role == PARENT:
            self._touched[before.family] = before
        if before.family and before.role == VARIANT:
            self._variants[before.family].discard(key)
        elif before.family:
            self.parents.pop(before.family, None)
        if after.family and after.role == VARIANT:
            self._variants.setdefault(after.family, set()).add(key)
        elif after.family:
            self.parents[after.family] = key
            if after.workload is not None and after.workload.status.admission_checks:
                raise Broken(f"the parent {key} has rows of checks")

    def members(self, family: str) -> dict[str, Seen]:
        """The variants of the parent with that uid, by key."""
        return {key: self._seen[key] for key in sorted(self._variants.get(family, _NOTHING))}

    def whole(self, now: datetime, running: dict[str, str], abandoned: set[str]) -> None:
        """A batch is whole. ``running``: jobs; those in ``abandoned`` hold nothing up: it grows by
        those that have not stopped in time."""
        if not self._touched:
            return
        touched, self._touched = self._touched, {}
        for family, before in touched.items():
            key = self.parents.get(family)
            parent = self._seen[key] if key is not None else None
            about = parent.workload if parent is not None else None
            members = self.members(family)
            variants = [
                member.workload for member in members.values() if member.workload is not None
            ]
            offered = self._offered(about) if about is not None else _NOTHING
            for wrong in between(about, variants, offered):
                raise Broken(f"{key or family}: {wrong}")
            if parent is not None and about is not None and runs(about):
                chosen = workload_key(about.metadata.namespace, about.status.admitted_variant)
                self.runs_as.setdefault(_job(about, parent.revision), chosen)
            self._jobs(before, now, running, abandoned)

    def _jobs(
        self, before: Seen | None, now: datetime, running: dict[str, str], abandoned: set[str]
    ) -> None:
        """The variant that a job runs as gives up its quota when the job has stopped, or a user
        says that it has ended."""
        if before is None or before.workload is None:
            return
        about = before.workload
        name = f"{about.metadata.namespace}.{about.metadata.name}."
        for run, runner in running.items():
            if not run.startswith(name) or run in abandoned:
                continue
            key = self.runs_as.get(admission_of(run))
            held = self._seen.get(key or "")
            if held is None or held.usage or self._over(about):
                continue
            evicted = find(about, Type.EVICTED)
            since = evicted.last_transition_time if evicted is not None else None
            if stops(about) and since is not None and now + self._slack >= since + self._drain:
                abandoned.add(run)
            else:
                raise Broken(f"{key} gives up its quota, and {run} runs on {runner}")

    def _over(self, about: StoredWorkload) -> bool:
        """Whether the workload of a parent is gone, has ended, or has the quota itself because it
        is no parent any more."""
        seen = self._seen.get(workload_key(about.metadata.namespace, about.metadata.name))
        if seen is None or seen.workload is None or seen.where == "finished":
            return True
        if seen.workload.metadata.uid != about.metadata.uid:
            return True
        return seen.role != PARENT and bool(seen.usage)

    def started(self, run: str, running: dict[str, str], abandoned: set[str]) -> None:
        """Checks that a started job belongs to no variant, and to no parent that runs already."""
        name = run.rpartition(".")[0]
        seen = self._seen.get(f"workload.{name}")
        if seen is None or not seen.role:
            return
        if seen.role == VARIANT:
            raise Broken(f"the variant {name} is started by a runner (4.1)")
        if seen.role == PARENT:
            for other in running:
                is_part = admission_of(other) == admission_of(run) != run
                if other.rpartition(".")[0] == name and not is_part and other not in abandoned:
                    raise Broken(f"{run} starts while {other} runs (4.6)")

    def at_rest(self, *, heals: bool) -> None:
        """Checks that nothing is left over when nothing happens any more."""
        for key, seen in sorted(self._seen.items()):
            if seen.role != VARIANT or seen.workload is None:
                continue
            parent = self.parents.get(seen.family)
            if parent is None:
                raise Broken(f"{key} is an orphan")
            if heals and seen.where != "finished" and self._seen[parent].where == "finished":
                raise Broken(f"{key} goes on without {parent}")
            if seen.workload.status.promised is not None:
                raise Broken(f"{key} is promised quota forever")


def admission_of(run: str) -> str:
    """The admission of a run, as a whole job is named: without the number of its part."""
    job, _, revision = run.rpartition(".")
    return f"{job}.{revision.partition('-')[0]}"


def _job(parent: StoredWorkload, revision: int) -> str:
    return f"{parent.metadata.namespace}.{parent.metadata.name}.{revision}"
