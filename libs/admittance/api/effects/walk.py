"""Finds the fields, labels and annotations of a manifest that are refused or have no effect."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import inspect

from admittance.api.effects.annotations import keys_without_effect, refused_keys
from admittance.api.effects.field_effect import Effect, FieldEffect, Table
from admittance.api.effects.metadata import METADATA
from admittance.api.effects.pods import PODS
from admittance.api.effects.queues import QUEUES
from admittance.api.effects.workloads import WORKLOADS
from admittance.api.fields.problems import NOT_SUPPORTED, Problem
from admittance.api.fields.struct_types import struct_type
from admittance.api.workload import Job, Workload

MANIFESTS: Final[Table] = {**QUEUES, **WORKLOADS, **PODS, **METADATA}
"""The effects of the fields of all kinds of manifests, by Struct."""

_INDEX: Final = re.compile(r"\[\d+\]")


_Steps: TypeAlias = "tuple[tuple[str, str, FieldEffect | None, bool, _Steps], ...]"
"""For each field to look at: its attribute, its name in a manifest, its effect (None: only what the
field contains is of interest), whether it is a list, and the fields inside it. Python unpacks a
plain tuple several times faster than a named one."""


class _Found(NamedTuple):
    path: str
    effect: FieldEffect


def refusals(manifest: msgspec.Struct) -> list[Problem]:
    """A problem for each field with which the manifest is refused."""
    fields = _find(manifest, _steps_of_manifest(type(manifest), True))
    if isinstance(manifest, (Workload, Job)):
        fields += [_Found(path, effect) for path, effect in refused_keys(manifest)]
    if not fields:
        return []
    return [
        Problem(path, f"is not supported: {effect.about}", NOT_SUPPORTED) for path, effect in fields
    ]


def field_warnings(manifest: msgspec.Struct) -> list[str]:
    """A sentence for each field of the manifest that has no effect, or only a part of it. The same
    field in several places, such as two containers, is one warning."""
    warnings = sentences(_find(manifest, _steps_of_manifest(type(manifest), False)))
    if isinstance(manifest, Workload | Job):
        keys = keys_without_effect(manifest)
        warnings += sentences(_Found(path, effect) for path, effect in keys)
    return warnings


def warnings_by(table: Table, value: msgspec.Struct) -> list[str]:
    """The warnings about a value with the effects of ``table`` for its fields."""
    return sentences(_find(value, _steps(type(value), table, False)))


def sentences(places: Iterable[_Found]) -> list[str]:
    """One warning per field, with the number of further places."""
    first: dict[str, _Found] = {}
    more: dict[str, int] = {}
    for place in places:
        field = _INDEX.sub("[]", place.path)
        if first.setdefault(field, place) is not place:
            more[field] = more.get(field, 0) + 1
    return [
        place.effect.sentence(place.path)
        + (f" (and in {more[field]} more places)" if field in more else "")
        for field, place in first.items()
    ]


def _find(value: Any, steps: _Steps) -> list[_Found]:
    """The fields with an effect of interest, with paths from ``value`` on."""
    # Every submission is walked, and nearly none has such a field: a path is made only for one.
    fields: list[_Found] = []
    for attribute, name, effect, is_list, inside in steps:
        given = getattr(value, attribute)
        if given is None or given == ():
            continue
        if effect is not None and effect.concerns(given):
            fields.append(_Found(name, effect))
        elif inside and is_list:
            for index, item in enumerate(given):
                for inner in _find(item, inside):
                    fields.append(_Found(f"{name}[{index}].{inner.path}", inner.effect))
        elif inside:
            for inner in _find(given, inside):
                fields.append(_Found(f"{name}.{inner.path}", inner.effect))
    return fields


@lru_cache(maxsize=64)
def _steps_of_manifest(struct: type[msgspec.Struct], refusing: bool) -> _Steps:
    return _steps(struct, MANIFESTS, refusing)


def _steps(struct: type[msgspec.Struct], table: Table, refusing: bool) -> _Steps:
    """The fields that may be refused (``refusing``), or cause a warning, at any depth."""
    steps = []
    for field in struct_type(struct).fields:
        effect = table[struct][field.encode_name]
        inner, is_list = inner_struct(field.type)
        inside = _steps(inner, table, refusing) if inner is not None else ()
        told = effect.usual is not None and (effect.effect is Effect.REFUSED) is refusing
        if told or inside:
            steps.append((field.name, field.encode_name, effect if told else None, is_list, inside))
    return tuple(steps)


def inner_struct(kind: inspect.Type) -> tuple[type[msgspec.Struct] | None, bool]:
    """The Struct that a field of this type holds, and whether it holds a list of them."""
    if isinstance(kind, inspect.Metadata):
        return inner_struct(kind.type)
    if isinstance(kind, inspect.UnionType):
        return next(
            (struct for member in kind.types if (struct := inner_struct(member))[0] is not None),
            (None, False),
        )
    if isinstance(kind, inspect.VarTupleType):
        return inner_struct(kind.item_type)[0], True
    return (kind.cls if isinstance(kind, inspect.StructType) else None), False
