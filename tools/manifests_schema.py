"""JSON Schema (2020-12) of the manifests, made from the Structs.

``python -m tools.manifests_schema [FILE]`` writes it to ``docs/schema/manifests.json``. It has the
shapes and the rules of single fields, which validation reads from the same types
(`validation/field_rules.py`). It lacks the rules about several fields, which are in
`admittance.api.validation`, and the spellings of older versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import inspect
from tools.documents import text_of, write

from admittance.api.effects.field_effect import Effect
from admittance.api.effects.walk import MANIFESTS
from admittance.api.fields.limits import LABEL_SCHEMA, NAME_SCHEMA
from admittance.api.fields.names import (
    KIND_PATTERN,
    LABEL_MAX,
    LABEL_PATTERN,
    SUBDOMAIN_MAX,
    SUBDOMAIN_PATTERN,
)
from admittance.api.kinds import KINDS, OUR_GROUPS, Kind
from admittance.api.manifests import STRUCTS
from admittance.api.reading.upgrade_policy import MODES
from admittance.api.validation.field_rules import rules_at
from admittance.api.workload import QUEUE_LABEL

FILE: Final = Path("docs/schema/manifests.json")
FOREIGN: Final = "Foreign"
_REF: Final = "#/$defs/{name}"
PREFIX_SCHEMA: Final = {
    "pattern": rf"^(?:(?:{LABEL_PATTERN}\.)*(?:[a-z0-9][-a-z0-9]*)?)$",
    "minLength": 1,
    "maxLength": SUBDOMAIN_MAX - 1,
}
"""A generateName, with which a name begins."""
_NULL: Final = {"type": "null"}
_TEXT: Final[dict[str, Any]] = {"type": "string"}


def manifests_schema() -> dict[str, Any]:
    """One schema for all manifests: an alternative for each kind, and one for foreign kinds."""
    structs = list(STRUCTS.values())
    _, components = msgspec.json.schema_components(structs, ref_template=_REF)
    for struct in _all_structs(structs):
        _complete(components[struct.__name__], _required(struct))
        _close_refused(components[struct.__name__], struct)
    _other_spellings(components)
    for kind in KINDS.values():
        shape = components[kind.name]
        shape["properties"]["apiVersion"] = {"enum": [kind.versions[0]]}
        shape["properties"]["kind"] = {"const": kind.name}
        shape["properties"]["metadata"] = _metadata(kind)
        # Decoding fills in missing ones, but a manifest must have them.
        shape["required"] = ["apiVersion", "kind", "metadata", *shape.get("required", [])]
    components[FOREIGN] = _foreign()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Manifests of Admittance",
        "anyOf": [
            *({"$ref": _REF.format(name=name)} for name in (*KINDS, FOREIGN)),
        ],
        "$defs": dict(sorted(components.items())),
    }


def _all_structs(structs: list[Any]) -> list[type[msgspec.Struct]]:
    """The Structs and all Structs of their fields."""
    reached: dict[type[msgspec.Struct], None] = {}
    ahead = list(structs)
    while ahead:
        struct = ahead.pop()
        if struct in reached:
            continue
        reached[struct] = None
        ahead += [inside for _, inside in _inner(struct) if inside is not None]
    return list(reached)


@cache
def _inner(struct: type[msgspec.Struct]) -> list[tuple[Any, type[msgspec.Struct] | None]]:
    """Each field, with the Struct of its value or of its items."""
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    structs = []
    for field in info.fields:
        kind = rules_at(field.type).type
        if isinstance(kind, inspect.VarTupleType):
            kind = rules_at(kind.item_type).type
        structs.append((field, kind.cls if isinstance(kind, inspect.StructType) else None))
    return structs


def _required(struct: type[msgspec.Struct]) -> list[str]:
    """The fields that a manifest must have: those without a default, those that a rule requires,
    and those with required fields of their own."""
    required = []
    for field, inside in _inner(struct):
        whole = isinstance(rules_at(field.type).type, inspect.StructType)
        empty = whole and field.default is not None and inside is not None and _required(inside)
        if field.required or rules_at(field.type).extra.get("required") or empty:
            required.append(field.encode_name)
    return required


def _complete(shape: dict[str, Any], required: list[str]) -> None:
    """Allows null for each optional field, where it counts as absent as in Kubernetes, and for each
    value in a map of strings, where it counts as the empty string."""
    shape["required"] = required
    properties = shape.get("properties", {})
    for name, value in properties.items():
        of_map = value.get("additionalProperties")
        if isinstance(of_map, dict) and of_map.get("type") == "string":
            value["additionalProperties"] = {"anyOf": [of_map, dict(_NULL)]}
        if name in required:
            value.pop("default", None)
        else:
            properties[name] = _or_null(value)


def _close_refused(shape: dict[str, Any], struct: type[msgspec.Struct]) -> None:
    """For each field that validation refuses, allows only null in the schema."""
    for name, effect in MANIFESTS[struct].items():
        if effect.effect is Effect.REFUSED:
            shape["properties"][name] = {"enum": [None], "description": f"Refused: {effect.about}."}


def _or_null(value: dict[str, Any]) -> dict[str, Any]:
    kinds = value.get("anyOf", [])
    if not value.keys() - {"default"} or _NULL in kinds:
        return value
    rest = {key: content for key, content in value.items() if key != "default"}
    default = {"default": value["default"]} if "default" in value else {}
    return {"anyOf": [rest, dict(_NULL)], **default}


def _metadata(kind: Kind) -> dict[str, Any]:
    """The metadata of a kind: the shape that all kinds share, and the names that this one needs."""
    name = _TEXT | (LABEL_SCHEMA if kind.name == "Namespace" else NAME_SCHEMA)
    properties: dict[str, Any] = {"name": name}
    if kind.namespaced:
        properties["namespace"] = {"anyOf": [dict(LABEL_SCHEMA), {"enum": ["", None]}]}
    else:
        properties["namespace"] = {"enum": ["", None]}
    more: dict[str, Any] = {"required": ["name"], "properties": properties}
    if kind.generated:
        unnamed = {
            "properties": {"name": {"enum": ["", None]}, "generateName": _TEXT | PREFIX_SCHEMA},
            "required": ["generateName"],
        }
        more = {
            "properties": {"namespace": properties.pop("namespace")},
            "anyOf": [{"required": ["name"], "properties": properties}, unnamed],
        }
    if kind.name == "Job":
        more["properties"]["labels"] = {
            "type": "object",
            "properties": {QUEUE_LABEL: _TEXT | NAME_SCHEMA},
            "required": [QUEUE_LABEL],
        }
        more["required"] = ["labels"]
    return {"allOf": [{"$ref": _REF.format(name="ObjectMeta")}, more]}


def _foreign() -> dict[str, Any]:
    texts = {
        "type": ["object", "null"],
        "additionalProperties": {"type": ["string", "null"]},
    }
    groups = "|".join(sorted(group.replace(".", r"\.") for group in OUR_GROUPS if group))
    lengths = rf"(?=[^/]{{1,{SUBDOMAIN_MAX}}}/[^/]{{1,{LABEL_MAX}}}$)"
    version = rf"^(?!(?:{groups})/){lengths}{SUBDOMAIN_PATTERN}/{LABEL_PATTERN}$"
    return {
        "title": FOREIGN,
        "description": "An object of a foreign API group, for example the parameters of a check.",
        "type": "object",
        "properties": {
            "apiVersion": _TEXT | {"pattern": version},
            "kind": _TEXT | {"pattern": f"^{KIND_PATTERN}$", "maxLength": LABEL_MAX},
            "metadata": {
                "type": "object",
                "properties": {
                    "name": _TEXT | NAME_SCHEMA,
                    "namespace": {"anyOf": [_TEXT | LABEL_SCHEMA, {"enum": ["", None]}]},
                    "uid": {"type": ["string", "null"]},
                    "labels": dict(texts),
                    "annotations": dict(texts),
                },
                "required": ["name"],
            },
        },
        "required": ["apiVersion", "kind", "metadata"],
    }


def _other_spellings(components: Mapping[str, Any]) -> None:
    """Adds the spellings of the current version that `reading/upgrade.py` rewrites."""
    spec = components["ClusterQueueSpec"]["properties"]
    spec["admissionchecks"] = spec["admissionChecks"]
    flavor = components["FlavorQuotas"]["properties"]
    flavor["admissionchecks"] = flavor["admissionChecks"]
    variant = components["ExplicitVariant"]
    variant["properties"]["maxDeleteDelaySeconds"] = variant["properties"]["deleteDelaySeconds"]
    name = {"type": ["string", "null"]}
    constraints = _closed(
        {
            "lastAcceptableFlavorName": dict(name),
            "minTargetExplicitVariant": dict(name),
            "explicitVariants": components["ConcurrentAdmission"]["properties"]["explicitVariants"],
        }
    )
    migration = _closed(
        {"mode": {"enum": [*MODES, "", None]}, "constraints": _or_null(constraints)}
    )
    policy = _closed({"migration": migration}, required=["migration"])
    spec["concurrentAdmissionPolicy"] = _or_null(policy)


def _closed(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    more = {"required": required} if required else {}
    return {"type": "object", "properties": properties, "additionalProperties": False, **more}


def text() -> str:
    """The text of the schema's file."""
    return text_of(manifests_schema())


if __name__ == "__main__":
    write(text(), FILE)
