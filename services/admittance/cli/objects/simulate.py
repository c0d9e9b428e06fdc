"""``admit simulate``: prints what would start, wait, or be evicted if manifests were applied
now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

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
    from admittance.events.requests.whatif import WorkloadChange

ROWS: Final = 20
ALL: Final = 0


@command(without=[Output.NAME])
@file_option
@option("--delete KIND/NAME", "Simulate its deletion; repeatable.", name="deletes", many=True)
@option(
    "--set NAME:FIELD=VALUE",
    "Another priority or queue of a workload; repeatable.",
    name="changes",
    many=True,
)
@option(
    "--limit N", "Rows of each list; 0: all. Default: 20; JSON and YAML: all", kind=int, least=0
)
async def simulate(
    call: Call,
    file: Sequence[str],
    deletes: Sequence[str],
    changes: Sequence[str],
    limit: int | None,
) -> int:
    """Show what would start, wait, or be evicted if manifests were applied now; changes nothing.

    With --set train:priority=100 the workload train has another priority; with --set
    train:queue=other it is deleted and submitted again in that queue.

    Shows only the differences to what would happen without the change, now and after evicted jobs
    have stopped.
    """
    import msgspec

    from admittance.api.reading.manifest import encode
    from admittance.cli.show import simulations
    from admittance.cli.support import files
    from admittance.events.requests.whatif import Simulate

    targets = [kinds.object_named(word, "--delete") for word in deletes]
    changed = _changes(changes, call.namespace)
    if not file and not targets and not changed:
        raise BadInput(
            "nothing to simulate: name manifests with -f, an object with --delete, or a workload "
            "with --set"
        )
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
            changes=changed,
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


FIELDS: Final = ("priority", "queue")


def _changes(words: Sequence[str], namespace: str) -> tuple[WorkloadChange, ...]:
    """The changes of workloads in ``--set``. Raises BadInput."""
    changes: dict[str, dict[str, Any]] = {}
    for word in words:
        name, _, rest = word.partition(":")
        field, equals, value = rest.partition("=")
        if not name or not equals or not value or field not in FIELDS:
            raise BadInput(f"--set {word}: write NAME:priority=NUMBER or NAME:queue=QUEUE")
        change = changes.setdefault(name, {"workload": name})
        if field in change:
            raise BadInput(f"--set {word}: its {field} is set twice")
        change[field] = value
        if field == "priority":
            try:
                change[field] = int(value)
            except ValueError:
                raise BadInput(f'--set {word}: "{value}" is not a whole number') from None
    return requests.applying.workload_changes(changes.values(), namespace)


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
