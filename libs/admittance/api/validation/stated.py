"""Checks single fields by the rules that `admittance.api.limits` states at their types.

Rules about several fields, and rules with their own texts, are in the other modules of
`admittance.api.validation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import inspect

from admittance.api.limits import INT32_MAX, INT32_MIN
from admittance.api.problems import (
    INVALID,
    NOT_SUPPORTED,
    REQUIRED,
    TOO_LONG,
    TOO_MANY,
    Problem,
    shown,
)

Complaint: TypeAlias = tuple[str, str]
"""What is wrong with a value, and the code of such a problem."""
Rule: TypeAlias = Callable[[Any], Complaint | None]
Path: TypeAlias = tuple[Any, str]
"""The path of what holds a field, and the field's name: joined only where something is wrong, since
nearly everything that is asked about is right."""
_NO_DEFAULT: Final = object()


class Field(NamedTuple):
    """A field that something is said of. ``rules``: the first that complains is told. ``inside``:
    the fields of the Struct that it is, or that its items are (``many``)."""

    name: str
    required: bool
    rules: tuple[Rule, ...]
    inside: Fields = ()
    many: bool = False


Fields: TypeAlias = "tuple[tuple[str, Any, Field], ...]"
"""Attribute, a default that needs no look, and what is said. Most fields hold their default, and
this is asked of every workload that is submitted."""


class Said(NamedTuple):
    """What the type of a field says: the schema's words, and ours."""

    schema: dict[str, Any]
    extra: dict[str, Any]
    kind: inspect.Type


def said(kind: inspect.Type) -> Said:
    """What is said of the type, whether null is allowed beside it or not."""
    schema: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    while True:
        if isinstance(kind, inspect.Metadata):
            schema |= kind.extra_json_schema or {}
            extra |= {name: value for name, value in (kind.extra or {}).items() if value}
            kind = kind.type
        elif isinstance(kind, inspect.UnionType):
            kinds = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
            if len(kinds) != 1:
                return Said(schema, extra, kind)
            kind = kinds[0]
        else:
            return Said(schema, extra, kind)


def stated(value: msgspec.Struct) -> list[Problem]:
    """Everything that is wrong with single fields of value, and of what is in it."""
    found: list[Problem] = []
    _walk(value, fields_of(type(value)), ((), ""), found)
    return found


def _walk(value: Any, fields: Fields, path: Path, found: list[Problem]) -> None:
    for attribute, default, field in fields:
        given = getattr(value, attribute)
        if given is default or given is None:
            continue
        name, required, rules, inside, many = field
        if required and not given:
            found.append(Problem(_joined((path, name)), _must(given, field), REQUIRED))
            continue
        for rule in rules:
            complaint = rule(given)
            if complaint is not None:
                found.append(Problem(_joined((path, name)), *complaint))
                break
        if not inside:
            continue
        if many:
            for index, item in enumerate(given):
                _walk(item, inside, (path, f"{name}[{index}]"), found)
        else:
            _walk(given, inside, (path, name), found)


def _joined(path: Path) -> str:
    before, name = path
    start = _joined(before) if before else ""
    return f"{start}.{name}" if start else name


def _must(given: Any, field: Field) -> str:
    if isinstance(given, tuple):
        return "must not be empty"
    words = next((rule.words for rule in field.rules if isinstance(rule, _OneOf)), ())
    return f"must be set to one of {', '.join(words)}" if words else "must be set"


@lru_cache(maxsize=256)
def fields_of(struct: type[msgspec.Struct]) -> Fields:
    """The fields of the Struct of which anything is said, at any depth."""
    found = []
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    for field in info.fields:
        schema, extra, kind = said(field.type)
        many = isinstance(kind, inspect.VarTupleType)
        item = said(kind.item_type).kind if isinstance(kind, inspect.VarTupleType) else kind
        inside = fields_of(item.cls) if isinstance(item, inspect.StructType) else ()
        own = extra.get("own", False)
        required = extra.get("required", False) and not own
        rules = () if own else tuple(_rules(schema, extra.get("what", "")))
        if required or rules or inside:
            one = Field(field.encode_name, required, rules, inside, many)
            wrong = required or (inside and not many and _is_wrong(field.default, inside))
            found.append((field.name, _NO_DEFAULT if wrong else field.default, one))
    return tuple(found)


def _is_wrong(value: Any, fields: Fields) -> bool:
    """A Struct that says nothing lacks something."""
    found: list[Problem] = []
    if isinstance(value, msgspec.Struct):
        _walk(value, fields, ((), ""), found)
    return bool(found)


# Rules. ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _OneOf:
    words: tuple[str, ...]

    def __call__(self, value: Any) -> Complaint | None:
        if value in self.words:
            return None
        words = ", ".join(filter(None, self.words))
        return f"{shown(value)} is not one of {words}", NOT_SUPPORTED


@dataclass(frozen=True, slots=True)
class _InRange:
    least: int
    most: int

    def __call__(self, value: Any) -> Complaint | None:
        if self.least <= value <= self.most:
            return None
        if value < self.least and self.least in (0, 1):
            return f"must be at least {self.least}, not {value}", INVALID
        return f"must be from {self.least} to {self.most}, not {value}", INVALID


@dataclass(frozen=True, slots=True)
class _AtMost:
    limit: int
    what: str

    def __call__(self, value: Any) -> Complaint | None:
        if len(value) <= self.limit:
            return None
        return f"has {len(value)} {self.what}, at most {self.limit} are allowed", TOO_MANY


@dataclass(frozen=True, slots=True)
class _NoLonger:
    limit: int

    def __call__(self, value: Any) -> Complaint | None:
        if len(value) <= self.limit:
            return None
        return f"has more than {self.limit} characters", TOO_LONG


_PATTERNS_TELL: Final = "pattern"
"""Names are told of by their own rules, also where they are too long."""


def _rules(schema: dict[str, Any], what: str) -> Iterator[Rule]:
    if "enum" in schema:
        yield _OneOf(tuple(schema["enum"]))
    if "minimum" in schema or "maximum" in schema:
        yield _InRange(schema.get("minimum", INT32_MIN), schema.get("maximum", INT32_MAX))
    for counted in ("maxItems", "maxProperties"):
        if counted in schema:
            yield _AtMost(schema[counted], what)
    if "maxLength" in schema and _PATTERNS_TELL not in schema:
        yield _NoLonger(schema["maxLength"])
