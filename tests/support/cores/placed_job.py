"""A workload that is admitted with one pod on each of several machines, and the reports of their
runners."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from admittance.events import facts
from admittance.events.placement import PlacementPart
from admittance.workload.transition_context import CheckRules
from support.builders import Around, an_admission
from support.cores.tracked_workload import ME, TrackedWorkload

CONTROLLER = "admittance.dev/machines"


class PlacedJob(TrackedWorkload):
    """An admitted workload with one pod on each of so many machines."""

    def __init__(self, machines: int = 2) -> None:
        super().__init__(Around(("machines",), rules=[CheckRules("machines", CONTROLLER)]))
        self.machines = machines
        self.admit_again()

    def admit_again(self) -> None:
        plain = an_admission(flavor=self.flavor)
        (pods,) = plain.pod_set_assignments
        admission = replace(plain, pod_set_assignments=(replace(pods, count=self.machines),))
        self.happens(
            facts.Assigned(
                **ME, revision=self.revision, seen=0, domain="queue-cq", admission=admission
            )
        )
        placement = tuple(
            PlacementPart(
                runner=f"m{number}", id=f"id{number}", pod_set="main", first=number, count=1
            )
            for number in range(self.machines)
        )
        self.verdict("machines", "Ready", controller=CONTROLLER, placement=placement)
        self.confirmed()
        assert self.phase == "Admitted"

    def says(self, kind: type[facts.JobFact] | type[facts.Finished], part: int, **more: Any) -> str:
        """A runner reports about its part; returns the phase of the workload after it."""
        at = self.status.admitted_revision
        fields = {"revision": at, "part": part, **more}
        self.happens(kind(**ME, **fields))
        return str(self.phase)

    def part_stopped(self, part: int) -> str:
        return self.says(facts.Stopped, part, revision=self.status.evicted_revision)

    def part_lost(self, part: int, reason: str = "NodeFailures") -> str:
        return self.says(facts.Stopped, part, reason=reason, message="gone")
