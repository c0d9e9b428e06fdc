"""The changes that would unblock a workload, each as a typed value with its sentence."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

from msgspec.structs import replace

from admittance.events.base import Shape


class RemedyKind(StrEnum):
    """What has to change. A newer scheduler may have more kinds."""

    FREE_QUOTA = "FreeQuota"
    """``amount`` of quota becomes free."""
    MORE_QUOTA = "MoreQuota"
    """The quota of the ClusterQueue grows by ``amount``, or the request shrinks by it."""
    USER_LIMIT = "UserLimit"
    """The person holds ``amount`` less, or may hold that much more, in ClusterQueue ``queue``."""
    PRIORITY = "Priority"
    """The workload has ``priority`` or a higher one, and preempts in ClusterQueue ``queue``."""
    TIME = "Time"
    """A time comes: ``at``, if it is known."""
    TURN = "Turn"
    """Its turn comes: nothing else has to change."""
    START = "Start"
    """``workloads`` start before it."""
    STOP = "Stop"
    """``workloads`` stop; none named: its own job, or that of its sibling."""
    CHECK = "Check"
    """``check`` gets the verdict Ready."""
    MACHINE = "Machine"
    """A machine has room for it, as ``check`` requires."""
    RUNNER = "Runner"
    """A runner would start its job."""
    STOP_POLICY = "StopPolicy"
    """``queue`` or ``local_queue`` has no stopPolicy any more."""
    ACTIVE_QUEUE = "ActiveQueue"
    """ClusterQueue ``queue`` becomes active."""
    CREATION = "Creation"
    """An object is created: ``queue``, ``local_queue``, ``flavor`` or ``check`` names it; none of
    them: a workload."""
    SETTING = "Setting"
    """A setting of ClusterQueue ``queue``, of its flavors or of its cohorts changes."""
    REQUEST = "Request"
    """The manifest of the workload asks for something else."""
    GATE = "Gate"
    """A preemption gate opens."""
    FAMILY = "Family"
    """Another variant of its family, or the policy of the family, lets it go first."""
    COMMAND = "Command"
    """A person runs ``command``."""
    OBSTACLE = "Obstacle"
    """What the sentence names is removed."""


class Remedy(Shape, frozen=True, kw_only=True):
    """A change that is enough to unblock a workload, together with those in ``also``.

    ``text``: the change as a phrase, made with the values of the other fields. ``kind``: a
    `RemedyKind`; "": the text is all that is known. ``variant``: the variant of the parent that the
    change unblocks. ``amount``: in accounting units of ``resource``. ``queue``: a ClusterQueue;
    ``local_queue``: a LocalQueue in the namespace of the workload. ``workloads``: the largest
    holders of the quota, or those that must start or stop, as ``namespace/name``. ``priority``: the
    lowest that is enough. ``besides``: the change is needed in addition to one of the others.
    """

    text: str
    kind: str = ""
    variant: str = ""
    flavor: str = ""
    resource: str = ""
    amount: int = 0
    queue: str = ""
    cohort: str = ""
    local_queue: str = ""
    check: str = ""
    priority: int | None = None
    at: datetime | None = None
    workloads: tuple[str, ...] = ()
    command: str = ""
    besides: bool = False
    also: tuple[Remedy, ...] = ()


def of_command(command: str) -> Remedy:
    """Returns the remedy that a person runs the command."""
    return Remedy(text=f"`{command}`", kind=RemedyKind.COMMAND, command=command)


def together(remedies: Iterable[Remedy]) -> tuple[Remedy, ...]:
    """Returns remedies that are only enough together as one remedy: the first, with the others in
    ``also``; nothing if there are none."""
    steps = tuple(remedies)
    if not steps:
        return ()
    text = ", and ".join(step.text for step in steps)
    return (replace(steps[0], text=text, also=steps[1:]),)


def of_one_variant(variant: str, remedy: Remedy) -> Remedy:
    """Returns the remedy as one of the parent of the variant."""
    return replace(remedy, text=f"{variant}: {remedy.text}", variant=variant)
