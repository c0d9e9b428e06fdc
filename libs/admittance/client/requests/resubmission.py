"""A stored workload once more: the same spec under a new name."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from admittance.api.arrays import ARRAY_LABEL, INDEX_LABEL, written_indexes
from admittance.api.meta import APPLIED_BY, ObjectMeta
from admittance.api.reading.canonical import spec_of
from admittance.api.workload import (
    GATED_BY,
    OWN_GATES,
    PARENT_VARIANT,
    SUBMISSION_KEY,
    ArraySpec,
    Workload,
    WorkloadSpec,
    gate_names,
)
from admittance.client.errors import Refused
from admittance.client.kinds import WORKLOAD
from admittance.client.requests.arrays import failed_indexes
from admittance.client.requests.families import refuse_variant
from admittance.client.requests.link import Link
from admittance.client.requests.objects import find, is_array
from admittance.client.requests.submissions.names import suffix
from admittance.workload.stored import StoredWorkload

_NOT_CARRIED: Final = frozenset({APPLIED_BY, PARENT_VARIANT, SUBMISSION_KEY})
_STEM_MAX: Final = 44
"""The most characters of the old name in the new one, which an array can have, too."""


async def again(
    link: Link,
    name: str,
    namespace: str = "",
    *,
    failed: bool = False,
    new_name: str | None = None,
) -> Workload:
    """A new workload with the spec of a stored one. ``failed``: of an array only the elements that
    did not succeed. Raises NotFound, and Refused for a variant, and if nothing has failed."""
    stored = await find(link, WORKLOAD, name, namespace)
    refuse_variant(stored, 'workload "{}"')
    workload = stored.workload()
    spec = spec_of(workload.spec)
    if failed:
        spec = replace(spec, array=_failed(stored.name, workload, spec))
    meta = workload.metadata
    # The spec of an element has the variables of its index, and the new workload keeps them.
    own = (ARRAY_LABEL, INDEX_LABEL) if INDEX_LABEL in meta.labels else ()
    return Workload(
        metadata=ObjectMeta(
            name=new_name or f"{stored.name[:_STEM_MAX].rstrip('-.')}-{suffix()}",
            namespace=meta.namespace,
            labels={key: value for key, value in meta.labels.items() if key not in own},
            annotations=_annotations(meta.annotations),
        ),
        # What the first one has waited for may be gone.
        spec=replace(spec, active=True, role="regular", after=(), after_unmet=None),
    )


def _failed(name: str, workload: StoredWorkload, spec: WorkloadSpec) -> ArraySpec:
    if not is_array(workload) or spec.array is None:
        raise Refused(f'workload "{name}" is not an array: submit it again as a whole')
    indexes = failed_indexes(workload)
    if not indexes:
        raise Refused(f'no element of the array "{name}" has failed')
    return replace(spec.array, indexes=written_indexes(indexes))


def _annotations(annotations: dict[str, str]) -> dict[str, str]:
    kept = {key: value for key, value in annotations.items() if key not in _NOT_CARRIED}
    gates = [gate for gate in gate_names(kept.pop(GATED_BY, "")) if gate not in OWN_GATES]
    return {**kept, GATED_BY: ",".join(gates)} if gates else kept
