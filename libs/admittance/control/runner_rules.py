"""Which jobs the announced runners start, so that a submission that no runner starts is refused.
Pure."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

import msgspec

from admittance.api.workload import Kept, noted_completions
from admittance.events.system import RunnerStarts

PATTERNS_MAX: Final = 200
"""The most patterns of images of one runner that are looked at: each image of a submission is
compared with all of them. A runner with more refuses images only when it would start the job."""


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
        """Forgets a runner of which nothing was heard for days."""
        self._known.pop(runner, None)

    def refusal(self, user: str, namespace: str, manifest: bytes = b"") -> RunnerRefusal | None:
        """Why no runner starts a job of the user in the namespace; None: a runner starts it, or no
        runner of the namespace is known. ``manifest``: the workload, as submitted or stored."""
        responsible = [
            starts
            for starts in self._known.values()
            if starts is None or not starts.namespaces or namespace in starts.namespaces
        ]
        allowing = [
            starts
            for starts in responsible
            if starts is None or starts_job(starts, user, namespace)
        ]
        if allowing or not responsible:
            return (
                _image_refusal(allowing, namespace, manifest)
                or _input_refusal(allowing, namespace, manifest)
                or _pods_refusal(allowing, namespace, manifest)
            )
        by = f"the user {user}" if user else "an unknown submitter"
        key = f"user:{user}" if user else f"namespace:{namespace}"
        rule = f"`admit auth run-as {key}=UNIX_USER`"
        return RunnerRefusal(
            f"no runner has a Unix user for jobs of {by} in namespace {namespace}",
            f"an admin names one with {rule}, or with the option --run-as of the runner",
            f"a Unix user for its job: {rule}, or --run-as of a runner",
        )


def _image_refusal(
    runners: list[RunnerStarts | None], namespace: str, manifest: bytes
) -> RunnerRefusal | None:
    """Why none of the runners may run the images of a workload; None: one of them may."""
    limits = [one.images if one is not None else () for one in runners]
    if not all(limits):
        return None
    images = images_of(manifest)
    wrong = [_first_wrong(patterns, images) for patterns in limits]
    if not wrong or not all(wrong):
        return None
    allowed = ", ".join(sorted({pattern for patterns in limits for pattern in patterns}))
    return RunnerRefusal(
        f"no runner of namespace {namespace} may run the image {wrong[0]}",
        f"allowed are {allowed}",
        "a runner that may run its image: --job-image of the runner",
    )


_LACKING = {
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


def _input_refusal(
    runners: list[RunnerStarts | None], namespace: str, manifest: bytes
) -> RunnerRefusal | None:
    """Why the workload gets something that it asks for from none of the runners; None: it gets
    it."""
    if not runners:
        return None
    lacking = [name for name in _LACKING if all(one and name in one.lacks for one in runners)]
    wanted = inputs_of(manifest) if lacking else frozenset()
    for name in lacking:
        if name in wanted:
            why, advice, needed = _LACKING[name]
            return RunnerRefusal(f"no runner of namespace {namespace} {why}", advice, needed)
    return None


def _pods_refusal(
    runners: list[RunnerStarts | None], namespace: str, manifest: bytes
) -> RunnerRefusal | None:
    """Why the workload has more pods at once than any of the runners starts; None: one of them
    starts so many."""
    limits = [one.pods if one is not None else 0 for one in runners]
    if not limits or not all(limits):
        return None
    pods, most = pods_of(manifest), max(limits)
    if pods <= most:
        return None
    return RunnerRefusal(
        f"the job runs {pods:,} pods at once, and no runner of namespace {namespace} starts more "
        f"than {most:,}",
        "ask for fewer, or an admin raises the runner's --pod-limit",
        f"fewer pods at once, or --pod-limit {pods} of a runner",
    )


def _first_wrong(patterns: Iterable[str], images: Iterable[str]) -> str:
    """The first image that no pattern allows; "": all images are allowed."""
    allowed = tuple(patterns)
    return next((one for one in images if not any(fnmatchcase(one, p) for p in allowed)), "")


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


def images_of(manifest: bytes) -> list[str]:
    """The images that a submitted workload names; empty for an invalid manifest, which is refused
    when the workload-controller applies it."""
    return [c.image for pod in _pods(manifest) for c in _containers(pod) if c.image]


def _pod_sets(manifest: bytes) -> tuple[_PodSet, ...]:
    try:
        return _manifest.decode(manifest).spec.pod_sets
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return ()


def _pods(manifest: bytes) -> list[_PodSpec]:
    return [one.template.spec for one in _pod_sets(manifest)]


def pods_of(manifest: bytes) -> int:
    """The fewest pods of a submitted workload that run at once after an admission."""
    return sum(map(_least, _pod_sets(manifest)))


def _least(pod_set: _PodSet) -> int:
    count = 1 if pod_set.count is None else pod_set.count
    least = count if pod_set.min_count is None else min(count, pod_set.min_count)
    metadata = pod_set.template.metadata
    completions = noted_completions((metadata and metadata.annotations) or {})
    return min(least, completions) if completions else least


def _containers(pod: _PodSpec) -> tuple[_Container, ...]:
    return (*pod.init_containers, *pod.containers)


def inputs_of(manifest: bytes) -> frozenset[str]:
    """Which of ``hostPath`` and ``values`` the containers of a submitted workload must get."""
    found: set[str] = set()
    for pod in _pods(manifest):
        every = _containers(pod)
        mounted = {mount.name for container in every for mount in container.volume_mounts}
        volumes = [one for one in pod.volumes if one.name in mounted]
        if any(one.host_path is not None for one in volumes):
            found.add("hostPath")
        variables = [one.value_from for container in every for one in container.env]
        sources = [one for container in every for one in container.env_from]
        keys = [
            *(one for volume in volumes for one in (volume.config_map, volume.secret)),
            *(one for source in sources for one in (source.config_map_ref, source.secret_ref)),
            *(
                one
                for source in variables
                if source is not None
                for one in (source.config_map_key_ref, source.secret_key_ref)
            ),
        ]
        if any(one is not None and not one.optional for one in keys):
            found.add("values")
    return frozenset(found)
