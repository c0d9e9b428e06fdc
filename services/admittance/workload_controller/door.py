"""The door: a submission is decoded, filled in, validated once, and after that never again."""

from __future__ import annotations

from typing import Final

import msgspec

from admittance.api.manifest import accept
from admittance.api.problems import ManifestError
from admittance.api.stored_form import to_stored
from admittance.api.validate_pods import exceeding
from admittance.api.workload import Workload
from admittance.events import facts
from admittance.workload.arrive import Arrived
from admittance.workload_controller.objects import Objects

WORKLOAD_MAX: Final = 512 * 1024
"""Bytes of metadata and spec. Status, what checks add and what is said of it need room, too, in the
server's message of 1 MiB."""


class Unfit(ValueError):
    """A submission that is no valid workload; the text says why, in one line."""


def open_door(fact: facts.Submitted, objects: Objects) -> Arrived:
    """The submission as a fact that the moves take. Raises Unfit.

    Where only a priority class is named, its value is looked up here: the number is what counts
    from then on.
    """

    def value_of(name: str) -> int:
        found = objects.priority_class(name)
        if found is None:
            raise Unfit(f"WorkloadPriorityClass {name} doesn't exist")
        return found.value

    try:
        manifest, _ = accept(fact.workload, namespace=fact.namespace, priority_of=value_of)
    except ManifestError as error:
        raise Unfit(str(error)) from error
    if not isinstance(manifest, Workload):
        raise Unfit(f"a {manifest.kind} was submitted, a Workload is wanted")
    above = exceeding(manifest.spec)
    if above:
        # It would wait for ever: better told at once.
        raise Unfit("; ".join(str(problem) for problem in above))
    meta = manifest.metadata
    if meta.name not in ("", fact.name) or meta.namespace not in ("", fact.namespace):
        raise Unfit(
            f"the manifest is of {meta.namespace}/{meta.name}, "
            f"the message of {fact.namespace}/{fact.name}"
        )
    spec = to_stored(manifest)
    if len(fact.workload) > WORKLOAD_MAX // 4:
        length = len(spec) + len(msgspec.json.encode(meta))
        if length > WORKLOAD_MAX:
            raise Unfit(f"the workload is {length} bytes long, {WORKLOAD_MAX} are allowed")
    return Arrived(
        namespace=fact.namespace,
        name=fact.name,
        uid=fact.uid,
        api_version=manifest.api_version,
        metadata=meta,
        spec=msgspec.Raw(spec),
    )
