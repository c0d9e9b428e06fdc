"""The addresses of pages."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote, urlencode


def workload_path(namespace: str, name: str) -> str:
    """The page of a workload."""
    return f"/workloads/{quote(namespace, safe='')}/{quote(name, safe='')}"


def pending_path(
    queue: str = "",
    namespace: str = "",
    *,
    state: str = "",
    reason: str = "",
    skip: int = 0,
    of_queue: bool = False,
) -> str:
    """The page of pending workloads: of a queue, a namespace, a state and a reason, after the first
    ``skip``. ``of_queue``: the page of the ClusterQueue ``queue``."""
    given = {
        "queue": "" if of_queue else queue,
        "namespace": namespace,
        "state": state,
        "reason": reason,
        "skip": str(skip) if skip else "",
    }
    chosen = {name: value for name, value in given.items() if value}
    path = queue_path(queue) if of_queue else "/pending"
    return path + (f"?{urlencode(chosen)}" if chosen else "")


def verdict_path(namespace: str, name: str, verb: str) -> str:
    """Where the inbox of approvals posts a verdict on a workload."""
    return f"/checks/{quote(namespace, safe='')}/{quote(name, safe='')}/{quote(verb, safe=':')}"


def queues_path(resource: str = "", folded: Iterable[str] = ()) -> str:
    """The page of queues, with the quota of a resource, and without the rows below the ``folded``
    cohorts."""
    given = {"resource": resource, "fold": ",".join(sorted(folded))}
    chosen = {name: value for name, value in given.items() if value}
    return "/queues" + (f"?{urlencode(chosen)}" if chosen else "")


def machines_path(skip: int = 0) -> str:
    """The page of machines, after the first ``skip``."""
    return "/machines" + (f"?skip={skip}" if skip else "")


def queue_path(queue: str) -> str:
    """The page of a ClusterQueue."""
    return f"/queues/{quote(queue, safe='')}"
