"""Submissions of one command: how their outcomes are shown, and how the command waits for them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from admittance.cli.support import output
from admittance.cli.support.options import Output
from admittance.client import kinds, requests
from admittance.client.errors import BadInput, NotFound, TimedOut

if TYPE_CHECKING:
    from admittance.api.workload import Workload
    from admittance.client.requests.link import Link
    from admittance.workload.phase import Phase
    from admittance.workload.stored import StoredWorkload

COMMAND_LINE: Final = "the command line"
NAMED_MAX: Final = 5


class Submission(NamedTuple):
    """A workload to submit, and its source."""

    source: str
    workload: Workload

    @property
    def subject(self) -> str:
        return f"{kinds.WORKLOAD.qualified}/{self.workload.metadata.name}"


def show_accepted(submission: Submission, outcome: str, shape: Output) -> None:
    """Prints an accepted submission: one line, or a document of YAML."""
    meta = submission.workload.metadata
    made = {"namespace": meta.namespace, "name": meta.name}
    match shape:
        case Output.NAME:
            output.say(submission.subject)
        case Output.JSON:
            output.show_json_line(made)
        case Output.YAML:
            output.say("---")
            output.show_yaml(made)
        case Output.TABLE | Output.WIDE:
            output.outcome(submission.subject, outcome)


def show_manifests(submissions: Sequence[Submission], shape: Output) -> None:
    """Prints what would be submitted: manifests that `admit apply -f -` reads, or a line each."""
    import msgspec

    from admittance.api.reading.objects import encode

    made = [msgspec.json.decode(encode(submission.workload)) for submission in submissions]
    match shape:
        case Output.JSON:
            several = {"apiVersion": "v1", "kind": "List", "items": made}
            output.show_json(made[0] if len(made) == 1 else several)
        case Output.YAML:
            for manifest in made:
                output.say("---")
                output.show_yaml(manifest)
        case Output.NAME:
            for submission in submissions:
                output.say(submission.subject)
        case Output.TABLE | Output.WIDE:
            for submission in submissions:
                output.outcome(submission.subject, "created (dry run)")


def check_followed(workloads: Sequence[Workload]) -> None:
    """Raises BadInput unless there is one output to follow."""
    if len(workloads) != 1:
        raise BadInput(f"--follow shows the output of one workload, not of {len(workloads)}")
    if workloads[0].spec.array is not None:
        raise BadInput(
            "--follow shows the output of one workload; follow an element of the array with "
            "`admit logs workload 'NAME[0]' --follow`"
        )


async def follow_to_the_end(bus: Link, submission: Submission, timeout: float | None) -> int:
    """Shows the output of the job as it comes; returns its exit status."""
    import asyncio

    from admittance.cli.workloads.logs import show_output

    meta = submission.workload.metadata
    try:
        async with asyncio.timeout(timeout):
            # A job without output has only its result.
            with suppress(NotFound):
                await show_output(bus, meta.name, meta.namespace, follow=True)
            return await wait_for_all(bus, [submission], None)
    except TimeoutError:
        raise TimedOut(
            f'workload "{meta.name}" has not finished after {timeout:g} s, and continues; '
            f"`admit explain workload {meta.name}` says why"
        ) from None


async def wait_for_all(bus: Link, submissions: Sequence[Submission], timeout: float | None) -> int:
    from admittance.runtime import clock
    from admittance.workload.phase import Phase

    status = 0
    deadline = None if timeout is None else clock.monotonic() + timeout
    for submission in submissions:
        meta = submission.workload.metadata
        left = None if deadline is None else max(0.0, deadline - clock.monotonic())
        with output.Progress(meta.name) as progress:
            last: list[Phase] = []

            def seen(_workload: StoredWorkload, phase: Phase) -> None:
                if not last or last[-1] is not phase:  # noqa: B023  (called in this turn only)
                    last.append(phase)  # noqa: B023
                    progress.say(str(phase))

            workload = await requests.waits.reach(
                bus, meta.namespace, meta.name, Phase.FINISHED, left, seen
            )
        if why := requests.waits.is_failure(workload):
            output.error(f'workload "{meta.name}" failed: {why}')
            status = status or requests.waits.exit_status(workload)
        else:
            output.outcome(submission.subject, "finished")
    return status


def note_jobs_continue(submissions: Sequence[Submission]) -> None:
    """Prints that only the wait was interrupted, and that the jobs continue."""
    names = ", ".join(submission.workload.metadata.name for submission in submissions[:NAMED_MAX])
    more = f" and {len(submissions) - NAMED_MAX} more" if len(submissions) > NAMED_MAX else ""
    goes = "continues" if len(submissions) == 1 else "continue"
    first = submissions[0].workload.metadata.name
    output.note(
        f"{names}{more} {goes}; `admit wait workload {first} --for Finished` waits again, "
        f"`admit stop workload {first}` ends it"
    )
