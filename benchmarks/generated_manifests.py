"""Random manifests of every kind, and what `apply` must say about each of their fields.

The manifests are made from the types by a random generator with a seed. The oracle walks the plain
values with the table of effects, and so shares no code with `apply`, which walks Structs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import inspect

from admittance.api.effects.field_effect import Effect, Usual
from admittance.api.effects.walk import MANIFESTS, inner_struct
from admittance.api.fields.problems import ManifestError, Problem
from admittance.api.fields.struct_types import struct_type
from admittance.api.kinds import KINDS
from admittance.api.manifests import STRUCTS
from admittance.api.meta import ObjectMeta
from admittance.api.reading.manifest import Document, read
from admittance.api.validation.field_rules import rules_at
from admittance.api.workload import QUEUE_LABEL

TEXTS: Final = (
    *("a", "main", "x-1", "gpu", "cpu", "memory", "example.com/x", "nvidia.com/gpu", "spot", "10m"),
    *("1h", "2", "500m", "3Gi", "Never", "Equal", "Exists", "In", "Example.com", "Budget", "rack"),
)
ANY: Final[tuple[Any, ...]] = (
    *(True, False, "text", 0, 3, {"a": 1}, ["x"], [{"name": "a"}], "Never", "OnFailure", ""),
)
SYSTEM: Final = frozenset({"apiVersion", "kind", "metadata"})
DEPTH_MAX: Final = 9


class Expected(NamedTuple):
    """The outcome for a manifest that the table of field effects predicts. ``refused``, ``warned``:
    paths of fields."""

    refused: tuple[str, ...]
    warned: tuple[str, ...]


class Outcome(NamedTuple):
    """The outcome of reading a manifest: a document, or the problems."""

    document: Document | None
    problems: tuple[Problem, ...] = ()


def random_manifest(rng: random.Random, name: str) -> dict[str, Any]:
    """A manifest of a random kind with a few random fields, which is often valid."""
    kind = rng.choice(list(STRUCTS))
    row = KINDS[kind]
    value = _struct(STRUCTS[kind], rng, 0, rng.choice((0.05, 0.15, 0.3)))
    metadata = _struct(ObjectMeta, rng, 5, 0.08)
    for field in ("generateName", "namespace", "ownerReferences"):
        metadata.pop(field, None)
    metadata["name"] = name
    if row.namespaced:
        metadata["namespace"] = "default"
    if kind == "Job":
        metadata["labels"] = {**(metadata.get("labels") or {}), QUEUE_LABEL: "main"}
        pods = ((value.get("spec") or {}).get("template") or {}).get("spec")
        if isinstance(pods, dict):
            pods.setdefault("restartPolicy", "Never")
    value.pop("status", None)
    if kind == "Workload" and rng.random() < 0.95:
        # Only the variant-controller submits variants.
        for field in ("role", "variant", "siblingIndex"):
            value["spec"].pop(field, None)
    return {**value, "apiVersion": row.versions[0], "kind": kind, "metadata": metadata}


def read_one(manifest: Mapping[str, Any]) -> Outcome:
    """Reads a manifest, as `apply` and `submit` read a file."""
    try:
        [document] = read(msgspec.json.encode(manifest), "generated")
    except ManifestError as error:
        return Outcome(None, error.problems)
    return Outcome(document)


def expected(manifest: Mapping[str, Any]) -> Expected:
    """The messages of `apply` about the fields of the manifest, if it does not refuse it for
    another reason."""
    refused: list[str] = []
    warned: dict[str, None] = {}
    for path, effect in _effects(manifest, STRUCTS[manifest["kind"]], ""):
        if effect is Effect.REFUSED:
            refused.append(path)
        else:
            warned[path] = None
    return Expected(tuple(refused), tuple(warned))


def _effects(
    value: Mapping[str, Any], struct: type[msgspec.Struct], path: str
) -> Iterator[tuple[str, Effect]]:
    for field in struct_type(struct).fields:
        given = value.get(field.encode_name)
        if given is None:
            continue
        here = f"{path}.{field.encode_name}" if path else field.encode_name
        effect = MANIFESTS[struct][field.encode_name]
        inner, is_list = inner_struct(field.type)
        usual = effect.usual
        if usual is not None and given not in ("", [], {}) and not _is_usual(given, usual):
            yield here, effect.effect
        elif inner is not None and is_list:
            for index, item in enumerate(given):
                yield from _effects(item, inner, f"{here}[{index}]")
        elif inner is not None:
            yield from _effects(given, inner, here)


def _is_usual(given: Any, usual: Usual) -> bool:
    if callable(usual):
        return usual(given)
    plain = msgspec.to_builtins(usual)
    return any(type(given) is type(value) and given == value for value in plain)


# Values. --------------------------------------------------------------------------------------


def _struct(
    struct: type[msgspec.Struct], rng: random.Random, depth: int, chance: float
) -> dict[str, Any]:
    fields = {}
    for field in struct_type(struct).fields:
        if field.encode_name in SYSTEM and depth == 0:
            continue
        rules = rules_at(field.type)
        needed = field.required or rules.extra.get("required") or field.encode_name == "spec"
        if needed or (depth < DEPTH_MAX and rng.random() < chance):
            fields[field.encode_name] = _value(field.type, rng, depth + 1, chance)
    return fields


def _value(kind: inspect.Type, rng: random.Random, depth: int, chance: float) -> Any:
    rules = rules_at(kind)
    words = [word for word in rules.schema.get("enum", ()) if word]
    if words:
        return rng.choice(words)
    match rules.type:
        case inspect.StructType(cls=struct):
            return _struct(struct, rng, depth, chance)
        case inspect.VarTupleType(item_type=item):
            many = rng.choice((1, 1, 2)) if depth < DEPTH_MAX else 1
            return [_value(item, rng, depth + 1, chance) for _ in range(many)]
        case inspect.DictType(value_type=of):
            keys = rng.sample(("cpu", "memory", "example.com/x", "a", "zone"), rng.choice((1, 2)))
            return {key: _value(of, rng, depth + 1, chance) for key in keys}
        case inspect.UnionType():
            return rng.choice((1, 2, "500m", "2", "1Gi"))
        case inspect.BoolType():
            return rng.random() < 0.5
        case inspect.IntType():
            least = int(rules.schema.get("minimum", 0))
            return rng.choice((least, least + 1, least + 2, 7))
        case inspect.FloatType():
            return rng.choice((0.5, 1.0, 2.0))
        case inspect.DateTimeType():
            return "2026-01-01T00:00:00Z"
        case inspect.StrType():
            return _text(rules.extra.get("syntax"), rng)
    return rng.choice(ANY)


def _text(syntax: Any, rng: random.Random) -> str:
    valid = TEXTS if syntax is None else [text for text in TEXTS if not syntax(text)]
    return rng.choice(valid or TEXTS) if rng.random() < 0.97 else rng.choice(TEXTS)
