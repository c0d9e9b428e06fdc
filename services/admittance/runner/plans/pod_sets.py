"""Turns the pod sets of an admission into plans: programs, environments, devices, limits. Pure.

Pods differ only by their index, which the shim fills in, so the plan of a pod set with a thousand
pods is as small as that of one pod.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from admittance.api.fields.warning_signal import WARNING_SIGNAL, BadWarning, noted_warning
from admittance.api.files import JobFiles
from admittance.api.pods import Container, PodSpec, PodTemplate
from admittance.api.validation.containers import check_containers
from admittance.api.validation.field_rules import field_problems
from admittance.api.workload import noted_completions
from admittance.events.facts import Admitted
from admittance.events.reader import BROKEN
from admittance.events.shapes import PodSetToRun
from admittance.folders import (
    SUBMITTED_FROM,
    BadFolder,
    SubmittedFrom,
    noted_folder,
)
from admittance.job_rules.rules import CannotRun
from admittance.runner.files.plan import (
    job_files,
    pod_files,
    transfers_of,
)
from admittance.runner.plans.devices import (
    MachineDevices,
    PlannedDevices,
    planned_devices,
    pods_here,
)
from admittance.runner.plans.inputs.environment import ValueBudget, Variable, variables
from admittance.runner.plans.inputs.host_inputs import Inputs
from admittance.runner.plans.inputs.volumes import (
    FileBudget,
    Mount,
    VolumePlan,
    mounts_of,
    volume_plans,
)
from admittance.runner.plans.pod_limits import PodLimits, pod_limits
from admittance.runner.plans.policy_plan import job_policy, policy_plan
from admittance.runner.plans.run_plan import (
    GRACE_MAX,
    GRACE_SECONDS,
    PodSetPlan,
    Processes,
    RunPlan,
    WarnPlan,
)

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


def assemble(
    admitted: Admitted,
    given: dict[str, str],
    processes_of: Callable[[PodSetToRun, PodInputs], tuple[Processes, Processes]],
    inputs: Inputs,
    machine: MachineDevices,
    cleanup: tuple[tuple[str, ...], ...] = (),
    limits_of: Callable[[PodSpec], PodLimits] = pod_limits,
    checkpoint_seen: str = "",
    engine: str = "",
) -> RunPlan:
    """The plan of a run with all pod sets of the admission. ``processes_of``: a function that
    returns the init and main processes of one pod set; ``limits_of``: one that returns what its
    pods may use. ``checkpoint_seen``: the path of the checkpoint folder for processes; "": none.
    ``engine``: the kind of the container engine; "": none.
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
        devices = planned_devices(pod_set, asked, machine, engine)
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
                own_files=devices.own,
                unset=devices.unset,
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
        # An engine keeps containers from all devices that it does not give to them.
        device_files=() if engine else machine.deniable(),
    )
