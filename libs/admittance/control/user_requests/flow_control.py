"""Decides which requests of people are published on the log next, and which are refused. Pure.

The log is applied in order, so a user that publishes 20,000 facts at once would delay all others.
So requests wait in `FlowControl`, by namespace. One namespace after the other has its turn, and
at most `IN_FLIGHT_MAX` facts of people are published and not yet applied: the fact of a quiet
namespace has at most that many facts before it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final, NamedTuple

from admittance.api.configuration import UserLimits
from admittance.events import reasons
from admittance.workload.conditions import Type, is_true
from admittance.workload.phase import holds_quota
from admittance.workload.stored import ARRAY, VARIANT, StoredWorkload, head


class QueueCounts:
    """Counts of workloads by namespace and by LocalQueue."""

    def __init__(self) -> None:
        self._namespaces: Counter[str] = Counter()
        self._queues: Counter[tuple[str, str]] = Counter()

    def add(self, namespace: str, queue: str, amount: int) -> None:
        """Changes the counts of the LocalQueue and its namespace by the amount."""
        self._namespaces[namespace] += amount
        self._queues[namespace, queue] += amount
        if not self._namespaces[namespace]:
            del self._namespaces[namespace]
        if not self._queues[namespace, queue]:
            del self._queues[namespace, queue]

    def in_namespace(self, namespace: str) -> int:
        """How many workloads of the namespace are counted."""
        return self._namespaces[namespace]

    def in_queue(self, namespace: str, queue: str) -> int:
        """How many workloads of the LocalQueue are counted."""
        return self._queues[namespace, queue]


class PendingCounts(QueueCounts):
    """Counts of pending workloads. A family counts once, by its parent."""

    def __init__(self) -> None:
        super().__init__()
        self._where: dict[str, tuple[str, str]] = {}

    def note(self, key: str, workload: StoredWorkload | None) -> None:
        """Updates the counts by the new state of the workload at the key; None: the workload
        was deleted."""
        where = _where(workload) if workload is not None else None
        before = self._where.get(key)
        if before == where:
            return
        if before is not None:
            del self._where[key]
            self.add(*before, -1)
        if where is not None:
            self._where[key] = where
            self.add(*where, 1)


def _where(workload: StoredWorkload) -> tuple[str, str] | None:
    """Namespace and LocalQueue of a pending workload; None: the workload is not pending."""
    spec = head(workload)
    if spec.role in (VARIANT, ARRAY) or holds_quota(workload) or is_true(workload, Type.FINISHED):
        return None
    return workload.metadata.namespace, spec.queue_name


IN_FLIGHT_MAX: Final = 64
"""The most facts of people that are published and not yet applied."""
IN_FLIGHT_BYTES: Final = 256 * 1024
"""While large facts of so many bytes are published and not yet applied, no further large one is
published: the services need a tenth of a second for a manifest of 440 KB, and a fact of another
namespace would wait for 64 of them."""
SMALL_BYTES: Final = 16 * 1024
"""A fact of more bytes is large."""
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""The most bytes of requests of one namespace that wait to be published."""
ALL_WAITING_BYTES_MAX: Final = 4 * WAITING_BYTES_MAX
"""The most bytes of waiting requests of all namespaces together."""
REQUEST_BYTES: Final = 1024
"""What a waiting request takes in memory beside its message, in bytes: without it, the limits of
waiting bytes would admit a million requests of a few bytes each."""
FACT_BYTES_MAX: Final = 64 * 1024
"""The most bytes of a fact that has no manifest. In a submission, the most bytes of all fields
except the manifest."""
BUCKETS_MAX: Final = 4096
"""The most namespaces with a remembered rate; with more, the rates of idle namespaces are
forgotten."""
WRONG: Final = 400
CONFLICT: Final = 409
TOO_LARGE: Final = 413
TOO_MANY: Final = 429
"""Error codes of a refusal. After a refusal with the code `TOO_MANY` a client may send the request
again later."""


class UserRequest(NamedTuple):
    """A request of a person to publish a fact. ``id``: the same for a request that is sent again.
    ``queue``: the LocalQueue of a submission; "": no submission, or unknown. ``size``: bytes of the
    message. ``manifest_size``: bytes of the manifest in a submission, else 0."""

    id: str
    user: str
    verb: str
    namespace: str
    size: int
    queue: str = ""
    manifest_size: int = 0


class FlowRefusal(NamedTuple):
    """Why a request is refused. ``reason``: a fixed word, by which refusals are counted.
    ``description``: the sentence for the user."""

    code: int
    reason: str
    description: str


def _weight(request: UserRequest) -> int:
    """The bytes that the request takes while it waits."""
    return request.size + REQUEST_BYTES


def _large(request: UserRequest) -> int:
    """The bytes of a large fact; 0: the fact is small."""
    return request.size if request.size > SMALL_BYTES else 0


class FlowControl:
    """The requests of people between their arrival and their effect.

    Invariant: the caller reports the end of each request from `take` with `stored` or `dropped`.
    """

    def __init__(self, limits: UserLimits, pending: PendingCounts) -> None:
        self._limits = limits
        self._pending = pending
        self._waiting: OrderedDict[str, deque[UserRequest]] = OrderedDict()
        self._bytes: Counter[str] = Counter()
        self._all_bytes = 0
        self._taken = 0
        self._large_bytes = 0
        """The bytes of the large facts in flight."""
        self._unapplied: list[tuple[int, UserRequest]] = []
        self._applied = 0
        self._entering = QueueCounts()
        self._rates: dict[str, tuple[float, float]] = {}

    def arrive(self, request: UserRequest, now: float) -> FlowRefusal | None:
        """Lets the request wait for its turn; returns the refusal if the request is refused.
        ``now``: seconds of a clock that never goes back."""
        refusal = next(self._refusals(request, now), None)
        if refusal is None:
            self._waiting.setdefault(request.namespace, deque()).append(request)
            self._bytes[request.namespace] += _weight(request)
            self._all_bytes += _weight(request)
            self._count(request, 1)
        return refusal

    def take(self) -> list[UserRequest]:
        """The requests to publish now: one request of each namespace in turn, until `IN_FLIGHT_MAX`
        facts are in flight. While large facts of `IN_FLIGHT_BYTES` are in flight, namespaces whose
        next request is large are left out, and keep their order."""
        taken: list[UserRequest] = []
        left_out: list[tuple[str, deque[UserRequest]]] = []
        while self._waiting and self._taken + len(self._unapplied) < IN_FLIGHT_MAX:
            namespace, requests = self._waiting.popitem(last=False)
            if _large(requests[0]) and self._large_bytes >= IN_FLIGHT_BYTES:
                left_out.append((namespace, requests))
                continue
            request = requests.popleft()
            self._bytes[namespace] -= _weight(request)
            self._all_bytes -= _weight(request)
            if requests:
                self._waiting[namespace] = requests
            else:
                del self._bytes[namespace]
            self._taken += 1
            self._large_bytes += _large(request)
            taken.append(request)
        for namespace, requests in reversed(left_out):
            self._waiting[namespace] = requests
            self._waiting.move_to_end(namespace, last=False)
        return taken

    def stored(self, request: UserRequest, sequence: int) -> None:
        """Records that the fact of the request is stored on the log."""
        self._taken -= 1
        if sequence <= self._applied:
            self._end(request)
        else:
            heappush(self._unapplied, (sequence, request))

    def dropped(self, request: UserRequest) -> None:
        """Records that the fact of the request was refused by the log, or was not acknowledged."""
        self._taken -= 1
        self._end(request)

    def applied(self, through: int) -> None:
        """Records that every fact of the log up to the sequence ``through`` is applied."""
        self._applied = through
        while self._unapplied and self._unapplied[0][0] <= through:
            _, request = heappop(self._unapplied)
            self._end(request)

    @property
    def waiting(self) -> int:
        """How many requests wait for their turn."""
        return sum(map(len, self._waiting.values()))

    def _end(self, request: UserRequest) -> None:
        """Records that the request is not in flight any more."""
        self._large_bytes -= _large(request)
        self._count(request, -1)

    def _count(self, request: UserRequest, amount: int) -> None:
        """Counts the submissions of the request that are not stored yet as pending workloads."""
        if request.verb == "submitted":
            self._entering.add(request.namespace, request.queue, amount)

    # Limits. ------------------------------------------------------------------------

    def _refusals(self, request: UserRequest, now: float) -> Iterator[FlowRefusal]:
        limits, namespace = self._limits, request.namespace
        most = limits.max_manifest_bytes
        if request.manifest_size > most:
            yield FlowRefusal(
                TOO_LARGE,
                reasons.MANIFEST_TOO_LARGE,
                f"the manifest has {request.manifest_size:,} bytes, {most:,} are allowed",
            )
        beside = request.size - request.manifest_size
        if beside > FACT_BYTES_MAX:
            yield FlowRefusal(
                TOO_LARGE,
                reasons.MESSAGE_TOO_LARGE,
                f"the message has {beside:,} bytes beside a manifest, "
                f"{FACT_BYTES_MAX:,} are allowed",
            )
        if request.verb == "submitted":
            yield from self._pending_refusals(request)
        if (
            self._bytes[namespace] + _weight(request) > WAITING_BYTES_MAX
            or self._all_bytes + _weight(request) > ALL_WAITING_BYTES_MAX
        ):
            yield FlowRefusal(
                TOO_MANY,
                reasons.TOO_MANY_WAITING,
                f"too many requests of namespace {namespace} wait to be stored: send it again",
            )
        if limits.max_per_second_per_namespace and not self._has_rate(namespace, now):
            rate = limits.max_per_second_per_namespace
            yield FlowRefusal(
                TOO_MANY,
                reasons.RATE_EXCEEDED,
                f"namespace {namespace} changes workloads more than {rate:g} times a second: "
                "send it again",
            )

    def _pending_refusals(self, request: UserRequest) -> Iterator[FlowRefusal]:
        limits, namespace, queue = self._limits, request.namespace, request.queue
        most = limits.max_pending_per_namespace
        if most:
            now = self._pending.in_namespace(namespace) + self._entering.in_namespace(namespace)
            if now >= most:
                yield FlowRefusal(
                    CONFLICT,
                    reasons.NAMESPACE_FULL,
                    f"namespace {namespace} has {now:,} pending workloads, {most:,} are allowed: "
                    "submit again when some of them have started",
                )
        most = limits.max_pending_per_local_queue
        if most and queue:
            now = self._pending.in_queue(namespace, queue)
            now += self._entering.in_queue(namespace, queue)
            if now >= most:
                yield FlowRefusal(
                    CONFLICT,
                    reasons.LOCAL_QUEUE_FULL,
                    f"LocalQueue {namespace}/{queue} has {now:,} pending workloads, {most:,} are "
                    "allowed: submit again when some of them have started",
                )

    def _has_rate(self, namespace: str, now: float) -> bool:
        """Counts one request against the namespace's rate. A namespace may send as many requests at
        once as its rate allows in one second."""
        rate = self._limits.max_per_second_per_namespace
        burst = max(1.0, rate)
        left, since = self._rates.get(namespace, (burst, now))
        left = min(burst, left + (now - since) * rate)
        if len(self._rates) >= BUCKETS_MAX:
            self._rates = {
                name: (had, at)
                for name, (had, at) in self._rates.items()
                if had + (now - at) * rate < burst
            }
        self._rates[namespace] = (max(0.0, left - 1), now) if left >= 1 else (left, now)
        return left >= 1
