"""Counts workloads that wait for quota, by namespace and by LocalQueue. Pure."""

from __future__ import annotations

from collections import Counter

from admittance.workload.conditions import Type, is_true
from admittance.workload.phase import holds_quota
from admittance.workload.stored import VARIANT, StoredWorkload, head


class PendingCounts:
    """Counts of pending workloads. A family counts once, by its parent."""

    def __init__(self) -> None:
        self._where: dict[str, tuple[str, str]] = {}
        self._namespaces: Counter[str] = Counter()
        self._queues: Counter[tuple[str, str]] = Counter()

    def note(self, key: str, workload: StoredWorkload | None) -> None:
        """Updates the counts by the new state of the workload at the key; None: the workload
        was deleted."""
        where = _where(workload) if workload is not None else None
        before = self._where.get(key)
        if before == where:
            return
        if before is not None:
            del self._where[key]
            self._add(before, -1)
        if where is not None:
            self._where[key] = where
            self._add(where, 1)

    def _add(self, where: tuple[str, str], amount: int) -> None:
        namespace, _ = where
        self._namespaces[namespace] += amount
        self._queues[where] += amount
        if not self._namespaces[namespace]:
            del self._namespaces[namespace]
        if not self._queues[where]:
            del self._queues[where]

    def in_namespace(self, namespace: str) -> int:
        """How many workloads of the namespace are pending."""
        return self._namespaces[namespace]

    def in_queue(self, namespace: str, queue: str) -> int:
        """How many workloads of the LocalQueue are pending."""
        return self._queues[namespace, queue]


def _where(workload: StoredWorkload) -> tuple[str, str] | None:
    """Namespace and LocalQueue of a pending workload; None: the workload is not pending."""
    spec = head(workload)
    if spec.role == VARIANT or holds_quota(workload) or is_true(workload, Type.FINISHED):
        return None
    return workload.metadata.namespace, spec.queue_name
