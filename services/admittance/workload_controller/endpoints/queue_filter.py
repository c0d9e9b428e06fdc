"""Which facts of the log are about workloads of a queue.

The subject of a fact names its workload, and few facts name a queue, so the queue is that of the
workload as it is stored. Of a deleted workload only the facts that name the queue are known.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

import msgspec

from admittance.api.workload import Kept
from admittance.events.names import BadToken, token
from admittance.events.reader import BROKEN
from admittance.events.subjects import BUCKET, address_of, workload_key
from admittance.runtime.bus import bucket
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.history import StoredMessage, last_of_each

PAGE: Final = 500

Choice: TypeAlias = Callable[[Sequence[StoredMessage]], Awaitable[list[StoredMessage]]]
"""Returns the messages of a page that a request asks for."""


class _Admission(Kept, frozen=True, kw_only=True):
    cluster_queue: str = ""


class _Spec(Kept, frozen=True, kw_only=True):
    queue_name: str = ""
    cluster_queue: str = ""


class _Status(Kept, frozen=True, kw_only=True):
    admission: _Admission | None = None


class _Manifest(Kept, frozen=True, kw_only=True):
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _Fact(Kept, frozen=True, kw_only=True):
    """The fields of facts that name a queue."""

    queue: str = ""
    cluster_queue: str = ""
    admission: _Admission | None = None
    workload: _Manifest | None = None


class QueueFilter:
    """Chooses the facts about the workloads of a queue. ``queue``: a LocalQueue or a ClusterQueue;
    ``local``: the LocalQueues of that ClusterQueue, as tokens of namespace and name."""

    def __init__(self, bus: Bus, queue: str, local: frozenset[tuple[str, str]]) -> None:
        self._bus = bus
        self._queue = queue
        self._local = local
        self._seen: dict[str, bool] = {}

    @classmethod
    async def of(cls, bus: Bus, namespace: str, queue: str) -> QueueFilter:
        """The filter. ``namespace``: a token, or "*"."""
        local: set[tuple[str, str]] = set()
        after, page = 0, None
        while page is None or len(page) == PAGE:
            page = await bucket.read_page(bus, f"localqueue.{namespace}.*", after=after, limit=PAGE)
            after = page[-1].revision if page else after
            for entry in page:
                _, space, name = entry.key.split(".")
                if _manifest(entry.value).spec.cluster_queue == queue:
                    local.add((space, name))
        return cls(bus, queue, frozenset(local))

    async def chosen(self, page: Sequence[StoredMessage]) -> list[StoredMessage]:
        """The messages about workloads of the queue, in their order."""
        keys = {message.sequence: _key_of(message.subject) for message in page}
        unseen = dict.fromkeys(key for key in keys.values() if key and key not in self._seen)
        prefix = f"$KV.{BUCKET}."
        stored = await last_of_each(
            self._bus, [prefix + key for key in unseen], stream=f"KV_{BUCKET}"
        )
        for message in stored:
            if message.data:
                key = message.subject.removeprefix(prefix)
                self._seen[key] = self._is_of(key.split(".")[1], _manifest(message.data))
        return [message for message in page if self._holds(keys[message.sequence], message)]

    def _holds(self, key: str, message: StoredMessage) -> bool:
        if not key:
            return False
        seen = self._seen.get(key)
        return self._is_named(key.split(".")[1], message.data) if seen is None else seen

    def _is_of(self, namespace: str, manifest: _Manifest) -> bool:
        admission = manifest.status.admission
        return self._is_queue(namespace, manifest.spec.queue_name) or (
            admission is not None and admission.cluster_queue == self._queue
        )

    def _is_named(self, namespace: str, data: bytes) -> bool:
        try:
            fact = msgspec.json.decode(data, type=_Fact)
        except BROKEN:
            return False
        queues = {fact.cluster_queue, fact.admission.cluster_queue if fact.admission else ""}
        local = {fact.queue, fact.workload.spec.queue_name if fact.workload else ""}
        return self._queue in queues or any(self._is_queue(namespace, name) for name in local)

    def _is_queue(self, namespace: str, name: str) -> bool:
        return name == self._queue or (bool(name) and (namespace, token(name)) in self._local)


def _manifest(value: bytes | None) -> _Manifest:
    """The part of a manifest that names a queue; empty if it cannot be read."""
    try:
        return msgspec.json.decode(value or b"{}", type=_Manifest)
    except BROKEN:
        return _Manifest()


def _key_of(subject: str) -> str:
    """The key in the bucket of the workload that the fact is about; "" for another message."""
    try:
        address = address_of(subject)
    except BadToken:
        return ""
    return workload_key(address.namespace, address.name)
