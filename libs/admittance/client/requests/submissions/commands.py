"""The workload of a submitted command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as field_of
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from admittance.api.arrays import BadIndexes, split_parallelism
from admittance.api.dependencies import (
    AFTER_UNMET,
    BadDependency,
    Dependency,
    parse_dependency,
)
from admittance.api.fields.names import image_error
from admittance.api.fields.problems import ManifestError
from admittance.api.fields.units import parse, quantity_error
from admittance.api.fields.warning_signal import (
    FIRST_SECONDS,
    BadWarning,
    WarningSignal,
    warning_in,
)
from admittance.api.reading.from_job import GPU, from_command
from admittance.api.validation.validate import validate
from admittance.api.workload import (
    JOB_POLICY,
    AdmissionConstraints,
    ArraySpec,
    JobPolicy,
    Workload,
    written_policy,
)
from admittance.client import kinds
from admittance.client.arguments.environment import check_environment
from admittance.client.arguments.spelling import IN_PYTHON, Spelling
from admittance.client.errors import BadInput, NotFound
from admittance.client.requests.link import Link
from admittance.client.requests.objects import field, lookup, lookup_all
from admittance.client.requests.submissions.names import stem, suffix
from admittance.folders import SubmittedFrom

if TYPE_CHECKING:
    pass


DEFAULTS: Final = {"cpu": "1", "memory": "1Gi"}
"""The default requests of a submitted command without requests, for resources that the queue
covers.
"""


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """The options of a submitted command. ``requests``: quantity by resource, only the
    given resources. ``flavors``: the allowed flavors; empty: any. ``working_dir``: where it starts;
    "": in an empty folder. ``folder``: the folder that ``working_dir`` must be; None: the path
    alone counts. ``warning``: before the end of its time; None: none. ``array``: the indexes of its
    elements; None: it is not an array. ``retries``: how many failed pods run again; None: none.
    ``after``: what it waits for; ``after_unmet``: what becomes of it if that cannot happen.
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
    array: ArraySpec | None = None
    retries: int | None = None
    after: Sequence[Dependency] = ()
    after_unmet: str | None = None


def dependencies_of(
    texts: Sequence[str], unmet: str | None, *, spelled: Spelling = IN_PYTHON
) -> tuple[tuple[Dependency, ...], str | None]:
    """The dependencies of texts such as ``prep:any``, and what becomes of a workload whose
    dependencies cannot be met. Raises BadInput."""
    if unmet is not None and not texts:
        raise BadInput(f"{spelled.after_unmet} goes with {spelled.after}")
    if unmet is not None and unmet not in AFTER_UNMET:
        raise BadInput(f'{spelled.after_unmet} "{unmet}" is not one of {", ".join(AFTER_UNMET)}')
    try:
        after = tuple(map(parse_dependency, texts))
    except BadDependency as error:
        raise BadInput(f"{spelled.after} {error}") from None
    return after, unmet


def array_of(
    text: str | None, *, fail_fast: bool = False, spelled: Spelling = IN_PYTHON
) -> ArraySpec | None:
    """The array of a text such as ``0-99%10``; None: there is none. Raises BadInput."""
    if text is None:
        if fail_fast:
            raise BadInput(f"{spelled.fail_fast} goes with {spelled.array}")
        return None
    try:
        indexes, parallelism = split_parallelism(text)
    except BadIndexes as error:
        raise BadInput(f"{spelled.array}: {error}") from None
    return ArraySpec(indexes=indexes, parallelism=parallelism, fail_fast=fail_fast)


def warning_of(text: str | None) -> WarningSignal | None:
    """The warning of a text such as ``USR1@120``. Raises BadInput."""
    try:
        return None if text is None else warning_in(text)
    except BadWarning as error:
        raise BadInput(f"signal {error}") from None


def check_whole(resource: str, typed: str | None, option: str) -> None:
    """Raises BadInput for an amount that is invalid or would be rounded up: cpu counts in
    thousandths, everything else in whole numbers."""
    if typed is None:
        return
    if error := quantity_error(typed):
        raise BadInput(f"{option} {error}")
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
            array=options.array,
            after=tuple(options.after),
            after_unmet=options.after_unmet,
        ),
    )
    if options.retries is not None:
        workload = _with_retries(workload, options.retries)
    # `from_command` has checked a priority that the user typed. A priority that comes from a
    # WorkloadPriorityClass is not known yet.
    if problems := [problem for problem in validate(workload) if problem.field != "spec.priority"]:
        raise BadInput(*map(str, problems))
    return workload


def _with_retries(workload: Workload, retries: int) -> Workload:
    """The workload of a command, with so many pods that may fail and run again."""
    policy = written_policy(JobPolicy(backoff_limit=retries))
    pod_sets = []
    for pod_set in workload.spec.pod_sets:
        meta = pod_set.template.metadata
        noted = replace(meta, annotations={**meta.annotations, JOB_POLICY: policy})
        pod_sets.append(replace(pod_set, template=replace(pod_set.template, metadata=noted)))
    return replace(workload, spec=replace(workload.spec, pod_sets=tuple(pod_sets)))


def allowing(flavors: Sequence[str]) -> AdmissionConstraints | None:
    """Constraints that allow only these flavors; None if no flavors are given."""
    if not flavors:
        return None
    return AdmissionConstraints(allowed_resource_flavors=tuple(dict.fromkeys(flavors)))


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
    """Raises BadInput for a warning that is longer than the job. ``seconds``: the time limit of the
    command; None: that of its ClusterQueue. A job without a limit is warned before the deadline of
    a drain only."""
    if seconds is None:
        seconds = field(cluster, "spec", "defaultMaximumExecutionTimeSeconds", default=None)
    if seconds is not None and warning.seconds >= seconds:
        raise BadInput(
            f"{spelled.signal} {warning}: the warning must come after the start of the job, which "
            f"may run {seconds} s"
        )
    if seconds is not None and seconds <= FIRST_SECONDS:
        raise BadInput(
            f"{spelled.signal} {warning}: no job is warned in its first {FIRST_SECONDS} s, and "
            f"this one may run {seconds} s"
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
