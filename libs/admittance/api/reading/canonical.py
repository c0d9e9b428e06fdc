"""Encodes equal Structs as equal bytes.

The encoder omits a field if its value is the default object. A decoded value is often only equal to
the default: ``"main"`` as written, ``resources: {}``. `canonical` replaces a value that equals the
default by the default object, so that a manifest that spells a default out is stored like a
manifest that leaves it out.
"""

from __future__ import annotations

from functools import lru_cache
from operator import is_not
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import inspect
from msgspec.structs import replace

from admittance.api.fields.struct_types import struct_type
from admittance.api.workload import Workload, WorkloadSpec

S = TypeVar("S", bound=msgspec.Struct)


_Steps: TypeAlias = tuple[tuple[str, Any, bool, bool], ...]
"""For each field that `canonical` looks at: its name, its default, whether it holds a Struct, and
whether it holds a list of Structs. Its value may equal the default without being the default
object, or contains Structs. Python unpacks a plain tuple several times faster than a named one.
"""


def _kinds(kind: inspect.Type) -> tuple[bool, bool]:
    """Whether a field of this type holds a Struct, and whether it holds a list of Structs."""
    if isinstance(kind, inspect.Metadata):
        return _kinds(kind.type)
    if isinstance(kind, inspect.UnionType):
        holds = [_kinds(member) for member in kind.types]
        return any(single for single, _ in holds), any(many for _, many in holds)
    if isinstance(kind, inspect.VarTupleType):
        return False, _kinds(kind.item_type)[0]
    return isinstance(kind, inspect.StructType), False


@lru_cache(maxsize=256)
def _plan(struct: type[msgspec.Struct]) -> _Steps:
    steps = []
    for field in struct_type(struct).fields:
        is_struct, is_list = _kinds(field.type)
        # Python has one object for None, for each boolean, for 0 and for each empty value, so
        # fields with such a default need no replacement.
        if is_struct or is_list or field.default not in (None, True, False, "", 0, ()):
            if field.default is msgspec.NODEFAULT and not (is_struct or is_list):
                continue
            steps.append((field.name, field.default, is_struct, is_list))
    return tuple(steps)


def canonical(value: S) -> S:
    """An equal Struct in which each value that equals a default is the default object."""
    changes: dict[str, Any] = {}
    for name, default, is_struct, is_list in _plan(type(value)):
        given = getattr(value, name)
        if given is default or given is None or given == ():
            continue
        new = given
        if is_struct:
            new = canonical(given)
        elif is_list:
            items = tuple([canonical(item) for item in given])
            if any(map(is_not, items, given)):
                new = items
        if new == default:
            new = default
        if new is not given:
            changes[name] = new
    return replace(value, **changes) if changes else value


_encoder: Final = msgspec.json.Encoder(order="deterministic")


def encode(value: msgspec.Struct) -> bytes:
    """The value as compact JSON. Keys of maps are sorted, fields of Structs are in their order."""
    return _encoder.encode(canonical(value))


_decoder: Final = msgspec.json.Decoder(WorkloadSpec)


def to_stored(workload: Workload) -> bytes:
    """The spec of a workload with its defaults, as the bucket stores it."""
    return encode(workload.spec)


def spec_of(stored: bytes | msgspec.Raw) -> WorkloadSpec:
    """The typed spec of a stored workload. Raises msgspec.MsgspecError."""
    return _decoder.decode(stored)
