"""Equal Structs as equal bytes.

An encoder leaves a field out when it holds the very object that is its default. What was decoded
is often an equal one: ``"main"`` as written, ``resources: {}``. `settled` puts the default there,
so that a manifest that spells a default out is stored like one that does not.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import inspect
from msgspec.structs import replace

from admittance.api.workload import Workload, WorkloadSpec

S = TypeVar("S", bound=msgspec.Struct)


class _Step(NamedTuple):
    """A field that may hold something equal to its default, or Structs that do."""

    name: str
    default: Any
    is_struct: bool
    is_list: bool


def _kinds(kind: inspect.Type) -> tuple[bool, bool]:
    """Whether a field of this type holds a Struct, or a list of them."""
    if isinstance(kind, inspect.Metadata):
        return _kinds(kind.type)
    if isinstance(kind, inspect.UnionType):
        found = [_kinds(one) for one in kind.types]
        return any(one for one, _ in found), any(many for _, many in found)
    if isinstance(kind, inspect.VarTupleType):
        return False, _kinds(kind.item_type)[0]
    return isinstance(kind, inspect.StructType), False


@lru_cache(maxsize=256)
def _plan(struct: type[msgspec.Struct]) -> tuple[_Step, ...]:
    shape = inspect.type_info(struct)
    assert isinstance(shape, inspect.StructType)
    steps = []
    for field in shape.fields:
        is_struct, is_list = _kinds(field.type)
        # None, truth values and what is empty are one object each.
        if is_struct or is_list or field.default not in (None, True, False, "", 0, ()):
            if field.default is msgspec.NODEFAULT and not (is_struct or is_list):
                continue
            steps.append(_Step(field.name, field.default, is_struct, is_list))
    return tuple(steps)


def settled(value: S) -> S:
    """value, equal to what it was, with every default being the default itself."""
    changes: dict[str, Any] = {}
    for name, default, is_struct, is_list in _plan(type(value)):
        given = getattr(value, name)
        if given is default or given is None or given == ():
            continue
        new = given
        if is_struct:
            new = settled(given)
        elif is_list:
            items = tuple([settled(one) for one in given])
            if any(a is not b for a, b in zip(items, given, strict=True)):
                new = items
        if new == default:
            new = default
        if new is not given:
            changes[name] = new
    return replace(value, **changes) if changes else value


_encoder: Final = msgspec.json.Encoder(order="deterministic")


def encode(value: msgspec.Struct) -> bytes:
    """value as compact JSON; keys of free maps in order, those of Structs in theirs."""
    return _encoder.encode(settled(value))


_decoder: Final = msgspec.json.Decoder(WorkloadSpec)


def to_stored(workload: Workload) -> bytes:
    """The spec of workload, which has its defaults, as it goes into the bucket."""
    return encode(workload.spec)


def spec_of(stored: bytes | msgspec.Raw) -> WorkloadSpec:
    """The whole spec of a stored workload, typed. Raises msgspec.MsgspecError."""
    return _decoder.decode(stored)
