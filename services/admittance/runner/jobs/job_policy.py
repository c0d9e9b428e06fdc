"""When pods of a job run again after a failure, and when the job has succeeded or failed: the rules
of Kubernetes' Job controller as a function of the ends of pods and of time. Pure.

The shim imports this module, so the module imports nothing. Times are seconds since boot.
"""

from __future__ import annotations

# `typing` is not imported, because the import would cost milliseconds in every shim.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NEVER = float("inf")
BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
MAX_FAILED_INDEXES_EXCEEDED = "MaxFailedIndexesExceeded"
FAILED_INDEXES = "FailedIndexes"
POD_FAILURE_POLICY = "PodFailurePolicy"
DEADLINE_EXCEEDED = "DeadlineExceeded"
DISK_LIMIT_EXCEEDED = "DiskLimitExceeded"
FAILED_TO_START = "FailedToStart"


def delay(failures: int, base: float, longest: float) -> float:
    """Seconds before the next try after ``failures`` failures in a row: ``base``, doubled with each
    further failure, at most ``longest``."""
    return float(min(longest, base * 2 ** min(max(failures, 1) - 1, 30)))


def as_ranges(indexes: list[int]) -> str:
    """A text like ``0-2,5`` for the indexes."""
    ranges: list[list[int]] = []
    for index in sorted(indexes):
        if ranges and ranges[-1][1] == index - 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


class PodSetProgress:
    """How far the pods of one pod set are. Each completion has an index; a pod of an index runs
    again, as a new pod, until it succeeds or the policy ends the index or the job. Without a policy
    the first failure fails the job.

    ``active``: pods that have started and not ended. ``failed_indexes``: indexes of which no
    further pod starts.
    """

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.has_policy = bool(spec.get("policy"))
        self.policy: dict[str, Any] = spec.get("policy") or {}
        self._first: int = spec.get("first") or 0
        self.next_index = self._first
        self.active = 0
        self.succeeded = 0
        self.failed_indexes: list[int] = []
        self.failures: dict[int, int] = {}
        """For each index the failures of its pods and of their containers."""
        self.earlier_pods: dict[int, int] = {}
        """For each index how many of its pods have failed as a whole."""
        self.failed = 0
        """How many pods and containers have failed."""
        self._counted: dict[int, int] = {}
        self._counted_all = 0
        self._in_a_row = 0
        self._not_before = 0.0
        self._due: dict[int, float] = {}
        """When the next try of an index is due; the pod that failed may still have processes."""
        self._retries: dict[int, float] = {}
        self._met: list[int] = [0] * len(self.policy.get("successRules", ()))
        self._is_met = False
        self._free_slots: list[int] = list(range(len(spec.get("slots") or ())))[::-1]
        """The slots of devices that no pod has."""

    @property
    def restarts(self) -> bool:
        """Whether a failed container starts again in its pod (``restartPolicy: OnFailure``)."""
        return bool(self.policy.get("restart"))

    # What starts. ----------------------------------------------------------------------

    def _may_start(self) -> bool:
        if self.active >= self.spec["parallel"] or self._is_met:
            return False
        return not (self.policy.get("workQueue") and self.succeeded)

    def take(self, now: float) -> int | None:
        """The index of the next pod to start now, which counts as active from now on; None: no pod
        may start now."""
        if not self._may_start() or now < self._not_before:
            return None
        chosen = None
        for index, due in self._retries.items():
            if due <= now and (chosen is None or due < self._retries[chosen]):
                chosen = index
        if chosen is not None:
            del self._retries[chosen]
        elif self.next_index < self._first + self.spec["completions"]:
            chosen = self.next_index
            self.next_index += 1
        if chosen is not None:
            self.active += 1
        return chosen

    def take_slot(self) -> int:
        """A free slot, which a pod has from now on; -1: the pods have no slots."""
        return self._free_slots.pop() if self._free_slots else -1

    def free_slot(self, slot: int) -> None:
        """Frees the slot of a pod that has ended."""
        if slot >= 0:
            self._free_slots.append(slot)

    def next_start(self) -> float:
        """When `take` may return the next pod if no pod ends before; `NEVER`: not before a pod
        ends."""
        if not self._may_start():
            return NEVER
        first = min(self._retries.values(), default=NEVER)
        if self.next_index < self._first + self.spec["completions"]:
            first = 0.0
        return max(first, self._not_before)

    # What ended. -----------------------------------------------------------------------

    def fail(self, index: int, container: str, code: int, now: float) -> tuple[str, str] | None:
        """Records that a container of the index's pod has failed. Returns the reason and the
        explanation with which the job fails; None: the job goes on.

        ``container`` "": the pod failed as a whole.
        """
        self.failed += 1
        if not self.has_policy:
            return "", ""
        action = self._action(container, code)
        if action == "FailJob":
            return POD_FAILURE_POLICY, "a rule of podFailurePolicy fails the job"
        self._in_a_row += 1
        self.failures[index] = self.failures.get(index, 0) + 1
        ended = action == "FailIndex"
        if action != "Ignore":
            self._counted_all += 1
            self._counted[index] = self._counted.get(index, 0) + 1
            limit = self.policy.get("backoffLimit")
            if limit is not None and self._counted_all > limit:
                return BACKOFF_LIMIT_EXCEEDED, f"backoffLimit is {limit}"
            per_index = self.policy.get("perIndex")
            ended = ended or (per_index is not None and self._counted[index] > per_index)
        if ended:
            return self._end_index(index)
        base, longest = self.policy.get("delays") or (0.0, 0.0)
        if self.restarts or self.policy.get("perIndex") is not None:
            self._due[index] = now + delay(self.failures[index], base, longest)
        else:
            # As in Kubernetes no pod of the job starts before this time, unless a pod succeeds.
            self._not_before = self._due[index] = now + delay(self._in_a_row, base, longest)
        return None

    def count_failed_pod(self, index: int) -> None:
        """Records that the index's pod has failed as a whole: another pod may follow."""
        self.earlier_pods[index] = self.earlier_pods.get(index, 0) + 1

    def _action(self, container: str, code: int) -> str:
        for rule in self.policy.get("failureRules", ()):
            named = rule.get("container")
            if named and named != container:
                continue
            if (code in rule["values"]) == rule["in"]:
                return str(rule["action"])
        return "Count"

    def _end_index(self, index: int) -> tuple[str, str] | None:
        self.failed_indexes.append(index)
        most = self.policy.get("maxFailed")
        if most is not None and len(self.failed_indexes) > most:
            which = as_ranges(self.failed_indexes)
            return (
                MAX_FAILED_INDEXES_EXCEEDED,
                f"failed indexes: {which}; maxFailedIndexes is {most}",
            )
        return None

    def due(self, index: int) -> float:
        """When the index's next try is due after `fail`; `NEVER`: it has no further try."""
        return self._due.get(index, NEVER)

    def retry_text(self, index: int, now: float) -> str:
        """What happens after the last failure of the index, for people."""
        if index not in self._due:
            return "its index has failed"
        per_index, limit = self.policy.get("perIndex"), self.policy.get("backoffLimit")
        count = self._counted_all if per_index is None else self._counted.get(index, 0)
        most = limit if per_index is None else per_index
        of = f"retry {count} of {most}" if count and most is not None else "it runs again"
        return f"{of} in {max(0.0, self._due[index] - now):.0f} s"

    def next_try(self, index: int) -> tuple[float | None, int | None]:
        """When the index's next try is due after `fail`, None if it has no further one, and how
        often it may fail again; None: any number of times."""
        limit, per_index = self.policy.get("backoffLimit"), self.policy.get("perIndex")
        left = [] if limit is None else [limit - self._counted_all]
        if per_index is not None:
            left.append(per_index - self._counted.get(index, 0))
        return self._due.get(index), min(left, default=None)

    def end(self, index: int, *, whole: bool) -> None:
        """Records that no process of the index's pod is left. ``whole``: the pod has succeeded."""
        self.active -= 1
        due = self._due.pop(index, None)
        if not whole:
            if due is not None:
                self._retries[index] = due
            return
        self.succeeded += 1
        self._in_a_row, self._not_before = 0, 0.0
        for number, rule in enumerate(self.policy.get("successRules", ())):
            inside = rule.get("indexes")
            if inside is None or any(low <= index <= high for low, high in inside):
                self._met[number] += 1
            self._is_met = self._is_met or self._met[number] >= rule["count"]

    # How it ends. ----------------------------------------------------------------------

    def is_over(self) -> bool:
        """Whether the pod set has succeeded; pods that still run are not needed any more."""
        if self._is_met:
            return True
        if self.policy.get("workQueue"):
            return bool(self.succeeded) and not self.active
        return self.succeeded >= int(self.spec["completions"])

    def failure(self) -> tuple[str, str] | None:
        """The reason and the explanation with which the job fails because every index has ended and
        some have failed; None: there is no such reason."""
        if not self.failed_indexes or self.active or self.is_over():
            return None
        if self.succeeded + len(self.failed_indexes) < self.spec["completions"]:
            return None
        return FAILED_INDEXES, f"failed indexes: {as_ranges(self.failed_indexes)}"

    def is_ready(self) -> bool:
        """Whether as many pods as possible run or have ended."""
        wanted = int(min(self.spec["parallel"], self.spec["completions"]))
        return self.active + self.succeeded + len(self.failed_indexes) >= wanted
