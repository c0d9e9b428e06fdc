"""Which jobs the announced runners start, so that a submission that no runner starts is refused.
Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from admittance.api.workload import Kept, noted_completions
from admittance.events.system import RunnerStarts

PATTERNS_MAX: Final = 200
"""The most patterns of images of one runner that are looked at: each image of a submission is
compared with all of them. A runner with more refuses images only when it would start the job."""
NAMED_MAX: Final = 5
"""The most runners, and the most reasons, that a refusal lists."""
IMAGE_MAX: Final = 200
"""The most characters of an image in a list of reasons."""


class RunnerRefusal(NamedTuple):
    """Why no runner starts a job. ``advice``: what the submitter or an admin does, as the rest of
    the sentence; ``needed``: what would let a runner start the job, with its command or option."""

    why: str
    advice: str
    needed: str

    def __str__(self) -> str:
        return f"{self.why}: {self.advice}"


def starts_job(rules: RunnerStarts, user: str, namespace: str) -> bool:
    """Whether the runner starts jobs of the user in the namespace. ``user`` "": the submitter is
    unknown."""
    if user in rules.refused:
        return False
    named = user in rules.submitters if user else rules.unknown
    return named or namespace in rules.all_of or rules.every


class JobRefusal(msgspec.Struct, frozen=True):
    """Says of a workload why a runner does not start it. ``user``: its submitter; "": unknown.
    ``spec``: of the stored workload. Equal workloads have equal refusals."""

    user: str
    namespace: str
    spec: bytes

    def __call__(self, starts: RunnerStarts) -> str:
        """Why the runner does not start the workload, as a sentence; "": it starts it."""
        if starts.namespaces and self.namespace not in starts.namespaces:
            return f"it starts no jobs of namespace {self.namespace}"
        if not starts_job(starts, self.user, self.namespace):
            by = f"the user {self.user}" if self.user else "an unknown submitter"
            return f"it has no Unix user for jobs of {by} in namespace {self.namespace}"
        return _own_refusal(starts, _Job(b'{"spec":%b}' % self.spec))


class AnnouncedRunners:
    """The runners of a deployment, by name, as they announced themselves."""

    def __init__(self) -> None:
        self._known: dict[str, RunnerStarts | None] = {}

    def note(self, runner: str, starts: RunnerStarts | None) -> None:
        """Records an announcement. ``starts`` None: the runner starts all jobs."""
        if starts is not None and len(starts.images) > PATTERNS_MAX:
            starts = msgspec.structs.replace(starts, images=())
        self._known[runner] = starts

    def forget(self, runner: str) -> None:
        """Forgets a runner that has sent nothing for days."""
        self._known.pop(runner, None)

    def refusal(self, user: str, namespace: str, manifest: bytes = b"") -> RunnerRefusal | None:
        """Why no runner starts a job of the user in the namespace; None: a runner starts it, or no
        runner of the namespace is known. ``manifest``: the workload, as submitted or stored."""
        responsible: dict[str, RunnerStarts] = {}
        for runner, starts in self._known.items():
            if starts is None:
                return None
            if not starts.namespaces or namespace in starts.namespaces:
                responsible[runner] = starts
        if not responsible:
            return None
        allowing = {
            runner: starts
            for runner, starts in responsible.items()
            if starts_job(starts, user, namespace)
        }
        if allowing:
            return _refusal(allowing, namespace, _Job(manifest))
        by = f"the user {user}" if user else "an unknown submitter"
        key = f"user:{user}" if user else f"namespace:{namespace}"
        named = shlex.quote(f"{key}=UNIX_USER")
        rule = f"`admit auth run-as {named}`"
        return RunnerRefusal(
            f"no runner has a Unix user for jobs of {by} in namespace {namespace}",
            f"an admin names one with {rule}, or with the option --run-as of the runner",
            f"a Unix user for its job: {rule}, or --run-as of a runner",
        )


def _refusal(
    runners: Mapping[str, RunnerStarts], namespace: str, job: _Job
) -> RunnerRefusal | None:
    """Why none of the runners, by name, starts the job; None: one of them starts it. ``runners``:
    at least one."""
    every = list(runners.values())
    return (
        _image_refusal(every, namespace, job)
        or _input_refusal(every, namespace, job)
        or _pods_refusal(every, namespace, job)
        or _mixed_refusal(runners, namespace, job)
    )


def _image_refusal(
    runners: Sequence[RunnerStarts], namespace: str, job: _Job
) -> RunnerRefusal | None:
    """Why none of the runners may run the images of a job; None: one of them may."""
    limits = [runner.images for runner in runners]
    if not all(limits):
        return None
    wrong = [_first_wrong(patterns, job.images) for patterns in limits]
    if not all(wrong):
        return None
    allowed = ", ".join(sorted({pattern for patterns in limits for pattern in patterns}))
    return RunnerRefusal(
        f"no runner of namespace {namespace} may run the image {wrong[0]}",
        f"allowed are {allowed}",
        "a runner that may run its image: --job-image of the runner",
    )


_LACKING: Final = {
    "hostPath": (
        "mounts a hostPath, which the workload asks for",
        "an admin allows folders with the option --allow-host-path",
        "a runner that mounts its hostPath: --allow-host-path of the runner",
    ),
    "values": (
        "has values of ConfigMaps and Secrets, which the workload asks for",
        "an admin gives them with the option --env-files",
        "a runner with its ConfigMaps and Secrets: --env-files of the runner",
    ),
}
_LACKS: Final = {
    "hostPath": "no hostPath is mounted (--allow-host-path)",
    "values": "no values of ConfigMaps and Secrets (--env-files)",
}


def _input_refusal(
    runners: Sequence[RunnerStarts], namespace: str, job: _Job
) -> RunnerRefusal | None:
    """Why none of the runners gives the job something that it asks for; None: it gets all."""
    for name, (why, advice, needed) in _LACKING.items():
        if all(name in runner.lacks for runner in runners) and name in job.inputs:
            return RunnerRefusal(f"no runner of namespace {namespace} {why}", advice, needed)
    return None


def _pods_refusal(
    runners: Sequence[RunnerStarts], namespace: str, job: _Job
) -> RunnerRefusal | None:
    """The refusal of a job with more pods at once than each of the runners can start; None: one of
    the runners can start that many. A pod counts once for each of its containers."""
    limits = [runner.pods for runner in runners]
    if not all(limits) or job.containers <= max(limits):
        return None
    having = f" with {job.containers:,} containers" if job.containers > job.pods else ""
    return RunnerRefusal(
        f"the job runs {job.pods:,} pods{having} at once, and no runner of namespace {namespace} "
        f"starts more than {max(limits):,}",
        "ask for fewer, or an admin raises the runner's --pod-limit",
        f"fewer pods at once, or --pod-limit {job.containers} of a runner",
    )


def _mixed_refusal(
    runners: Mapping[str, RunnerStarts], namespace: str, job: _Job
) -> RunnerRefusal | None:
    """Why each of the runners refuses the job, each for a reason of its own; None: one of them
    starts it."""
    reasons: dict[str, list[str]] = {}
    for runner in sorted(runners):
        why = _own_refusal(runners[runner], job)
        if not why:
            return None
        reasons.setdefault(why, []).append(runner)
    listed = [f"{_some(names)}: {why}" for why, names in islice(reasons.items(), NAMED_MAX)]
    if len(reasons) > NAMED_MAX:
        listed.append(f"and {len(reasons) - NAMED_MAX:,} more reasons")
    return RunnerRefusal(
        f"no runner of namespace {namespace} starts the job ({'; '.join(listed)})",
        "change the job, or an admin changes an option of one of the runners",
        "a runner that starts it: " + "; ".join(listed),
    )


def _own_refusal(runner: RunnerStarts, job: _Job) -> str:
    """Why the runner does not start the job; "": it starts it."""
    if runner.images and (image := _first_wrong(runner.images, job.images)):
        return f"the image {image[:IMAGE_MAX]} is not allowed (--job-image)"
    for name, why in _LACKS.items():
        if name in runner.lacks and name in job.inputs:
            return why
    if runner.pods and job.containers > runner.pods:
        return f"at most {runner.pods:,} pods at once, not {job.containers:,} (--pod-limit)"
    return ""


def _some(names: Sequence[str]) -> str:
    """The first of the names, and how many more there are."""
    more = f" and {len(names) - NAMED_MAX:,} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


def _first_wrong(patterns: Iterable[str], images: Iterable[str]) -> str:
    """The first image that no pattern allows; "": all images are allowed."""
    allowed = tuple(patterns)
    return next((image for image in images if not any(fnmatchcase(image, p) for p in allowed)), "")


class _Keys(Kept, frozen=True, kw_only=True):
    optional: bool = False


class _Source(Kept, frozen=True, kw_only=True):
    config_map_key_ref: _Keys | None = None
    secret_key_ref: _Keys | None = None


class _Variable(Kept, frozen=True, kw_only=True):
    value_from: _Source | None = None


class _EnvFrom(Kept, frozen=True, kw_only=True):
    config_map_ref: _Keys | None = None
    secret_ref: _Keys | None = None


class _Mount(Kept, frozen=True, kw_only=True):
    name: str = ""


class _Volume(Kept, frozen=True, kw_only=True):
    name: str = ""
    host_path: Any = None
    config_map: _Keys | None = None
    secret: _Keys | None = None


class _Container(Kept, frozen=True, kw_only=True):
    image: str = ""
    command: Any = None
    args: Any = None
    env: tuple[_Variable, ...] = ()
    env_from: tuple[_EnvFrom, ...] = ()
    volume_mounts: tuple[_Mount, ...] = ()


class _PodSpec(Kept, frozen=True, kw_only=True):
    init_containers: tuple[_Container, ...] = ()
    containers: tuple[_Container, ...] = ()
    volumes: tuple[_Volume, ...] = ()


class _Metadata(Kept, frozen=True, kw_only=True):
    annotations: dict[str, str] | None = None


class _Template(Kept, frozen=True, kw_only=True):
    metadata: _Metadata | None = None
    spec: _PodSpec = _PodSpec()


class _PodSet(Kept, frozen=True, kw_only=True):
    count: int | None = None
    min_count: int | None = None
    template: _Template = _Template()


class _Spec(Kept, frozen=True, kw_only=True):
    pod_sets: tuple[_PodSet, ...] = ()


class _Manifest(Kept, frozen=True, kw_only=True):
    spec: _Spec = _Spec()


_manifest = msgspec.json.Decoder(_Manifest)


class _Job:
    """What runners look at in a workload, submitted or stored. A manifest that is invalid, which is
    refused when the workload-controller applies it, asks for nothing."""

    def __init__(self, manifest: bytes) -> None:
        self._manifest = manifest

    @cached_property
    def _pod_sets(self) -> tuple[_PodSet, ...]:
        try:
            return _manifest.decode(self._manifest).spec.pod_sets
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return ()

    @cached_property
    def _pods(self) -> list[_PodSpec]:
        return [pod_set.template.spec for pod_set in self._pod_sets]

    @cached_property
    def images(self) -> list[str]:
        """The images that the workload names."""
        return [c.image for pod in self._pods for c in _containers(pod) if c.image]

    @cached_property
    def pods(self) -> int:
        """The fewest pods that run at once after an admission."""
        return sum(map(_least, self._pod_sets))

    @cached_property
    def containers(self) -> int:
        """The fewest containers that run at once after an admission. A runner of local processes
        leaves out those without command and args beside others."""
        return sum(_least(pod_set) * _at_once(pod_set.template.spec) for pod_set in self._pod_sets)

    @cached_property
    def inputs(self) -> frozenset[str]:
        """Which of ``hostPath`` and ``values`` the containers must get."""
        return frozenset(name for pod in self._pods for name in _inputs(pod))


def _least(pod_set: _PodSet) -> int:
    count = 1 if pod_set.count is None else pod_set.count
    least = count if pod_set.min_count is None else min(count, pod_set.min_count)
    metadata = pod_set.template.metadata
    completions = noted_completions((metadata and metadata.annotations) or {})
    return min(least, completions) if completions else least


def _at_once(pod: _PodSpec) -> int:
    return max(1, sum(1 for container in pod.containers if container.command or container.args))


def _containers(pod: _PodSpec) -> tuple[_Container, ...]:
    return (*pod.init_containers, *pod.containers)


def _inputs(pod: _PodSpec) -> Iterator[str]:
    every = _containers(pod)
    mounted = {mount.name for container in every for mount in container.volume_mounts}
    volumes = [volume for volume in pod.volumes if volume.name in mounted]
    if any(volume.host_path is not None for volume in volumes):
        yield "hostPath"
    variables = [variable.value_from for container in every for variable in container.env]
    sources = [source for container in every for source in container.env_from]
    keys = [
        *(key for volume in volumes for key in (volume.config_map, volume.secret)),
        *(key for source in sources for key in (source.config_map_ref, source.secret_ref)),
        *(
            key
            for source in variables
            if source is not None
            for key in (source.config_map_key_ref, source.secret_key_ref)
        ),
    ]
    if any(key is not None and not key.optional for key in keys):
        yield "values"
