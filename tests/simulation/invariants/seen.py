"""A workload as the invariants see it, and which ways it may go."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from admittance.workload import stored as workloads
from admittance.workload.conditions import Type, is_true
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import StoredWorkload
from simulation.invariants import lifecycle, reference_quota
from simulation.invariants.siblings import PARENT, place
from simulation.nats.observed import Stored

_W: Final = "waiting"
_GROUP: Final = {
    Phase.PENDING: _W,
    Phase.BACKOFF: _W,
    Phase.QUOTA_RESERVED: "reserved",
    Phase.ADMITTED: "admitted",
    Phase.RUNNING: "admitted",
    Phase.EVICTING: "evicting",
    Phase.DEACTIVATED: "off",
    Phase.REJECTED: "off",
    Phase.FINISHED: "finished",
}
LEGAL: Final[dict[str, frozenset[str]]] = {
    "": frozenset({_W, "off", "finished", ""}),
    _W: frozenset({_W, "reserved", "admitted", "off", "finished", ""}),
    "reserved": frozenset({"reserved", "admitted", _W, "off", "finished", ""}),
    "admitted": frozenset({"admitted", "evicting", "off", "finished", _W}),
    "evicting": frozenset({"evicting", _W, "off", "finished", ""}),
    "off": frozenset({"off", _W, "evicting", "finished", ""}),
    "finished": frozenset({""}),
}
"""From docs/spec/lifecycle.md#1.3, #1.4, not from the transitions. One write may fold several facts
that are not published, so a move through waiting is legal, too; "": the workload does not exist."""


class Seen:
    """A workload as of its last revision. ``seconds``: admitted so far, counted apart. ``family``:
    uid of the parent. ``booked``: it says that quota is; a parent's is its variant's, so that its
    ``usage`` is none."""

    __slots__ = ("booked", "family", "revision", "role", "seconds", "usage", "where", "workload")

    def __init__(self) -> None:
        self.workload: StoredWorkload | None = None
        self.revision = 0
        self.where = ""
        self.role = ""
        self.family = ""
        self.booked = False
        self.usage: reference_quota.Usage = {}
        self.seconds = lifecycle.AdmittedSeconds()

    @classmethod
    def of(cls, entry: Stored, now: datetime) -> Seen:
        """The written workload."""
        seen = cls()
        seen.revision = entry.sequence
        if entry.gone:
            return seen
        workload = seen.workload = workloads.decode(entry.data)
        seen.where = _GROUP[phase(workload, now)]
        if workload.status.array is not None and seen.where in ("reserved", "admitted"):
            seen.where = _W  # Its elements have that phase: an array itself has no quota.
        seen.role, seen.family = place(workload)
        if is_true(workload, Type.QUOTA_RESERVED) and seen.where != "finished":
            assert workload.status.admission is not None
            seen.booked = True
            if seen.role != PARENT:
                seen.usage = reference_quota.usage_of(workload.status.admission)
        return seen

    @property
    def admitted(self) -> bool:
        """Whether it runs, or its job is being stopped."""
        return self.where in ("admitted", "evicting")


def legal(before: Seen, after: Seen) -> bool:
    """One write may lead from there to there."""
    if before.where == "off" and after.where == "evicting":
        return before.booked
    if before.where == after.where == "finished" and before.workload is not None:
        # Of an array that a user has ended the results of its elements are counted still.
        return before.workload.status.array is not None
    if before.role == after.role == PARENT and before.where == "evicting":
        # A better variant takes over the moment the job has stopped (4.6).
        return after.where in LEGAL["evicting"] | {"admitted"}
    return after.where in LEGAL[before.where]


class Manifests(NamedTuple):
    """By name; LocalQueues by namespace and name. ``counts_from``: of the checks that another
    service writes, the fact from which on the workload-controller counts what is written now."""

    queues: Mapping[str, Any]
    checks: Mapping[str, Any]
    flavors: Mapping[str, Any]
    locals: Mapping[tuple[str, str], Any]
    counts_from: Mapping[str, float] = {}
