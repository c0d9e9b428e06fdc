"""Submissions: the workload of a command or manifest, whether it could ever start, and its fact."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as field_of
from hashlib import blake2b
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from admittance.api.fields.names import image_error
from admittance.api.fields.problems import ManifestError
from admittance.api.fields.units import parse, quantity_error
from admittance.api.reading.from_job import GPU, from_command, with_name, workload_of
from admittance.api.reading.objects import encode
from admittance.api.validation.validate import validate
from admittance.api.warning_signal import BadWarning, WarningSignal, warning_in
from admittance.api.workload import SUBMISSION_KEY, AdmissionConstraints, Job, Workload
from admittance.backoff import Backoff
from admittance.client import kinds
from admittance.client.arguments import LISTS
from admittance.client.environment import check_environment
from admittance.client.errors import BadInput, NotAllowed, NotFound, Refused, RequestFailed
from admittance.client.requests import changes
from admittance.client.requests.link import Link
from admittance.client.requests.objects import BucketObject, field, lookup, lookup_all
from admittance.client.requests.priority_classes import missing_class
from admittance.client.spelling import IN_PYTHON, Spelling
from admittance.events import facts, reasons
from admittance.events.requests.whatif import Fit, FitReply
from admittance.folders import SubmittedFrom
from admittance.runtime import chance, clock
from admittance.runtime.bus.bucket import Entry

if TYPE_CHECKING:
    from admittance.client.requests.files import WantedFiles

DEFAULTS: Final = {"cpu": "1", "memory": "1Gi"}
"""The default requests of a submitted command without requests, for resources that the queue
covers.
"""

_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Letters of generated names: without vowels, so that no suffix is a word, and without letters that
look alike.
"""


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """The options of a submitted command. ``requests``: quantity by resource, only the
    given resources. ``flavors``: the allowed flavors; empty: any. ``working_dir``: where it starts;
    "": in an empty folder. ``folder``: the folder that ``working_dir`` must be; None: the path
    alone counts. ``warning``: before the end of its time; None: none.
    """

    command: Sequence[str]
    queue: str | None = None
    name: str | None = None
    requests: Mapping[str, str] = field_of(default_factory=dict)
    count: int = 1
    priority: int | None = None
    priority_class: str | None = None
    image: str = ""
    env: Mapping[str, str] = field_of(default_factory=dict)
    labels: Mapping[str, str] = field_of(default_factory=dict)
    max_seconds: int | None = None
    flavors: Sequence[str] = ()
    working_dir: str = ""
    folder: SubmittedFrom | None = None
    warning: WarningSignal | None = None


def warning_of(text: str | None) -> WarningSignal | None:
    """The warning of a text such as ``USR1@120``. Raises BadInput."""
    try:
        return None if text is None else warning_in(text)
    except BadWarning as error:
        raise BadInput(f"signal {error}") from None


def check_whole(resource: str, typed: str | None, option: str) -> None:
    """Raises BadInput for an amount that would be rounded up: cpu counts in thousandths, everything
    else in whole numbers. An invalid quantity is left to the validation of the workload."""
    if typed is None or quantity_error(typed):
        return
    exact = parse(typed) * (1000 if resource == "cpu" else 1)
    if exact.denominator != 1:
        least = "a thousandth of a cpu" if resource == "cpu" else "1"
        raise BadInput(f'{option} "{typed}" is not a multiple of {least}')


def check_container(image: str, env: Mapping[str, str], *, spelled: Spelling = IN_PYTHON) -> None:
    """Raises BadInput for an image and names of variables that no container can have, and for
    variables that are too large."""
    if image and (error := image_error(image)):
        raise BadInput(f"{spelled.image} {error}")
    check_environment(env, spelled=spelled)


async def workload_of_command(link: Link, options: CommandOptions, namespace: str = "") -> Workload:
    """The workload for these options, with defaults for the queue and the requests.

    Raises BadInput with all problems, one line each.
    """
    namespace = namespace or link.namespace
    queue = options.queue or await _only_queue(link, namespace)
    cluster = await _cluster_queue(link, namespace, queue)
    asked = {**_defaults(cluster), **options.requests}
    if options.warning is not None:
        check_warning(options.warning, options.max_seconds, cluster, link.spelled)
    try:
        workload = from_command(
            options.command,
            name=options.name or f"{stem(options.command)}-{suffix()}",
            namespace=namespace,
            queue=queue,
            cpu=asked.get("cpu", 0),
            memory=asked.get("memory", 0),
            gpu=asked.get(GPU, 0),
            count=options.count,
            priority=options.priority,
            priority_class=options.priority_class or "",
            env=options.env,
            image=options.image,
            working_dir=options.working_dir,
            folder=options.folder,
            warning=options.warning,
        )
    except ManifestError as error:
        raise BadInput(*map(str, error.problems)) from None
    workload = replace(
        workload,
        metadata=replace(workload.metadata, labels=dict(options.labels)),
        spec=replace(
            workload.spec,
            maximum_execution_time_seconds=options.max_seconds,
            admission_constraints=allowing(options.flavors),
        ),
    )
    # `from_command` has checked a priority that the user typed. A priority that comes from a
    # WorkloadPriorityClass is not known yet.
    if problems := [problem for problem in validate(workload) if problem.field != "spec.priority"]:
        raise BadInput(*map(str, problems))
    return workload


def allowing(flavors: Sequence[str]) -> AdmissionConstraints | None:
    """Constraints that allow only these flavors; None if no flavors are given."""
    if not flavors:
        return None
    return AdmissionConstraints(allowed_resource_flavors=tuple(dict.fromkeys(flavors)))


def suffix() -> str:
    """Five random letters for a unique name."""
    return "".join(chance.choice(_LETTERS) for _ in range(5))


def stem(command: Sequence[str]) -> str:
    """The first part of a generated workload name: the name of the submitted command's program."""
    return _name_part(PurePath(command[0]).name if command else "")


def _name_part(text: str) -> str:
    """The text in letters that a name may have."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return plain[:40].strip("-") or "workload"


async def _only_queue(link: Link, namespace: str) -> str:
    """The only LocalQueue of the namespace. Raises NotFound if there is none, BadInput if there
    are several.
    """
    [pattern] = kinds.LOCAL_QUEUE.patterns(namespace)
    names = [stored.name for stored in await lookup_all(link, pattern)]
    if len(names) == 1:
        return names[0]
    if not names:
        raise NotFound(
            f"namespace {namespace} has no localqueue; apply one, or choose another with "
            f"{link.spelled.namespace}"
        )
    raise BadInput(f"which queue? name one with {link.spelled.queue}: {', '.join(sorted(names))}")


async def _cluster_queue(link: Link, namespace: str, queue: str) -> dict[str, Any]:
    """The ClusterQueue of a LocalQueue; empty if one of them does not exist."""
    local = await _plain(link, kinds.LOCAL_QUEUE.object_key(namespace, queue))
    name = field(local, "spec", "clusterQueue", default="")
    return await _plain(link, kinds.CLUSTER_QUEUE.object_key("", name)) if name else {}


def check_warning(
    warning: WarningSignal, seconds: int | None, cluster: dict[str, Any], spelled: Spelling
) -> None:
    """Raises BadInput for a warning that never comes. ``seconds``: the time limit of the command;
    None: that of its ClusterQueue."""
    if seconds is None:
        seconds = field(cluster, "spec", "defaultMaximumExecutionTimeSeconds", default=None)
    if seconds is None:
        raise BadInput(
            f"{spelled.signal} warns before the time limit of the job, which has none: give it one "
            f"with {spelled.max_seconds}"
        )
    if warning.seconds >= seconds:
        raise BadInput(
            f"{spelled.signal} {warning}: the warning must come after the start of the job, which "
            f"may run {seconds} s"
        )


def _defaults(cluster: dict[str, Any]) -> dict[str, str]:
    """Default requests of a command, without resources that the ClusterQueue does not cover."""
    groups = field(cluster, "spec", "resourceGroups", default=[])
    covered = {resource for group in groups for resource in group.get("coveredResources") or []}
    if not covered:
        return dict(DEFAULTS)
    return {resource: amount for resource, amount in DEFAULTS.items() if resource in covered}


async def _plain(link: Link, key: str) -> dict[str, Any]:
    stored = await lookup(link, key)
    return {} if stored is None else stored.plain()


def workload_of_manifest(manifest: Workload | Job) -> Workload:
    """The workload of a manifest, with a name. Raises ManifestError."""
    if isinstance(manifest, Job):
        return workload_of(manifest, suffix=suffix())
    return replace(manifest, metadata=with_name(manifest.metadata, suffix()))


def submitted(workload: Workload) -> facts.Submitted:
    """The fact that submits the workload."""
    meta = workload.metadata
    return facts.Submitted(
        namespace=meta.namespace,
        name=meta.name,
        time=clock.now(),
        workload=msgspec.Raw(encode(workload)),
    )


# Whether a workload could ever start. --------------------------------------------------


CURRENT_SECONDS: Final = 5.0
"""The scheduler's answer that a workload could never start counts once the scheduler has read the
newest manifests, or after this time.
"""
PAUSE_SECONDS: Final = 0.05
PAUSE_SECONDS_MAX: Final = 0.5
"""Seconds between two questions until the answer counts: the first time, and at most."""

_CONFIGURATION: Final = (kinds.CLUSTER_QUEUE, kinds.LOCAL_QUEUE, kinds.COHORT, kinds.FLAVOR)


async def fit_of(link: Link, workload: Workload) -> FitReply | None:
    """The scheduler's answer about the workload; None if the scheduler does not answer. An answer
    that the workload could not start, or not now, counts only if it is current.
    """
    namespace = workload.metadata.namespace
    request = Fit(workload=msgspec.Raw(encode(workload)))
    newest: int | None = None
    deadline = clock.monotonic() + CURRENT_SECONDS
    backoff = Backoff(PAUSE_SECONDS, PAUSE_SECONDS_MAX)
    while True:
        try:
            reply = await link.ask("fit", request, FitReply, namespace=namespace)
        except RequestFailed:
            return None
        if reply.error:
            return None
        if reply.fits and not reply.inactive and not reply.machines:
            return reply
        if newest is None:
            newest = await _newest(link, namespace)
        if reply.seen >= newest or clock.monotonic() >= deadline:
            return reply
        await asyncio.sleep(backoff.next())


def misfit(reply: FitReply) -> str:
    """Why the queue can never hold the workload, as a sentence."""
    if _has_no_queue(reply):
        return reply.message
    return (
        f"clusterqueue {reply.cluster_queue} can never hold it, even if empty "
        f"({reply.reason}): {reply.message}"
    )


def _has_no_queue(reply: FitReply) -> bool:
    return not reply.cluster_queue or reply.reason == reasons.NO_SUCH_QUEUE


def refusal(reply: FitReply, spelled: Spelling = IN_PYTHON) -> str:
    """The error for a command that is not submitted, with what its workload would wait for."""
    if _has_no_queue(reply):
        until = "the queue is created"
    elif reply.reason == reasons.NO_MATCHING_FLAVOR:
        until = "the queue offers a flavor for it"
    else:
        until = "the quota is raised"
    return (
        f"not submitted: {misfit(reply)}; {spelled.anyway} submits it, and it waits until {until}"
    )


async def _newest(link: Link, namespace: str) -> int:
    """The newest revision of the objects that define quota, and of the LocalQueues of the
    namespace, as far as this login may read them."""

    async def read(pattern: str) -> list[Entry]:
        try:
            return await link.read_all(pattern)
        except NotAllowed:
            return []

    patterns = [pattern for kind in _CONFIGURATION for pattern in kind.patterns(namespace)]
    each = await asyncio.gather(*map(read, patterns))
    return max((entry.revision for entries in each for entry in entries), default=0)


async def refuse_misfit(link: Link, workload: Workload, *, anyway: bool = False) -> FitReply | None:
    """Raises NotFound if the queue does not exist, and Refused if it can never hold the workload,
    unless ``anyway``. Returns the scheduler's answer; None if the scheduler does not answer."""
    if anyway:
        return await fit_of(link, workload)
    namespace, queue = workload.metadata.namespace, workload.spec.queue_name
    if await link.get(kinds.LOCAL_QUEUE.object_key(namespace, queue)) is None:
        raise NotFound(
            f"not submitted: LocalQueue {namespace}/{queue} does not exist; "
            f"{link.spelled.anyway} submits it, and it waits until the queue is created"
        )
    reply = await fit_of(link, workload)
    if reply is not None and not reply.fits:
        await _refuse_unknown_flavors(link, workload, reply.cluster_queue)
        raise Refused(refusal(reply, link.spelled), reason=reply.reason)
    return reply


async def _refuse_unknown_flavors(link: Link, workload: Workload, cluster_queue: str) -> None:
    """Raises Refused if the workload allows only flavors that the ClusterQueue does not have.
    ``cluster_queue``: "" if the scheduler does not know the LocalQueue."""
    allowed = workload.spec.admission_constraints
    wanted = allowed.allowed_resource_flavors if allowed is not None else None
    if not wanted or not cluster_queue:
        return
    stored = await lookup(link, kinds.CLUSTER_QUEUE.object_key("", cluster_queue))
    if stored is None:
        return
    groups = field(stored.plain(), "spec", "resourceGroups", default=[])
    offered = dict.fromkeys(
        flavor["name"] for group in groups for flavor in group.get("flavors") or ()
    )
    if offered.keys().isdisjoint(wanted):
        raise Refused(
            f"not submitted: clusterqueue {cluster_queue} has no flavor {' or '.join(wanted)}, "
            f"it has {', '.join(offered) or 'none'}; "
            f"{link.spelled.anyway} submits it, and it waits until the queue has that flavor",
            reason=reasons.NO_MATCHING_FLAVOR,
        )


def requests_of(
    cpu: str | float | None, memory: str | int | None, gpu: str | int | None
) -> dict[str, str]:
    """The requests of a command by resource. Raises BadInput for an amount that would be rounded
    up."""
    named = {"cpu": cpu, "memory": memory, GPU: gpu}
    asked = {resource: str(amount) for resource, amount in named.items() if amount is not None}
    for resource, amount in asked.items():
        check_whole(resource, amount, "gpu" if resource == GPU else resource)
    return asked


async def fitting_command(
    link: Link,
    options: CommandOptions,
    namespace: str,
    *,
    key: str | None,
    anyway: bool,
    files: WantedFiles | None = None,
) -> tuple[Workload, FitReply | None]:
    """The workload of a command, named by the key if there is one, with its files, which are
    stored, and the scheduler's answer about it. Raises BadInput, and what `refuse_misfit` raises; a
    command that was submitted with the key before is not refused again."""
    if not options.command:
        raise BadInput(LISTS["command"])
    check_container(options.image, options.env)
    if key is not None:
        if options.name is not None:
            raise BadInput(NAME_AND_KEY)
        options = dataclasses.replace(options, name=name_of_key(namespace, link.user, key))
    workload = await workload_of_command(link, options, namespace)
    if files is not None and key is None:
        fit = await refuse_misfit(link, workload, anyway=anyway)
        return await with_stored_files(link, workload, files), fit
    if files is not None:
        workload = await with_stored_files(link, workload, files, key or "")
    if key is not None and await is_present(link, workload, key):
        anyway = True
    return workload, await refuse_misfit(link, workload, anyway=anyway)


async def with_stored_files(
    link: Link, workload: Workload, files: WantedFiles, key: str = ""
) -> Workload:
    """Stores the inputs of a workload; returns the workload with its files. Raises what
    `files.check_limit` and `files.with_files` raise."""
    # Most submissions have no files: the module costs them its import.
    from admittance.client.requests.files import check_limit, with_files

    await check_limit(link, workload.metadata.namespace, files)
    return await with_files(link, workload, files, key)


# Submitting, once however often it is repeated. -----------------------------------------

KEY_MAX: Final = 200
"""The most characters of a submission's key."""
NAME_AND_KEY: Final = (
    "a name and a key both name the job, and a key only one: leave out the name, or the key"
)


def check_key(key: str) -> None:
    """Raises BadInput if ``key`` cannot be the key of a submission."""
    if not key.strip() or len(key) > KEY_MAX or not key.isprintable():
        raise BadInput(f"key {key[:KEY_MAX]!r} is not 1 to {KEY_MAX} printable characters")


def name_of_key(namespace: str, user: str, key: str) -> str:
    """The name of the workload that a submission with the key makes: the same for the same
    namespace, user and key, whatever is submitted."""
    whole = f"{namespace}/{user}/{key}".encode()
    number = int.from_bytes(blake2b(whole, digest_size=16).digest())
    letters = []
    for _ in range(10):
        number, place = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[place])
    return f"{_name_part(key)}-{''.join(letters)}"


def message_id_of(workload: Workload, user: str, key: str) -> str:
    """The message id of a submission with a key. It differs for another spec, so that the log does
    not take such a submission for the earlier one."""
    meta = workload.metadata
    whole = blake2b(f"{meta.namespace}/{meta.name}/{user}/{key}/".encode(), digest_size=16)
    whole.update(msgspec.json.encode(workload.spec))
    return f"key-{whole.hexdigest()}"


async def submit(link: Link, workload: Workload, key: str = "") -> bool:
    """Submits the workload, and returns whether this call created it: False if the same submission
    or the same workload was there before. ``key``: what a repeated submission is recognised by; "":
    nothing.

    Raises Refused with the reason AlreadyExists if another workload has the name, or the key, and
    NotFound for a missing priority class.
    """
    meta = workload.metadata
    message_id = ""
    if key:
        message_id = message_id_of(workload, link.user, key)
        annotations = {**meta.annotations, SUBMISSION_KEY: key}
        workload = replace(workload, metadata=replace(meta, annotations=annotations))
        if await is_present(link, workload, key):
            return False
    if missing := await missing_class(link, workload):
        raise NotFound(f"not submitted: {missing}")
    fact = submitted(workload)
    stored_before: set[int] = set()
    sequence = await link.publish(fact, message_id=message_id, stored_before=stored_before)
    reply = await link.settle(sequence, fact.namespace)
    if key and reply.reason == reasons.ALREADY_EXISTS:
        raise Refused(
            f"the key {key!r} was used for workload {fact.namespace}/{fact.name} with another spec",
            reason=reply.reason,
        )
    changes.accepted(fact, reply)
    return reply.outcome != "ignored" and not stored_before


async def is_present(link: Link, workload: Workload, key: str) -> bool:
    """Whether a submission of this workload with the key was applied."""
    meta = workload.metadata
    stored = await lookup(link, kinds.WORKLOAD.object_key(meta.namespace, meta.name))
    message_id = message_id_of(workload, link.user, key)
    return stored is not None and is_submission(stored, key, link.user, message_id)


def is_submission(stored: BucketObject, key: str, user: str, message_id: str) -> bool:
    """Whether a submission of the user with this key and message id made the workload. ``user``: ""
    on a server without users."""
    value = stored.plain()
    annotations = field(value, "metadata", "annotations", default={})
    status = field(value, "status", default={})
    made = status.get("submittedBy", ""), status.get("submittedAs")
    return (annotations.get(SUBMISSION_KEY), *made) == (key, user, message_id)
