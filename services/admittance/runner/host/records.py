"""The records that a runner keeps of a run: what to run, which run it is, and why it must stop."""

from __future__ import annotations

import msgspec

from admittance.events.names import token
from admittance.runner.files.plan import Transfers
from admittance.runner.plans.hook_plan import HookPlan
from admittance.runner.plans.run_plan import GRACE_SECONDS, RunPlan


class Spec(RunPlan, frozen=True, kw_only=True):
    """What a shim reads at its start: the plan of a run and the identity of the run. ``mark`` is
    the value of ADMITTANCE_RUN in the environment of every process of the run; ``tag``: the number
    that processes of the run inherit whatever their environment is; 0: none. ``lease_stop`` and
    ``lease_kill``: how many seconds after the last renewal of the lease the shim sends SIGTERM and
    SIGKILL to its pods.
    """

    key: str
    mark: str
    namespace: str
    name: str
    uid: str
    revision: int
    notify: str
    lease: str
    lease_stop: float
    lease_kill: float
    pods: int = 1
    units: tuple[str, ...] = ()
    part: int = 0
    parts: int = 0
    restarts: int = 0
    placed: bool = False
    warns: bool = False
    tag: int = 0
    requests: dict[str, int] = msgspec.field(default_factory=dict)


class StopNote(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run was told to stop; the fields have the meaning that they have in
    `admittance.runner.decide.Run`."""

    evicted: int = 0
    leaving: bool = False
    claim_lost: bool = False


class RunIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a `Spec` that the runner needs. ``grace``: how many seconds a pod of the run has
    from SIGTERM to SIGKILL. ``pods``: how many of `JobLimits.pods` the run takes. ``units``: the
    units of devices that the run has, as ``<resource>=<id>``. ``part``: which of the ``parts`` of a
    job on several machines; 0: the whole job. ``placed``: whether the job is assigned to this
    runner. ``requests``: what its pods ask for together, in accounting units. ``restarts``: how
    often this runner has started the same admission before. ``transfers``: the files that the
    runner brings and keeps. ``hooks``: what runs before and after the run.
    ``warns``: whether its shim warns pods, and takes the signal that a drain has changed."""

    key: str
    namespace: str
    name: str
    uid: str
    revision: int
    mark: str = ""
    grace: int = GRACE_SECONDS
    pods: int = 1
    units: tuple[str, ...] = ()
    part: int = 0
    parts: int = 0
    placed: bool = False
    requests: dict[str, int] = msgspec.field(default_factory=dict)
    restarts: int = 0
    warns: bool = False
    transfers: Transfers | None = None
    hooks: HookPlan | None = None


def run_key(namespace: str, name: str, revision: int, part: int = 0) -> str:
    """The name of a run and of its claim: ``<ns>.<name>.<revision>``, and for a part of a job on
    several machines ``<ns>.<name>.<revision>-<part>``, which runners without parts leave alone."""
    key = f"{token(namespace)}.{token(name)}.{revision}"
    return f"{key}-{part}" if part else key
