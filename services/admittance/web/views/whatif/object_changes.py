"""How manifests differ from the objects as they are, field by field, and objects as manifests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from admittance.api.fields.units import BadQuantity, amount, render
from admittance.api.meta import APPLIED_BY
from admittance.client.wording.yaml_text import yaml_text

LINES_MAX: Final = 100
"""The most lines about one object."""
TEXT_MAX: Final = 200
"""The most characters of a value in a line."""
OF_EVERY_OBJECT: Final = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})


class Line(msgspec.Struct, frozen=True):
    """A field that differs: ``before`` in the live object, ``after`` in the manifest; "" where the
    field is not there."""

    field: str
    before: str
    after: str


class ObjectChange(msgspec.Struct, frozen=True, kw_only=True):
    """A manifest beside the object as it is. ``note``: instead of lines, such as for a new one;
    ``more``: how many lines are left out."""

    name: str
    note: str = ""
    lines: tuple[Line, ...] = ()
    more: int = 0


def change_of_object(name: str, live: Mapping[str, Any] | None, given: Any) -> ObjectChange:
    """The fields in which the manifest ``given`` differs from the object; None: it does not
    exist."""
    if live is None:
        return ObjectChange(name=name, note="It does not exist yet.")
    before, after = dict(_leaves(compared(live))), dict(_leaves(compared(given)))
    fields = dict.fromkeys((*after, *before))
    lines = [
        Line(field, _text(before.get(field)), _text(after.get(field)))
        for field in fields
        if before.get(field) != after.get(field)
    ]
    if not lines:
        return ObjectChange(name=name, note="It is like that already.")
    return ObjectChange(
        name=name, lines=tuple(lines[:LINES_MAX]), more=max(0, len(lines) - LINES_MAX)
    )


def compared(plain: Mapping[str, Any]) -> dict[str, Any]:
    """What people decide about an object: its labels, annotations, spec and further fields."""
    meta = plain.get("metadata") or {}
    kept: dict[str, Any] = {key: meta[key] for key in ("labels", "annotations") if meta.get(key)}
    kept = {key: {k: v for k, v in kept[key].items() if k != APPLIED_BY} for key in kept}
    kept = {key: values for key, values in kept.items() if values}
    return {**kept, **_further(plain), **(plain.get("spec") or {})}


def _further(plain: Mapping[str, Any]) -> dict[str, Any]:
    """The fields beside the spec, such as the value of a WorkloadPriorityClass."""
    return {key: value for key, value in plain.items() if key not in OF_EVERY_OBJECT}


def _leaves(value: Any, names: tuple[str, ...] = (), path: str = "") -> Iterator[tuple[str, str]]:
    """Yields each value with its field: behind the names of the lists' items that it is in."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(inner, names, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value):
        for number, item in enumerate(value):
            if "name" in item:
                rest = {key: inner for key, inner in item.items() if key != "name"}
                named = (*names, str(item["name"]))
                yield ", ".join(named), "is there"
                yield from _leaves(rest, named) if rest else ()
            else:
                yield from _leaves(item, names, f"{path}[{number}]" if not names else path)
    else:
        words = ", ".join(map(str, value)) if isinstance(value, list) else value
        yield ", ".join((*names, path) if path else names), _text(words)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = "" if value is None else str(value)
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}…"


def manifest_text(plain: Mapping[str, Any]) -> str:
    """The manifest of an object as YAML, without what the system stores."""
    meta = plain.get("metadata") or {}
    kept = {key: meta[key] for key in ("name", "namespace", "labels", "annotations") if key in meta}
    if "annotations" in kept:
        kept["annotations"] = {k: v for k, v in kept["annotations"].items() if k != APPLIED_BY}
    shown = {key: plain[key] for key in ("apiVersion", "kind") if key in plain}
    shown["metadata"] = {key: value for key, value in kept.items() if value}
    shown |= _further(plain)
    if "spec" in plain:
        shown["spec"] = plain["spec"]
    return yaml_text(shown)


def with_more_quota(
    plain: dict[str, Any], flavor: str, resource: str, more: int
) -> dict[str, Any] | None:
    """The ClusterQueue with ``more`` nominalQuota, in accounting units; None: it has no quota of
    that flavor and resource."""
    changed: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(plain))
    for quota in _quotas(changed.get("spec") or {}, flavor, resource):
        try:
            nominal = amount(resource, quota.get("nominalQuota", 0))
        except BadQuantity:
            return None
        quota["nominalQuota"] = render(resource, nominal + more)
        return changed
    return None


def _quotas(spec: Mapping[str, Any], flavor: str, resource: str) -> Iterator[dict[str, Any]]:
    for group in _items(spec, "resourceGroups"):
        for of_flavor in _items(group, "flavors"):
            if of_flavor.get("name") == flavor:
                yield from (
                    quota
                    for quota in _items(of_flavor, "resources")
                    if quota.get("name") == resource
                )


def _items(value: Mapping[str, Any], key: str) -> Sequence[dict[str, Any]]:
    return [item for item in value.get(key) or () if isinstance(item, dict)]
