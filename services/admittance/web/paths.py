"""The addresses of pages."""

from __future__ import annotations

from urllib.parse import quote


def workload_path(namespace: str, name: str) -> str:
    """The page of a workload."""
    return f"/workloads/{quote(namespace, safe='')}/{quote(name, safe='')}"
