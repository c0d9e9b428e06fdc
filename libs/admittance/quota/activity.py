"""Whether a queue admits new workloads, and if not, the stable reason and a sentence.

The reasons are ordered as in `docs/spec/scheduling.md#1.3`. If several reasons apply, the sentence
names all of them, and the first one is the stable reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from admittance.api.checks import AdmissionCheck


class Activity(NamedTuple):
    """Whether a queue admits new workloads, and why not. ``active``: the queue admits new
    workloads, and ``reason`` is Ready."""

    active: bool
    reason: str
    message: str


READY = Activity(True, "Ready", "Can admit new workloads")
NOT_FOUND = Activity(False, "NotFound", "ClusterQueue not found")
TERMINATING = Activity(
    False, "Terminating", "Can't admit new workloads; clusterQueue is terminating"
)


def joined(problems: Iterable[tuple[str, str]]) -> Activity:
    """Returns an inactive activity with the given pairs of reason and clause, in order; READY if
    there are no pairs."""
    found = list(problems)
    if not found:
        return READY
    clauses = ", ".join(clause for _, clause in found)
    return Activity(False, found[0][0], f"Can't admit new workloads: {clauses}.")


def is_check_active(check: AdmissionCheck) -> bool:
    """Returns whether the controller of the check can evaluate it. A check without heartbeats
    counts as active."""
    return inactive_because(check) is None


def inactive_because(check: AdmissionCheck) -> str | None:
    """Returns why the controller of the check cannot evaluate the check; None: the controller
    can."""
    if check.status is not None:
        for condition in check.status.conditions:
            if condition.type == "Active" and condition.status != "True":
                return ": ".join(filter(None, (condition.reason, condition.message)))
    return None
