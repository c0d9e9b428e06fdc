"""The problems of the files of a job, which stand in an annotation of its pod template."""

from __future__ import annotations

from admittance.api.fields.problems import REQUIRED, TOO_LONG, Problem, shown
from admittance.api.files import (
    JOB_FILES,
    OUTPUTS_MAX,
    BadFiles,
    JobFiles,
    clash,
    noted_files,
)
from admittance.api.pods import PodTemplate
from admittance.api.validation.field_rules import field_problems


def check_noted_files(template: PodTemplate, path: str, count: int = 1) -> list[Problem]:
    """The problems of the files in the annotation of a template of so many pods."""
    if JOB_FILES not in template.metadata.annotations:
        return []
    field = f"{path}.metadata.annotations[{JOB_FILES}]"
    try:
        files = noted_files(template.metadata.annotations)
    except BadFiles as error:
        return [Problem(field, str(error))]
    return [] if files is None else check_files(files, field, count)


def check_files(files: JobFiles, field: str, count: int = 1) -> list[Problem]:
    """The problems of the files of each of so many pods. ``field``: where they stand."""
    problems = [
        problem._replace(field=f"{field}.{problem.field}") for problem in field_problems(files)
    ]
    if problems:
        return problems
    if not files.inputs and not files.outputs:
        problems.append(Problem(field, "has neither inputs nor outputs", REQUIRED))
    for index, file in enumerate(files.inputs):
        least = 1 if file.size else 0
        if not least <= file.parts <= file.size:
            message = f"must be from {least} to {file.size}, not {file.parts}"
            problems.append(Problem(f"{field}.inputs[{index}].parts", message))
    if (kept := count * len(files.outputs)) > OUTPUTS_MAX and count > 1:
        message = f"the pods may leave {kept:,} outputs, at most {OUTPUTS_MAX} are kept"
        problems.append(Problem(f"{field}.outputs", message, TOO_LONG))
    for what, paths in (
        ("inputs", [file.name for file in files.inputs]),
        ("outputs", list(files.outputs)),
    ):
        if twice := clash(paths):
            message = f"{shown(twice)} is there twice, or is also the folder of another file"
            problems.append(Problem(f"{field}.{what}", message))
    return problems
