"""Which flavors waiting workloads may use, and in which order."""

from __future__ import annotations

from itertools import islice, product
from typing import Final, TypeAlias

from admittance.forecast.rows import Need
from admittance.quota.cell import FlavorResource, potential
from admittance.quota.tree import Node
from admittance.scheduling.cycle.flavor_assigner import examine
from admittance.scheduling.families import variant_place
from admittance.scheduling.state.config import Config
from admittance.scheduling.state.flavor_plan import FlavorPlan
from admittance.scheduling.state.requests import RequestShape
from admittance.scheduling.state.workload_info import Queue, WorkloadInfo

Choices: TypeAlias = tuple[tuple[Need, ...], ...]
"""For each pod set and resource group the needs of the flavors that may be used, in order."""
SHAPES_MAX: Final = 8_192
"""For how many shapes of a queue the choices of flavors are kept."""
VARIANT_CHOICES_MAX: Final = 8
"""How many choices of flavors of one variant are played."""


class FlavorChoices:
    """The choices of workloads, kept by queue and shape."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._known: dict[str, tuple[FlavorPlan, dict[RequestShape, Choices | None]]] = {}

    def of_workload(self, queue: Queue, workload: WorkloadInfo) -> Choices | None:
        """The choices of a workload. A family has those of its variants, the best first: it starts
        with the first that fits."""
        if workload.shape is None:
            return None
        if workload.family is None:
            return self.of_shape(queue, workload.shape)
        needs: list[Need] = []
        for variant in sorted(workload.family.variants, key=variant_place):
            choices = None if variant.shape is None else self.of_shape(queue, variant.shape)
            if choices is not None:
                needs += map(_sum, islice(product(*choices), VARIANT_CHOICES_MAX))
        return (tuple(needs),) if needs else None

    def of_shape(self, queue: Queue, shape: RequestShape) -> Choices | None:
        """For each pod set and resource group the needs of the flavors that the shape may use;
        None: no flavor may be used for one of them."""
        plan = queue.plan
        if plan is None:
            return None
        known = self._known.get(queue.name)
        if known is None or known[0] is not plan or len(known[1]) >= SHAPES_MAX:
            known = self._known[queue.name] = (plan, {})
        if shape not in known[1]:
            known[1][shape] = _choices(plan, shape, self._config)
        return known[1][shape]


def _choices(plan: FlavorPlan, shape: RequestShape, config: Config) -> Choices | None:
    groups: dict[tuple[str, int], list[Need]] = {}
    for offer in examine(plan, shape):
        resource = offer.amounts[0][0]
        needs = groups.setdefault((offer.pod_set, plan.groups[resource].at), [])
        if offer.rooms:
            cells = offer.option.cells
            needs.append(tuple((cells[name].fr, amount) for name, amount in offer.amounts))
    undeclared = any(
        amount and resource not in plan.groups
        for amounts in shape.totals
        for resource, amount in amounts
    )
    if undeclared and config.quota_check_strategy != "IgnoreUndeclared":
        return None
    if not all(groups.values()):
        return None
    return tuple(tuple(needs) for needs in groups.values())


def _sum(needs: tuple[Need, ...]) -> Need:
    """The amounts of all needs together."""
    total: dict[FlavorResource, int] = {}
    for fr, amount in (each for need in needs for each in need):
        total[fr] = total.get(fr, 0) + amount
    return tuple(total.items())


def fits_ever(node: Node, choices: Choices) -> bool:
    """Whether each group has a flavor with enough quota in an empty tree."""
    return all(
        any(all(amount <= potential(node.cell(fr)) for fr, amount in need) for need in needs)
        for needs in choices
    )
