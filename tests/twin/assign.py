"""Which flavors a workload would get, and in which mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from twin.objects import FR, MOST, Group, Job, PodSet
from twin.tree import Node

NO_FIT, NO_CANDIDATES, PREEMPT, RECLAIM, FIT = "noFit", "noCandidates", "preempt", "reclaim", "fit"
RANK = {NO_FIT: 0, NO_CANDIDATES: 1, PREEMPT: 2, RECLAIM: 3, FIT: 4}

Mode = tuple[str, int]
"""How the workload would fit, and how many cohort levels up the quota comes from."""
Oracle = Callable[[FR, int], tuple[str, int]]
"""Returns what preemption could do for one flavor and resource alone."""
Flavors = Mapping[str, Mapping[str, Any]]
"""The specs of the ResourceFlavors."""
Only = Mapping[tuple[int, str], str]
"""The flavors that alone may be looked at, by pod set and resource."""


@dataclass
class Choice:
    """The choice for one pod set."""

    name: str
    count: int
    amounts: dict[str, int]
    flavors: dict[str, str] = field(default_factory=dict)
    modes: dict[str, Mode] = field(default_factory=dict)


@dataclass
class Assignment:
    """``mode``: NoFit, Preempt, DeferredFit or Fit."""

    choices: list[Choice]
    mode: str = "Fit"
    cursor: dict[tuple[int, str], int] = field(default_factory=dict)

    def usage(self) -> dict[FR, int]:
        total: dict[FR, int] = {}
        for choice in self.choices:
            for resource, flavor in choice.flavors.items():
                fr = (flavor, resource)
                total[fr] = min(MOST, total.get(fr, 0) + choice.amounts[resource])
        return total

    def contested(self) -> set[FR]:
        """The quota that only preemption can free."""
        return {
            (flavor, resource)
            for choice in self.choices
            for resource, flavor in choice.flavors.items()
            if choice.modes[resource][0] != FIT
        }

    def level(self) -> int:
        return max(
            (mode[1] for choice in self.choices for mode in choice.modes.values()), default=0
        )

    def flavors(self) -> dict[tuple[int, str], str]:
        return {
            (index, resource): flavor
            for index, choice in enumerate(self.choices)
            for resource, flavor in choice.flavors.items()
        }


def better(left: Mode, right: Mode, preference: str) -> bool:
    """Whether the left one is to be preferred."""
    if NO_FIT in (left[0], right[0]):
        return left[0] != NO_FIT
    if (left[0] == NO_CANDIDATES) != (right[0] == NO_CANDIDATES):
        return right[0] == NO_CANDIDATES
    by_mode, by_level = RANK[left[0]] - RANK[right[0]], right[1] - left[1]
    if preference == "PreemptionOverBorrowing":
        return by_level > 0 if by_level else by_mode > 0
    return by_mode > 0 if by_mode else by_level > 0


def eligible(flavor: str, pod_set: PodSet, flavors: Flavors) -> bool:
    if flavor not in flavors:
        return False
    spec = flavors[flavor]
    tolerations = [*pod_set.tolerations, *spec.get("tolerations", [])]
    for taint in spec.get("nodeTaints", []):
        if taint["effect"] != "PreferNoSchedule" and not any(
            tolerates(toleration, taint) for toleration in tolerations
        ):
            return False
    labels = spec.get("nodeLabels", {})
    return all(labels.get(key, value) == value for key, value in pod_set.selector.items())


def tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    key = toleration.get("key", "")
    if key and key != taint["key"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(key) and toleration.get("value", "") == taint.get("value", "")


def assign(
    job: Job,
    counts: list[int],
    node: Node,
    flavors: Flavors,
    start: Mapping[tuple[int, str], int],
    oracle: Oracle,
    only: Only | None = None,
) -> Assignment:
    """Assigns flavors to the given number of pods of each pod set; ``start``: where earlier
    searches stopped."""
    made = Assignment([])
    taken: dict[FR, int] = {}
    for index, (pod_set, count) in enumerate(zip(job.pod_sets, counts, strict=True)):
        amounts = {key: min(MOST, much * count) for key, much in pod_set.per_pod.items()}
        if node.place.group_of("pods") is not None:
            amounts["pods"] = count
        choice = Choice(pod_set.name, count, amounts)
        made.choices.append(choice)
        worst: list[Mode] = []
        marks: dict[tuple[int, str], int] = {}
        for resource, much in amounts.items():
            if resource in choice.flavors:
                continue
            group = node.place.group_of(resource)
            if group is None:
                if much == 0:
                    continue
                made.mode = "NoFit"
                break
            wanted = {key: value for key, value in amounts.items() if key in group.resources}
            place = search(index, pod_set, group, wanted, node, flavors, taken, start, oracle, only)
            if place is None:
                made.mode = "NoFit"
                break
            flavor, modes, stands, mark = place
            worst.append(stands)
            for key in wanted:
                choice.flavors[key] = flavor
                choice.modes[key] = modes[key]
                marks[index, key] = mark
        if made.mode == "NoFit":
            choice.flavors, choice.modes = {}, {}
            return made
        made.cursor |= marks
        for key, flavor in choice.flavors.items():
            taken[flavor, key] = min(MOST, taken.get((flavor, key), 0) + amounts[key])
        # A resource that needs preemption can hide behind one that fits by borrowing, where that is
        # the worse of the two: then the pod set counts as fitting, and finds no room later.
        if any(mode != FIT for mode, _ in worst):
            made.mode = "Preempt"
    return made


def search(
    index: int,
    pod_set: PodSet,
    group: Group,
    wanted: Mapping[str, int],
    node: Node,
    flavors: Flavors,
    taken: Mapping[FR, int],
    start: Mapping[tuple[int, str], int],
    oracle: Oracle,
    only: Only | None,
) -> tuple[str, dict[str, Mode], Mode, int] | None:
    """A flavor of the group for all of these resources, their modes, the one that stands for the
    flavor, and where the search stopped."""
    place = node.place
    best: tuple[str, dict[str, Mode]] | None = None
    best_mode: Mode = (NO_FIT, 0)
    first = start.get((index, next(iter(wanted))), -1) + 1
    last = first
    for last in range(first, len(group.flavors)):
        flavor = group.flavors[last]
        if not eligible(flavor, pod_set, flavors):
            continue
        if only is not None and any(only.get((index, key)) != flavor for key in wanted):
            continue
        modes: dict[str, Mode] = {}
        worst: Mode = (FIT, 0)
        for resource, much in wanted.items():
            fr = (flavor, resource)
            modes[resource] = quota_mode(fr, taken.get(fr, 0) + much, node, oracle)
            if better(worst, modes[resource], place.preference):
                worst = modes[resource]
            if worst[0] == NO_FIT:
                break
        if not try_next(worst, place.can_borrow, place.can_preempt):
            best, best_mode = (flavor, modes), worst
            break
        if better(worst, best_mode, place.preference):
            best, best_mode = (flavor, modes), worst
    if best is None:
        return None
    return best[0], best[1], best_mode, -1 if last >= len(group.flavors) - 1 else last


def try_next(mode: Mode, can_borrow: str, can_preempt: str) -> bool:
    if mode[0] in (NO_FIT, NO_CANDIDATES):
        return True
    if mode[0] in (PREEMPT, RECLAIM) and can_preempt == "TryNextFlavor":
        return True
    return mode[1] > 0 and can_borrow == "TryNextFlavor"


def quota_mode(fr: FR, much: int, node: Node, oracle: Oracle) -> Mode:
    if much > node.potential(fr):
        return NO_FIT, 0
    level, entitled = node.borrow_level(fr, much)
    if much <= max(0, node.available(fr)):
        return FIT, level
    if node.quota(fr).nominal >= much or entitled or may_preempt_borrowing(node):
        return oracle(fr, much)
    return NO_FIT, level


def may_preempt_borrowing(node: Node) -> bool:
    """Whether its policy lets it preempt although it would borrow then."""
    return node.place.borrow != "Never" or (node.fair and node.place.reclaim != "Never")


def reduced(job: Job, step: int, steps: int) -> list[int]:
    """The counts after so many of the steps from all pods down to the fewest."""
    counts = []
    for pod_set in job.pod_sets:
        count = job.count(pod_set)
        least = count if pod_set.least is None else min(count, pod_set.least)
        counts.append(count - (count - least) * step // steps)
    return counts


def steps_of(job: Job) -> int:
    """How many pods the job could do without."""
    counts = [
        (job.count(pod_set), pod_set.least) for pod_set in job.pod_sets if pod_set.least is not None
    ]
    return sum(max(0, count - least) for count, least in counts)
