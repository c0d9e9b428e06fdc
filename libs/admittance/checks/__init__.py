"""A check in ten lines: say when a workload may start, and when it may not.

    budget = AdmissionCheckController("example.com/budget")

    @budget.check
    async def decide(request):
        return Ready("within budget")

    budget.run()

Everything that a check needs is here; docs/checks.md describes the protocol.
"""

from __future__ import annotations

from admittance.checks.controller import AdmissionCheckController
from admittance.checks.request import BadParameters, Reference, Request, Withdrawal, Workload
from admittance.checks.verdicts import Later, Pending, Ready, Rejected, Retry, Verdict
from admittance.events.shapes import Admission, PodSetAssignment, PodSetUpdate

__all__ = [
    "Admission",
    "AdmissionCheckController",
    "BadParameters",
    "Later",
    "Pending",
    "PodSetAssignment",
    "PodSetUpdate",
    "Ready",
    "Reference",
    "Rejected",
    "Request",
    "Retry",
    "Verdict",
    "Withdrawal",
    "Workload",
]
