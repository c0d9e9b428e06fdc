"""Lives through a scenario: what happens to workloads besides what the scheduler decides."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from twin.cycle import Cycle, Entry
from twin.objects import Admission, Job, Place, job, place
from twin.queues import Line
from twin.tree import Tree

IDLE = 10
MOST_CYCLES = 500
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class Play:
    """``cycles``: of the last settling, without the idle ones at its end. ``trace``: what happened
    since the last outcome: cycle, outcome, workload, reason, preemptor. ``kind``: of its cycles."""

    kind = Cycle

    def __init__(self, scenario: Mapping[str, Any]) -> None:
        self.fair = bool(scenario["fairSharing"])
        self.places: dict[tuple[bool, str], Place] = {}
        self.flavors: dict[str, Mapping[str, Any]] = {}
        self.local: dict[str, tuple[str, str]] = {}
        self.labels: dict[str, str] = {}
        self.jobs: dict[str, Job] = {}
        self.lines: dict[str, Line] = {}
        self.generations: dict[str, int] = {}
        self.evictions: dict[str, list[str]] = {}
        self.now = 0.0
        self.number = 0
        self.cycles = 0
        self.trace: list[tuple[int, str, str, str, str]] = []
        for obj in scenario["objects"]:
            self.see(obj)

    def see(self, obj: Mapping[str, Any]) -> None:
        name, spec = obj["metadata"]["name"], obj.get("spec", {})
        match obj["kind"]:
            case "Namespace":
                self.labels = dict(obj["metadata"].get("labels", {}))
            case "ResourceFlavor":
                self.flavors[name] = spec
            case "LocalQueue":
                self.local[name] = (spec["clusterQueue"], spec.get("stopPolicy", "None"))
            case "Cohort":
                self.places[False, name] = place(obj)
            case "ClusterQueue":
                self.places[True, name] = place(obj)
                self.lines.setdefault(name, Line())
                self.generations.setdefault(name, 0)

    def tree(self) -> Tree:
        return Tree(self.places.values(), self.flavors, self.jobs.values(), fair=self.fair)

    # Queues. --------------------------------------------------------------------------------

    def queue_up(self, played: Job) -> None:
        """Queues the workload, if it may wait."""
        queue, stop = self.local.get(played.local_queue, ("", "None"))
        free = played.admission is None and played.active and not played.finished
        if free and stop == "None" and queue in self.lines:
            self.lines[queue].arrive(played, strict=self.places[True, queue].strict)

    def leave(self, played: Job) -> None:
        for line in self.lines.values():
            line.leave(played.name)

    def flush(self, queue: str) -> None:
        """Lets every workload in the cohort tree of this ClusterQueue be tried again."""
        for name in self.siblings(queue):
            self.lines[name].flush(self.places[True, name], self.labels)

    def siblings(self, queue: str) -> list[str]:
        nodes = self.tree().nodes
        root = nodes[True, queue].root()
        return [name for (of, name), node in nodes.items() if of and node.root() is root]

    def release(self, played: Job) -> None:
        """Releases the quota of the workload."""
        assert played.admission is not None
        queue = played.admission.queue
        played.admission, played.admitted, played.leaving = None, False, False
        self.generations[queue] += 1
        self.flush(queue)

    # Steps. ---------------------------------------------------------------------------------

    def step(self, step: Mapping[str, Any]) -> None:
        for what, value in step.items():
            match what:
                case "create":
                    for obj in value:
                        self.create(obj)
                case "finish":
                    for name in value:
                        self.finish(self.jobs.get(name))
                case "delete":
                    for name in value:
                        self.delete(self.jobs.get(name))
                case "update":
                    self.update(value)
                case "check":
                    self.check(self.jobs.get(value["workload"]), value["name"], value["state"])
                case "settle":
                    self.settle()

    def create(self, obj: Mapping[str, Any]) -> None:
        told = datetime.fromisoformat(obj["metadata"]["creationTimestamp"].replace("Z", "+00:00"))
        created = (told - EPOCH).total_seconds()
        self.now = max(self.now, created)
        played = self.jobs[obj["metadata"]["name"]] = job(obj, created)
        self.queue_up(played)

    def finish(self, played: Job | None) -> None:
        if played is not None and played.admitted:
            queue = played.admission.queue if played.admission else ""
            played.finished, played.admitted = True, False
            self.generations[queue] += 1
            self.flush(queue)

    def delete(self, played: Job | None) -> None:
        if played is None:
            return
        queue = self.local[played.local_queue][0]
        if played.admission is not None and not played.finished:
            queue = played.admission.queue
            self.generations[queue] += 1
        del self.jobs[played.name]
        self.leave(played)
        self.flush(queue)

    def update(self, obj: Mapping[str, Any]) -> None:
        name = obj["metadata"]["name"]
        old, new = self.places[True, name], place(obj)
        if old.parent != new.parent:
            # Kueue notifies only the cohort tree that the queue enters; Admittance also notifies
            # the tree that it leaves.
            self.flush(name)
        if (old.parent, old.groups, old.quotas) != (new.parent, new.groups, new.quotas):
            self.bump(name)
            self.places[True, name] = new
            self.bump(name)
        self.places[True, name] = new
        for played in list(self.jobs.values()):
            if new.stop == "None":
                if played.stopped:
                    played.stopped = False
                    self.leave(played)
                    self.queue_up(played)
            elif (
                played.admission is not None
                and played.admission.queue == name
                and not played.finished
            ):
                if played.admitted and new.stop == "HoldAndDrain":
                    played.stopped = True
                    self.evict(played, "ClusterQueueStopped")
                elif not played.admitted:
                    played.checks = {}
                    self.release(played)
                    self.queue_up(played)
        self.flush(name)

    def bump(self, queue: str) -> None:
        for name in self.siblings(queue):
            self.generations[name] += 1

    def check(self, played: Job | None, name: str, state: str) -> None:
        if (
            played is None
            or played.admission is None
            or played.finished
            or name not in played.checks
        ):
            return
        if state == "Ready":
            played.checks[name] = state
            self.generations[played.admission.queue] += 1
            played.admitted = all(value == "Ready" for value in played.checks.values())
        elif state == "Retry":
            played.check_evicted_at = self.now
            self.evict(played, "AdmissionCheck")
        else:
            played.active = False
            self.evict(played, "DeactivatedDueToAdmissionCheck")

    def evict(self, played: Job, reason: str, by: str = "") -> None:
        self.trace.append((self.cycles, "evict", played.name, reason, by))
        self.evictions.setdefault(played.name, []).append(reason)
        played.checks = dict.fromkeys(played.checks, "Pending")
        self.release(played)
        self.queue_up(played)

    # Settling. ------------------------------------------------------------------------------

    def settle(self, most: int = MOST_CYCLES) -> None:
        """Runs cycles until nothing changes any more."""
        self.cycles = idle = 0
        for _ in range(most):
            tree = self.tree()
            if idle >= IDLE or not any(self.lines[name].active for name in tree.queue):
                self.cycles -= idle
                return
            before = self.picture()
            self.now += 1
            self.number += 1
            self.cycles += 1
            dealt = self.cycle(tree)
            acted = self.carry_out(dealt)
            idle = 0 if acted or self.picture() != before else idle + 1

    def cycle(self, tree: Tree) -> list[Entry]:
        return self.kind(
            tree,
            self.lines,
            self.flavors,
            self.labels,
            self.generations,
            self.number,
            self.fair,
        ).run()

    def picture(self) -> list[tuple[list[str], list[str]]]:
        return [(sorted(queue.active), sorted(queue.parked)) for queue in self.lines.values()]

    def carry_out(self, dealt: list[Entry]) -> bool:
        """Applies the decisions of a cycle, and returns whether anything changed."""
        acted = False
        for entry in dealt:
            if entry.status == "assumed":
                self.reserve(entry)
                acted = True
        for entry in dealt:
            if entry.status == "preempting":
                for victim in entry.victims:
                    self.evict(victim.job, victim.reason, entry.job.name)
                    acted = True
        return acted

    def reserve(self, entry: Entry) -> None:
        played, made = entry.job, entry.assignment
        self.trace.append((self.cycles, "reserve", played.name, "", ""))
        pods = [(each.name, each.count, each.flavors, each.amounts) for each in made.choices]
        played.admission = Admission(entry.node.name, pods)
        played.reserved_at, played.check_evicted_at = self.now, None
        used = {flavor for _, _, flavors, _ in pods for flavor in flavors.values()}
        played.checks = {
            name: "Pending"
            for name, flavors in entry.node.place.checks
            if not flavors or used & set(flavors)
        }
        played.admitted = not played.checks
        self.generations[entry.node.name] += 1

    # The answer. ----------------------------------------------------------------------------

    def outcome(self) -> dict[str, Any]:
        """Workloads and usage, as scenarios expect them; the list of evictions is cleared."""
        workloads: dict[str, Any] = {}
        usage: dict[tuple[str, str, str], int] = {}
        for name, played in self.jobs.items():
            workloads[name] = row = dict[str, Any](state=state(played))
            if played.admission is not None and not played.finished:
                row["clusterQueue"] = played.admission.queue
                row["podSets"] = [
                    {"name": pods, "count": count, "flavors": flavors}
                    for pods, count, flavors, _ in played.admission.pods
                ]
                for (flavor, resource), much in played.admission.usage().items():
                    key = (played.admission.queue, flavor, resource)
                    usage[key] = usage.get(key, 0) + much
            if name in self.evictions:
                row["evictions"] = self.evictions.pop(name)
        self.evictions.clear()
        trace, self.trace = sorted(self.trace), []
        self.cycles, cycles = 0, self.cycles
        return {
            "cycles": cycles,
            "trace": trace,
            "workloads": workloads,
            "usage": {key: much for key, much in usage.items() if much},
        }


def state(played: Job) -> str:
    if played.finished:
        return "Finished"
    if not played.active:
        return "Inactive"
    if played.admission is None:
        return "Pending"
    return "Admitted" if played.admitted else "QuotaReserved"
