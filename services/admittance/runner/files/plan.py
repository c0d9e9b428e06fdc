"""Which files a run needs before it starts and keeps at its end. Pure."""

from __future__ import annotations

import msgspec

from admittance.api.files import BadFiles, JobFiles, noted_files
from admittance.api.pods import PodTemplate
from admittance.api.validation.files import check_files
from admittance.events.files import FILES_MAX, OutputFile, input_place
from admittance.job_rules.rules import CannotRun


class WantedInput(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An input on the bus. The runner keeps it under its digest until the run has ended."""

    name: str
    upload: str
    place: str
    size: int
    parts: int
    sha256: str


class PodFiles(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The files of each pod of a set. ``inputs``: for each path in the folder of the pod the digest
    of its bytes, and whether it is a program. ``outputs``: the paths that are kept."""

    inputs: tuple[tuple[str, str, bool], ...] = ()
    outputs: tuple[str, ...] = ()


class Transfers(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the runner brings and keeps for a run. ``outputs``: the paths that each pod may leave,
    by the name of the pod set. ``upload``: where the outputs are stored. ``alone``: whether the run
    has one pod, so that names of outputs need no pod. ``limit``: the most bytes of the inputs, and
    of the outputs."""

    upload: str
    inputs: tuple[WantedInput, ...] = ()
    outputs: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    alone: bool = True
    limit: int = 0


def job_files(pod_set: str, template: PodTemplate) -> JobFiles | None:
    """The files in the annotation of the pod set's template; None if it has none. Raises
    CannotRun."""
    try:
        files = noted_files(template.metadata.annotations)
    except BadFiles as error:
        raise CannotRun(f"pod set {pod_set}: the annotation of its files {error}") from error
    if files is not None:
        # A workload that an earlier version accepted may break a rule that is newer.
        for problem in check_files(files, f"pod set {pod_set}: files"):
            raise CannotRun(str(problem))
    return files


def pod_files(files: JobFiles | None) -> PodFiles | None:
    """The files of each pod."""
    if files is None:
        return None
    return PodFiles(
        inputs=tuple((file.name, file.sha256, file.executable) for file in files.inputs),
        outputs=files.outputs,
    )


def transfers_of(sets: list[tuple[str, int, JobFiles | None]], pods: int) -> Transfers | None:
    """The transfers of a run. ``sets``: the name, the completions here and the files of each pod
    set. ``pods``: all pods of the job, on all machines. Raises CannotRun if the run could leave
    more files than are kept."""
    having = [files for _, _, files in sets if files is not None]
    if not having:
        return None
    wanted: dict[str, WantedInput] = {}
    for files in having:
        for index, file in enumerate(files.inputs):
            wanted.setdefault(
                file.sha256,
                WantedInput(
                    name=file.name,
                    upload=files.upload,
                    place=input_place(index),
                    size=file.size,
                    parts=file.parts,
                    sha256=file.sha256,
                ),
            )
    kept = sum(count * len(files.outputs) for _, count, files in sets if files is not None)
    if kept > FILES_MAX:
        raise CannotRun(
            f"its pods may leave {kept:,} outputs, and at most {FILES_MAX} are kept of a workload"
        )
    return Transfers(
        upload=having[0].upload,
        inputs=tuple(wanted.values()),
        outputs={name: files.outputs for name, _, files in sets if files and files.outputs},
        alone=pods == 1,
    )


class LeftFile(msgspec.Struct, frozen=True, kw_only=True):
    """What the shim says of an output of a pod: the file ``copy`` of the folder of the run has it,
    or there is a ``problem``."""

    name: str
    copy: str = ""
    problem: str = ""


NOT_KEPT = "it was not kept, because the pod was stopped"


def outputs_left(
    transfers: Transfers, pods: dict[str, list[LeftFile]], ended: list[str]
) -> list[tuple[OutputFile, str]]:
    """The outputs of a run, each with the file that has its bytes; "" if it has a problem.

    ``pods``: what the shim says of each pod's outputs. ``ended``: the names of the run's pods.
    """
    outputs = []
    for pod in sorted(ended):
        paths = transfers.outputs.get(pod.rpartition("-")[0], ())
        left = {file.name: file for file in pods.get(pod, ())}
        for path in paths:
            name = path if transfers.alone else f"{pod}/{path}"
            file = left.get(path, LeftFile(name=path, problem=NOT_KEPT))
            outputs.append((OutputFile(name=name, problem=file.problem), file.copy))
    return outputs[:FILES_MAX]
