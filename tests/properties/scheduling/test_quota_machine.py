"""The scheduler beside a stateless reference that recomputes all quota from the stored values.

For random changes of queues, cohorts and workloads, refused writes and takeovers, both have the
same usage, and no decision takes more quota than was available.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from admittance.api.fields.units import amount
from admittance.events.facts import Assigned
from admittance.events.shapes import Admission
from admittance.quota.cell import available, potential
from support.cores.stepped_scheduler import SteppedScheduler, groups, quota
from support.examples import examples

QUEUES = ("a", "b", "c")
COHORTS = ("", "left", "right", "root")
FLAVORS = ("one", "two")

limits = st.none() | st.integers(0, 6)
quotas = st.tuples(st.integers(0, 8), limits, limits)


def _spec(numbers: tuple[int, int | None, int | None], *, root: bool) -> dict[str, str]:
    nominal, borrow, lend = numbers
    return quota(
        str(nominal),
        None if root or borrow is None else str(borrow),
        None if root or lend is None else str(lend),
    )


class TwinNode:
    """docs/spec/scheduling.md#2, written down as it stands there."""

    def __init__(self, numbers: tuple[int, int | None, int | None]) -> None:
        self.nominal, self.borrow, self.lend = numbers
        self.parent: TwinNode | None = None
        self.children: list[TwinNode] = []
        self.subtree = 0
        self.usage = 0

    def guaranteed(self) -> int:
        return 0 if self.lend is None else max(0, self.subtree - self.lend)

    def build(self, *, is_cohort: bool = True) -> None:
        self.subtree = self.nominal
        if is_cohort:
            self.usage = 0
        for child in self.children:
            child.build(is_cohort=bool(child.children))
            self.subtree += child.subtree - child.guaranteed()
            self.usage += max(0, child.usage - child.guaranteed())

    def available(self) -> int:
        if self.parent is None:
            return self.subtree - self.usage
        above = self.parent.available()
        guaranteed = self.guaranteed()
        if self.borrow is not None:
            own = self.subtree - guaranteed
            above = min(above, own - max(0, self.usage - guaranteed) + self.borrow)
        return max(0, guaranteed - self.usage) + above

    def potential(self) -> int:
        if self.parent is None:
            return self.subtree
        most = self.guaranteed() + self.parent.potential()
        return most if self.borrow is None else min(most, self.subtree + self.borrow)


class SchedulerMachine(RuleBasedStateMachine):
    """The picture is what a look at everything would show."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = SteppedScheduler()
        self.numbers: dict[str, dict[str, tuple[int, int | None, int | None]]] = {}
        self.cohort_of: dict[str, str] = {}
        self.parent_of: dict[str, str] = {}
        self.cohort_numbers: dict[str, dict[str, tuple[int, int | None, int | None]]] = {}
        self.on_the_way: dict[str, Assigned] = {}
        self.count = 0

    @initialize()
    def begin(self) -> None:
        for name in FLAVORS:
            self.scheduler.flavor(name)
        for name in QUEUES:
            self.configure(name, "left", [(4, None, None), (4, None, None)])

    # What happens. --------------------------------------------------------------------------

    @rule(name=st.sampled_from(QUEUES), cohort=st.sampled_from(COHORTS),
          numbers=st.lists(quotas, min_size=2, max_size=2))  # fmt: skip
    def configure(
        self, name: str, cohort: str, numbers: list[tuple[int, int | None, int | None]]
    ) -> None:
        spec = {
            flavor: _spec(of, root=not cohort) for flavor, of in zip(FLAVORS, numbers, strict=True)
        }
        self.numbers[name] = {
            flavor: (of[0], of[1] if cohort else None, of[2] if cohort else None)
            for flavor, of in zip(FLAVORS, numbers, strict=True)
        }
        self.cohort_of[name] = cohort
        self.scheduler.queue(name, cohort, resourceGroups=groups(**spec))
        self._see_what_is_dropped()

    @rule(name=st.sampled_from(("left", "right")), parent=st.sampled_from(("", "root")),
          numbers=quotas)  # fmt: skip
    def nest(self, name: str, parent: str, numbers: tuple[int, int | None, int | None]) -> None:
        self.parent_of[name] = parent
        own = (numbers[0], numbers[1] if parent else None, numbers[2] if parent else None)
        self.cohort_numbers[name] = {"one": own}
        spec: dict[str, Any] = {"resourceGroups": groups(one=_spec(own, root=not parent))}
        if parent:
            spec["parentName"] = parent
        self.scheduler.put("Cohort", name, spec)
        self._see_what_is_dropped()

    @rule(name=st.sampled_from(("left", "right")))
    def unnest(self, name: str) -> None:
        if name in self.parent_of:
            del self.parent_of[name]
            del self.cohort_numbers[name]
            self.scheduler.delete("Cohort", name)
            self._see_what_is_dropped()

    @rule(queue=st.sampled_from(QUEUES), cpu=st.integers(0, 9), priority=st.integers(0, 2),
          more=st.none() | st.integers(0, 5))  # fmt: skip
    def submit(self, queue: str, cpu: int, priority: int, more: int | None) -> None:
        self.count += 1
        pods = [
            {"requests": {"cpu": str(requested)}}
            for requested in (cpu, more)
            if requested is not None
        ]
        self.scheduler.submit(f"w{self.count}", queue, pods=pods, priority=priority)

    @rule(confirm=st.booleans())
    def cycle(self, confirm: bool) -> None:
        before = self.twins()
        self.scheduler.cycle(confirm=False)
        asked: dict[str, dict[tuple[str, str], int]] = {}
        for decision in self.scheduler.decided:
            assert decision.name not in self.on_the_way, "decided twice"
            assert self.scheduler.admission(decision.name) is None, (
                "decided although it holds quota"
            )
            self.on_the_way[decision.name] = decision
            for (queue, flavor), much in _usage(decision.admission).items():
                asked.setdefault(flavor, {})[queue, decision.name] = much
        # Each admitted workload fitted, in the order of the decisions.
        for decision in self.scheduler.decided:
            for (queue, flavor), much in _usage(decision.admission).items():
                twin, roots = before[flavor]
                if much:
                    assert much <= max(0, twin[queue].available())
                twin[queue].usage += much
                for root in roots:
                    root.build(is_cohort=bool(root.children))
        if confirm:
            for decision in list(self.on_the_way.values()):
                self.confirm(decision)

    def confirm(self, decision: Assigned) -> None:
        del self.on_the_way[decision.name]
        self.scheduler.confirm(decision)

    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        if self.on_the_way:
            name = data.draw(st.sampled_from(sorted(self.on_the_way)))
            decision = self.on_the_way.pop(name)
            self.scheduler.core.forget("ns", name, decision.revision)

    @rule(data=st.data(), how=st.sampled_from(("finish", "gone", "evict", "repeat")))
    def leave(self, data: st.DataObject, how: str) -> None:
        if not self.scheduler.stored:
            return
        name = data.draw(st.sampled_from(sorted(self.scheduler.stored)))
        self.on_the_way.pop(name, None)
        match how:
            case "finish":
                self.scheduler.finish(name)
                del self.scheduler.stored[name]
            case "gone":
                self.scheduler.gone(name)
            case "evict":
                self.scheduler.evict(name, "Preempted")
            case "repeat":
                self.scheduler.change(name)

    @rule()
    def hand_over(self) -> None:
        for domain in self.scheduler.core.domains():
            self.scheduler.core.disown(domain)
        self.on_the_way.clear()
        for domain in self.scheduler.core.domains():
            self.scheduler.core.own(domain)

    def _see_what_is_dropped(self) -> None:
        # A decision outlives a change of another tree only.
        catalog = self.scheduler.core.catalog
        for name, decision in list(self.on_the_way.items()):
            queue = decision.admission.cluster_queue
            domain = catalog.domain_of(queue)
            if (
                domain is None
                or catalog.newest(domain) > decision.seen
                or domain != decision.domain
            ):
                del self.on_the_way[name]

    # What must hold. ------------------------------------------------------------------------

    def held(self) -> list[Admission]:
        """Everything that counts: what is written down, and what is on its way."""
        written = [
            stored.status.admission
            for stored in self.scheduler.stored.values()
            if stored.status.admission is not None
        ]
        return written + [decision.admission for decision in self.on_the_way.values()]

    def twins(self) -> dict[str, tuple[dict[str, TwinNode], list[TwinNode]]]:
        """Per flavor: every queue's node, freshly built, and the roots."""
        trees: dict[str, tuple[dict[str, TwinNode], list[TwinNode]]] = {}
        for flavor in FLAVORS:
            cohorts = {
                name: TwinNode(self.cohort_numbers.get(name, {}).get(flavor, (0, None, None)))
                for name in COHORTS[1:]
            }
            nodes = {name: TwinNode(of[flavor]) for name, of in self.numbers.items()}
            for name, parent in self.parent_of.items():
                if parent:
                    _join(cohorts[name], cohorts[parent])
            for name, cohort in self.cohort_of.items():
                if cohort:
                    _join(nodes[name], cohorts[cohort])
            for admission in self.held():
                for (queue, of), much in _usage(admission).items():
                    if of == flavor:
                        nodes[queue].usage += much
            roots = [
                cohort for cohort in (*cohorts.values(), *nodes.values()) if cohort.parent is None
            ]
            for root in roots:
                root.build(is_cohort=root not in nodes.values())
            trees[flavor] = nodes, roots
        return trees

    @invariant()
    def the_picture_is_what_a_fresh_look_shows(self) -> None:
        if not self.numbers:
            return
        tree = self.scheduler.core.catalog.tree
        for flavor, (nodes, _) in self.twins().items():
            for name, twin in nodes.items():
                cell = tree.queues[name].cell((flavor, "cpu"))
                assert cell.usage == twin.usage * 1000, f"usage of {name} in {flavor}"
                assert available(cell) == twin.available() * 1000, f"available of {name}"
                assert potential(cell) == twin.potential() * 1000, f"potential of {name}"


def _join(node: TwinNode, parent: TwinNode) -> None:
    node.parent = parent
    parent.children.append(node)


def _usage(admission: Admission) -> dict[tuple[str, str], int]:
    """Whole cpus by queue and flavor."""
    usage: dict[tuple[str, str], int] = {}
    for ps in admission.pod_set_assignments:
        for resource, flavor in ps.flavors.items():
            key = admission.cluster_queue, flavor
            much = amount(resource, ps.resource_usage[resource]) // 1000
            usage[key] = usage.get(key, 0) + much
    return usage


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
