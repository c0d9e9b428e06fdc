"""The elements of an array: their names, metadata and specs, made from the stored array.
docs/spec/arrays.md#2."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from admittance.api.arrays import (
    ARRAY_ENV,
    ARRAY_LABEL,
    COUNT_ENV,
    INDEX_ENV,
    INDEX_LABEL,
    MAX_ENV,
    MIN_ENV,
    parse_indexes,
)
from admittance.api.meta import ObjectMeta, OwnerReference
from admittance.api.workload import (
    ARRAY_GATE,
    ENDED,
    FAILED,
    GATED_BY,
    SUBMISSION_KEY,
    SUCCEEDED,
    TTL_AFTER_FINISHED,
)
from admittance.events import reasons
from admittance.workload.conditions import Type, find_true
from admittance.workload.stored import VARIANT, ArrayHead, StoredWorkload, head, owner_of

_NOT_CARRIED: Final = frozenset({GATED_BY, TTL_AFTER_FINISHED, SUBMISSION_KEY})
"""Annotations of an array that its elements do not have."""
_MARK: Final = f'"{INDEX_LABEL}"'.encode()
_encode: Final = msgspec.json.Encoder().encode


class ElementOf(NamedTuple):
    """The array that an element belongs to, and its index, the ``number``."""

    array: str
    uid: str
    number: int


def element_of(workload: StoredWorkload) -> ElementOf | None:
    """The array of a stored workload; None: it is no element of an array."""
    written = workload.metadata.labels.get(INDEX_LABEL)
    if written is None or head(workload).role == VARIANT:
        return None  # A variant has the labels of its parent, which may be an element.
    return _claimed(written, *owner_of(workload))


def claimed_element(manifest: bytes) -> ElementOf | None:
    """The array and the index that a submission names; None: it submits no element."""
    if _MARK not in manifest:
        return None
    try:
        claim = _claim.decode(manifest)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None  # No error is reported here: the validation of the submission reports it.
    written = claim.metadata.labels.get(INDEX_LABEL)
    owner = next(
        (each for each in claim.metadata.owner_references if each.kind == "Workload"), None
    )
    if written is None or owner is None:
        return None
    return _claimed(written, owner.name, owner.uid)


def _claimed(written: str, array: str, uid: str) -> ElementOf | None:
    if not uid or not (written.isascii() and written.isdecimal() and len(written) <= 9):
        return None
    return ElementOf(array, uid, int(written))


class _Reference(msgspec.Struct, frozen=True, rename="camel"):
    kind: str = ""
    name: str = ""
    uid: str = ""


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    owner_references: tuple[_Reference, ...] = ()


class _Claim(msgspec.Struct, frozen=True, rename="camel"):
    metadata: _Meta = _Meta()


_claim: Final = msgspec.json.Decoder(_Claim)


def array_of(workload: StoredWorkload) -> ArrayHead:
    """The elements that a stored array has."""
    array = head(workload).array
    assert array is not None, "a stored workload with the role array has spec.array"
    return array


def indexes_of(workload: StoredWorkload) -> tuple[int, ...]:
    """The indexes of a stored array, in their order."""
    return parse_indexes(array_of(workload).indexes)


def submitted_manifest(array: StoredWorkload, name: str, index: int) -> bytes:
    """The manifest with which the array-controller submits an element: what it leaves out, the
    workload-controller takes from the array."""
    meta = array.metadata
    return _encode(
        {
            "apiVersion": array.api_version,
            "kind": "Workload",
            "metadata": {
                "name": name,
                "namespace": meta.namespace,
                "labels": {INDEX_LABEL: str(index)},
                "ownerReferences": [
                    {
                        "apiVersion": array.api_version,
                        "kind": "Workload",
                        "name": meta.name,
                        "uid": meta.uid,
                        "controller": True,
                    }
                ],
            },
        }
    )


def element_metadata(array: StoredWorkload, name: str, index: int, place: int) -> ObjectMeta:
    """The metadata of an element, with the time of the array, so that it keeps the array's place in
    the queue. ``place``: of the index, from 0."""
    meta = array.metadata
    annotations = {key: v for key, v in meta.annotations.items() if key not in _NOT_CARRIED}
    parallelism = array_of(array).parallelism
    if parallelism is not None and place >= parallelism:
        annotations[GATED_BY] = ARRAY_GATE
    created = meta.creation_timestamp
    return ObjectMeta(
        name=name,
        namespace=meta.namespace,
        labels={**meta.labels, ARRAY_LABEL: meta.name, INDEX_LABEL: str(index)},
        annotations=annotations,
        creation_timestamp=created + timedelta(microseconds=place) if created else None,
        owner_references=(
            OwnerReference(
                api_version=array.api_version,
                kind="Workload",
                name=meta.name,
                uid=meta.uid,
                controller=True,
            ),
        ),
    )


def result_of(element: StoredWorkload) -> str:
    """The letter of the result of an element (`ArrayStatus`); "": it has none."""
    finished = find_true(element, Type.FINISHED)
    if finished is None:
        return ""
    if finished.reason == reasons.SUCCEEDED:
        return SUCCEEDED
    return ENDED if finished.reason == reasons.ARRAY_ENDED else FAILED


class ElementSpecs:
    """The specs of the elements of one array. The array's spec is decoded once."""

    def __init__(self, array: StoredWorkload) -> None:
        self.spec = array.spec
        indexes = indexes_of(array)
        self.places = {index: place for place, index in enumerate(indexes)}
        self._shared = {
            COUNT_ENV: str(len(indexes)),
            MIN_ENV: str(indexes[0]),
            MAX_ENV: str(indexes[-1]),
        }
        self._decoded: dict[str, Any] = msgspec.json.decode(array.spec)
        for field in ("array", "role", "after"):
            self._decoded.pop(field, None)

    def spec_of(self, index: int) -> msgspec.Raw:
        """The spec of the element with the index."""
        env = [{"name": name, "value": value} for name, value in self._env(index)]
        pod_sets = [_with_env(pod_set, env) for pod_set in self._decoded.get("podSets", ())]
        return msgspec.Raw(_encode({**self._decoded, "podSets": pod_sets}))

    def _env(self, index: int) -> list[tuple[str, str]]:
        values = {INDEX_ENV: str(index), **self._shared}
        return [(name, values[name]) for name in ARRAY_ENV]


def _with_env(pod_set: dict[str, Any], env: list[dict[str, str]]) -> dict[str, Any]:
    """The pod set with variables before the own ones of each container, which may refer to them."""
    template = pod_set.get("template") or {}
    spec = template.get("spec") or {}
    changed = {
        kind: [
            {
                **container,
                "env": [
                    *env,
                    *(own for own in container.get("env") or () if own["name"] not in ARRAY_ENV),
                ],
            }
            for container in spec[kind]
        ]
        for kind in ("initContainers", "containers")
        if spec.get(kind)
    }
    return {**pod_set, "template": {**template, "spec": {**spec, **changed}}}


def with_role_of_queue(
    metadata: ObjectMeta, spec: msgspec.Raw, role: str, mark: str
) -> tuple[ObjectMeta, msgspec.Raw]:
    """The metadata and spec of an element in a queue with concurrent admission, in which it is the
    parent of variants. ``mark``: the annotation of parents."""
    decoded: dict[str, Any] = msgspec.json.decode(spec)
    notes = {**metadata.annotations, mark: "true"}
    return (
        replace(metadata, annotations=notes),
        msgspec.Raw(_encode({**decoded, "role": role})),
    )
