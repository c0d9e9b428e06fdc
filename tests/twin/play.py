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

    def queue_up(self, one: Job) -> None:
        """Queues the workload, if it may wait."""
        queue, stop = self.local.get(one.local_queue, ("", "None"))
        free = one.admission is None and one.active and not one.finished
        if free and stop == "None" and queue in self.lines:
            self.lines[queue].arrive(one, strict=self.places[True, queue].strict)

    def leave(self, one: Job) -> None:
        for line in self.lines.values():
            line.leave(one.name)

    def flush(self, queue: str) -> None:
        """Lets every workload in the cohort tree of this ClusterQueue be tried again."""
        for name in self.siblings(queue):
            self.lines[name].flush(self.places[True, name], self.labels)

    def siblings(self, queue: str) -> list[str]:
        nodes = self.tree().nodes
        root = nodes[True, queue].root()
        return [name for (of, name), node in nodes.items() if of and node.root() is root]

    def release(self, one: Job) -> None:
        """Releases the quota of the workload."""
        assert one.admission is not None
        queue = one.admission.queue
        one.admission, one.admitted, one.leaving = None, False, False
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
        one = self.jobs[obj["metadata"]["name"]] = job(obj, created)
        self.queue_up(one)

    def finish(self, one: Job | None) -> None:
        if one is not None and one.admitted:
            queue = one.admission.queue if one.admission else ""
            one.finished, one.admitted = True, False
            self.generations[queue] += 1
            self.flush(queue)

    def delete(self, one: Job | None) -> None:
        if one is None:
            return
        queue = self.local[one.local_queue][0]
        if one.admission is not None and not one.finished:
            queue = one.admission.queue
            self.generations[queue] += 1
        del self.jobs[one.name]
        self.leave(one)
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
        for one in list(self.jobs.values()):
            if new.stop == "None":
                if one.stopped:
                    one.stopped = False
                    self.leave(one)
                    self.queue_up(one)
            elif one.admission is not None and one.admission.queue == name and not one.finished:
                if one.admitted and new.stop == "HoldAndDrain":
                    one.stopped = True
                    self.evict(one, "ClusterQueueStopped")
                elif not one.admitted:
                    one.checks = {}
                    self.release(one)
                    self.queue_up(one)
        self.flush(name)

    def bump(self, queue: str) -> None:
        for name in self.siblings(queue):
            self.generations[name] += 1

    def check(self, one: Job | None, name: str, state: str) -> None:
        if one is None or one.admission is None or one.finished or name not in one.checks:
            return
        if state == "Ready":
            one.checks[name] = state
            self.generations[one.admission.queue] += 1
            one.admitted = all(value == "Ready" for value in one.checks.values())
        elif state == "Retry":
            one.check_evicted_at = self.now
            self.evict(one, "AdmissionCheck")
        else:
            one.active = False
            self.evict(one, "DeactivatedDueToAdmissionCheck")

    def evict(self, one: Job, reason: str, by: str = "") -> None:
        self.trace.append((self.cycles, "evict", one.name, reason, by))
        self.evictions.setdefault(one.name, []).append(reason)
        one.checks = dict.fromkeys(one.checks, "Pending")
        self.release(one)
        self.queue_up(one)

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
        return [(sorted(one.active), sorted(one.parked)) for one in self.lines.values()]

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
        one, made = entry.job, entry.assignment
        self.trace.append((self.cycles, "reserve", one.name, "", ""))
        pods = [(each.name, each.count, each.flavors, each.amounts) for each in made.choices]
        one.admission = Admission(entry.node.name, pods)
        one.reserved_at, one.check_evicted_at = self.now, None
        used = {flavor for _, _, flavors, _ in pods for flavor in flavors.values()}
        one.checks = {
            name: "Pending"
            for name, flavors in entry.node.place.checks
            if not flavors or used & set(flavors)
        }
        one.admitted = not one.checks
        self.generations[entry.node.name] += 1

    # The answer. ----------------------------------------------------------------------------

    def outcome(self) -> dict[str, Any]:
        """Workloads and usage, as scenarios expect them; the list of evictions is cleared."""
        workloads: dict[str, Any] = {}
        usage: dict[tuple[str, str, str], int] = {}
        for name, one in self.jobs.items():
            workloads[name] = row = dict[str, Any](state=state(one))
            if one.admission is not None and not one.finished:
                row["clusterQueue"] = one.admission.queue
                row["podSets"] = [
                    {"name": pods, "count": count, "flavors": flavors}
                    for pods, count, flavors, _ in one.admission.pods
                ]
                for (flavor, resource), much in one.admission.usage().items():
                    key = (one.admission.queue, flavor, resource)
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


def state(one: Job) -> str:
    if one.finished:
        return "Finished"
    if not one.active:
        return "Inactive"
    if one.admission is None:
        return "Pending"
    return "Admitted" if one.admitted else "QuotaReserved"
