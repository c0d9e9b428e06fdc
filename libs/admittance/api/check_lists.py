"""Which checks a ClusterQueue lists, in whichever form it was written: LIFECYCLE 2.2 and 2.4."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from admittance.api.problems import FORBIDDEN, Problem
from admittance.api.queues import ClusterQueueSpec


def queue_wide(spec: ClusterQueueSpec) -> tuple[str, ...]:
    """The checks that hold for every flavor; a strategy's rule without flavors is one of them."""
    strategy = spec.admission_checks_strategy
    if strategy is None:
        return spec.admission_checks
    return tuple(rule.name for rule in strategy.admission_checks if not rule.on_flavors)


def of_flavor(spec: ClusterQueueSpec, flavor: str) -> tuple[str, ...]:
    """The checks of this one flavor, those of the whole queue apart."""
    strategy = spec.admission_checks_strategy
    if strategy is not None:
        return tuple(rule.name for rule in strategy.admission_checks if flavor in rule.on_flavors)
    for group in spec.resource_groups:
        for offered in group.flavors:
            if offered.name == flavor:
                return offered.admission_checks
    return ()


def named_checks(spec: ClusterQueueSpec) -> tuple[str, ...]:
    """Every check that the queue names anywhere, each once, in order."""
    names = list(queue_wide(spec))
    for group in spec.resource_groups:
        for flavor in group.flavors:
            names += of_flavor(spec, flavor.name)
    return tuple(dict.fromkeys(names))


def conflicts(spec: ClusterQueueSpec, controller_of: Callable[[str], str | None]) -> list[Problem]:
    """Where two different checks of one list go by one controller.

    ``controller_of`` answers None for a check that is not known yet: when it comes, the queue turns
    inactive instead. A flavor's check of the same controller as a queue-wide one is no conflict:
    the flavor's wins.
    """
    lists = [("spec.admissionChecks", queue_wide(spec))]
    for i, group in enumerate(spec.resource_groups):
        for j, flavor in enumerate(group.flavors):
            path = f"spec.resourceGroups[{i}].flavors[{j}].admissionChecks"
            lists.append((path, of_flavor(spec, flavor.name)))
    return [problem for field, names in lists for problem in _shared(field, names, controller_of)]


def _shared(
    field: str, names: Iterable[str], controller_of: Callable[[str], str | None]
) -> list[Problem]:
    first: dict[str, str] = {}
    found = []
    for name in names:
        controller = controller_of(name)
        if controller is None:
            continue
        other = first.setdefault(controller, name)
        if other != name:
            message = f"{other!r} and {name!r} go by the same controller {controller!r}"
            found.append(Problem(field, message, FORBIDDEN))
    return found
