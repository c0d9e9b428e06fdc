"""``admit simulate``: prints what would start, wait, or be evicted if manifests were applied
now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from admittance.cli.commands.arguments import file_option
from admittance.cli.commands.declare import command, option
from admittance.cli.support import output
from admittance.cli.support.link import link
from admittance.cli.support.options import Call, Output
from admittance.client import kinds, requests
from admittance.client.errors import BadInput, RequestFailed

if TYPE_CHECKING:
    from admittance.api.reading.manifest import Document
    from admittance.cli.workloads.submissions import Submission
    from admittance.client.requests.link import Link

ROWS: Final = 20
ALL: Final = 0


@command(without=[Output.NAME])
@file_option
@option("--delete KIND/NAME", "Simulate its deletion; repeatable.", name="deletes", many=True)
@option(
    "--limit N", "Rows of each list; 0: all. Default: 20; JSON and YAML: all", kind=int, least=0
)
async def simulate(
    call: Call, file: Sequence[str], deletes: Sequence[str], limit: int | None
) -> int:
    """Show what would start, wait, or be evicted if manifests were applied now; changes nothing.

    Shows only the differences to what would happen without the change, now and after evicted jobs
    have stopped.
    """
    import msgspec

    from admittance.api.reading.manifest import encode
    from admittance.cli.show import simulations
    from admittance.cli.support import files
    from admittance.events.requests.whatif import Simulate

    targets = [kinds.object_named(word, "--delete") for word in deletes]
    if not file and not targets:
        raise BadInput("nothing to simulate: name manifests with -f, or an object with --delete")
    documents = files.documents(file, call.namespace) if file else []
    files.warn_about(documents)
    objects, submissions = _parted(documents)
    told = {warning for document in documents for warning in document.warnings}
    whole = call.output in (Output.JSON, Output.YAML)
    most = limit if limit is not None else ALL if whole else ROWS
    workloads = [submission.workload for submission in submissions]
    async with link(call) as bus:
        request = Simulate(
            objects=tuple(msgspec.Raw(raw) for raw in (*objects, *map(encode, workloads))),
            deletes=tuple(
                [await requests.applying.deletion(bus, kind, name or "") for kind, name in targets]
            ),
            limit=most,
        )
        reply = await requests.applying.simulate(bus, request)
        notes = await _unstarted(bus, submissions)
        for warning in await requests.warnings.engines(
            bus, [(submission.subject, submission.workload) for submission in submissions]
        ):
            output.warn(warning)
    reply = msgspec.structs.replace(reply, warnings=(*reply.warnings, *notes))
    if reply.problems:
        raise BadInput(*reply.problems)
    if reply.error:
        raise RequestFailed(reply.error)
    for result in reply.results:
        simulations.complain(result, told)
    for warning in reply.warnings:
        output.warn(warning)
    if not output.show_value(simulations.shown(reply), call.output):
        simulations.show(reply, wide=call.output is Output.WIDE)
    return int(any(result.outcome == "refused" for result in reply.results))


async def _unstarted(bus: Link, submissions: Sequence[Submission]) -> list[str]:
    """A sentence for each workload that is refused when it is submitted, because no runner would
    start its job. Without an answer from the workload-controller there are none."""
    import msgspec

    from admittance.api.reading.manifest import encode
    from admittance.events.requests.reading import Runners, RunnersReply

    if not bus.user:
        return []
    notes: list[str] = []
    for submission in submissions[: requests.warnings.ASKED_MAX]:
        workload = submission.workload
        asked = Runners(workload=msgspec.Raw(encode(workload)), user=bus.user)
        try:
            reply = await bus.ask(
                "runners", asked, RunnersReply, namespace=workload.metadata.namespace
            )
        except RequestFailed:
            break
        if reply.why:
            why = f"{reply.why}: {reply.advice}"
            notes.append(f"{submission.subject}: its submission would be refused: {why}")
    return notes


def _parted(documents: Sequence[Document]) -> tuple[list[bytes], list[Submission]]:
    """The manifests in the order of `apply`: workloads after all other objects."""
    from admittance.api.workload import Job, Workload
    from admittance.cli.workloads.submit import submission_of

    runs = [document for document in documents if isinstance(document.manifest, Workload | Job)]
    objects = [
        document.raw for document in documents if not isinstance(document.manifest, Workload | Job)
    ]
    return objects, [submission_of(run) for run in runs]
