"""Stories of jobs on machines in the cores of all services: gangs, preemption, lost and drained
machines, runs that outlive their quota, and cores that start anew. No device is ever used twice
(`PlacedCores` looks at each start), and in the end every job ends."""

from __future__ import annotations

import random
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from admittance.placement.verdicts import PlacementTimes
from support.cores.placed_cores import PlacedCores
from support.machines import a_machine

TIMES = PlacementTimes(
    retry_after=timedelta(seconds=40),
    retry_delay=timedelta(seconds=20),
    hold_after=timedelta(seconds=60),
    hold_without_quota=timedelta(seconds=60),
    lost_after=timedelta(seconds=30),
)
DEFERS = "AfterCheckPassedOrOnDemand"
ACTS = (
    *("submit", "submit", "end", "hand", "stop"),
    *("approve", "machine", "advance", "restart"),
)


class Story:
    """One story. ``names``: the jobs that have not been seen to end."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        sizes = [chance.choice((2, 4)) for _ in range(3)]
        self.machines = [
            a_machine(f"m{n}", gpus=size, resource="gpu") for n, size in enumerate(sizes)
        ]
        self.cores = PlacedCores(*self.machines, times=TIMES)
        if chance.random() < 0.3:
            self.cores.check("slow", preemptionPolicy=chance.choice(("Anytime", DEFERS)))
        checks = ["slow"] if self.cores.object_at("AdmissionCheck", "slow") is not None else []
        # Quota says more than the machines have, so that jobs wait for room.
        self.cores.offer(
            {"default": sum(sizes) + chance.choice((0, 2))},
            preemption={"withinClusterQueue": chance.choice(("LowerPriority", "Never"))},
            admissionChecks=checks,
        )
        self.cores.go()
        self.largest = max(sizes)
        self.names: list[str] = []

    def submit(self) -> None:
        name, chance = f"j{len(self.names)}", self.chance
        self.names.append(name)
        priority = chance.choice((0, 0, 1, 2))
        count = chance.choice((1, 1, 2, 3))
        each = chance.choice((1, 1, 2, self.largest)) if count == 1 else 1
        requests = {"requests": {"gpu": str(each)}}
        container = {"name": "c", "command": ["true"], "resources": requests}
        template = {"spec": {"containers": [container]}}
        pods = {"name": "main", "count": count, "template": template}
        if chance.random() < 0.3:
            self.cores.slow_jobs.add(name)
        self.cores.job(name, pods=[pods], priority=priority)

    def act(self) -> None:
        chance, cores = self.chance, self.cores
        name = chance.choice(self.names) if self.names else ""
        match chance.choice(ACTS):
            case "submit":
                self.submit()
            case "end" if name and str(cores.phase(name)) == "Admitted":
                cores.done(name)
            case "hand" if name and str(cores.phase(name)) in ("Admitted", "QuotaReserved"):
                cores.finish(name)
                cores.go()
            case "stop" if name:
                self.stop(name)
            case "approve" if name and cores.states(name).get("slow") == "Pending":
                cores.report(name, "slow", "Ready")
            case "machine":
                state = {"ready": True, "lost_since": None, "draining": False, "evict_at": None}
                match chance.choice(("lost", "drained", "cordoned", *["well"] * 4)):
                    case "lost":
                        state |= {"ready": False, "lost_since": cores.now}
                    case "drained":
                        later = cores.now + timedelta(seconds=30)
                        state |= {"draining": True, "evict_at": later}
                    case "cordoned":
                        state["unschedulable"] = True
                state.setdefault("unschedulable", False)
                cores.change_machine(chance.choice(self.machines).name, **state)
            case "advance":
                cores.advance(chance.choice((1, 10, 45, 130)))
            case "restart" if chance.random() < 0.3:
                cores.restart()
                cores.go()

    def stop(self, name: str) -> None:
        """The job has stopped, if it was told to."""
        if str(self.cores.phase(name)) == "Evicting":
            self.cores.stop(name)
        elif str(self.cores.phase(name)) not in ("Admitted", "Running"):
            self.cores.end_run(name)
        self.cores.go()

    def end(self) -> None:
        """All faults stop, and jobs end as soon as they run."""
        self.cores.slow_jobs.clear()
        for machine in self.machines:
            well = {"ready": True, "lost_since": None, "draining": False, "evict_at": None}
            self.cores.change_machine(machine.name, unschedulable=False, **well)
        for _ in range(60):
            left = [name for name in self.names if str(self.cores.phase(name)) != "Finished"]
            for name in self.names:
                if self.cores.states(name).get("slow") == "Pending" and name in left:
                    self.cores.report(name, "slow", "Ready")
                if str(self.cores.phase(name)) == "Admitted":
                    self.cores.done(name)
                else:
                    self.stop(name)
            if not left:
                return
            self.cores.advance(30)
        raise AssertionError(f"not ended: {[(n, str(self.cores.phase(n))) for n in left]}")


@given(st.integers(0, 2**32))
@settings(max_examples=8)
def test_every_job_ends_and_no_device_is_used_twice(seed: int) -> None:
    story = Story(random.Random(seed))
    for _ in range(40):
        story.act()
    story.end()

    cores = story.cores
    assert all(cores.placement.ledger.holders(machine.id) == [] for machine in story.machines)
    # The second look of the workload-controller has found nothing.
    assert not [reply for reply in cores.settled.values() if reply.reason == "BadPlacement"]
    assert not [name for name in story.names if "MachineTaken" in cores.noted(name)]
