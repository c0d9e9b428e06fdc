"""A manifest with what its defaults say written out, for people and programs that read it.

What is stored leaves defaults out; whoever asks for ``.spec.podSets[0].count`` wants an answer.
"""

from __future__ import annotations

from typing import Any

import msgspec


def complete(value: Any) -> Any:
    """value as dicts and lists, a Struct's defaults included, but for those that say nothing: null
    and empty ones. An empty value where the default is another is kept: a ``namespaceSelector`` of
    ``{}`` selects everything, none selects nothing."""
    if isinstance(value, msgspec.Struct):
        found = {}
        for field in msgspec.structs.fields(value):
            there = getattr(value, field.name)
            shown = complete(there)
            if not _says_nothing(shown) or there != _default(field):
                found[field.encode_name] = shown
        return found
    if isinstance(value, dict):
        return {name: complete(shown) for name, shown in value.items()}
    if isinstance(value, list | tuple):
        return [complete(shown) for shown in value]
    return msgspec.to_builtins(value)


def _says_nothing(value: Any) -> bool:
    # A default of 0 is such as "no generation yet"; False is an answer.
    return value is None or (not value and not isinstance(value, bool))


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default
