"""``admit submit``: submits workloads from manifests, Jobs or a command line."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from admittance.api.checks import Foreign
from admittance.api.problems import ManifestError
from admittance.api.reading.objects import decode_object
from admittance.api.workload import Job, Workload
from admittance.cli import fit
from admittance.cli.support import output
from admittance.cli.support.errors import AnswerIsNo, BadInput, CliError
from admittance.cli.support.link import Link, link
from admittance.cli.support.options import Call, Output
from admittance.client import kinds
from admittance.client.requests import changes
from admittance.client.requests import warnings as warnings_about
from admittance.client.requests.objects import lookup
from admittance.client.requests.priority_classes import missing_class, named_class
from admittance.client.requests.submissions import CommandOptions as CommandOptions
from admittance.client.requests.submissions import (
    Spelling,
    workload_of_command,
    workload_of_manifest,
)
from admittance.client.requests.submissions import submitted as fact_of
from admittance.events.base import Fact
from admittance.events.requests import SettledReply
from admittance.runtime import clock
from admittance.workload.phase import Phase
from admittance.workload.stored import VARIANT, StoredWorkload

if TYPE_CHECKING:
    from admittance.api.reading.manifest import Document


AT_ONCE: Final = 100
"""The greatest number of outcomes of submissions that are requested at the same time."""

COMMAND_LINE: Final = "the command line"
SPELLED: Final = Spelling("-q", "-n", "--anyway")
NAMED_MAX: Final = 5


class Submission(NamedTuple):
    """A workload to submit, and its source."""

    source: str
    workload: Workload

    @property
    def subject(self) -> str:
        return f"{kinds.WORKLOAD.qualified}/{self.workload.metadata.name}"


async def submit(
    call: Call,
    wish: CommandOptions | None,
    paths: Sequence[str],
    *,
    wait: bool,
    timeout: float | None,
    anyway: bool = False,
    queue: str | None = None,
) -> int:
    """Submits the command or the manifests; with ``wait`` until all have finished. ``queue``: the
    LocalQueue for the workloads of the manifests; None: those that the manifests name.

    A command that could never start is refused unless ``anyway``. Returns the exit status: 1 if a
    submission is refused; with ``wait`` the status of the first failed job, or 1 if its runner
    reported none.
    """
    from_files = _from_files(paths, call.namespace, queue) if paths else []
    async with link(call) as bus:
        submissions = list(from_files)
        if wish is not None:
            workload = await workload_of_command(bus, wish, spelled=SPELLED)
            await fit.refuse_misfit(bus, workload, anyway=anyway, spelled=SPELLED)
            submissions.append(Submission(COMMAND_LINE, workload))
        if not submissions:
            raise BadInput("nothing to submit: name a command after --, or a file with -f")
        status = await submit_all(bus, submissions)
        if status or not wait:
            return status
        try:
            return await _wait_for_all(bus, submissions, timeout)
        except asyncio.CancelledError:
            _note_jobs_continue(submissions)
            raise


def _from_files(paths: Sequence[str], namespace: str, queue: str | None) -> list[Submission]:
    from admittance.cli.support import files

    documents = files.documents(paths, namespace, queue)
    submissions = [_runnable(one) for one in documents]
    files.warn_about(documents)
    return submissions


def _runnable(document: Document) -> Submission:
    if not isinstance(document.manifest, Workload | Job):
        place = f"{document.source}: {document.place}"
        if isinstance(document.manifest, Foreign):
            raise BadInput(f"{place}: {document.manifest.not_run}")
        raise BadInput(
            f"{place}: objects of the kind {document.manifest.kind} are not submitted; use "
            "`admit apply`"
        )
    return submission_of(document)


def submission_of(document: Document) -> Submission:
    """The workload of a Workload or Job manifest, with a generated name if it has none."""
    manifest = document.manifest
    assert isinstance(manifest, Workload | Job), manifest.kind
    place = f"{document.source}: {document.place}"
    try:
        return Submission(place, workload_of_manifest(manifest))
    except ManifestError as error:
        raise BadInput(*(f"{place}: {line}" for line in error.lines())) from None


async def submit_all(bus: Link, submissions: Sequence[Submission]) -> int:
    """Publishes all submissions, then prints the outcome of each.

    A refused submission makes the exit status 1; all other submissions are made.
    """
    submissions, status = await _of_known_classes(bus, submissions)
    submitted = [fact_of(one.workload) for one in submissions]
    sequences = await bus.publish_all(submitted)
    accepted = []
    for number, (one, fact) in enumerate(zip(submissions, submitted, strict=True)):
        if number % AT_ONCE == 0:
            part = slice(number, number + AT_ONCE)
            replies = await _settled(bus, submitted[part], sequences[part])
        try:
            reply = replies[number % AT_ONCE]
            if isinstance(reply, CliError):
                raise reply
            reply = changes.accepted(fact, reply)
        except CliError as error:
            if len(submissions) == 1 and one.source == COMMAND_LINE:
                raise
            for line in error.lines:
                output.error(f"{one.source}: {line}")
            status = max(status, error.status)
            continue
        accepted.append(one)
        unchanged = reply.outcome == "ignored"
        if unchanged and await _is_edited_variant(bus, one.workload):
            output.error(
                f"{one.source}: {one.subject} is a variant and cannot be changed: "
                "change its parent workload or the ClusterQueue"
            )
            status = 1
            continue
        if bus.call.output is Output.NAME:
            output.say(one.subject)
        elif bus.call.output is Output.JSON:
            meta = one.workload.metadata
            output.show_json_line({"namespace": meta.namespace, "name": meta.name})
        else:
            output.outcome(one.subject, "unchanged" if unchanged else "created")
    every = [(one.subject, one.workload) for one in accepted]
    files_alone = [(one.subject, one.workload) for one in accepted if one.source != COMMAND_LINE]
    for warnings, told in (
        (warnings_about.queues, every),
        (warnings_about.classes, every),
        (warnings_about.min_counts, every),
        (warnings_about.misfits, files_alone),
        (warnings_about.engines, every),
    ):
        for warning in await warnings(bus, told):
            output.warn(warning)
    return status


async def _is_edited_variant(bus: Link, workload: Workload) -> bool:
    """Whether the workload is an existing variant with a different spec; ``active`` is ignored."""
    if workload.spec.role != VARIANT:
        return False
    meta = workload.metadata
    found = await lookup(bus, kinds.WORKLOAD.object_key(meta.namespace, meta.name))
    if found is None:
        return False
    present = decode_object(found.data).manifest
    return isinstance(present, Workload) and (
        replace(present.spec, active=True) != replace(workload.spec, active=True)
    )


async def _of_known_classes(
    bus: Link, submissions: Sequence[Submission]
) -> tuple[list[Submission], int]:
    """The submissions without those that name a missing priority class, each of which gets an
    error, and the exit status. Raises AnswerIsNo if the command line names a missing class."""
    asked = {named_class(one.workload): one.workload for one in submissions}
    missing = {named: await missing_class(bus, one) for named, one in asked.items()}
    known: list[Submission] = []
    for one in submissions:
        why = missing[named_class(one.workload)]
        if not why:
            known.append(one)
        elif one.source == COMMAND_LINE:
            raise AnswerIsNo(f"not submitted: {why}")
        else:
            output.error(f"{one.source}: not submitted: {why}")
    return known, int(len(known) < len(submissions))


async def _settled(
    bus: Link, submitted: Sequence[Fact], sequences: Sequence[int | CliError]
) -> list[SettledReply | CliError]:
    """The outcome of each fact, from its sequence; a `CliError` in place of a sequence is returned
    as it is.
    """

    async def one(fact: Fact, sequence: int | CliError) -> SettledReply | CliError:
        if isinstance(sequence, CliError):
            return sequence
        try:
            return await bus.settle(sequence, fact.namespace)
        except CliError as error:
            return error

    return list(await asyncio.gather(*map(one, submitted, sequences)))


async def _wait_for_all(bus: Link, submissions: Sequence[Submission], timeout: float | None) -> int:
    from admittance.client.requests.waits import exit_status, is_failure, reach

    status = 0
    deadline = None if timeout is None else clock.monotonic() + timeout
    for one in submissions:
        meta = one.workload.metadata
        left = None if deadline is None else max(0.0, deadline - clock.monotonic())
        with output.Progress(meta.name) as progress:
            last: list[Phase] = []

            def seen(_workload: StoredWorkload, phase: Phase) -> None:
                if not last or last[-1] is not phase:  # noqa: B023  (called in this turn only)
                    last.append(phase)  # noqa: B023
                    progress.say(str(phase))

            workload = await reach(bus, meta.namespace, meta.name, Phase.FINISHED, left, seen)
        if why := is_failure(workload):
            output.error(f'workload "{meta.name}" failed: {why}')
            status = status or exit_status(workload)
        else:
            output.outcome(one.subject, "finished")
    return status


def _note_jobs_continue(submissions: Sequence[Submission]) -> None:
    """Prints that only the wait was interrupted, and that the jobs continue."""
    names = ", ".join(one.workload.metadata.name for one in submissions[:NAMED_MAX])
    more = f" and {len(submissions) - NAMED_MAX} more" if len(submissions) > NAMED_MAX else ""
    goes = "continues" if len(submissions) == 1 else "continue"
    first = submissions[0].workload.metadata.name
    output.note(
        f"{names}{more} {goes}; `admit wait workload {first} --for Finished` waits again, "
        f"`admit stop workload {first}` ends it"
    )
