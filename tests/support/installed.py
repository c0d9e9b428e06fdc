"""Programs that are installed beside the tests."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, requires

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def needed_distributions(requirements: Iterable[str]) -> set[str]:
    """The normalized names of the installed distributions that the requirements name, with all
    that these need."""
    found: set[str] = set()
    waiting = [Requirement(requirement) for requirement in requirements]
    while waiting:
        requirement = waiting.pop()
        for extra in ("", *sorted(requirement.extras)):
            name = canonicalize_name(requirement.name)
            if f"{name}[{extra}]" in found:
                continue
            found |= {name, f"{name}[{extra}]"}
            waiting += [
                one
                for one in map(Requirement, _requires(name))
                if one.marker is None or one.marker.evaluate({"extra": extra})
            ]
    return found


def _requires(name: str) -> list[str]:
    try:
        return requires(name) or []
    except PackageNotFoundError:
        return []
