"""Dependencies: what a workload waits for before it competes for quota.
docs/spec/arrays.md#5."""

from __future__ import annotations

import re
from typing import Annotated, Final, TypeAlias

from admittance.api.fields.limits import Natural, RequiredName, one_of
from admittance.api.meta import Strict

CONDITIONS: Final = ("ok", "any", "failed", "started")
"""What may be waited for: the workload succeeds, finishes, fails or starts."""
AFTER_UNMET: Final = ("cancel", "keep")
DEPENDENCIES_MAX: Final = 32
DEPENDENCIES_GATE: Final = "admittance.dev/dependencies"
"""The admission gate of a workload that waits for others."""

DependencyCondition: TypeAlias = Annotated[str, one_of(CONDITIONS)]
AfterUnmet: TypeAlias = Annotated[str, one_of(AFTER_UNMET)]


class Dependency(Strict, frozen=True, kw_only=True):
    """A workload that another one waits for. ``index``: of one element of an array;
    ``elementwise``: each element of an array waits for the element with its own index."""

    workload: RequiredName = ""
    condition: DependencyCondition = "ok"
    index: Natural | None = None
    elementwise: bool = False


class BadDependency(ValueError):
    """The error that a text is not a dependency; its text says why, in one line."""


_WRITTEN: Final = re.compile(r"([^\[\]:]+)(?:\[(\*|=|\d{1,9})\])?(?::([a-z]+))?", re.ASCII)


def parse_dependency(text: str) -> Dependency:
    """The dependency of a text like ``prep``, ``prep:any``, ``prep[*]``, ``prep[=]`` or
    ``prep[3]:failed``. Raises BadDependency."""
    parts = _WRITTEN.fullmatch(text.strip())
    if parts is None:
        raise BadDependency(
            f'"{text[:60]}" is not a dependency; write NAME, NAME:any, NAME[3] or NAME[=]'
        )
    name, element, condition = parts[1], parts[2] or "*", parts[3] or "ok"
    if condition not in CONDITIONS:
        raise BadDependency(f'"{text[:60]}": "{condition}" is not one of {", ".join(CONDITIONS)}')
    return Dependency(
        workload=name,
        condition=condition,
        index=int(element) if element.isdecimal() else None,
        elementwise=element == "=",
    )


_VERBS: Final = {"ok": "succeed", "any": "finish", "failed": "fail", "started": "start"}


def described(workload: str, condition: str, index: int | None) -> str:
    """What a dependency waits for, like ``prep to succeed``."""
    element = "" if index is None else f"[{index}]"
    return f"{workload}{element} to {_VERBS.get(condition, condition)}"
