"""Manifests as programs give them: text, plain values, or typed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_args

import msgspec
from msgspec.structs import replace

from admittance.api.fields.limits import FLAVOR_VARIANTS_MAX
from admittance.api.fields.problems import ManifestError
from admittance.api.manifests import Manifest
from admittance.api.reading.objects import encode
from admittance.api.workload import Job, Workload
from admittance.client.errors import BadInput
from admittance.client.requests.submissions.names import name_of_key
from admittance.client.requests.submissions.submitting import NAME_AND_KEY, workload_of_manifest

if TYPE_CHECKING:
    from admittance.api.reading.manifest import Document

Manifests = str | bytes | Mapping[str, Any] | Manifest | Sequence[Mapping[str, Any] | Manifest]
"""Manifests as text (YAML or JSON), as plain values, or typed."""

SOURCE: Final = "the manifests"


def documents_of(given: Manifests, namespace: str, queue: str | None = None) -> list[Document]:
    """The manifests, validated and with defaults, and the warnings about each. ``namespace``: of
    manifests that name none; ``queue``: the LocalQueue of all Workloads and Jobs. Raises BadInput
    with all problems."""
    # `read` is imported late: its imports take time, and most programs need none.
    from admittance.api.reading.manifest import read

    if isinstance(given, str | bytes):
        text = given
    else:
        several: Sequence[Any] = given if isinstance(given, Sequence) else [given]
        items = [encode_one(manifest) for manifest in several]
        text = b'{"apiVersion":"v1","kind":"List","items":[' + b",".join(items) + b"]}"
    try:
        return read(text, SOURCE, namespace=namespace, flavors_max=FLAVOR_VARIANTS_MAX, queue=queue)
    except ManifestError as error:
        raise BadInput(*error.lines()) from None


def encode_one(given: Any) -> bytes:
    """A manifest as JSON. Raises BadInput for a value that is no manifest."""
    if not isinstance(given, (Mapping, *get_args(Manifest))):
        raise BadInput("a manifest is a text, a dict, or a manifest of admittance.api")
    manifest: Any = given
    try:
        return msgspec.json.encode(manifest) if isinstance(given, Mapping) else encode(manifest)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"the manifest is not JSON: {error}") from None


class Run(NamedTuple):
    """The workload of a manifest, and the warnings about the manifest."""

    workload: Workload
    warnings: tuple[str, ...]


def parted(documents: Sequence[Document]) -> tuple[list[bytes], list[Run]]:
    """The manifests as `apply` sends them: first other objects as JSON, then the workloads of
    Workloads and Jobs, each behind those that it waits for. Raises BadInput."""
    others: list[bytes] = []
    runs: list[Run] = []
    for document in documents:
        if isinstance(document.manifest, Workload | Job):
            runs.append(_run(document.manifest, document.warnings))
        else:
            others.append(encode(document.manifest))
    return others, [runs[place] for place in in_order([run.workload for run in runs])]


def _run(manifest: Workload | Job, warnings: tuple[str, ...]) -> Run:
    try:
        return Run(workload_of_manifest(manifest), warnings)
    except ManifestError as error:
        raise BadInput(*error.lines()) from None


def only_run(
    given: Manifests, namespace: str, queue: str | None, user: str, key: str | None
) -> Run:
    """The workload of the only manifest; with a key its name is that of the key. Raises
    BadInput."""
    documents = documents_of(given, namespace, queue)
    if len(documents) != 1:
        raise BadInput(f"{len(documents)} manifests are given: submit one at a time, or use apply")
    [document] = documents
    manifest = document.manifest
    if not isinstance(manifest, Workload | Job):
        raise BadInput(f"objects of the kind {manifest.kind} are not submitted; use apply")
    if key is not None:
        meta = manifest.metadata
        if meta.name:
            raise BadInput(NAME_AND_KEY)
        name = name_of_key(meta.namespace, user, key)
        manifest = replace(manifest, metadata=replace(meta, name=name, generate_name=""))
    return _run(manifest, document.warnings)


def in_order(workloads: Sequence[Workload]) -> list[int]:
    """The places of the workloads in an order in which each comes behind those that it waits for.
    Raises BadInput for a cycle, with its path."""
    by_name = {(w.metadata.namespace, w.metadata.name): place for place, w in enumerate(workloads)}
    order: list[int] = []
    done: set[int] = set()
    for start in range(len(workloads)):
        # The path of places from ``start``, each with those that it waits for.
        path: list[tuple[int, list[int]]] = []
        if start not in done:
            path.append((start, _waited_for(workloads[start], by_name)))
        while path:
            place, rest = path[-1]
            following = next((each for each in rest if each not in done), None)
            if following is None:
                path.pop()
                done.add(place)
                order.append(place)
                continue
            places = [each for each, _ in path]
            if following in places:
                cycle = [*places[places.index(following) :], following]
                names = " → ".join(workloads[each].metadata.name for each in cycle)
                raise BadInput(f"these workloads wait for each other: {names}")
            path.append((following, _waited_for(workloads[following], by_name)))
    return order


def _waited_for(workload: Workload, by_name: Mapping[tuple[str, str], int]) -> list[int]:
    space = workload.metadata.namespace
    names = ((space, dependency.workload) for dependency in workload.spec.after)
    return [by_name[name] for name in names if name in by_name]
