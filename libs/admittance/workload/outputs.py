"""The files that a job left, as they are stored with its workload. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from admittance.api.files import PATH_MAX, path_error
from admittance.events.base import clipped_message
from admittance.events.files import FILES_MAX, OutputFile, problem_of

PROBLEM_MAX: Final = 200


def kept_outputs(files: Sequence[OutputFile]) -> tuple[OutputFile, ...]:
    """The files, as far as programs may use what a runner says of them: a file whose record is
    wrong is kept with its problem only."""
    return tuple(map(_kept, files[:FILES_MAX]))


def _kept(file: OutputFile) -> OutputFile:
    problem = problem_of(file) or path_error(file.name)
    if not problem:
        return replace(file, problem="")
    name = clipped_message(file.name, PATH_MAX)
    return OutputFile(name=name, problem=clipped_message(problem, PROBLEM_MAX))
