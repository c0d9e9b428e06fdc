"""The addresses of pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    path = queue_path(queue) if of_queue else "/pending"
    return path + _query(given)


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


def whatif_path(**given: str) -> str:
    """The page that tries a change, with its form filled. ``edit``: an object as ``kind/name`` or
    ``kind/namespace/name``; ``flavor``, ``resource`` and ``more``: how much its quota grows;
    ``workload`` (``namespace/name``), ``priority`` and ``queue``: a change of a workload."""
    return "/whatif" + (f"?{urlencode(given)}" if given else "")


def queue_path(queue: str) -> str:
    """The page of a ClusterQueue."""
    return f"/queues/{quote(queue, safe='')}"


def fact_path(namespace: str, name: str, sequence: int) -> str:
    """A fact in the log of the page of a workload, opened."""
    return f"{workload_path(namespace, name)}?fact={sequence}#fact-{sequence}"


def logs_path(namespace: str, name: str, **given: int) -> str:
    """The page with the output of a workload. ``given``: lines, and how many runs back; 0 is left
    out."""
    query = _query({word: str(value) if value else "" for word, value in given.items()})
    return f"{workload_path(namespace, name)}/logs{query}"


def manifest_path(namespace: str, name: str) -> str:
    """The page with the manifest of a workload."""
    return f"{workload_path(namespace, name)}/manifest"


def elements_path(namespace: str, name: str, kind: str = "", skip: int = 0) -> str:
    """The page of an array with some of its elements: of a kind, after the first ``skip``."""
    given = {"elements": kind, "skip": str(skip) if skip else ""}
    return f"{workload_path(namespace, name)}{_query(given)}#elements"


def machine_path(name: str) -> str:
    """The row of a machine on the page of machines."""
    return f"/machines#machine-{quote(name, safe='')}"


def events_path(**given: str) -> str:
    """The page of events with these filters; "" leaves one out."""
    return "/events" + _query(given)


def usage_path(**given: str) -> str:
    """The page of usage with these choices; "" leaves one out."""
    return "/usage" + _query(given)


def _query(given: Mapping[str, str]) -> str:
    chosen = {name: value for name, value in given.items() if value}
    return f"?{urlencode(chosen)}" if chosen else ""


def event_path(sequence: int) -> str:
    """The page of one fact of the log."""
    return f"/events/{sequence}"
