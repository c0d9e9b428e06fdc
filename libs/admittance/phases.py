"""The names of phases, and of results of finished workloads. The module imports nothing of the
project, so that completion of words is fast.
"""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """The phases of a workload, each with its meaning."""

    PENDING = "Pending"
    """The workload competes for quota."""
    BACKOFF = "Backoff"
    """The workload waits for a time or an event before it competes again."""
    QUOTA_RESERVED = "QuotaReserved"
    """The workload has reserved quota, and a check is not Ready."""
    ADMITTED = "Admitted"
    """The workload may run, and its pods are not all ready."""
    RUNNING = "Running"
    """The workload runs, with all pods ready."""
    EVICTING = "Evicting"
    """The workload loses its quota, which stays booked until the job has stopped."""
    DEACTIVATED = "Deactivated"
    """The workload is not admitted until a user activates it again."""
    REJECTED = "Rejected"
    """A check has deactivated the workload."""
    FINISHED = "Finished"
    """The workload has ended."""


class End(StrEnum):
    """Results of a finished workload; a wait accepts them besides phases."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
