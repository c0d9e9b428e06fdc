"""Files of jobs on the bus: the stream that has them, and the subject of each part of a file. Pure.

The inputs and outputs of one workload are one *upload*. A file is cut into parts, and each part is
a message on a subject of its own, ``admit.file.<ns>.<upload>.<part>``, that is written once: the
stream refuses a second message on the subject. Where the parts of a file begin is its ``place``:
part 3 of the file at ``i0`` is ``i0-3``.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from msgspec import Meta

from admittance.events.base import Shape
from admittance.events.names import plain, token

FILES: Final = "ADMITTANCE_FILES"
"""The stream with the files of jobs. It is not part of a backup."""
FILE: Final = "admit.file."
"""First tokens of the subjects of parts."""
PARTS: Final = f"{FILE}*.*.*"
"""The subjects of all parts."""
PART_BYTES: Final = 512 * 1024
"""The bytes of each part of a file but the last."""
FILES_MAX: Final = 100
"""The most inputs of a workload, and the most outputs that are kept."""

Sha256: TypeAlias = Annotated[str, Meta(extra_json_schema={"pattern": "^[0-9a-f]{64}$"})]


class OutputFile(Shape, frozen=True, kw_only=True):
    """A file that a job left, or that it should have left. ``name``: its path in the job's folder,
    after the name of the pod if the job has several. ``place``: where the upload of the workload
    has its ``parts``. ``problem``: why there is no file, as a sentence; "": there is one.
    """

    name: str
    size: int = 0
    parts: int = 0
    sha256: Sha256 = ""
    upload: str = ""
    place: str = ""
    problem: str = ""


def parts_of(size: int) -> int:
    """The number of parts of a file with so many bytes."""
    return -(-size // PART_BYTES)


def part_subject(namespace: str, upload: str, place: str, number: int) -> str:
    """The subject of part ``number`` of the file at the place."""
    return f"{FILE}{token(namespace)}.{token(upload)}.{place}-{number}"


def subjects_of_upload(namespace: str, upload: str) -> str:
    """The subjects of all parts of the upload."""
    return f"{FILE}{token(namespace)}.{token(upload)}.>"


def input_place(index: int) -> str:
    """The place of the input with that index."""
    return f"i{index}"


def output_place(attempt: str, index: int) -> str:
    """The place of an output. ``attempt``: letters that no other attempt to upload has, since each
    part is written once."""
    return f"o{attempt}-{index}"


def upload_of(workload: str, letters: str) -> str:
    """The name of an upload of the workload with that name. ``letters``: letters and digits that no
    other upload of a workload with this name has."""
    return f"{workload}.{letters}"


def workload_of(upload: str) -> str:
    """The name of the workload that the upload is for; "" if this is not the name of an upload."""
    return upload.rpartition(".")[0]


def upload_of_subject(subject: str) -> tuple[str, str]:
    """The namespace and the upload of a part. Raises BadToken, and ValueError for a subject of
    something else."""
    if not subject.startswith(FILE):
        raise ValueError(f"the subject {subject!r} is not that of a part of a file")
    namespace, upload, _ = subject.removeprefix(FILE).split(".")
    return plain(namespace), plain(upload)


def problem_of(file: OutputFile) -> str:
    """Why the record of a file, which a runner wrote, cannot be used; "" if it can."""
    if file.problem:
        return file.problem
    if file.size < 0 or not parts_of(file.size) <= file.parts <= max(file.size, 0):
        return f"{file.parts} parts cannot have {file.size} bytes"
    return ""
