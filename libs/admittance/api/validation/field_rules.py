"""Checks single fields by the rules that `admittance.api.fields.limits` states at their types.

Rules about several fields, and rules with error texts of their own, are in the other modules of
`admittance.api.validation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from sys import float_info
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import inspect

from admittance.api.fields.limits import Entries, Syntax
from admittance.api.fields.names import code_of
from admittance.api.fields.problems import (
    INVALID,
    NOT_SUPPORTED,
    REQUIRED,
    TOO_LONG,
    TOO_MANY,
    Problem,
    shown,
)
from admittance.api.fields.struct_types import struct_type

Error: TypeAlias = tuple[str, str]
"""What is wrong with a value, and the code of that problem."""
Rule: TypeAlias = Callable[[Any], Error | None]
Path: TypeAlias = tuple[Any, ...]
"""The parts of a field's path: the path of the object with the field, the field's name, and an
index in the field's list. The parts are joined only for a problem, since nearly all fields are
valid.
"""
_NO_DEFAULT: Final = object()


class Field(NamedTuple):
    """A field with rules. Only the first error found by ``rules`` is reported. ``entries``: the
    rule of a map. ``is_list``: ``item_rules`` and ``inside`` hold for each item of the field's
    list. ``inside``: the rules of the fields of the Struct that the field contains. ``words``: the
    allowed words.
    """

    name: str
    required: bool = False
    rules: tuple[Rule, ...] = ()
    entries: Entries | None = None
    is_list: bool = False
    item_rules: tuple[Rule, ...] = ()
    inside: Fields = ()
    words: tuple[str, ...] = ()


Fields: TypeAlias = "tuple[tuple[str, Any, bool, Field], ...]"
"""For each field: its attribute, its default if that is valid, whether an empty value has no
problem, and its rules. A field with such a value is skipped, which saves most of the work. Python
unpacks a plain tuple several times faster than a named one.
"""


class TypeRules(NamedTuple):
    """The rules at a type: keywords of JSON Schema, and rules of `admittance.api.fields.limits`."""

    schema: dict[str, Any]
    extra: dict[str, Any]
    type: inspect.Type


def rules_at(kind: inspect.Type) -> TypeRules:
    """The rules in the annotations of a type; null as an alternative of the type changes
    nothing."""
    schema: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    while True:
        if isinstance(kind, inspect.Metadata):
            schema |= kind.extra_json_schema or {}
            extra |= {name: value for name, value in (kind.extra or {}).items() if value}
            kind = kind.type
        elif isinstance(kind, inspect.UnionType):
            kinds = [member for member in kind.types if not isinstance(member, inspect.NoneType)]
            if len(kinds) != 1:
                return TypeRules(schema, extra, kind)
            kind = kinds[0]
        else:
            return TypeRules(schema, extra, kind)


def field_problems(value: msgspec.Struct) -> list[Problem]:
    """All problems of single fields in value, at any depth."""
    problems: list[Problem] = []
    _walk(value, fields_of(type(value)), ((), ""), problems)
    return problems


def _walk(value: Any, fields: Fields, path: Path, problems: list[Problem]) -> None:
    # Every submission is walked, and nearly all fields are valid: paths are made for problems only.
    for attribute, default, skips_empty, field in fields:
        given = getattr(value, attribute)
        if given is default or given is None or (skips_empty and not given):
            continue
        name, inside = field.name, field.inside
        if field.required and not given:
            problems.append(Problem(_joined((path, name)), _required(given, field), REQUIRED))
            continue
        for rule in field.rules:
            error = rule(given)
            if error is not None:
                problems.append(Problem(_joined((path, name)), *error))
                break
        if field.entries is not None and given:
            for problem in field.entries(given):
                problems.append(problem._replace(field=_joined((path, name)) + problem.field))
        if field.is_list:
            for index, item in enumerate(given):
                for rule in field.item_rules:
                    error = rule(item)
                    if error is not None:
                        problems.append(Problem(_joined((path, f"{name}[{index}]")), *error))
                        break
                if inside:
                    _walk(item, inside, (path, name, index), problems)
        elif inside:
            _walk(given, inside, (path, name), problems)


def _joined(path: Path) -> str:
    before, name, *index = path
    if index:
        name = f"{name}[{index[0]}]"
    start = _joined(before) if before else ""
    return f"{start}.{name}" if start else name


def _required(given: Any, field: Field) -> str:
    if isinstance(given, tuple):
        return "must not be empty"
    return f"must be set to one of {', '.join(field.words)}" if field.words else "must be set"


@lru_cache(maxsize=256)
def fields_of(struct: type[msgspec.Struct]) -> Fields:
    """The fields of the Struct that have rules, at any depth."""
    problems = []
    for declared in struct_type(struct).fields:
        field = _field(declared.encode_name, rules_at(declared.type))
        if field.required or field.rules or field.entries or field.item_rules or field.inside:
            wrong = field.required or (
                field.inside and not field.is_list and _has_problems(declared.default, field.inside)
            )
            default = _NO_DEFAULT if wrong else declared.default
            skips_empty = not field.required and not field.rules
            problems.append((declared.name, default, skips_empty, field))
    return tuple(problems)


def _field(name: str, at: TypeRules) -> Field:
    is_list = isinstance(at.type, inspect.VarTupleType)
    item = rules_at(at.type.item_type) if isinstance(at.type, inspect.VarTupleType) else at
    field = Field(
        name,
        is_list=is_list,
        item_rules=tuple(_rules(item)) if is_list else (),
        inside=fields_of(item.type.cls) if isinstance(item.type, inspect.StructType) else (),
        words=tuple(at.schema.get("enum", ())),
    )
    if at.extra.get("own"):
        return field
    return field._replace(
        required=at.extra.get("required", False),
        rules=tuple(_rules(at)),
        entries=at.extra.get("entries"),
    )


def _has_problems(value: Any, fields: Fields) -> bool:
    """Whether a default value has problems, since it lacks a required field."""
    problems: list[Problem] = []
    if isinstance(value, msgspec.Struct):
        _walk(value, fields, ((), ""), problems)
    return bool(problems)


# Rules. ---------------------------------------------------------------------------------------


def _rules(at: TypeRules) -> Iterator[Rule]:
    schema, syntax = at.schema, at.extra.get("syntax")
    if at.extra.get("own"):
        return
    if syntax is not None:
        yield partial(_syntax_error, syntax)
        return
    if "enum" in schema:
        yield partial(_word_error, tuple(schema["enum"]))
    if "minimum" in schema or "maximum" in schema:
        most = schema.get("maximum", float_info.max)
        yield partial(_range_error, schema.get("minimum", -float_info.max), most)
    for counted in ("maxItems", "maxProperties"):
        if counted in schema:
            yield partial(_count_error, schema[counted], at.extra.get("what", ""))
    if "maxLength" in schema:
        yield partial(_length_error, schema.get("minLength", 0), schema["maxLength"])


def _syntax_error(syntax: Syntax, value: Any) -> Error | None:
    error = syntax(value)
    if not error:
        return None
    return ("must be set", REQUIRED) if value == "" else (error, code_of(error))


def _word_error(words: tuple[str, ...], value: Any) -> Error | None:
    if value in words:
        return None
    return f"{shown(value)} is not one of {', '.join(filter(None, words))}", NOT_SUPPORTED


def _range_error(least: float, most: float, value: Any) -> Error | None:
    if least <= value <= most:
        return None
    if value < least and least in (0, 1):
        return f"must be at least {least}, not {value}", INVALID
    return f"must be from {least} to {most}, not {value}", INVALID


def _count_error(limit: int, what: str, value: Any) -> Error | None:
    if len(value) <= limit:
        return None
    return f"has {len(value)} {what}, at most {limit} are allowed", TOO_MANY


def _length_error(least: int, most: int, value: Any) -> Error | None:
    if len(value) < least:
        return "must be set", REQUIRED
    return None if len(value) <= most else (f"has more than {most} characters", TOO_LONG)
