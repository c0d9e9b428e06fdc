"""Runner: a machine that starts jobs, as its runner has announced it. Like a Node of Kubernetes."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

import msgspec

from admittance.api.fields.limits import NODE_LABELS_MAX, list_rule
from admittance.api.fields.problems import FORBIDDEN, TOO_LONG, Problem
from admittance.api.meta import Condition, ObjectMeta, Strict, Taint

VERSION: Final = "admittance.dev/v1"


REASON_MAX: Final = 1_000
"""The most characters of the reason of a drain."""


class RunnerDrain(Strict, frozen=True, kw_only=True):
    """The machine gets no new jobs, and those that run there are evicted at ``deadline``; None:
    they may end by themselves. ``reason``: why, for people."""

    deadline: datetime | None = None
    reason: str = ""


class RunnerSpec(Strict, frozen=True, kw_only=True):
    """``unschedulable``: the machine gets no new jobs; `admit cordon` sets it. ``drain``: that of
    `admit drain`, or of a failed prolog or epilog. ``taints``: those of the option ``--taint`` of
    the runner."""

    unschedulable: bool = False
    drain: RunnerDrain | None = None
    taints: Annotated[tuple[Taint, ...], list_rule(NODE_LABELS_MAX, "taints")] = ()


class RunnerDevice(Strict, frozen=True, kw_only=True):
    """One device of the machine. ``id``: names the device across restarts, such as the UUID of a
    GPU; of a device given by hand it is the index. ``slices``: how many jobs may share it."""

    resource: str
    index: int
    id: str
    slices: int = 1
    model: str = ""


class RunnerUsers(Strict, frozen=True, kw_only=True):
    """Which jobs the runner starts: the fields are those of
    `admittance.events.system.RunnerStarts`."""

    namespaces: tuple[str, ...] = ()
    submitters: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    all_of: tuple[str, ...] = ()
    unknown: bool = False
    every: bool = False
    images: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    pods: int = 0


class RunnerStatus(Strict, frozen=True, kw_only=True):
    """What the runner has announced of its machine.

    ``id``: that of the runner's data folder, as in claims. ``boot_id``,
    ``mount_namespace``: programs with the same two see the same files. ``folders``: folders that
    the machine shares with others. ``capacity``: quantities by resource.
    ``in_use``: what the jobs that run there have asked for, and what programs hold there by leases;
    it is not stored, but added when the object is shown. ``users``: whose jobs it starts; None: all
    jobs. ``messages``: what the machine cannot do, one sentence each.
    """

    id: str = ""
    version: str = ""
    host: str = ""
    boot_id: str = ""
    mount_namespace: str = ""
    folders: tuple[str, ...] = ()
    capacity: dict[str, str] = msgspec.field(default_factory=dict)
    in_use: dict[str, str] = msgspec.field(default_factory=dict)
    devices: tuple[RunnerDevice, ...] = ()
    executors: tuple[str, ...] = ()
    users: RunnerUsers | None = None
    messages: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()


class Runner(Strict, frozen=True, kw_only=True):
    """A machine that starts jobs. The service placement stores it from what the runner announces;
    users change ``spec.unschedulable`` and ``spec.drain`` only."""

    api_version: str = VERSION
    kind: str = "Runner"
    metadata: ObjectMeta = ObjectMeta()
    spec: RunnerSpec = RunnerSpec()
    status: RunnerStatus | None = None


def check_runner(runner: Runner) -> list[Problem]:
    """The problems of a drain."""
    drain = runner.spec.drain
    if drain is None or len(drain.reason) <= REASON_MAX:
        return []
    message = f"has {len(drain.reason):,} characters, at most {REASON_MAX:,} are allowed"
    return [Problem("spec.drain.reason", message, TOO_LONG)]


def check_runner_update(old: Runner, new: Runner) -> list[Problem]:
    """The problems of a user's change: labels and taints are those that the runner announces."""
    pairs = (
        ("metadata.labels", old.metadata.labels, new.metadata.labels, "--label"),
        ("spec.taints", old.spec.taints, new.spec.taints, "--taint"),
    )
    return [
        Problem(field, f"is what the runner announces: change its option {option}", FORBIDDEN)
        for field, before, after, option in pairs
        if before != after
    ]
