"""Files of jobs: stores the inputs of a workload before it is submitted, and reads its outputs."""

from __future__ import annotations

import asyncio
import hashlib
import os
import posixpath
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace

from admittance.api.fields.problems import shown
from admittance.api.files import (
    INPUTS_MAX,
    JOB_FILES,
    OUTPUTS_MAX,
    InputFile,
    JobFiles,
    clash,
    noted_files,
    path_error,
    written_files,
)
from admittance.api.workload import Workload
from admittance.client import kinds
from admittance.client.arguments.spelling import IN_PYTHON, Spelling
from admittance.client.errors import BadInput, NotFound, Refused, RequestFailed
from admittance.client.requests.link import Link
from admittance.client.requests.objects import find, is_array
from admittance.events import reasons
from admittance.events.files import OutputFile, input_place, upload_of
from admittance.events.requests.reading import Files, FilesReply
from admittance.runtime import chance
from admittance.runtime.bus.files import (
    CheckedBytes,
    FileChanged,
    FileMissing,
    read_file,
    store_file,
)
from admittance.runtime.errors import BusRefused, BusUnavailable, Full
from admittance.workload.conditions import Type, is_true
from admittance.workload.stored import StoredWorkload

LETTERS: Final = 6
"""Bytes of the random part of an upload's name."""


class LocalInput(NamedTuple):
    """A file of this machine. ``name``: its path in the folder of the job."""

    name: str
    path: Path
    size: int
    executable: bool = False


class WantedFiles(NamedTuple):
    """The files that a submission names."""

    inputs: tuple[LocalInput, ...]
    outputs: tuple[str, ...]

    @property
    def size(self) -> int:
        """The bytes of all inputs."""
        return sum(file.size for file in self.inputs)


def wanted_files(
    inputs: Sequence[str | os.PathLike[str]],
    outputs: Sequence[str],
    spelled: Spelling = IN_PYTHON,
) -> WantedFiles | None:
    """The files of a submission; None if it names none. Raises BadInput for a file that is not
    there or cannot be read, and for a path that the folder of a job cannot have."""
    if not inputs and not outputs:
        return None
    problems: list[str] = []
    files: list[LocalInput] = []
    for given in inputs:
        try:
            files.append(_local(os.fspath(given)))
        except ValueError as error:
            problems.append(f"{spelled.inputs} {given}: {error}")
    paths = []
    for wanted in outputs:
        path = posixpath.normpath(wanted) if wanted else wanted
        if wrong := path_error(path):
            problems.append(f"{spelled.outputs} {wrong}")
        paths.append(path)
    for what, named, most in (
        (spelled.inputs, [file.name for file in files], INPUTS_MAX),
        (spelled.outputs, paths, OUTPUTS_MAX),
    ):
        if len(named) > most:
            problems.append(f"{what}: {len(named)} files, at most {most} are allowed")
        elif twice := clash(named):
            problems.append(
                f"{what}: {shown(twice)} would be there twice, or be the folder of another file"
            )
    if problems:
        raise BadInput(*problems)
    return WantedFiles(tuple(files), tuple(paths))


def _local(given: str) -> LocalInput:
    """The file at that path. A relative path is also its path in the folder of the job; of another
    one the last part is. Raises ValueError with what is wrong."""
    name = posixpath.normpath(given)
    if name.startswith("/") or ".." in name.split("/"):
        name = posixpath.basename(os.path.realpath(given) if name.endswith("..") else name)
    if wrong := path_error(name):
        raise ValueError(wrong)
    path = Path(given)
    try:
        found = path.stat()
    except OSError as error:
        raise ValueError(error.strerror) from None
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("is not a file")
    if not os.access(path, os.R_OK):
        raise ValueError("cannot be read")
    return LocalInput(name, path, found.st_size, bool(found.st_mode & stat.S_IXUSR))


async def check_limit(link: Link, namespace: str, wanted: WantedFiles) -> None:
    """Raises Refused if the system takes no files now, or not as many bytes."""
    reply = await link.ask("files", Files(), FilesReply, namespace=namespace)
    if reply.error:
        raise Refused(f"not submitted: {reply.error}")
    if wanted.size > reply.limit:
        what = link.spelled.inputs
        raise Refused(
            f"not submitted: {what}: the files have {wanted.size:,} bytes, and a workload may have "
            f"{reply.limit:,} (ADMIT_FILE_LIMIT): put larger data where the machines can read it"
        )


async def with_files(
    link: Link, workload: Workload, wanted: WantedFiles, key: str = ""
) -> Workload:
    """Stores the inputs; returns the workload with its files, the same one for the same key and
    files. Raises RequestFailed, and BadInput if a file cannot be read."""
    meta = workload.metadata
    letters = chance.token_hex(LETTERS)
    if key:
        letters = await asyncio.to_thread(_letters_of, f"{link.user}/{key}", wanted, link.spelled)
    upload = upload_of(meta.name, letters)
    inputs = []
    for index, file in enumerate(wanted.inputs):
        inputs.append(await _store(link, meta.namespace, upload, index, file))
    note = written_files(JobFiles(upload=upload, inputs=tuple(inputs), outputs=wanted.outputs))
    return replace(
        workload,
        spec=replace(
            workload.spec,
            pod_sets=tuple(
                replace(
                    pod_set,
                    template=replace(
                        pod_set.template,
                        metadata=replace(
                            pod_set.template.metadata,
                            annotations={**pod_set.template.metadata.annotations, JOB_FILES: note},
                        ),
                    ),
                )
                for pod_set in workload.spec.pod_sets
            ),
        ),
    )


def _letters_of(key: str, wanted: WantedFiles, spelled: Spelling) -> str:
    whole = hashlib.sha256(repr((key, wanted.outputs)).encode())
    for file in wanted.inputs:
        try:
            with file.path.open("rb") as opened:
                digest = hashlib.file_digest(opened, "sha256").hexdigest()
        except OSError as error:
            raise BadInput(f"{spelled.inputs} {file.path}: {error.strerror}") from None
        whole.update(f"{file.name!r} {file.executable} {digest}".encode())
    return whole.hexdigest()[: 2 * LETTERS]


async def _store(
    link: Link, namespace: str, upload: str, index: int, file: LocalInput
) -> InputFile:
    try:
        with file.path.open("rb") as opened:
            stored = await store_file(link.bus, namespace, upload, input_place(index), opened)
    except OSError as error:
        raise BadInput(f"{link.spelled.inputs} {file.path}: {error.strerror}") from None
    except (BusRefused, BusUnavailable) as error:
        raise await _failure(link, f"not submitted: cannot store {file.path}", error) from None
    return InputFile(
        name=file.name,
        size=stored.size,
        parts=stored.parts,
        sha256=stored.sha256,
        executable=file.executable,
    )


async def _failure(link: Link, what: str, error: BusRefused | BusUnavailable) -> RequestFailed:
    if isinstance(error, Full):
        return Refused(f"{what}: the server has no room for more files of jobs ({error})")
    return await link.failure(what, error)


# Outputs. -----------------------------------------------------------------------------------


class FetchedFile(NamedTuple):
    """An output of a job. ``path``: where it is on this machine; None: it is not there, for the
    reason ``problem``."""

    name: str
    size: int
    path: Path | None
    problem: str = ""


async def outputs_of(link: Link, name: str, namespace: str) -> StoredWorkload:
    """The workload whose job left the outputs: the named one, or its admitted variant. Raises
    NotFound, and Refused if it asks for no outputs or has not ended."""
    stored = await find(link, kinds.WORKLOAD, name, namespace)
    workload = stored.workload()
    if not workload.status.outputs and workload.status.admitted_variant:
        variant = workload.status.admitted_variant
        workload = (await find(link, kinds.WORKLOAD, variant, namespace)).workload()
    if workload.status.outputs:
        return workload
    if is_array(workload):
        raise Refused(
            f"{name} is an array, and its elements have the outputs: name one, such as {name}[0]",
            reason=reasons.IS_ARRAY,
        )
    subject = f"workload {stored.namespace}/{stored.name}"
    files = [
        noted_files((pod_set["template"].get("metadata") or {}).get("annotations") or {})
        for pod_set in stored.plain()["spec"].get("podSets") or ()
    ]
    if not any(noted is not None and noted.outputs for noted in files):
        raise Refused(f"{subject} keeps no files: submit it with {link.spelled.outputs} PATH")
    if not is_true(workload, Type.FINISHED):
        raise Refused(f"{subject} has not ended: its outputs are kept at its end")
    raise Refused(f"{subject} has no outputs: no runner reported any")


async def fetch(
    link: Link,
    name: str,
    namespace: str,
    folder: Path,
    done: Callable[[FetchedFile], None] = lambda _: None,
) -> tuple[FetchedFile, ...]:
    """Writes the outputs of a workload below the folder. ``done`` is called with each of them.
    Raises NotFound, Refused, and BadInput if the folder cannot be written."""
    workload = await outputs_of(link, name, namespace)
    fetched = []
    for file in workload.status.outputs:
        one = await _fetch(link, workload.metadata.namespace, file, folder)
        done(one)
        fetched.append(one)
    return tuple(fetched)


async def _fetch(link: Link, namespace: str, file: OutputFile, folder: Path) -> FetchedFile:
    if file.problem or path_error(file.name):
        problem = file.problem or "its name is not a path below a folder"
        return FetchedFile(file.name, file.size, None, problem)
    path = folder / file.name
    half = path.with_name(f".{path.name[:200]}.{chance.token_hex(4)}")
    checked = CheckedBytes(file.size, file.sha256)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with half.open("xb") as opened:
            parts = read_file(link.bus, namespace, file.upload, file.place, file.parts)
            async for part in parts:
                checked.see(part)
                await asyncio.to_thread(opened.write, part)
        checked.end()
        half.replace(path)
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}") from None
    except (FileMissing, FileChanged) as error:
        return FetchedFile(file.name, file.size, None, str(error))
    except (BusRefused, BusUnavailable) as error:
        raise await _failure(link, f"cannot read {file.name}", error) from None
    finally:
        with suppress(OSError):
            half.unlink(missing_ok=True)
    return FetchedFile(file.name, file.size, path)


def check_fetched(subject: str, fetched: Sequence[FetchedFile]) -> None:
    """Raises NotFound with one sentence for each output that is not there."""
    if problems := [f"{subject}: {one.name}: {one.problem}" for one in fetched if one.problem]:
        raise NotFound(*problems)
