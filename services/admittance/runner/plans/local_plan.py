"""The plan of a run with pods that are processes of this machine. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from admittance.api.pods import Container
from admittance.events.facts import Admitted
from admittance.events.shapes import PodSetToRun
from admittance.folders import (
    FolderSight,
    is_proven,
    sees_folder,
)
from admittance.job_rules.rules import CannotRun
from admittance.runner.plans.devices import (
    NO_MACHINE,
    MachineDevices,
)
from admittance.runner.plans.inputs.host_inputs import NO_INPUTS, Inputs
from admittance.runner.plans.inputs.volumes import (
    local_folder,
)
from admittance.runner.plans.pod_sets import PodInputs, assemble
from admittance.runner.plans.run_plan import ContainerPlan, Processes, RunPlan

NO_SIGHT: Final = FolderSight()


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

    plan = assemble(admitted, given, processes_of, inputs, machine, checkpoint_seen=checkpoint)
    return msgspec.structs.replace(plan, folders=sight.allowed, checkpoint=checkpoint)
