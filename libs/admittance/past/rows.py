"""One row for each revision of the bucket, with what a light picture shows. The module is pure.

A row is made once, when the index is built, so that a picture decodes no workload."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from admittance.api.arrays import ARRAY_LABEL, INDEX_LABEL
from admittance.api.fields.units import INT64_MAX
from admittance.api.kinds import KINDS
from admittance.events.reader import BROKEN
from admittance.phases import Phase
from admittance.scheduling.state.assignment import amounts_of
from admittance.scheduling.state.config import Config
from admittance.scheduling.state.requests import Shapes
from admittance.scheduling.state.workload_view import view_of
from admittance.workload.bucket_reader import read
from admittance.workload.phase import phase
from admittance.workload.stored import PARENT, VARIANT, owner_of
from admittance.workload.waiting_reason import reason_of

WORKLOAD: Final = "workload."
CONFIGURATION: Final = frozenset(
    kind.prefix for kind in KINDS.values() if kind.name not in ("Workload", "Job", "Runner")
)
"""The first tokens of keys of objects of which a row has the value."""


class Facts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a light picture shows of a workload that has not finished. Times are seconds since 1970.

    ``local_queue``: of its spec; ``cluster_queue``: of its admission, "": it has none. ``state``:
    as the scheduler has it: Pending, QuotaReserved, Admitted, Evicting or Promised. ``reason``,
    ``message``: those that were stored. ``requests``: what all pods request, by resource.
    ``usage``: flavor, resource and amount of the quota that it holds. ``family``: the parent of a
    variant. ``array``: the array of which it is an element.
    """

    uid: str
    role: str
    family: str
    local_queue: str
    cluster_queue: str
    phase: str
    state: str
    competes: bool
    priority: int
    created: float
    queued: float
    reserved: float
    reason: str
    message: str
    requests: tuple[tuple[str, int], ...]
    usage: tuple[tuple[str, str, int], ...]
    user: str
    array: str


class Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One revision of a key. ``sequence``: of the message in the stream of the history. ``facts``:
    of a workload that has not finished. ``value``: of an object of the configuration, such as a
    queue. Without both: the key was deleted, or its object finished or is in no picture, or cannot
    be read."""

    key: str
    revision: int
    sequence: int
    present: bool = False
    facts: Facts | None = None
    value: bytes | None = None


class RowMaker:
    """Makes rows. Workloads with equal requests share what was read of them."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._shapes = Shapes(config.exclude_resource_prefixes, config.transformations)

    def row(
        self, key: str, value: bytes | None, revision: int, sequence: int, time: datetime
    ) -> Row:
        """The row of a revision that was written at ``time``. ``value`` None: the key was
        deleted."""
        if value is None:
            return Row(key, revision, sequence)
        if key.startswith(WORKLOAD):
            try:
                return Row(key, revision, sequence, True, self._facts(key, value, time))
            except BROKEN:
                return Row(key, revision, sequence, True)
        kept = value if key.partition(".")[0] in CONFIGURATION else None
        return Row(key, revision, sequence, True, None, kept)

    def _facts(self, key: str, value: bytes, time: datetime) -> Facts | None:
        stored = read(key, value)
        where = phase(stored, time)
        if where is Phase.FINISHED:
            return None
        view = view_of(stored, self._shapes, self._config)
        reason, message = reason_of(stored, time)
        labels = stored.metadata.labels
        usage: Mapping[tuple[str, str], int] = {}
        held = view.admission or view.promised
        if held is not None:
            usage = amounts_of(held, view.needs.shape, view.reclaimable)
        return Facts(
            uid=stored.metadata.uid,
            role=view.needs.role,
            family=owner_of(stored)[0] if view.needs.role == VARIANT else "",
            local_queue=view.needs.queue,
            cluster_queue=held.cluster_queue if held is not None else "",
            phase=str(where),
            state=view.state,
            competes=view.competes or (view.needs.role == PARENT and where is Phase.PENDING),
            priority=view.needs.priority,
            created=_seconds(view.created_at),
            queued=_seconds(view.queued_at),
            reserved=_seconds(view.reserved_at),
            reason=reason,
            message=message,
            requests=tuple(_requests(view.needs.shape.totals)),
            usage=tuple((flavor, name, much) for (flavor, name), much in usage.items()),
            user=stored.status.submitted_by,
            array=labels.get(ARRAY_LABEL, "") if INDEX_LABEL in labels else "",
        )


def _requests(totals: Iterable[Iterable[tuple[str, int]]]) -> list[tuple[str, int]]:
    amounts: dict[str, int] = {}
    for pod_set in totals:
        for resource, much in pod_set:
            amounts[resource] = min(amounts.get(resource, 0) + much, INT64_MAX)
    return list(amounts.items())


def _seconds(time: datetime | None) -> float:
    return time.timestamp() if time is not None and time.year > 1 else 0.0


def time_of(seconds: float) -> datetime | None:
    """The time of a row; None: it has none."""
    return datetime.fromtimestamp(seconds, UTC) if seconds else None
