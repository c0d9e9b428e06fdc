"""The addresses of pages."""

from __future__ import annotations

from urllib.parse import quote, urlencode


def workload_path(namespace: str, name: str) -> str:
    """The page of a workload."""
    return f"/workloads/{quote(namespace, safe='')}/{quote(name, safe='')}"


def pending_path(queue: str = "", namespace: str = "", skip: int = 0) -> str:
    """The page of pending workloads, of a queue and a namespace, after the first ``skip``."""
    given = {"queue": queue, "namespace": namespace, "skip": str(skip) if skip else ""}
    chosen = {name: value for name, value in given.items() if value}
    return "/pending" + (f"?{urlencode(chosen)}" if chosen else "")


def verdict_path(namespace: str, name: str, verb: str) -> str:
    """Where the inbox of approvals posts a verdict on a workload."""
    return f"/checks/{quote(namespace, safe='')}/{quote(name, safe='')}/{quote(verb, safe=':')}"


def queues_path(resource: str = "") -> str:
    """The page of queues, with the quota of a resource."""
    return "/queues" + (f"?{urlencode({'resource': resource})}" if resource else "")


def machines_path(skip: int = 0) -> str:
    """The page of machines, after the first ``skip``."""
    return "/machines" + (f"?skip={skip}" if skip else "")


def queue_path(queue: str) -> str:
    """The row of a ClusterQueue on the page of queues."""
    return f"/queues#queue-{quote(queue, safe='')}"
