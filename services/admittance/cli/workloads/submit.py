"""``admit submit``: submits workloads from manifests, Jobs or a command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from admittance.cli.commands.arguments import queues, timeout
from admittance.cli.commands.declare import argument, command, option
from admittance.cli.support import output, times
from admittance.cli.support.job_options import (
    origin_of,
    placed,
    requests_of,
    time_limit,
    warning_of,
)
from admittance.cli.support.link import IN_COMMANDS, link
from admittance.cli.support.options import Call, Output, key_values
from admittance.cli.workloads.submissions import (
    COMMAND_LINE,
    Submission,
    check_followed,
    follow_to_the_end,
    note_jobs_continue,
    show_accepted,
    show_manifests,
    wait_for_all,
)
from admittance.client import kinds, requests
from admittance.client.errors import BadInput, ClientError, RequestFailed

if TYPE_CHECKING:
    from click import Context

    from admittance.api.dependencies import Dependency
    from admittance.api.fields.warning_signal import WarningSignal
    from admittance.api.reading.manifest import Document
    from admittance.api.workload import ArraySpec, Workload
    from admittance.client.requests.link import Link
    from admittance.client.requests.submissions.commands import CommandOptions
    from admittance.events.base import Fact
    from admittance.events.requests.history import SettledReply

AT_ONCE: Final = 100
"""The greatest number of outcomes of submissions that are requested at the same time."""

NOTHING_TO_SUBMIT: Final = "nothing to submit: name a script, a command after --, or a file with -f"


def _with_script(ctx: Context) -> None:
    from admittance.cli.workloads.job_scripts import with_script

    with_script(ctx)


@command(short_output=True, amend=_with_script)
@argument(
    "SCRIPT|-- CMD...",
    "A script, which may have lines such as `#ADMIT --gpu 1`, with its arguments; or the command "
    "of each pod.",
    name="command",
    required=False,
)
@option("--file -f FILE|DIR|-", "Manifests of Workloads or Jobs instead of a command.", many=True)
@option(
    "--queue -q QUEUE",
    "The LocalQueue. Default: the only one of the namespace.",
    complete=queues,
)
@option("--name N", "Name. Default: generated.")
@option("--cpu QUANTITY", "Per pod. Default: 1")
@option("--memory QUANTITY", "Per pod. Default: 1Gi")
@option("--gpu QUANTITY", "Per pod. Default: 0")
@option("--count PODS", "Number of pods.", kind=int, least=1, default=1)
@option("--priority P", "Priority; higher goes first. Default: 0", kind=int)
@option("--priority-class NAME", "A WorkloadPriorityClass instead of a priority.")
@option(
    "--env -e KEY=VALUE",
    "Environment variable; repeatable. Values can be read in the log and by `admit get -o yaml`.",
    many=True,
)
@option(
    "--export NAME[,NAME…]|ALL|NONE",
    "Variables of this environment that the job gets beside those of the default list; repeatable. "
    "ALL: all but those that may be secrets. NONE: not even the default list.",
    many=True,
)
@option(
    "--chdir -D DIR",
    "The folder in which the job starts. Default: the current one, if all runners that may start "
    "the job see it; else an empty one",
)
@option(
    "--input FILE",
    "A file for the folder of the job, under its relative path, or its name; repeatable.",
    many=True,
    name="inputs",
)
@option(
    "--output PATH",
    "A file of the job's folder that is kept for `admit fetch`; repeatable.",
    many=True,
    name="outputs",
)
@option("--label -l KEY=VALUE", "Label; repeatable.", many=True)
@option("--flavor FLAVOR", "Allow only this ResourceFlavor; repeatable.", many=True)
@option("--image IMAGE", "Container image, for runners with a container engine.")
@option("--time SPAN", "Time limit of all its runs together, such as 90s, 2h or 1d.", name="limit")
@option("--max-time SPAN", "The old name of --time.", hidden=True)
@option(
    "--signal SIGNAL[@SPAN]",
    "Warn the job with this signal so long before its time limit, and before its machine must be "
    "empty by a drain, such as USR1@2m. Default: @60",
)
@option(
    "--array INDEXES[%N]",
    "An array: the command runs once for each index, such as 0-99, 1,3,7 or 0-20:5; with %N at "
    "most N at once. The job finds its index in ADMITTANCE_ARRAY_INDEX.",
)
@option(
    "--retries N", "How many failed pods run again; of an array in each element.", kind=int, least=0
)
@option("--fail-fast", "The first failed element ends the array.")
@option(
    "--after NAME[:ok|any|failed|started]",
    "Wait for this workload to succeed, finish, fail or start; repeatable. NAME[3]: an element of "
    "an array; NAME[=]: each element of an array waits for the one with its index.",
    many=True,
)
@option(
    "--after-unmet cancel|keep",
    "If that cannot happen any more: stop it, or keep it waiting. Default: cancel",
)
@option("--wait", "Wait until it has finished; the exit status is that of the job.")
@option("--follow", "Wait, and show the output of the job as it comes.")
@option(
    "--dry-run",
    "Submit nothing; with -o yaml or json print the manifest of what would be submitted.",
)
@option("--anyway", "Submit even if the queue does not exist or can never hold it.")
@timeout
async def submit(
    call: Call,
    command: Sequence[str],
    file: Sequence[str],
    queue: str | None,
    wait: bool,
    follow: bool,
    dry_run: bool,
    anyway: bool,
    timeout: str | None,
    count: int,
    limit: str | None,
    max_time: str | None,
    signal: str | None,
    env: Sequence[str],
    export: Sequence[str],
    chdir: str | None,
    inputs: Sequence[str],
    outputs: Sequence[str],
    array: str | None,
    fail_fast: bool,
    after: Sequence[str],
    after_unmet: str | None,
    **described: Any,
) -> int:
    """Submit a workload: a script, a command after --, or manifests with -f."""
    import asyncio

    wish = origin = wanted = None
    if file:
        if command:
            raise BadInput("either a command after --, or -f; not both")
        options = (*described.values(), env, export, chdir, limit, signal, inputs, outputs)
        given = [value for value in options if value not in (None, ())]
        arrays = array is not None or fail_fast or after or after_unmet is not None
        if given or count != 1 or max_time is not None or anyway or arrays:
            raise BadInput(
                "with -f the whole workload comes from the manifest; leave out the other options, "
                "except -q"
            )
    elif not command:
        raise BadInput(NOTHING_TO_SUBMIT)
    else:
        seconds = time_limit(limit, max_time)
        warning = warning_of(signal)
        origin = origin_of(call.environ, chdir, env, export, described["image"])
        variables = origin.variables(is_here=False)
        if inputs or outputs:
            wanted = requests.files.wanted_files(inputs, outputs, IN_COMMANDS)
        waits_for = requests.commands.dependencies_of(after, after_unmet, spelled=IN_COMMANDS)
        elements = requests.commands.array_of(array, fail_fast=fail_fast, spelled=IN_COMMANDS)
        wish = _wish(
            command,
            queue,
            count,
            seconds,
            env=variables,
            warning=warning,
            array=elements,
            dependencies=waits_for,
            **described,
        )
    wait = wait or follow
    if timeout is not None and not wait:
        raise BadInput("--timeout goes with --wait")
    if dry_run:
        _check_dry_run(wait, inputs)
    longest = None if timeout is None else times.seconds_of(timeout, "--timeout")
    submissions = in_order(_from_files(file, call.namespace, queue)) if file else []
    if dry_run and file:
        show_manifests(submissions, call.output)
        return 0
    async with link(call) as bus:
        folder = ""
        if wish is not None and origin is not None:
            wish, folder = await placed(bus, wish, origin, anyway=anyway, files=wanted)
            workload = await _of_command(bus, wish, anyway)
            if wanted is not None and not dry_run:
                workload = await requests.submitting.with_stored_files(bus, workload, wanted)
            submissions.append(Submission(COMMAND_LINE, workload))
        if not submissions:
            raise BadInput(NOTHING_TO_SUBMIT)
        if dry_run:
            show_manifests(submissions, call.output)
            output.note(folder)
            return 0
        if follow:
            check_followed([submission.workload for submission in submissions])
        status = await submit_all(bus, submissions, call.output)
        if folder and not status:
            output.note(folder)
        if status or not wait:
            return status
        try:
            if follow:
                return await follow_to_the_end(bus, submissions[0], longest)
            return await wait_for_all(bus, submissions, longest)
        except asyncio.CancelledError:
            note_jobs_continue(submissions)
            raise


def _check_dry_run(wait: bool, inputs: Sequence[str]) -> None:
    """Raises BadInput for options that have no meaning if nothing is submitted."""
    if wait:
        raise BadInput("--dry-run submits nothing: leave out --wait and --follow")
    if inputs:
        raise BadInput(
            "--dry-run stores no files, and a manifest names stored ones: leave out --input"
        )


def _wish(
    command: Sequence[str],
    queue: str | None,
    count: int,
    max_seconds: int | None,
    *,
    name: str | None,
    cpu: str | None,
    memory: str | None,
    gpu: str | None,
    priority: int | None,
    priority_class: str | None,
    env: Mapping[str, str],
    label: Sequence[str],
    flavor: Sequence[str],
    image: str | None,
    warning: WarningSignal | None,
    array: ArraySpec | None,
    dependencies: tuple[tuple[Dependency, ...], str | None],
    retries: int | None,
) -> CommandOptions:
    """The workload that the options describe. Raises BadInput."""
    asked = requests_of(cpu, memory, gpu)
    requests.commands.check_container(image or "", env, spelled=IN_COMMANDS)
    return requests.commands.CommandOptions(
        command=command,
        queue=queue,
        name=name,
        requests=asked,
        count=count,
        priority=priority,
        priority_class=priority_class,
        image=image or "",
        env=env,
        labels=key_values(label, "--label"),
        flavors=flavor,
        max_seconds=max_seconds,
        warning=warning,
        array=array,
        retries=retries,
        after=dependencies[0],
        after_unmet=dependencies[1],
    )


async def _of_command(bus: Link, wish: CommandOptions, anyway: bool) -> Workload:
    """The workload of a command."""
    workload = await requests.commands.workload_of_command(bus, wish)
    await refuse_misfit(bus, workload, anyway=anyway)
    return workload


async def refuse_misfit(bus: Link, workload: Workload, *, anyway: bool) -> None:
    """Raises RequestFailed if the queue does not exist or can never hold the workload, unless
    ``anyway``. Warns about requests for which no quota is charged, about machines that are too
    small, and about an inactive queue.

    Manifests are accepted with a warning instead, as in Kubernetes: their queues may be created or
    enlarged later.
    """
    reply = await requests.fit.refuse_misfit(bus, workload, anyway=anyway)
    if reply is not None:
        about_fit = requests.warnings.about_fit("the workload", reply)
        for warning in (*about_fit, *requests.warnings.inactive([reply])):
            output.warn(warning)


def _from_files(paths: Sequence[str], namespace: str, queue: str | None) -> list[Submission]:
    from admittance.cli.support import files

    documents = files.documents(paths, namespace, queue)
    submissions = [_runnable(document) for document in documents]
    files.warn_about(documents)
    return submissions


def in_order(submissions: list[Submission]) -> list[Submission]:
    """The submissions, each behind those that it waits for. Raises BadInput for a cycle, with its
    path."""
    if not any(submission.workload.spec.after for submission in submissions):
        return submissions
    workloads = [submission.workload for submission in submissions]
    places = requests.manifests.in_order(workloads)
    return [submissions[place] for place in places]


def _runnable(document: Document) -> Submission:
    from admittance.api.checks import Foreign
    from admittance.api.workload import Job, Workload

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
    from admittance.api.fields.problems import ManifestError
    from admittance.api.workload import Job, Workload

    manifest = document.manifest
    assert isinstance(manifest, Workload | Job), manifest.kind
    place = f"{document.source}: {document.place}"
    try:
        return Submission(place, requests.submitting.workload_of_manifest(manifest))
    except ManifestError as error:
        raise BadInput(*(f"{place}: {line}" for line in error.lines())) from None


async def submit_all(
    bus: Link, submissions: Sequence[Submission], shape: Output = Output.TABLE
) -> int:
    """Publishes all submissions, then prints the outcome of each.

    A refused submission makes the exit status 1; all other submissions are made.
    """
    submissions, status = await _of_known_classes(bus, submissions)
    submitted = [requests.submitting.submitted(submission.workload) for submission in submissions]
    sequences = await bus.publish_all(submitted)
    accepted = []
    for number, (one, fact) in enumerate(zip(submissions, submitted, strict=True)):
        if number % AT_ONCE == 0:
            part = slice(number, number + AT_ONCE)
            replies = await _settled(bus, submitted[part], sequences[part])
        try:
            reply = replies[number % AT_ONCE]
            if isinstance(reply, ClientError):
                raise reply
            reply = requests.changes.accepted(fact, reply)
        except ClientError as error:
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
        show_accepted(one, "unchanged" if unchanged else "created", shape)
    every = [(sent.subject, sent.workload) for sent in accepted]
    files_alone = [(one.subject, one.workload) for one in accepted if one.source != COMMAND_LINE]
    for warnings, told in (
        (requests.warnings.queues, every),
        (requests.warnings.classes, every),
        (requests.warnings.min_counts, every),
        (requests.warnings.misfits, files_alone),
        (requests.warnings.engines, every),
    ):
        for warning in await warnings(bus, told):
            output.warn(warning)
    return status


async def _is_edited_variant(bus: Link, workload: Workload) -> bool:
    """Whether the workload is an existing variant with a different spec; ``active`` is ignored."""
    from msgspec.structs import replace

    from admittance.api.reading.objects import decode_object
    from admittance.api.workload import Workload
    from admittance.workload.stored import VARIANT

    if workload.spec.role != VARIANT:
        return False
    meta = workload.metadata
    stored = await requests.objects.lookup(
        bus, kinds.WORKLOAD.object_key(meta.namespace, meta.name)
    )
    if stored is None:
        return False
    present = decode_object(stored.data).manifest
    return isinstance(present, Workload) and (
        replace(present.spec, active=True) != replace(workload.spec, active=True)
    )


async def _of_known_classes(
    bus: Link, submissions: Sequence[Submission]
) -> tuple[list[Submission], int]:
    """The submissions without those that name a missing priority class, each of which gets an
    error, and the exit status. Raises RequestFailed if the command line names a missing class."""
    asked = {
        requests.priority_classes.named_class(submission.workload): submission.workload
        for submission in submissions
    }
    missing = {
        named: await requests.priority_classes.missing_class(bus, workload)
        for named, workload in asked.items()
    }
    known: list[Submission] = []
    for one in submissions:
        why = missing[requests.priority_classes.named_class(one.workload)]
        if not why:
            known.append(one)
        elif one.source == COMMAND_LINE:
            raise RequestFailed(f"not submitted: {why}")
        else:
            output.error(f"{one.source}: not submitted: {why}")
    return known, int(len(known) < len(submissions))


async def _settled(
    bus: Link, submitted: Sequence[Fact], sequences: Sequence[int | ClientError]
) -> list[SettledReply | ClientError]:
    """The outcome of each fact, from its sequence; a `ClientError` in place of a sequence is
    returned as it is.
    """

    import asyncio

    async def one(fact: Fact, sequence: int | ClientError) -> SettledReply | ClientError:
        if isinstance(sequence, ClientError):
            return sequence
        try:
            return await bus.settle(sequence, fact.namespace)
        except ClientError as error:
            return error

    return list(await asyncio.gather(*map(one, submitted, sequences)))
