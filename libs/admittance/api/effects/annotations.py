"""What the labels and annotations of Kueue and of Admittance do in a Workload or Job.

A label or annotation of these domains that no table has is most often misspelled: it causes a
warning that names the nearest one.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from admittance.api.arrays import ARRAY_LABEL, INDEX_LABEL
from admittance.api.effects.field_effect import (
    BY_SYSTEM,
    WORKS,
    Effect,
    FieldEffect,
    in_part,
    no_effect,
    refused,
    works,
)
from admittance.api.fields.warning_signal import WARNING_SIGNAL
from admittance.api.files import JOB_FILES
from admittance.api.meta import APPLIED_BY
from admittance.api.pods import PodTemplate
from admittance.api.workload import (
    ALLOWED_FLAVORS,
    COMPLETIONS,
    GATED_BY,
    JOB_POLICY,
    PARENT_VARIANT,
    PRIORITY_CLASS_LABEL,
    QUEUE_LABEL,
    SUBMISSION_KEY,
    TTL_AFTER_FINISHED,
    TTL_MIN,
    Job,
    Workload,
)
from admittance.folders import SUBMITTED_FROM

KUEUE: Final = "kueue.x-k8s.io/"
_DOMAINS: Final = ("kueue.x-k8s.io", "admittance.dev")
_PARAMETERS: Final = "provreq.kueue.x-k8s.io/"
"""The prefix of annotations that become parameters of provisioning requests."""


class Place(StrEnum):
    """Where a key stands. The values are the words of the documentation."""

    LABEL = "label"
    ANNOTATION = "annotation"
    POD_ANNOTATION = "annotation of the pod template"


class KeyFound(NamedTuple):
    """A label or annotation of a manifest, with its effect."""

    path: str
    effect: FieldEffect


_OF_TOPOLOGY: Final = "pods are not placed by topology"
_SLICES: Final = refused(_OF_TOPOLOGY, usual=())

KEYS: Final[Mapping[Place, Mapping[str, FieldEffect]]] = {
    Place.LABEL: {
        QUEUE_LABEL: works("the LocalQueue of a Job; a Workload has `spec.queueName`"),
        PRIORITY_CLASS_LABEL: works("the WorkloadPriorityClass of a Job or Workload"),
        f"{KUEUE}max-exec-time-seconds": works(
            "of a Job; a Workload has `spec.maximumExecutionTimeSeconds`"
        ),
        f"{KUEUE}prebuilt-workload-name": no_effect("a Job always makes a workload of its own"),
        f"{KUEUE}pod-group-name": no_effect("pods are not grouped: submit one Workload"),
        f"{KUEUE}job-uid": BY_SYSTEM,
        f"{KUEUE}concurrent-admission-parent": BY_SYSTEM,
        f"{KUEUE}multikueue-origin": BY_SYSTEM,
        f"{KUEUE}managed": BY_SYSTEM,
        ARRAY_LABEL: BY_SYSTEM,
        INDEX_LABEL: BY_SYSTEM,
    },
    Place.ANNOTATION: {
        f"{KUEUE}job-min-parallelism": works("of a Job; a Workload has `minCount`"),
        f"{KUEUE}job-completions-equal-parallelism": works(
            "of a Job: with fewer pods, fewer must succeed"
        ),
        TTL_AFTER_FINISHED: in_part(
            f"made from `ttlSecondsAfterFinished` of a Job: from {TTL_MIN} s to the time for which "
            "the configuration keeps finished workloads"
        ),
        ALLOWED_FLAVORS: WORKS,
        GATED_BY: WORKS,
        f"{KUEUE}wait-for-pods-ready": works("with `waitForPodsReady` in the configuration"),
        f"{KUEUE}priority-boost": no_effect("the gate PriorityBoost of Kueue does not exist here"),
        f"{KUEUE}prebuilt-workload-name": no_effect("a Job always makes a workload of its own"),
        f"{KUEUE}elastic-job": no_effect("a Job that runs is not resized", usual=("false",)),
        f"{KUEUE}job-owner-gvk": BY_SYSTEM,
        f"{KUEUE}job-owner-name": BY_SYSTEM,
        f"{KUEUE}component-workload-index": BY_SYSTEM,
        PARENT_VARIANT: BY_SYSTEM,
        APPLIED_BY: BY_SYSTEM,
        SUBMISSION_KEY: BY_SYSTEM,
    },
    Place.POD_ANNOTATION: {
        f"{KUEUE}podset-required-topology": _SLICES,
        f"{KUEUE}podset-slice-required-topology": _SLICES,
        f"{KUEUE}podset-slice-required-topology-constraints": _SLICES,
        f"{KUEUE}podset-group-name": refused(
            "each pod set is assigned flavors of its own", usual=()
        ),
        f"{KUEUE}podset-preferred-topology": no_effect(_OF_TOPOLOGY),
        f"{KUEUE}podset-unconstrained-topology": in_part("no topology constrains the pods"),
        f"{KUEUE}podset-slice-size": in_part("only of a slice, which is refused"),
        f"{KUEUE}pod-index-offset": BY_SYSTEM,
        f"{KUEUE}workload": BY_SYSTEM,
        COMPLETIONS: in_part("made from `completions` of a Job"),
        JOB_POLICY: works("made from the policies of a Job, as JSON"),
        WARNING_SIGNAL: works(
            "with a time limit: `USR1@120` warns the job 120 s before its end; made by `admit "
            "submit --signal`"
        ),
        SUBMITTED_FROM: works("which folder a `workingDir` is; made by `admit submit`"),
        JOB_FILES: works("made from `--input` and `--output` of `admit submit`, as JSON"),
    },
}
"""The effects of known keys by their place. Keys with the prefix ``provreq.kueue.x-k8s.io/`` become
parameters of provisioning requests."""

_REFUSED: Final = frozenset(
    key for key, entry in KEYS[Place.POD_ANNOTATION].items() if entry.effect is Effect.REFUSED
)


def refused_keys(manifest: Workload | Job) -> list[KeyFound]:
    """The annotations of pod templates with which the object is refused."""
    refused: list[KeyFound] = []
    for place, template in enumerate(_templates(manifest)):
        annotations = template.metadata.annotations
        if annotations:
            for key in sorted(_REFUSED & annotations.keys()):
                effect = KEYS[Place.POD_ANNOTATION][key]
                if effect.concerns(annotations[key]):
                    path = f"{_path(manifest, place)}.annotations[{key}]"
                    refused.append(KeyFound(path, effect))
    return refused


def keys_without_effect(manifest: Workload | Job) -> Iterator[KeyFound]:
    """The labels and annotations that have no effect, or only a part of it."""
    metadata = manifest.metadata
    for key, value in metadata.labels.items():
        yield from _key(Place.LABEL, "metadata.labels", key, value)
    for key, value in metadata.annotations.items():
        yield from _key(Place.ANNOTATION, "metadata.annotations", key, value)
    for place, template in enumerate(_templates(manifest)):
        path = f"{_path(manifest, place)}.annotations"
        for key, value in template.metadata.annotations.items():
            yield from _key(Place.POD_ANNOTATION, path, key, value)
    if isinstance(manifest, Workload):
        yield from _of_jobs(manifest)


def _templates(manifest: Workload | Job) -> list[PodTemplate]:
    if isinstance(manifest, Job):
        return [manifest.spec.template]
    return [pod_set.template for pod_set in manifest.spec.pod_sets]


def _path(manifest: Workload | Job, place: int) -> str:
    """The path of the metadata of a pod template, by its place among the pod sets."""
    if isinstance(manifest, Job):
        return "spec.template.metadata"
    return f"spec.podSets[{place}].template.metadata"


def _key(place: Place, path: str, key: str, value: str) -> Iterator[KeyFound]:
    domain = key.partition("/")[0]
    if not domain.endswith(_DOMAINS) or key.startswith(_PARAMETERS):
        return
    effect = KEYS[place].get(key) or _unknown(place, key)
    if effect.effect is not Effect.REFUSED and effect.concerns(value or " "):
        yield KeyFound(f"{path}[{key}]", effect)


def _unknown(place: Place, key: str) -> FieldEffect:
    """The effect of a key that the table does not have at this place: none."""
    others = [other for other, keys in KEYS.items() if key in keys]
    if others:
        return no_effect(f"it counts as {' or '.join(map(_with_article, others))}")
    near = difflib.get_close_matches(key, [known for keys in KEYS.values() for known in keys], n=1)
    hint = f'; did you mean "{near[0]}"?' if near else ""
    return no_effect(f"no {place} has this name{hint}")


def _with_article(place: Place) -> str:
    return f"a {place}" if place is Place.LABEL else f"an {place}"


def _of_jobs(workload: Workload) -> Iterator[KeyFound]:
    """The keys that only a Job has, where the Workload lacks the field that says the same."""
    spec = workload.spec
    fields = {
        (Place.LABEL, QUEUE_LABEL): (spec.queue_name, "spec.queueName"),
        (Place.LABEL, f"{KUEUE}max-exec-time-seconds"): (
            spec.maximum_execution_time_seconds,
            "spec.maximumExecutionTimeSeconds",
        ),
        (Place.ANNOTATION, f"{KUEUE}job-min-parallelism"): (
            any(pod_set.min_count is not None for pod_set in spec.pod_sets),
            "minCount",
        ),
    }
    for (place, key), (given, field) in fields.items():
        where = "labels" if place is Place.LABEL else "annotations"
        if key in getattr(workload.metadata, where) and not given:
            effect = no_effect(f"it is for a Job; a Workload has {field}")
            yield KeyFound(f"metadata.{where}[{key}]", effect)
