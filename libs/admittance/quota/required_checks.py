"""Finds the admission checks that a workload of a ClusterQueue must pass. Source:
`docs/spec/lifecycle.md#2.2, #2.4`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from admittance.api.budgets import BUDGET_CONTROLLER
from admittance.api.checks import MACHINES_CHECK, MACHINES_CONTROLLER, AdmissionCheck
from admittance.api.meta import ObjectMeta
from admittance.api.queues import ClusterQueue
from admittance.events.shapes import Admission

Lookup = Callable[[str], AdmissionCheck | None]


class ConflictingChecks(Exception):
    """A workload would have to pass two different checks of one controller."""


class CheckLists:
    """The names of the checks of one ClusterQueue: ``wide``, checks for the whole queue, and
    ``flavors``, checks of each flavor. The rules of the ClusterQueue's admissionChecksStrategy are
    added to both lists. ``covered``: the flavors that have the check `MACHINES_CHECK` unless a
    check in the lists has the same controller."""

    __slots__ = ("covered", "flavors", "is_empty", "wide")

    def __init__(self, queue: ClusterQueue, covered: Collection[str] = ()) -> None:
        """``covered``: the flavors of any queue that have the check `MACHINES_CHECK`."""
        spec = queue.spec
        wide = dict.fromkeys(spec.admission_checks)
        flavors: dict[str, dict[str, None]] = {}
        for group in spec.resource_groups:
            for flavor in group.flavors:
                flavors[flavor.name] = dict.fromkeys(flavor.admission_checks)
        if spec.admission_checks_strategy is not None:
            for rule in spec.admission_checks_strategy.admission_checks:
                if not rule.on_flavors:
                    wide[rule.name] = None
                for name in rule.on_flavors:
                    if name in flavors:
                        flavors[name][rule.name] = None
        self.wide = tuple(wide)
        self.flavors: Mapping[str, tuple[str, ...]] = {
            name: tuple(checks) for name, checks in flavors.items()
        }
        self.covered = frozenset(covered).intersection(flavors if spec.machines != "Off" else ())
        self.is_empty = not wide and not self.covered and not any(flavors.values())

    def names(self) -> Iterator[str]:
        """Yields the name of every check that the ClusterQueue has, each once."""
        implied = (MACHINES_CHECK,) if self.covered else ()
        yield from dict.fromkeys((*self.listed(), *implied))

    def listed(self) -> Iterator[str]:
        """Yields the names in the lists of the ClusterQueue."""
        yield from self.wide
        for checks in self.flavors.values():
            yield from checks

    def conflicting(self, lookup: Lookup) -> tuple[str, str] | None:
        """Returns the names of two checks with the same controller that are both checks of the
        whole queue or both checks of one flavor; None: there are no such checks."""
        for one_list in (self.wide, *self.flavors.values()):
            pair = conflicting_checks(_known(one_list, lookup))
            if pair is not None:
                return pair
        return None


def _check(name: str, lookup: Lookup) -> AdmissionCheck:
    # A deleted check is still required: the workload waits, with a row for the check in its status.
    return lookup(name) or AdmissionCheck(metadata=ObjectMeta(name=name))


def _known(names: Iterable[str], lookup: Lookup) -> list[AdmissionCheck]:
    return [check for name in names if (check := lookup(name)) is not None]


def conflicting_checks(checks: Iterable[AdmissionCheck]) -> tuple[str, str] | None:
    """Returns the names of two different checks with the same controller, but not that of budgets;
    None: there are no such checks."""
    by_controller: dict[str, str] = {}
    for check in checks:
        if check.spec.controller_name == BUDGET_CONTROLLER:
            continue
        other = by_controller.setdefault(check.spec.controller_name, check.metadata.name)
        if other != check.metadata.name:
            return other, check.metadata.name
    return None


def required_checks(
    lists: CheckLists, admission: Admission | None, lookup: Lookup
) -> dict[str, AdmissionCheck]:
    """Returns the checks that a workload with the admission must pass, by name; ``admission`` None:
    the listed checks that apply whichever flavors are assigned.

    A flavor's check replaces a check for the whole queue with the same controller, except that of
    budgets, and both replace
    the check `MACHINES_CHECK` of a covered flavor. Raises ConflictingChecks if the flavors of the
    admission have different checks of one controller."""
    if lists.is_empty:
        return {}
    if admission is None:
        of_flavors = [set(names) for names in lists.flavors.values()]
        everywhere = set.intersection(*of_flavors) if of_flavors else set()
        per_flavor = [_check(name, lookup) for name in sorted(everywhere)]
        covered = False
    else:
        used = {f for ps in admission.pod_set_assignments for f in ps.flavors.values()}
        per_flavor = [
            _check(name, lookup) for f in sorted(used) for name in lists.flavors.get(f, ())
        ]
        covered = not lists.covered.isdisjoint(used)
    taken = {check.spec.controller_name for check in per_flavor} - {"", BUDGET_CONTROLLER}
    chosen = per_flavor + [
        check
        for check in (_check(name, lookup) for name in lists.wide)
        if check.spec.controller_name not in taken
    ]
    pair = conflicting_checks(check for check in chosen if check.spec.controller_name)
    if pair is not None:
        raise ConflictingChecks(f"AdmissionChecks {pair[0]} and {pair[1]} have the same controller")
    if covered and not any(c.spec.controller_name == MACHINES_CONTROLLER for c in chosen):
        chosen.append(_check(MACHINES_CHECK, lookup))
    return {check.metadata.name: check for check in chosen}
