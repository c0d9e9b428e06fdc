"""The manifest of a stored workload, to be submitted once more."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from admittance.api.arrays import ARRAY_LABEL, INDEX_LABEL
from admittance.api.meta import APPLIED_BY, ObjectMeta
from admittance.api.reading.canonical import spec_of
from admittance.api.workload import (
    GATED_BY,
    OWN_GATES,
    PARENT_VARIANT,
    SUBMISSION_KEY,
    Workload,
    gate_names,
)
from admittance.workload.stored import StoredWorkload

_NOT_CARRIED: Final = frozenset({APPLIED_BY, PARENT_VARIANT, SUBMISSION_KEY})


def submitted_again(workload: StoredWorkload) -> Workload:
    """Returns a regular workload with the name and the spec of the stored one, active and without
    dependencies."""
    meta, spec = workload.metadata, spec_of(workload.spec)
    # The spec of an element has the variables of its index, and the new workload keeps them.
    own = (ARRAY_LABEL, INDEX_LABEL) if INDEX_LABEL in meta.labels else ()
    return Workload(
        metadata=ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            labels={key: value for key, value in meta.labels.items() if key not in own},
            annotations=_annotations(meta.annotations),
        ),
        # What the first one has waited for may be gone.
        spec=replace(spec, active=True, role="regular", after=(), after_unmet=None),
    )


def _annotations(annotations: dict[str, str]) -> dict[str, str]:
    kept = {key: value for key, value in annotations.items() if key not in _NOT_CARRIED}
    gates = [gate for gate in gate_names(kept.pop(GATED_BY, "")) if gate not in OWN_GATES]
    return {**kept, GATED_BY: ",".join(gates)} if gates else kept
