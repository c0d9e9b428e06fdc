"""The classes of effects that a field of a manifest may have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec


class Effect(StrEnum):
    """What a field does. The values are the words of the documentation."""

    WORKS = "works"
    IN_PART = "works in part"
    NONE = "no effect"
    REFUSED = "refused"


Usual: TypeAlias = tuple[Any, ...] | Callable[[Any], bool]


class FieldEffect(NamedTuple):
    """What one field does. ``about``: how the field works, or why it has no effect, as a clause.

    ``usual``: the values that ask for nothing but what happens anyway, or whether a value does;
    such a value causes neither a warning nor a refusal. None: no value causes one. An absent or
    empty value never does.
    """

    effect: Effect
    about: str = ""
    usual: Usual | None = None

    def concerns(self, value: Any) -> bool:
        """Whether this value of the field causes a warning or a refusal."""
        if self.usual is None or value is None:
            return False
        if not value and not isinstance(value, bool | int | float):
            return False
        if callable(self.usual):
            return not self.usual(value)
        return not any(type(value) is type(usual) and value == usual for usual in self.usual)

    def sentence(self, path: str) -> str:
        """The warning about the field at ``path``."""
        words = "works in part" if self.effect is Effect.IN_PART else "has no effect"
        return f"{path} {words}: {self.about}"


Fields: TypeAlias = Mapping[str, FieldEffect]
"""The effect of each field of a Struct, by the field's name in a manifest."""
Table: TypeAlias = Mapping[type[msgspec.Struct], Fields]

WORKS: Final = FieldEffect(Effect.WORKS)


def works(about: str) -> FieldEffect:
    """A field that works, with a remark for the documentation."""
    return FieldEffect(Effect.WORKS, about)


def in_part(about: str, *, usual: Usual | None = None) -> FieldEffect:
    """A field that works in part. ``usual``: the values that work, or whether a value does;
    others cause a warning. None: there are no warnings."""
    return FieldEffect(Effect.IN_PART, about, usual)


def no_effect(why: str, *, usual: tuple[Any, ...] = (False,)) -> FieldEffect:
    """A field that is kept without effect: a value that is not usual causes a warning."""
    return FieldEffect(Effect.NONE, why, usual)


def refused(why: str, *, usual: tuple[Any, ...] = (False,)) -> FieldEffect:
    """A field with which an object is refused, unless its value is usual."""
    return FieldEffect(Effect.REFUSED, why, usual)


BY_SYSTEM: Final = in_part(
    "the system sets it; a value in a manifest is replaced, as in Kubernetes"
)
"""The effect of a field that Kubernetes' API server or a controller sets."""


def all_work(*names: str) -> dict[str, FieldEffect]:
    """The effects of fields that all work."""
    return dict.fromkeys(names, WORKS)


HEAD: Final = all_work("apiVersion", "kind", "metadata")
"""The fields with which every manifest begins."""
