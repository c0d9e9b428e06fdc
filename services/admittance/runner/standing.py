"""What the bucket says of an admission: whether it still stands. Pure."""

from __future__ import annotations

import enum
from typing import NamedTuple

from admittance.workload.stored import StoredWorkload


class Standing(enum.Enum):
    """Of one admission of a workload."""

    CURRENT = "current"
    EVICTED = "evicted"
    """Taken back, and the job's stop is awaited."""
    OVER = "over"
    """Finished, released, replaced by a later one, or the workload is gone."""


class View(NamedTuple):
    """The newest admission of a workload: its revision (0: none), its standing, the revision of the
    eviction where it is evicted, and the workload's uid."""

    revision: int
    standing: Standing
    evicted: int = 0
    uid: str = ""


def view(workload: StoredWorkload, revision: int) -> View:
    """What the object at ``revision`` says of its newest admission.

    A revision is known only after it is written, so the object names the revision of its admission
    from its next write on; until then it is its own.
    """
    status = workload.status
    uid = workload.metadata.uid
    true = {each.type for each in status.conditions if each.status == "True"}
    if "Admitted" not in true:
        return View(0, Standing.OVER, uid=uid)
    admitted = status.admitted_revision or revision
    if "Finished" in true:
        return View(admitted, Standing.OVER, uid=uid)
    if "Evicted" in true:
        return View(admitted, Standing.EVICTED, status.evicted_revision or revision, uid)
    return View(admitted, Standing.CURRENT, uid=uid)


def standing(seen: View | None, revision: int) -> View:
    """How the admission ``revision`` stands, given the view of its workload (None: gone)."""
    if seen is None or seen.revision != revision:
        return View(revision, Standing.OVER)
    return seen
