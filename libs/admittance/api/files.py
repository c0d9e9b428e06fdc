"""The files of a job: what a workload brings to the folder of its job, and what it wants back.

A workload has them as JSON in the annotation `JOB_FILES` of its pod template, which reaches every
runner. Sizes and digests stand in it, so nothing that is stored later can change an input.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Final

import msgspec

from admittance.api.fields.limits import field_rule, list_rule
from admittance.api.fields.problems import shown
from admittance.api.meta import Strict

JOB_FILES: Final = "admittance.dev/files"
"""Annotation of a pod template: `JobFiles` as JSON."""
INPUTS_MAX: Final = 100
OUTPUTS_MAX: Final = 100
PATH_MAX: Final = 255
"""The most bytes of the path of a file."""
SIZE_MAX: Final = 2**40
_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_UPLOAD: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?\.[a-z0-9]{8,32}", re.ASCII)


def path_error(path: str) -> str:
    """The error in the path of a file in the folder of a job; "": it names a file below it."""
    if not path:
        return "is empty"
    if not path.isprintable():
        return f"{shown(path)} has characters that cannot be printed"
    if len(path.encode()) > PATH_MAX:
        return f"has {len(path.encode())} bytes, at most {PATH_MAX} are allowed"
    if path.startswith("/"):
        return f"{shown(path)} must be relative to the folder of the job"
    if any(part in ("", ".", "..") for part in path.split("/")):
        return f'{shown(path)} has a part "", "." or ".."'
    return ""


def _sha256_error(text: str) -> str:
    return "" if _SHA256.fullmatch(text) else "must be a SHA-256 of 64 hexadecimal digits"


def _upload_error(text: str) -> str:
    if len(text) <= PATH_MAX + 33 and _UPLOAD.fullmatch(text):
        return ""
    return f"{shown(text)} is not the name of an upload: a workload's name, a dot, and 8 letters"


class InputFile(Strict, frozen=True, kw_only=True):
    """A file that is in the folder of the job when it starts. ``name``: its path there. ``parts``:
    the number of messages that have its bytes. ``executable``: whether it is a program."""

    name: Annotated[str, field_rule(required=True, syntax=path_error, maxLength=PATH_MAX)]
    size: Annotated[int, field_rule(minimum=0, maximum=SIZE_MAX)] = 0
    parts: Annotated[int, field_rule(minimum=0, maximum=SIZE_MAX)] = 0
    sha256: Annotated[
        str, field_rule(required=True, syntax=_sha256_error, pattern="^[0-9a-f]{64}$")
    ]
    executable: bool = False


class JobFiles(Strict, frozen=True, kw_only=True):
    """The files of a job. ``upload``: where the submitter stored the inputs, and the runner stores
    the outputs. ``outputs``: paths in the folder of the job of the files that are kept."""

    upload: Annotated[str, field_rule(required=True, syntax=_upload_error)]
    inputs: Annotated[tuple[InputFile, ...], list_rule(INPUTS_MAX, "inputs")] = ()
    outputs: Annotated[
        tuple[Annotated[str, field_rule(syntax=path_error, maxLength=PATH_MAX)], ...],
        list_rule(OUTPUTS_MAX, "outputs"),
    ] = ()

    @property
    def input_bytes(self) -> int:
        """The bytes of all inputs."""
        return sum(file.size for file in self.inputs)


class BadFiles(ValueError):
    """The error that the annotation `JOB_FILES` does not describe files."""


_files = msgspec.json.Decoder(JobFiles)


def written_files(files: JobFiles) -> str:
    """The files as the value of the annotation `JOB_FILES`."""
    return msgspec.json.encode(files).decode()


def noted_files(annotations: Mapping[str, str]) -> JobFiles | None:
    """The files in the annotations of a pod template; None if there are none. Raises BadFiles."""
    written = annotations.get(JOB_FILES)
    if written is None:
        return None
    try:
        return _files.decode(written)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadFiles(f"does not describe files of a job: {error}") from error


def clash(paths: Iterable[str]) -> str:
    """A path that cannot be a file, because another one is the same or needs a folder there; "": no
    path is such."""
    files: set[str] = set()
    folders: set[str] = set()
    for path in paths:
        above = path.split("/")[:-1]
        needed = {"/".join(above[: depth + 1]) for depth in range(len(above))}
        if path in files or path in folders or needed & files:
            return path
        files.add(path)
        folders |= needed
    return ""
