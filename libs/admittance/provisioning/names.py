"""Names and ids of requests: the same attempt always has the same. LIFECYCLE 5.2, 5.3."""

from __future__ import annotations

from hashlib import sha1
from typing import Final

NAME_MAX: Final = 253
_HASH: Final = 5
ANNOTATION: Final = "provreq.kueue.x-k8s.io/"
"""Prefix of annotations of a workload that become parameters."""


def request_id(uid: str, check: str, cycle: int, attempt: int) -> str:
    """What makes a request the same one, however often it is said."""
    return f"{uid}/{check}/{cycle}/{attempt}"


def request_name(
    workload: str,
    uid: str,
    check: str,
    attempt: int,
    *,
    limit: int = NAME_MAX,
    force_hash: bool = False,
) -> str:
    """``<workload>-<check>-<attempt>``. Too long, it is cut before the attempt, and gets a hash of
    the workload's uid and the check. ``force_hash``: the plain name belongs to somebody else."""
    plain = f"{workload}-{check}-{attempt}"
    if not force_hash and len(plain) <= limit:
        return plain
    digest = sha1(f"{uid}\n{check}".encode(), usedforsecurity=False).hexdigest()[:_HASH]
    tail = f"-{digest}-{attempt}"
    return f"{workload}-{check}"[: limit - len(tail)].rstrip("-.") + tail


def template_name(request: str, pod_set: str) -> str:
    """The name of the pod template of one pod set of the request."""
    return f"ppt-{request}-{pod_set}"
