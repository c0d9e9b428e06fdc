"""The plan of a run with pods in containers of an engine. Pure."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from admittance.api.fields.names import image_error
from admittance.api.pods import Container
from admittance.api.reading.from_job import literal
from admittance.events.facts import Admitted
from admittance.events.names import token
from admittance.events.shapes import PodSetToRun
from admittance.job_rules.limits import NO_GROUPS
from admittance.job_rules.rules import NO_RULES, CannotRun, JobRules, UnixUser
from admittance.runner.disk.checkpoints import IN_CONTAINERS
from admittance.runner.plans.devices import (
    DOCKER,
    NO_MACHINE,
    MachineDevices,
    engine_words,
)
from admittance.runner.plans.engine_orders import (
    kill_docker,
    limit_words,
    oom_docker,
    probe_docker,
    sweep_docker,
)
from admittance.runner.plans.inputs.host_inputs import NO_INPUTS, Inputs
from admittance.runner.plans.inputs.volumes import (
    Mount,
)
from admittance.runner.plans.pod_limits import PodLimits, container_limits
from admittance.runner.plans.pod_sets import OWN_ENV, PodInputs, assemble
from admittance.runner.plans.run_plan import ContainerPlan, Processes, RunPlan

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
    engine: str = DOCKER,
) -> RunPlan:
    """The plan that runs the admission as containers, each started by a ``docker run`` in the
    foreground.

    ``docker``: the path of the docker client. ``mark``: the value of the label ``admittance.run``
    by which the containers of this run are found. The docker client forwards SIGTERM to its
    container; the plan's cleanup removes containers that remain after a SIGKILL of the client.
    ``user``: the Unix user in the containers; None: the user that the image sets. ``checkpoint``:
    the checkpoint folder of the workload; "": none. ``engine``: the kind of the engine. Raises
    CannotRun if this runner cannot run the admission.
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
            argv += engine_words(pod.devices, engine)
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
    plan = assemble(
        admitted,
        given,
        processes_of,
        inputs,
        machine,
        cleanup,
        lambda _: unlimited,
        checkpoint_seen=IN_CONTAINERS if checkpoint else "",
        engine=engine,
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
