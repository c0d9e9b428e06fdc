"""The plan of a run as a value, which a shim carries out. Pure."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from admittance.job_rules.limits import JobLimits
from admittance.job_rules.rules import CannotRun, UnixUser
from admittance.runner.files.plan import (
    PodFiles,
    Transfers,
)
from admittance.runner.plans.devices import FileNumber
from admittance.runner.plans.hook_plan import HookPlan
from admittance.runner.plans.inputs.volumes import (
    VolumePlan,
)
from admittance.runner.plans.pod_limits import GroupsPlan, PodLimits
from admittance.runner.plans.policy_plan import PolicyPlan

GRACE_SECONDS: Final = 30
"""The grace period of a pod template without terminationGracePeriodSeconds; the default of
Kubernetes."""

GRACE_MAX: Final = 7 * 86_400
"""The most seconds of a grace period; a longer period is cut to this, because the shim cannot
compute with an unlimited number."""


class ContainerPlan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The plan of one process of a pod. ``cwd``: the working folder of the process; "" means the
    pod's scratch folder. ``inner_cwd``: the working folder in a volume; it goes before ``cwd``. The
    shim expands references ``$(NAME)`` in ``argv`` and in the values of ``env``. In the first
    ``own_words`` words of ``argv``, in ``inner_cwd``, ``probe``, ``kill`` and ``oom`` a reference
    never means a variable of the container, so that a job cannot choose what these words name.
    ``words_env``: the variables that references in the other words of ``argv`` mean; None: those of
    the process.

    ``probe``: a program that the shim runs in the scratch folder before a stop, if the process only
    waits for a container. Status 0 of the probe means that the container has ended, so the process
    is about to end, too. ``kill``: a program that kills the container if the process only waits for
    it. ``oom``: a program of which the status 0 means that the container had too little memory;
    ``memory``: its limit in bytes.

    ``inode``, ``owner``: the number and the Unix user that ``cwd`` must have; 0: any. ``umask``: of
    the process; None: that of the runner.
    """

    name: str
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    cwd: str = ""
    inner_cwd: str = ""
    own_words: int = 0
    words_env: tuple[tuple[str, str], ...] | None = None
    probe: tuple[str, ...] = ()
    kill: tuple[str, ...] = ()
    oom: tuple[str, ...] = ()
    memory: int = 0
    inode: int = 0
    owner: int = 0
    umask: int | None = None


Processes: TypeAlias = tuple[ContainerPlan, ...]


class WarnPlan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The signal that the processes of a pod set get ``before`` so many seconds before the end of
    the job's time."""

    signal: int
    before: int


class PodSetPlan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The plan of one pod set's pods in a run. ``completions``: how many pods must succeed;
    ``parallel``: how many pods run at once. ``first``: the index of the first pod, if other pods of
    the pod set run on other machines. ``policy`` None: the first failure fails the job.
    ``devices``: the variables about devices of every pod; ``slots``: those of each pod that runs at
    the same time, if the pods have devices. ``limits``: what the processes of a pod may use
    together. ``warn``: the warning before the end of the job's time; None: there is none.
    ``files``: what each pod brings and leaves. ``own_files``: the numbers of the device files that
    the pods may open, of each slot if the pods have devices. ``unset``: variables that no pod
    has."""

    name: str
    parallel: int
    completions: int
    env: dict[str, str]
    init: Processes
    main: Processes
    policy: PolicyPlan | None = None
    volumes: tuple[VolumePlan, ...] = ()
    warn: WarnPlan | None = None
    devices: dict[str, str] = msgspec.field(default_factory=dict)
    slots: tuple[dict[str, str], ...] = ()
    own_files: tuple[tuple[FileNumber, ...], ...] = ()
    unset: tuple[str, ...] = ()
    first: int = 0
    limits: PodLimits = PodLimits()
    files: PodFiles | None = None


class RunPlan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a shim carries out. ``grace``: how many seconds a pod has from SIGTERM to SIGKILL.
    ``given``: the base environment of all containers; the variables of a container override it.
    ``cleanup``: programs that end processes and containers that a signal does not reach.
    ``run_as``: the Unix user of the processes; None: the runner's Unix user. ``volumes_of``: the
    Unix user who owns the volumes, if it is not that of the processes. ``process_limit``: the
    most processes and threads of another Unix user than the runner's; 0: any number.
    ``no_new_privs``: whether programs such as ``sudo`` cannot give a process more rights.
    ``output_limit``: the most bytes of output that are kept; 0: any number.
    ``deadline``: the most seconds of the run, after which the job fails; 0: any number.
    ``scratch_limit``: the most bytes of files in scratch folders and volumes of the run; 0: any
    number. ``groups``: the groups in which the kernel limits pods; None: it does not.
    ``folders``: the only folders outside of the run in which processes may start; empty: all.
    ``ends``: when the job's maximum execution time is over, in seconds since boot; 0: it has none.
    The workload-controller ends the job, and the shim only warns it. ``checkpoint``: the folder of
    the workload that outlives its runs; "": there is none.
    ``transfers``: the files that the runner brings and keeps. ``device_files``: the numbers of the
    files in /dev from which pods are kept that may not open them. ``hooks``: what runs on the
    machine before and after the run.
    """

    sets: tuple[PodSetPlan, ...]
    grace: int = GRACE_SECONDS
    given: dict[str, str] = msgspec.field(default_factory=dict)
    cleanup: tuple[tuple[str, ...], ...] = ()
    run_as: UnixUser | None = None
    volumes_of: UnixUser | None = None
    process_limit: int = 0
    no_new_privs: bool = False
    output_limit: int = 0
    deadline: float = 0.0
    scratch_limit: int = 0
    groups: GroupsPlan | None = None
    folders: tuple[str, ...] = ()
    ends: float = 0.0
    checkpoint: str = ""
    transfers: Transfers | None = None
    device_files: tuple[FileNumber, ...] = ()
    hooks: HookPlan | None = None


def containers_at_once(plan: RunPlan) -> int:
    """The most containers that run at once: init containers run one after another, before the
    others."""
    return sum(each.parallel * max(1, len(each.main)) for each in plan.sets)


def _with_process_limit(pods: PodSetPlan, processes: int) -> PodSetPlan:
    limits = msgspec.structs.replace(pods.limits, processes=processes)
    return msgspec.structs.replace(pods, limits=limits)


def with_file_limit(plan: RunPlan, most: int) -> RunPlan:
    """The plan, with the most bytes of the files that the runner brings and keeps."""
    if plan.transfers is None:
        return plan
    transfers = msgspec.structs.replace(plan.transfers, limit=most)
    return msgspec.structs.replace(plan, transfers=transfers)


def with_limits(plan: RunPlan, limits: JobLimits) -> RunPlan:
    """The plan with the limits. Raises CannotRun if the plan has more pods at once than the
    runner may start."""
    pods = sum(each.parallel for each in plan.sets)
    problem = limits.too_many_pods(pods, containers_at_once(plan))
    if problem:
        raise CannotRun(problem)
    return msgspec.structs.replace(
        plan,
        sets=tuple(_with_process_limit(each, limits.processes) for each in plan.sets),
        output_limit=limits.output,
        process_limit=limits.processes,
        scratch_limit=limits.scratch,
    )
