"""Random scenarios, of the families in which Kueue's answers were recorded, and at their edges.

Everything is drawn from the generator that is passed in, so a seed tells a scenario. With ``wild``
there is also what the recorded ones leave out: queues that move between cohorts, other strategies
and checks by an update, requests of zero, more flavors, many of one size and one second.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

API = "kueue.x-k8s.io/v1beta2"
START = datetime(2026, 1, 1, tzinfo=UTC)
Obj = dict[str, Any]

PREEMPTING = {
    "preemption",
    "reclaim",
    "borrow-within-cohort",
    "hierarchical",
    "fungibility",
    "fair-sharing",
    "strict-fifo",
    "lifecycle",
    "partial-admission",
    "two-phase",
    "mixed",
}
ALONE = {"basic", "preemption"}
FAMILIES = ("basic", "borrowing", *sorted(PREEMPTING))


@dataclass
class Draw:
    """One scenario being drawn."""

    family: str
    random: Random
    wild: bool = False
    flavors: list[str] = field(default_factory=list)
    resources: list[str] = field(default_factory=list)
    gpus: list[str] = field(default_factory=list)
    queues: dict[str, Obj] = field(default_factory=dict)
    local: list[str] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    priorities: list[int] = field(default_factory=list)
    cohorts: list[str] = field(default_factory=list)
    most: int = 14
    busy: list[str] = field(default_factory=list)
    day: int = 0

    def chance(self, part: float) -> bool:
        return self.random.random() < part

    def is_(self, *families: str) -> bool:
        """Whether it is of one of these; of the mixed ones, each in every second scenario."""
        return self.family in families or (self.family == "mixed" and self.mixed_in(families[0]))

    def mixed_in(self, family: str) -> bool:
        if family not in self._mix:
            self._mix[family] = self.chance(0.5)
        return self._mix[family]

    _mix: dict[str, bool] = field(default_factory=dict)

    # Objects. -------------------------------------------------------------------------------

    def objects(self) -> list[Obj]:
        pick = self.random.choice
        made: list[Obj] = [
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": "default", "labels": {"team": "a"}},
            }
        ]
        self.flavors = ["on-demand", "spot", "reserved"][: pick([1, 1, 2, 2, 3])]
        if self.is_("fungibility") or (self.wild and self.chance(0.3)):
            self.flavors = ["on-demand", "spot", "reserved"][: pick([2, 3, 3])]
        self.resources = pick([["cpu"], ["cpu", "memory"]])
        self.most = pick([6, 14, 23, 30])
        self.gpus = pick([[], [], [], ["a100"], ["a100", "h100"], ["a100", "h100", "t4"]])
        self.priorities = pick([[0], [0, 10], [0, 10], [0, 10, 100], [-10, 0, 10, 100]])
        if self.family in PREEMPTING and self.chance(0.5):
            self.priorities = pick([[0, 10, 100], [-10, 0, 10, 100]])
        selectors = self.is_("fungibility") and self.chance(0.7)
        for flavor in [*self.flavors, *self.gpus]:
            spec: Obj = {}
            if selectors:
                spec["nodeLabels"] = {"pool": flavor}
                if self.chance(0.35):
                    spec["nodeTaints"] = [
                        {"key": f"only-{flavor}", "value": "yes", "effect": "NoSchedule"}
                    ]
            self.selectors[flavor] = bool(spec)
            made.append(manifest("ResourceFlavor", flavor, spec))
        if self.is_("two-phase"):
            self.checks = ["budget", "provision"][: pick([1, 2])]
            for check in self.checks:
                made.append(
                    manifest("AdmissionCheck", check, {"controllerName": f"example.com/{check}"})
                )
        made += self.all_cohorts()
        for index in range(self.size()):
            made.append(self.queue(f"cq-{index}"))
            self.queues[f"cq-{index}"] = made[-1]
            for suffix in ["", "b"] if self.chance(0.25) else [""]:
                spec = {"clusterQueue": f"cq-{index}"}
                if self.chance(0.02):
                    spec["stopPolicy"] = "Hold"
                made.append(manifest("LocalQueue", f"lq-{index}{suffix}", spec))
                made[-1]["metadata"]["namespace"] = "default"
                self.local.append(f"lq-{index}{suffix}")
        return made

    selectors: dict[str, bool] = field(default_factory=dict)

    def size(self) -> int:
        most = 3 if self.family in ALONE else 7
        if self.family in ALONE and self.chance(0.5):
            return 1
        return self.random.randint(1 if self.family in ALONE else 2, most)

    def all_cohorts(self) -> list[Obj]:
        if self.family in ALONE and not (self.family == "preemption" and self.chance(0.3)):
            return []
        made: list[Obj] = []
        deep = self.is_("hierarchical") or (self.is_("fair-sharing") and self.chance(0.5))
        deep = deep or (self.wild and self.chance(0.3))
        for index in range(self.random.choice([1, 1, 1, 2])):
            root = f"cohort-{index}"
            if deep:
                made.append(self.cohort(root, ""))
                for letter in "abc"[: self.random.randint(1, 3)]:
                    made.append(self.cohort(f"{root}-{letter}", root))
                    if self.chance(0.35):
                        made.append(self.cohort(f"{root}-{letter}-x", f"{root}-{letter}"))
            elif self.chance(0.6):
                made.append(self.cohort(root, ""))
            else:
                self.cohorts.append(root)
        return made

    def cohort(self, name: str, parent: str) -> Obj:
        self.cohorts.append(name)
        spec: Obj = {"parentName": parent} if parent else {}
        if self.chance(0.5):
            spec["resourceGroups"] = self.groups(
                limits=0.25 if parent else 0.0, cohort=True, none=0.35
            )
        if self.is_("fair-sharing") and self.chance(0.5):
            spec["fairSharing"] = {"weight": self.random.choice(["500m", "1", "2", "3"])}
            if self.wild and self.chance(0.15):
                spec["fairSharing"]["weight"] = "0"
        return manifest("Cohort", name, spec)

    def groups(self, *, limits: float, cohort: bool = False, none: float = 0.12) -> list[Obj]:
        made = [self.group(self.resources, self.flavors, limits, cohort, none)]
        if self.gpus and self.chance(0.8):
            made.append(self.group(["nvidia.com/gpu"], self.gpus, limits, cohort, none))
        return made

    def group(
        self, resources: list[str], flavors: list[str], limits: float, cohort: bool, none: float
    ) -> Obj:
        some = list(flavors)
        self.random.shuffle(some)
        if not self.is_("fungibility"):
            some = some[: self.random.randint(1, len(some))]
        rows = []
        for flavor in some:
            quotas = []
            for resource in resources:
                nominal = 0 if self.chance(none) else self.random.randint(1, self.most)
                nominal *= 2 if resource == "memory" else 1
                row = {"name": resource, "nominalQuota": quantity(resource, nominal)}
                if resource == "cpu" and self.chance(0.03):
                    row["nominalQuota"] = f"{nominal * 1000 + 500}m"
                if self.chance(limits):
                    borrow = self.random.choice([0, 1, 2, 3, 5, 8])
                    row["borrowingLimit"] = quantity(resource, borrow)
                if self.chance(limits):
                    lend = 0 if self.chance(0.4) else self.random.randint(0, max(nominal, 0))
                    if cohort and self.chance(0.3):
                        lend = self.random.choice([3, 5, 8, 22])
                    row["lendingLimit"] = quantity(resource, lend)
                quotas.append(row)
            rows.append({"name": flavor, "resources": quotas})
        return {"coveredResources": list(resources), "flavors": rows}

    def queue(self, name: str) -> Obj:
        cohort = ""
        if self.cohorts and not self.chance(0.06):
            cohort = self.random.choice(self.cohorts)
        return manifest("ClusterQueue", name, self.queue_spec(cohort))

    def queue_spec(self, cohort: str) -> Obj:
        pick = self.random.choice
        spec: Obj = {"namespaceSelector": {}}
        if self.chance(0.02):
            spec["namespaceSelector"] = {"matchLabels": {"team": "b"}}
        if cohort:
            spec["cohortName"] = cohort
        if self.chance(0.85 if self.is_("strict-fifo") else 0.12):
            spec["queueingStrategy"] = "StrictFIFO"
        limits = pick([0.0, 0.2, 0.4]) if cohort else 0.0
        spec["resourceGroups"] = self.groups(limits=limits)
        if self.family in PREEMPTING and self.chance(0.85):
            spec["preemption"] = self.preemption()
        if self.is_("fungibility") or self.chance(0.2):
            fungibility = {
                "whenCanBorrow": pick(["MayStopSearch", "TryNextFlavor"]),
                "whenCanPreempt": pick(["MayStopSearch", "TryNextFlavor"]),
            }
            if set(fungibility.values()) == {"TryNextFlavor"} and self.chance(0.6):
                fungibility["preference"] = pick(
                    ["BorrowingOverPreemption", "PreemptionOverBorrowing"]
                )
            spec["flavorFungibility"] = fungibility
        if self.is_("fair-sharing") and self.chance(0.6):
            spec["fairSharing"] = {"weight": pick(["0", "500m", "1", "1", "2", "3"])}
        if self.checks and self.chance(0.75):
            spec["admissionChecksStrategy"] = {"admissionChecks": self.rules(spec)}
        if self.chance(0.03):
            spec["stopPolicy"] = pick(["Hold", "Hold", "HoldAndDrain"])
        return spec

    def preemption(self) -> Obj:
        pick = self.random.choice
        made: Obj = {}
        keen = self.is_("reclaim", "borrow-within-cohort", "preemption", "fair-sharing")
        never = [] if keen and self.chance(0.7) else ["Never"]
        if self.chance(0.8):
            made["withinClusterQueue"] = pick(
                [*never, "LowerPriority", "LowerOrNewerEqualPriority"]
            )
        if self.chance(0.8):
            made["reclaimWithinCohort"] = pick([*never, "LowerPriority", "Any"])
        if (
            made.get("reclaimWithinCohort", "Never") != "Never"
            and self.is_("borrow-within-cohort", "fair-sharing")
            and self.chance(0.75)
        ):
            made["borrowWithinCohort"] = {"policy": "LowerPriority"}
            if self.chance(0.5):
                made["borrowWithinCohort"]["maxPriorityThreshold"] = pick([-10, 0, 10, 100])
        return made

    def rules(self, spec: Obj) -> list[Obj]:
        names = [row["name"] for group in spec["resourceGroups"] for row in group["flavors"]]
        made: list[Obj] = []
        for check in self.checks[: self.random.randint(1, len(self.checks))]:
            rule: Obj = {"name": check}
            if self.chance(0.3):
                rule["onFlavors"] = sorted(
                    self.random.sample(names, self.random.randint(1, len(names)))
                )
            made.append(rule)
        return made

    # Workloads. -----------------------------------------------------------------------------

    def batch(self) -> Obj:
        """Workloads that come together, a day after the last ones."""
        made: list[Obj] = []
        at = START + timedelta(days=self.day)
        self.day += 1
        # Often only some queues get any, so that they borrow what others want back later.
        some = self.random.sample(self.local, self.random.randint(1, min(3, len(self.local))))
        self.busy = some if self.chance(0.5) else self.local
        for _ in range(self.random.choice([2, 5, 7, 11, 14, 20])):
            at += timedelta(seconds=self.random.randint(1, 5))
            made.append(self.workload(at))
        if self.chance(0.5):
            self.random.shuffle(made)
        return {"create": made}

    def workload(self, at: datetime) -> Obj:
        pick = self.random.choice
        name = f"wl-{len(self.names):02}"
        self.names.append(name)
        pod_sets = [self.pod_set("main")]
        if self.chance(0.25):
            pod_sets.append(self.pod_set("workers"))
        if self.is_("partial-admission") and self.chance(0.6):
            pod_set = pick(pod_sets)
            pod_set["minCount"] = self.random.randint(1, pod_set["count"])
        spec: Obj = {"queueName": pick(self.busy), "podSets": pod_sets}
        priority = pick([None, *self.priorities, *self.priorities])
        if self.chance(0.4):
            # Those that come later matter more, and so take from those before them.
            priority = self.priorities[min(self.day, len(self.priorities)) - 1]
        if priority is not None:
            spec["priority"] = priority
            if priority:
                spec["priorityClassRef"] = {
                    "group": "kueue.x-k8s.io",
                    "kind": "WorkloadPriorityClass",
                    "name": f"prio-{priority}",
                }
        made = manifest("Workload", name, spec)
        uid = f"{self.random.getrandbits(64):016x}"
        uid = f"{uid[:8]}-{uid[8:12]}-4000-8000-{uid[12:]}00000000"
        stamp = at.strftime("%Y-%m-%dT%H:%M:%SZ")
        made["metadata"] |= {"namespace": "default", "uid": uid, "creationTimestamp": stamp}
        return made

    def pod_set(self, name: str) -> Obj:
        pick = self.random.choice
        requests = {}
        for resource in self.resources:
            much = pick([1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4])
            requests[resource] = quantity(resource, much)
            if resource == "cpu" and self.chance(0.08):
                requests[resource] = "500m"
            if self.wild and self.chance(0.05):
                requests[resource] = quantity(resource, 0)
        if self.chance(0.03):
            requests = {resource: quantity(resource, 200) for resource in self.resources}
        if self.gpus and self.chance(0.2):
            requests["nvidia.com/gpu"] = str(pick([1, 1, 2, 4]))
        if self.wild and self.chance(0.04):
            requests["example.com/odd"] = pick(["0", "1"])
        pod: Obj = {
            "containers": [{"name": "c", "resources": {"requests": requests}}],
            "restartPolicy": "Never",
        }
        labelled = [flavor for flavor in self.flavors if self.selectors.get(flavor)]
        if labelled and self.chance(0.2):
            pod["nodeSelector"] = {"pool": pick(labelled)}
        if labelled and self.chance(0.4):
            some = self.random.sample(labelled, self.random.randint(1, len(labelled)))
            pod["tolerations"] = [
                {
                    "key": f"only-{taint}",
                    "operator": "Equal",
                    "value": "yes",
                    "effect": "NoSchedule",
                }
                for taint in some
            ]
        count = pick([1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 8])
        return {"name": name, "count": count, "template": {"spec": pod}}

    # Steps. ---------------------------------------------------------------------------------

    def steps(self) -> list[Obj]:
        made: list[Obj] = [self.batch(), {"settle": True}]
        for _ in range(self.random.randint(1, 4)):
            for _ in range(self.random.randint(0, 2)):
                made += [*self.happening(), {"settle": True}]
            if self.chance(0.75):
                made += [self.batch(), {"settle": True}]
        return made

    def happening(self) -> list[Obj]:
        busy = self.is_("lifecycle")
        if self.checks and self.chance(0.8):
            return [self.answer() for _ in range(self.random.randint(1, 6))]
        if self.chance(0.45 if busy else 0.2):
            return [{"update": self.update()}]
        if self.chance(0.25):
            return [{"delete": self.some(0.15)}]
        return [{"finish": self.some(self.random.choice([0.15, 0.4, 0.6]))}]

    def answer(self) -> Obj:
        state = self.random.choice(["Ready"] * 8 + ["Retry", "Retry", "Rejected"])
        name, check = self.random.choice(self.names), self.random.choice(self.checks)
        return {"check": {"workload": name, "name": check, "state": state}}

    def some(self, part: float) -> list[str]:
        return [name for name in self.names if self.chance(part)] or [self.names[0]]

    def update(self) -> Obj:
        name = self.random.choice(sorted(self.queues))
        spec = dict(self.queues[name]["spec"])
        fresh = self.queue_spec(spec.get("cohortName", ""))
        what = self.random.choice(["quota", "quota", "quota", "preemption", "stop", "stop", "same"])
        if self.wild and self.chance(0.4):
            what = self.random.choice(["cohort", "strategy", "flavors", "fungibility", "weight"])
        match what:
            case "quota":
                spec["resourceGroups"] = self.other_quota(spec)
            case "flavors":
                spec["resourceGroups"] = fresh["resourceGroups"]
                for rule in spec.get("admissionChecksStrategy", {}).get("admissionChecks", []):
                    rule.pop("onFlavors", None)
            case "preemption" if self.family in PREEMPTING:
                spec["preemption"] = self.preemption()
            case "stop":
                before = spec.pop("stopPolicy", None)
                after = "HoldAndDrain" if self.chance(0.6) else "Hold"
                if before is None or (after != before and self.chance(0.2)):
                    spec["stopPolicy"] = after
            case "cohort" if self.cohorts:
                spec["cohortName"] = self.random.choice(self.cohorts)
            case "strategy":
                strict = spec.get("queueingStrategy") == "StrictFIFO"
                spec["queueingStrategy"] = "BestEffortFIFO" if strict else "StrictFIFO"
            case "fungibility" if "flavorFungibility" in fresh:
                spec["flavorFungibility"] = fresh["flavorFungibility"]
            case "weight" if "fairSharing" in fresh:
                spec["fairSharing"] = fresh["fairSharing"]
        self.queues[name] = manifest("ClusterQueue", name, spec)
        return self.queues[name]

    def other_quota(self, spec: Obj) -> list[Obj]:
        """The same flavors with other amounts."""
        groups = []
        for group in spec["resourceGroups"]:
            flavors = []
            for flavor in group["flavors"]:
                rows = []
                for old in flavor["resources"]:
                    row = dict(old)
                    if self.chance(0.6):
                        nominal = self.random.choice([0, 1, 2, 3, 5, 9, 14])
                        row["nominalQuota"] = quantity(row["name"], nominal)
                        row.pop("lendingLimit", None)
                    rows.append(row)
                flavors.append({**flavor, "resources": rows})
            groups.append({**group, "flavors": flavors})
        return groups


def quantity(resource: str, much: int) -> str:
    return f"{much}Gi" if resource == "memory" else str(much)


def manifest(kind: str, name: str, spec: Obj) -> Obj:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec}


def scenario(family: str, random: Random, *, wild: bool = False) -> Obj:
    """A scenario without answers."""
    draw = Draw(family, random, wild)
    objects = draw.objects()
    return {
        "name": family,
        "family": family,
        "fairSharing": draw.is_("fair-sharing"),
        "objects": objects,
        "steps": draw.steps(),
    }
