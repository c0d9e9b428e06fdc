"""The side of the program: a job, and how it stands.

The id of a job is ``<namespace>.<workload>``, that of an element ``<namespace>.<array>_<index>``.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from submitit.core import core, utils

from admittance.client.errors import NotFound, Refused
from admittance.phases import Phase

if TYPE_CHECKING:
    from admittance.client import SyncClient
    from admittance.workload.stored import StoredWorkload

R = TypeVar("R", covariant=True)

STATES: Final = {
    Phase.RUNNING: "RUNNING",
    Phase.EVICTING: "PREEMPTED",
    Phase.DEACTIVATED: "CANCELLED",
    Phase.REJECTED: "REJECTED",
}
"""The states of submitit by phase; a workload in another phase is PENDING, or has finished."""
DELETED: Final = {"State": "DELETED", "Reason": "Deleted", "Message": "The workload is deleted"}


@cache
def _client_of(_process: int) -> SyncClient:
    # A job imports this module, too, and asks for nothing.
    from admittance.client import SyncClient

    return SyncClient.connect()


def client() -> SyncClient:
    """The client of this process, found as commands find their server."""
    return _client_of(os.getpid())


class Place(NamedTuple):
    """Where a job is. ``name``: of its workload, as users name it; ``stored``: as it is stored."""

    namespace: str
    name: str
    stored: str


def place_of(job_id: str) -> Place:
    """Where the job with that id is."""
    namespace, _, name = job_id.partition(".")
    array, underscore, index = name.partition("_")
    if not underscore:
        return Place(namespace, name, name)
    return Place(namespace, f"{array}[{index}]", f"{array}-{index}")


def info_of(workload: StoredWorkload) -> dict[str, str]:
    """How a workload stands, in the words of submitit."""
    from admittance.client.requests.workloads.waits import is_failure
    from admittance.runtime import clock
    from admittance.workload.phase import phase
    from admittance.workload.waiting_reason import reason_of

    now = phase(workload, clock.now())
    state = STATES.get(now, "PENDING")
    if now is Phase.FINISHED:
        state = "FAILED" if is_failure(workload) else "COMPLETED"
    reason, message = reason_of(workload, clock.now())
    return {"State": state, "Reason": reason, "Message": message}


class Watcher(core.InfoWatcher):
    """Looks at all jobs of a namespace with one request."""

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        """The state of a job; UNKNOWN before the first look."""
        return self.get_info(job_id, mode).get("State", "UNKNOWN")

    def update(self) -> None:
        """Looks at each registered job that has not ended."""
        self._num_calls += 1
        places = {job_id: place_of(job_id) for job_id in self._registered - self._finished}
        for namespace in {place.namespace for place in places.values()}:
            stored = {each.name: each for each in client().list(namespace=namespace)}
            for job_id, place in places.items():
                if place.namespace != namespace:
                    continue
                if found := stored.get(place.stored):
                    self._info_dict[job_id] = info_of(found.workload())
                elif is_deleted(place):
                    self._info_dict[job_id] = DELETED
        self._last_status_check = time.time()
        self._finished |= {each for each in places if self.is_done(each, "cache")}


def is_deleted(place: Place) -> bool:
    """Whether the workload of a job that no list has is deleted. An element of an array may be
    still to come."""
    array = place.name.partition("[")[0]
    try:
        ended = client().job(array, namespace=place.namespace).phase() is Phase.FINISHED
    except NotFound:
        return True
    return ended and array != place.name


class AdmittanceJob(core.Job[R]):
    """A job of submitit that is a workload, or the element of an array."""

    watcher = Watcher()
    _results_timeout_s = 3

    def cancel(self, check: bool = True) -> None:
        """Stops the job. ``check``: raise an error of the client if that fails."""
        place = place_of(self.job_id)
        try:
            client().stop(place.name, namespace=place.namespace)
        except Exception:
            if check:
                raise

    def wait(self) -> None:
        """Waits for the end of the job, without asking again and again."""
        place = place_of(self.job_id)
        # A job that was stopped, rejected or deleted has ended, too.
        with suppress(NotFound, Refused):
            client().wait(place.name, namespace=place.namespace)

    def _get_outcome_and_result(self) -> tuple[str, Any]:
        """The outcome of the function and its result. Raises UncompletedJobError, also with the
        reason of the system."""
        try:
            return super()._get_outcome_and_result()
        except utils.UncompletedJobError as error:
            info = self.get_info()
            why = ": ".join(info[key] for key in ("Reason", "Message") if info.get(key))
            raise utils.UncompletedJobError(f"{why}\n{error}") from None

    def _get_logs_string(self, name: str) -> str | None:
        """The output of the job, which has both streams; None if there is none."""
        place = place_of(self.job_id)
        try:
            pieces = client().logs(place.name, pod=self._tasks[0], namespace=place.namespace)
            return "".join([piece.text for piece in pieces])
        except (NotFound, Refused):
            return None
