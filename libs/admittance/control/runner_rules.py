"""Which jobs the announced runners start, so that a submission that no runner starts is refused.
Pure."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

import msgspec

from admittance.api.workload import Kept
from admittance.events.system import RunnerStarts


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
        self._known[runner] = starts

    def forget(self, runner: str) -> None:
        """Forgets a runner of which nothing was heard for days."""
        self._known.pop(runner, None)

    def refusal(self, user: str, namespace: str, manifest: bytes = b"") -> str:
        """Why no runner starts a job of the user in the namespace, as a sentence; "": a runner
        starts it, or no runner of the namespace is known. ``manifest``: the submitted workload."""
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
            return _image_refusal(allowing, namespace, manifest)
        return (
            f"no runner has a Unix user for jobs of the user {user} in namespace {namespace}: an "
            f"admin names one with `admit auth run-as user:{user}=UNIX_USER`, or with the option "
            "--run-as of the runner"
        )


def _image_refusal(runners: list[RunnerStarts | None], namespace: str, manifest: bytes) -> str:
    """Why none of the runners may run the images of a workload; "": one of them may."""
    limits = [one.images if one is not None else () for one in runners]
    if not all(limits):
        return ""
    images = images_of(manifest)
    wrong = [_first_wrong(patterns, images) for patterns in limits]
    if not wrong or not all(wrong):
        return ""
    allowed = ", ".join(sorted({pattern for patterns in limits for pattern in patterns}))
    return f"no runner of namespace {namespace} may run the image {wrong[0]}: allowed are {allowed}"


def _first_wrong(patterns: Iterable[str], images: Iterable[str]) -> str:
    """The first image that no pattern allows; "": all images are allowed."""
    allowed = tuple(patterns)
    return next((one for one in images if not any(fnmatchcase(one, p) for p in allowed)), "")


class _Container(Kept, frozen=True, kw_only=True):
    image: str = ""


class _PodSpec(Kept, frozen=True, kw_only=True):
    init_containers: tuple[_Container, ...] = ()
    containers: tuple[_Container, ...] = ()


class _Template(Kept, frozen=True, kw_only=True):
    spec: _PodSpec = _PodSpec()


class _PodSet(Kept, frozen=True, kw_only=True):
    template: _Template = _Template()


class _Spec(Kept, frozen=True, kw_only=True):
    pod_sets: tuple[_PodSet, ...] = ()


class _Manifest(Kept, frozen=True, kw_only=True):
    spec: _Spec = _Spec()


_manifest = msgspec.json.Decoder(_Manifest)


def images_of(manifest: bytes) -> list[str]:
    """The images that a submitted workload names; empty for an invalid manifest, which is refused
    when the workload-controller applies it."""
    try:
        sets = _manifest.decode(manifest).spec.pod_sets
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return []
    pods = [one.template.spec for one in sets]
    return [c.image for pod in pods for c in (*pod.init_containers, *pod.containers) if c.image]
