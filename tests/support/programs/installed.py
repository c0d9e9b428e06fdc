"""Programs that are installed beside the tests."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, requires

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def needed_distributions(requirements: Iterable[str]) -> set[str]:
    """The normalized names of the installed distributions that the requirements name, with all
    that these need."""
    names: set[str] = set()
    waiting = [Requirement(requirement) for requirement in requirements]
    while waiting:
        requirement = waiting.pop()
        for extra in ("", *sorted(requirement.extras)):
            name = canonicalize_name(requirement.name)
            if f"{name}[{extra}]" in names:
                continue
            names |= {name, f"{name}[{extra}]"}
            waiting += [
                requirement
                for requirement in map(Requirement, _requires(name))
                if requirement.marker is None or requirement.marker.evaluate({"extra": extra})
            ]
    return names


def _requires(name: str) -> list[str]:
    try:
        return requires(name) or []
    except PackageNotFoundError:
        return []
