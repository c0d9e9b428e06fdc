"""Which admission checks a workload of a ClusterQueue must pass. Source:
`docs/spec/lifecycle.md#2.2, #2.4`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from admittance.api.checks import AdmissionCheck
from admittance.api.meta import ObjectMeta
from admittance.api.queues import ClusterQueue
from admittance.events.shapes import Admission

Lookup = Callable[[str], AdmissionCheck | None]


class ConflictingChecks(Exception):
    """Two different checks of one controller would apply to the same workload."""


class CheckLists:
    """The checks of one ClusterQueue: for the whole queue, and per flavor. An
    admissionChecksStrategy is converted to the same two kinds of lists."""

    __slots__ = ("flavors", "is_empty", "wide")

    def __init__(self, queue: ClusterQueue) -> None:
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
        self.is_empty = not wide and not any(flavors.values())

    def names(self) -> Iterator[str]:
        """Yields every check that the ClusterQueue names, each once."""
        yield from dict.fromkeys((*self.wide, *(c for f in self.flavors.values() for c in f)))

    def conflicting(self, lookup: Lookup) -> tuple[str, str] | None:
        """Returns two different checks of one controller in one list; None: no list has such
        checks."""
        for one_list in (self.wide, *self.flavors.values()):
            pair = conflicting_checks(_known(one_list, lookup))
            if pair is not None:
                return pair
        return None


def _check(name: str, lookup: Lookup) -> AdmissionCheck:
    # A check that is deleted keeps its row in the workload's status, so the workload waits for it.
    return lookup(name) or AdmissionCheck(metadata=ObjectMeta(name=name))


def _known(names: Iterable[str], lookup: Lookup) -> list[AdmissionCheck]:
    return [check for name in names if (check := lookup(name)) is not None]


def conflicting_checks(checks: Iterable[AdmissionCheck]) -> tuple[str, str] | None:
    """Returns two different checks of one controller; None: all controllers differ."""
    by_controller: dict[str, str] = {}
    for check in checks:
        other = by_controller.setdefault(check.spec.controller_name, check.metadata.name)
        if other != check.metadata.name:
            return other, check.metadata.name
    return None


def required_checks(
    lists: CheckLists, admission: Admission | None, lookup: Lookup
) -> dict[str, AdmissionCheck]:
    """Returns the checks of a workload with the given admission; an admission of None: no flavor is
    assigned yet.

    A flavor's check replaces a queue-wide check of the same controller. Raises ConflictingChecks if
    two used flavors name different checks of one controller.
    """
    if lists.is_empty:
        return {}
    if admission is None:
        of_flavors = [set(names) for names in lists.flavors.values()]
        everywhere = set.intersection(*of_flavors) if of_flavors else set()
        per_flavor = [_check(name, lookup) for name in sorted(everywhere)]
    else:
        used = {f for ps in admission.pod_set_assignments for f in ps.flavors.values()}
        per_flavor = [
            _check(name, lookup) for f in sorted(used) for name in lists.flavors.get(f, ())
        ]
    taken = {check.spec.controller_name for check in per_flavor if check.spec.controller_name}
    chosen = per_flavor + [
        check
        for check in (_check(name, lookup) for name in lists.wide)
        if check.spec.controller_name not in taken
    ]
    pair = conflicting_checks(check for check in chosen if check.spec.controller_name)
    if pair is not None:
        raise ConflictingChecks(f"checks {pair[0]} and {pair[1]} have one controller")
    return {check.metadata.name: check for check in chosen}
