"""Turns an admission into the plan that a shim carries out: programs and environments. Pure.

Pods differ only by their index, which the shim fills in, so the plan of a pod set with a thousand
pods is as small as that of one pod.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from admittance.api.fields.names import image_error
from admittance.api.files import JobFiles
from admittance.api.pods import Container, PodSpec, PodTemplate
from admittance.api.reading.from_job import literal
from admittance.api.validation.containers import check_containers
from admittance.api.validation.field_rules import field_problems
from admittance.api.warning_signal import WARNING_SIGNAL, BadWarning, noted_warning
from admittance.api.workload import noted_completions
from admittance.events.facts import Admitted
from admittance.events.names import token
from admittance.events.reader import BROKEN
from admittance.events.shapes import PodSetToRun
from admittance.folders import (
    SUBMITTED_FROM,
    BadFolder,
    FolderSight,
    SubmittedFrom,
    is_proven,
    noted_folder,
    sees_folder,
)
from admittance.job_rules.limits import NO_GROUPS, JobLimits
from admittance.job_rules.rules import NO_RULES, CannotRun, JobRules, UnixUser
from admittance.runner.disk.checkpoints import IN_CONTAINERS
from admittance.runner.files.plan import (
    PodFiles,
    Transfers,
    job_files,
    pod_files,
    transfers_of,
)
from admittance.runner.jobs.devices import (
    NO_MACHINE,
    MachineDevices,
    PlannedDevices,
    engine_words,
    planned_devices,
    pods_here,
)
from admittance.runner.jobs.engine_orders import (
    kill_docker,
    limit_words,
    oom_docker,
    probe_docker,
    sweep_docker,
)
from admittance.runner.jobs.inputs.environment import ValueBudget, Variable, variables
from admittance.runner.jobs.inputs.host_inputs import NO_INPUTS, Inputs
from admittance.runner.jobs.inputs.volumes import (
    FileBudget,
    Mount,
    VolumePlan,
    local_folder,
    mounts_of,
    volume_plans,
)
from admittance.runner.jobs.pod_limits import GroupsPlan, PodLimits, container_limits, pod_limits
from admittance.runner.jobs.policy_plan import PolicyPlan, job_policy, policy_plan

GRACE_SECONDS: Final = 30
"""The grace period of a pod template without terminationGracePeriodSeconds; the default of
Kubernetes."""

GRACE_MAX: Final = 7 * 86_400
"""The most seconds of a grace period; a longer period is cut to this, because the shim cannot
compute with an unlimited number."""

NO_SIGHT: Final = FolderSight()

OWN_ENV: Final = (
    "JOB_COMPLETION_INDEX",
    "ADMITTANCE_WORKLOAD",
    "ADMITTANCE_NAMESPACE",
    "ADMITTANCE_POD_SET",
    "ADMITTANCE_POD_INDEX",
    "ADMITTANCE_POD",
    "ADMITTANCE_CONTAINER",
    "ADMITTANCE_ATTEMPT",
    "ADMITTANCE_FLAVORS",
    "ADMITTANCE_HOSTS",
    "ADMITTANCE_RUN",
    "ADMITTANCE_RESTART_COUNT",
    "ADMITTANCE_CHECKPOINT_DIR",
)
"""The names of the environment variables that the shim sets for every container."""


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
    ``files``: what each pod brings and leaves."""

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
    ``transfers``: the files that the runner brings and keeps.
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


class PodInputs(NamedTuple):
    """What the containers of a pod set get beside their programs. ``inputs``: what they may read of
    the machine. ``volumes``: the plans of the pod's volumes by name. ``budget``: what the variables
    of the whole job may still take. ``devices``: what each pod gets of the machine's devices.
    ``folder``: that of the submission; None: it has none."""

    template: PodTemplate
    inputs: Inputs
    volumes: Mapping[str, VolumePlan]
    budget: ValueBudget
    devices: PlannedDevices
    folder: SubmittedFrom | None = None

    def variables(self, container: Container) -> list[Variable]:
        return variables(container, self.template, self.inputs, self.budget)

    def mounts(self, container: Container) -> list[Mount]:
        return mounts_of(container, self.volumes, self.inputs)


def _processes(
    containers: tuple[Container, ...], given: PodInputs, sight: FolderSight
) -> Processes:
    plans = []
    folder = given.folder
    place: dict[str, Any] = {}
    if folder is not None:
        place = {"umask": folder.umask}
        if not is_proven(sight, folder):
            place |= {"inode": folder.inode, "owner": folder.owner}
    for each in containers:
        mounts = given.mounts(each)
        # A variable names the folder that the container would see, so the subPath belongs to it.
        inner = {mount.variable: mount.source for mount in mounts if mount.inner}
        env = [
            *inner.items(),
            *((variable.name, variable.value) for variable in given.variables(each)),
        ]
        plans.append(
            ContainerPlan(
                name=each.name,
                argv=each.command + each.args,
                env=tuple(env),
                cwd=each.working_dir,
                inner_cwd=local_folder(each.working_dir, mounts),
                **(place if folder is not None and each.working_dir == folder.path else {}),
            )
        )
    return tuple(plans)


def _template(pod_set: PodSetToRun) -> PodTemplate:
    try:
        template: PodTemplate = msgspec.json.decode(pod_set.template, type=PodTemplate)
    except BROKEN as error:
        raise CannotRun(f"pod set {pod_set.name}: its pod template is not valid: {error}") from (
            error
        )
    # A workload that an earlier version accepted may break a rule that is newer.
    path = f"pod set {pod_set.name}: spec"
    for problem in field_problems(template.spec):
        raise CannotRun(str(problem._replace(field=f"{path}.{problem.field}")))
    for problem in check_containers(template.spec, path):
        raise CannotRun(str(problem))
    for init in template.spec.init_containers:
        if init.restart_policy == "Always":
            raise CannotRun(
                f"pod set {pod_set.name}: init container {init.name} is a sidecar, "
                "which this runner does not run"
            )
    return template


def _warning_of(pod_set: str, template: PodTemplate) -> WarnPlan | None:
    try:
        warning = noted_warning(template.metadata.annotations)
    except BadWarning as error:
        raise CannotRun(f"pod set {pod_set}: the annotation {WARNING_SIGNAL} {error}") from None
    if warning is None:
        return None
    return WarnPlan(signal=int(signal.Signals[f"SIG{warning.signal}"]), before=warning.seconds)


def _folder_of(pod_set: str, template: PodTemplate) -> SubmittedFrom | None:
    """The folder of the submission, if a container of the template starts there."""
    try:
        folder = noted_folder(template.metadata.annotations)
    except BadFolder as error:
        raise CannotRun(f"pod set {pod_set}: the annotation {SUBMITTED_FROM} {error}") from None
    containers = (*template.spec.init_containers, *template.spec.containers)
    if folder is None or all(each.working_dir != folder.path for each in containers):
        return None
    return folder


def with_additions(template: PodTemplate, pod_set: PodSetToRun) -> PodTemplate:
    """The template with the labels and annotations that flavors and checks add."""
    metadata = msgspec.structs.replace(
        template.metadata,
        labels={**pod_set.labels, **template.metadata.labels},
        annotations={**pod_set.annotations, **template.metadata.annotations},
    )
    return msgspec.structs.replace(template, metadata=metadata)


def _assemble(
    admitted: Admitted,
    given: dict[str, str],
    processes_of: Callable[[PodSetToRun, PodInputs], tuple[Processes, Processes]],
    inputs: Inputs,
    machine: MachineDevices,
    cleanup: tuple[tuple[str, ...], ...] = (),
    limits_of: Callable[[PodSpec], PodLimits] = pod_limits,
    checkpoint_seen: str = "",
) -> RunPlan:
    """The plan of a run with all pod sets of the admission. ``processes_of``: a function that
    returns the init and main processes of one pod set; ``limits_of``: one that returns what its
    pods may use. ``checkpoint_seen``: the path of the checkpoint folder for processes; "": none.
    """
    sets = []
    graces = [0]
    deadlines: list[float] = []
    transfers: list[tuple[str, int, JobFiles | None]] = []
    pods = 0
    budget, files = ValueBudget(), FileBudget()
    hosts = ",".join(
        dict.fromkeys(part.runner for pod_set in admitted.pod_sets for part in pod_set.parts)
    )
    for pod_set in admitted.pod_sets:
        if pod_set.count <= 0:
            continue
        template = _template(pod_set)
        noted = noted_completions(template.metadata.annotations)
        completions = pod_set.completions or noted or pod_set.count
        pods += completions
        here = pods_here(pod_set, completions, machine.runner)
        if not here.parallel:
            continue
        every = (*template.spec.init_containers, *template.spec.containers)
        volumes = volume_plans(template.spec.volumes, every, inputs, files)
        asked = {
            name for each in every for name in (*each.resources.requests, *each.resources.limits)
        }
        devices = planned_devices(pod_set, asked, machine)
        init, main = processes_of(
            pod_set,
            PodInputs(
                with_additions(template, pod_set),
                inputs,
                {volume.name: volume for volume in volumes},
                budget,
                devices,
                _folder_of(pod_set.name, template),
            ),
        )
        noted_files = job_files(pod_set.name, template)
        transfers.append((pod_set.name, here.completions, noted_files))
        env = {
            "ADMITTANCE_WORKLOAD": admitted.name,
            "ADMITTANCE_NAMESPACE": admitted.namespace,
            "ADMITTANCE_POD_SET": pod_set.name,
            "ADMITTANCE_FLAVORS": ",".join(f"{k}={v}" for k, v in sorted(pod_set.flavors.items())),
            "ADMITTANCE_RESTART_COUNT": str(admitted.restarts),
        }
        if checkpoint_seen:
            env["ADMITTANCE_CHECKPOINT_DIR"] = checkpoint_seen
        if hosts:
            env["ADMITTANCE_HOSTS"] = hosts
        sets.append(
            PodSetPlan(
                name=pod_set.name,
                parallel=here.parallel,
                completions=here.completions,
                first=here.first,
                env=env,
                init=init,
                main=main,
                policy=policy_plan(pod_set.name, template, here.completions),
                warn=_warning_of(pod_set.name, template),
                volumes=volumes,
                devices=devices.every,
                slots=devices.slots,
                limits=limits_of(template.spec),
                files=pod_files(noted_files),
            )
        )
        policy = job_policy(pod_set.name, template)
        if policy is not None and policy.active_deadline_seconds:
            deadlines.append(policy.active_deadline_seconds)
        grace = template.spec.termination_grace_period_seconds
        graces.append(GRACE_SECONDS if grace is None else min(grace, GRACE_MAX))
    return RunPlan(
        sets=tuple(sets),
        grace=max(graces),
        given=given,
        cleanup=cleanup,
        deadline=min(deadlines, default=0.0),
        transfers=transfers_of(transfers, pods),
    )


def plan_local(
    admitted: Admitted,
    *,
    given: dict[str, str],
    inputs: Inputs = NO_INPUTS,
    machine: MachineDevices = NO_MACHINE,
    sight: FolderSight = NO_SIGHT,
    uid: int | None = None,
    checkpoint: str = "",
) -> RunPlan:
    """The plan that runs the admission as processes of this machine. The plan leaves out containers
    without command and args if another container has a command or args: without the image, the
    runner does not know their program. ``sight``: which folders the processes see. ``uid``: their
    Unix user. ``checkpoint``: the checkpoint folder of the workload; "": none.

    Raises CannotRun if this runner cannot run the admission.
    """

    def processes_of(pod_set: PodSetToRun, pod: PodInputs) -> tuple[Processes, Processes]:
        template = pod.template
        init = template.spec.init_containers
        main = tuple(c for c in template.spec.containers if c.command or c.args)
        lacking = [c for c in init if not (c.command or c.args)]
        if lacking or not main:
            names = ", ".join(c.name for c in lacking or template.spec.containers) or "none"
            raise CannotRun(
                f"pod set {pod_set.name}: no command to run as a local process (containers: "
                f"{names}); give one, or run the image with a runner started with "
                "--executor docker"
            )
        if pod.folder is not None and (why := sees_folder(sight, uid, pod.folder)):
            raise CannotRun(
                f"this runner does not see the folder {pod.folder.path} of the machine "
                f"{pod.folder.machine.host}, in which the job was submitted: {why}"
            )
        return _processes(init, pod, sight), _processes(main, pod, sight)

    plan = _assemble(admitted, given, processes_of, inputs, machine, checkpoint_seen=checkpoint)
    return msgspec.structs.replace(plan, folders=sight.allowed, checkpoint=checkpoint)


_NAMES_OF_CLIENT: Final = frozenset(
    ("PATH", "HOME", "TMPDIR", "ENV", "IFS", "PS4", "SHELLOPTS", "NOTIFY_SOCKET")
)
_PREFIXES_OF_CLIENT: Final = (
    *("DOCKER_", "LD_", "HTTP_", "HTTPS_", "ALL_", "NO_", "SSL_", "SSH_", "XDG_", "GO", "OTEL_"),
    *("BASH", "GLIBC_", "GCONV_", "DBUS_"),
    # The command `docker` may be a shell script that starts podman, which reads these.
    *("CONTAINER", "PODMAN", "BUILDAH", "REGISTRY", "STORAGE_"),
)
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
"""Names of variables that a shell takes for nothing but variables: bash takes others for
functions."""


def _is_of_client(name: str) -> bool:
    """Whether an environment variable with this name could change how the docker client works."""
    return (
        name in _NAMES_OF_CLIENT
        or name.upper().startswith(_PREFIXES_OF_CLIENT)
        or not _PLAIN_NAME.fullmatch(name)
    )


def _checked_image(container: Container, rules: JobRules) -> str:
    image = container.image
    if not image:
        raise CannotRun(f"container {container.name} names no image")
    if error := image_error(image):
        raise CannotRun(f"container {container.name}: {error}")
    rules.check_image(image)
    return image


def plan_docker(
    admitted: Admitted,
    *,
    given: dict[str, str],
    docker: str,
    mark: str,
    rules: JobRules = NO_RULES,
    user: UnixUser | None = None,
    inputs: Inputs = NO_INPUTS,
    machine: MachineDevices = NO_MACHINE,
    checkpoint: str = "",
) -> RunPlan:
    """The plan that runs the admission as containers, each started by a ``docker run`` in the
    foreground.

    ``docker``: the path of the docker client. ``mark``: the value of the label ``admittance.run``
    by which the containers of this run are found. The docker client forwards SIGTERM to its
    container; the plan's cleanup removes containers that remain after a SIGKILL of the client.
    ``user``: the Unix user in the containers; None: the user that the image sets. ``checkpoint``:
    the checkpoint folder of the workload; "": none. Raises CannotRun if this runner cannot run the
    admission.
    """
    if any(sign in checkpoint for sign in (",", '"', "\n")):
        raise CannotRun(f"the checkpoint folder {checkpoint} cannot be mounted: choose another one")

    def wrapped(containers: tuple[Container, ...], pod: PodInputs) -> Processes:
        plans = []
        for each in containers:
            image = _checked_image(each, rules)
            # Each start has a file of its own, because the client refuses a file that exists.
            id_file = f"{token(each.name or 'container')}.$(ADMITTANCE_ATTEMPT).cid"
            # The runner keeps the output, so a second, unlimited copy of the engine has no use.
            argv = [docker, "run", "--rm", "--init", "--log-driver", "none", "--cidfile", id_file]
            argv += [
                "--label",
                f"admittance.run={mark}",
                "--label",
                "admittance.pod=$(ADMITTANCE_POD)",
            ]
            for mount in pod.mounts(each):
                argv += ["--mount", _bind(each, mount)]
            if checkpoint:
                source = literal(checkpoint)
                argv += ["--mount", f"type=bind,source={source},target={IN_CONTAINERS}"]
            if user is not None:
                argv += ["--user", f"{user.uid}:{user.gid}"]
            if not rules.limits.privilege_escalation:
                argv += ["--security-opt", "no-new-privileges"]
            if rules.limits.processes:
                argv += ["--pids-limit", str(rules.limits.processes)]
            is_limited = rules.limits.cgroup != NO_GROUPS
            limits = container_limits(each.resources) if is_limited else PodLimits()
            argv += limit_words(limits)
            argv += engine_words(pod.devices)
            own_words = len(argv)
            every = pod.variables(each)
            for name, _, secret in every:
                if secret and _is_of_client(name):
                    raise CannotRun(
                        f"container {each.name}: a Secret has the key {name}, which the container "
                        "engine's client would read itself"
                    )
            env = tuple((name, value) for name, value, _ in every if not _is_of_client(name))
            for name in dict.fromkeys((*OWN_ENV, *(name for name, _ in env))):
                # ``--env NAME`` has no value: the docker client takes the value of the variable,
                # already expanded, from its own environment.
                argv += ["--env", name]
            for name, value, _ in every:
                if _is_of_client(name):
                    # A reference has the value that the variable gets in its turn.
                    text = value if any(sign in name for sign in "()$") else f"$({name})"
                    argv += ["--env", f"{literal(name)}={text}"]
            if each.working_dir:
                argv += ["--workdir", each.working_dir]
            if each.command:
                argv += ["--entrypoint", each.command[0]]
            argv += [image, *each.command[1:], *each.args]
            plans.append(
                ContainerPlan(
                    name=each.name,
                    argv=tuple(argv),
                    env=env,
                    own_words=own_words,
                    words_env=tuple((name, value) for name, value, _ in every),
                    probe=probe_docker(docker, id_file),
                    kill=kill_docker(docker, id_file),
                    oom=oom_docker(docker, id_file) if limits.memory else (),
                    memory=limits.memory,
                )
            )
        return tuple(plans)

    def processes_of(pod_set: PodSetToRun, pod: PodInputs) -> tuple[Processes, Processes]:
        spec = pod.template.spec
        if not spec.containers:
            raise CannotRun(f"pod set {pod_set.name} has no containers")
        if pod.folder is not None:
            raise CannotRun(
                f"the job is to start in the folder {pod.folder.path} of the machine "
                f"{pod.folder.machine.host}, which no container of this runner sees"
            )
        return wrapped(spec.init_containers, pod), wrapped(spec.containers, pod)

    cleanup = (sweep_docker(docker, mark),)
    # The engine limits each container. Its client needs next to nothing.
    unlimited = PodLimits()
    plan = _assemble(
        admitted,
        given,
        processes_of,
        inputs,
        machine,
        cleanup,
        lambda _: unlimited,
        checkpoint_seen=IN_CONTAINERS if checkpoint else "",
    )
    if plan.transfers is not None:
        raise CannotRun(
            "a runner with --executor docker brings no files to a job and keeps none: submit it "
            "without --input and --output, or to a runner of local processes"
        )
    return msgspec.structs.replace(plan, checkpoint=checkpoint)


def _bind(container: Container, mount: Mount) -> str:
    """The value of ``--mount`` for a volume in a container."""
    target = str(mount.path)
    if any(sign in target or sign in mount.source for sign in (",", '"', "\n")):
        raise CannotRun(
            f"container {container.name}: {target} cannot be mounted: a path has a comma, a quote "
            "or a line break"
        )
    if mount.inner and not mount.has_files:
        # A container could put a link in place of the folder before another one mounts it.
        raise CannotRun(
            f"container {container.name}: {target}: the runner mounts a subPath only of a "
            "ConfigMap or Secret into a container"
        )
    read_only = ",readonly" if mount.read_only else ""
    return f"type=bind,source={mount.source},target={literal(target)}{read_only}"


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
