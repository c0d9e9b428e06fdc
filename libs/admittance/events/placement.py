"""The assignment of a workload's pods to runners: a field of the check's verdict and row, and of
the status of an admitted workload.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta

from admittance.events.base import Shape

PARTS_MAX: Final = 4_096
"""The most parts of an assignment."""
RUNNER_NAME_MAX: Final = 253
RUNNER_ID_MAX: Final = 64
RESOURCE_MAX: Final = 317
"""The most characters of the name of a resource: a domain, a slash and a name."""
UNIT_MAX: Final = 128
"""The most characters of the id of one unit of a resource."""
PLACEMENT_BYTES_MAX: Final = 262_144
"""The most bytes of JSON of an assignment. A stored workload has it twice between the verdict and
the admission, and must fit into one message of 1 MiB with its spec."""


def _text(most: int) -> Meta:
    return Meta(extra_json_schema={"minLength": 1, "maxLength": most})


_COUNT: Final[dict[str, Any]] = {"minimum": 0, "maximum": 2**31 - 1}
Count: TypeAlias = Annotated[int, Meta(extra_json_schema=_COUNT)]
UnitIds: TypeAlias = tuple[Annotated[str, _text(UNIT_MAX)], ...]
"""Ids of units of one resource. The id of a unit is the id of its device, or ``<id>::<slice>`` if
several jobs may share the device."""


class PlacementPart(Shape, frozen=True, kw_only=True):
    """Pods of one pod set on one runner: ``count`` pods from the index ``first`` on.

    ``id``: the id of the runner's data folder; a second runner with the same name starts nothing.
    ``devices``: by resource the ids of the assigned units, in the order of the pods: each pod has
    an equal share. A part of 0 pods names the runner of a workload without pods.

    The limits are not checked while decoding: `placement_error` names what is wrong.
    """

    runner: Annotated[str, _text(RUNNER_NAME_MAX)]
    id: Annotated[str, _text(RUNNER_ID_MAX)]
    pod_set: str
    first: Count
    count: Count
    devices: dict[str, UnitIds] = msgspec.field(default_factory=dict)


Placement: TypeAlias = tuple[PlacementPart, ...]
"""The parts of a whole workload, by pod set and index. Empty: the workload is not placed."""


def runners_of(parts: Iterable[PlacementPart]) -> tuple[str, ...]:
    """The ids of the runners of an assignment, each once, in the order of their first parts. This
    order numbers the runners of a workload."""
    return tuple(dict.fromkeys(part.id for part in parts))


def placement_error(parts: Sequence[PlacementPart], pods: Mapping[str, int]) -> str:
    """Why the parts are not an assignment of the workload with the pod sets ``pods`` (number of
    pods by name), as a sentence; "": the parts have each pod once, and no unit twice."""
    if len(parts) > PARTS_MAX:
        return f"the assignment has {len(parts):,} parts, {PARTS_MAX:,} are allowed"
    size = len(msgspec.json.encode(parts))
    if size > PLACEMENT_BYTES_MAX:
        return f"the assignment has {size:,} bytes of JSON, {PLACEMENT_BYTES_MAX:,} are allowed"
    for part in parts:
        if error := _part_error(part, pods):
            return f"part of pod set {part.pod_set!r} on runner {part.runner!r}: {error}"
    return _pods_error(parts, pods) or _units_error(parts)


def _part_error(part: PlacementPart, pods: Mapping[str, int]) -> str:
    if part.pod_set not in pods:
        return "the workload has no such pod set"
    if not 0 < len(part.runner) <= RUNNER_NAME_MAX:
        return f"the runner's name must have 1 to {RUNNER_NAME_MAX} characters"
    if not 0 < len(part.id) <= RUNNER_ID_MAX:
        return f"the runner's id must have 1 to {RUNNER_ID_MAX} characters"
    if part.first < 0 or part.count < 0 or (part.count == 0 and any(pods.values())):
        return f"{part.count} pods from {part.first} on are no pods"
    for resource, units in part.devices.items():
        if not 0 < len(resource) <= RESOURCE_MAX:
            return f"the name of a resource must have 1 to {RESOURCE_MAX} characters"
        if not all(0 < len(unit) <= UNIT_MAX for unit in units):
            return f"the id of a unit of {resource} must have 1 to {UNIT_MAX} characters"
        if not part.count or len(units) % part.count:
            return f"{len(units)} units of {resource} are no equal shares of {part.count} pods"
    return ""


def _pods_error(parts: Sequence[PlacementPart], pods: Mapping[str, int]) -> str:
    after = dict.fromkeys(pods, 0)
    for part in sorted(parts, key=lambda part: part.first):
        if part.first != after[part.pod_set]:
            return f"pod {part.first} of pod set {part.pod_set!r} does not follow the pod before it"
        after[part.pod_set] += part.count
    for name, count in pods.items():
        if after[name] != count:
            return f"{after[name]} of {count} pods of pod set {name!r} are assigned"
    return ""


def _units_error(parts: Sequence[PlacementPart]) -> str:
    taken = Counter(
        (part.id, resource, unit)
        for part in parts
        for resource, units in part.devices.items()
        for unit in units
    )
    for (_, resource, unit), times in taken.items():
        if times > 1:
            return f"{resource} {unit} of one runner is assigned twice"
    return ""
