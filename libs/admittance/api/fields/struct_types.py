"""What msgspec knows of Structs: their fields, with types, defaults and rules."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import inspect

_KNOWN: Final[dict[type[msgspec.Struct], inspect.StructType]] = {}


def struct_type(struct: type[msgspec.Struct]) -> inspect.StructType:
    """The fields of a Struct. A Struct is inspected together with all Structs inside it, which
    takes long, so the result is kept for each of them.
    """
    known = _KNOWN.get(struct)
    if known is None:
        _keep(inspect.type_info(struct))
        known = _KNOWN[struct]
    return known


def _keep(kind: inspect.Type) -> None:
    match kind:
        case inspect.StructType(cls=struct, fields=fields):
            if struct not in _KNOWN:
                _KNOWN[struct] = kind
                for field in fields:
                    _keep(field.type)
        case inspect.Metadata(type=inner):
            _keep(inner)
        case inspect.UnionType(types=several):
            for kept in several:
                _keep(kept)
        case inspect.VarTupleType(item_type=item):
            _keep(item)
        case _:
            pass
