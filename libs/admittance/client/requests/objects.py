"""Objects as stored in the bucket: read one, list, find, and follow them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Final, TypeVar

import msgspec

from admittance.api.arrays import BadIndexes, element_name, parse_indexes, written_indexes
from admittance.api.budgets import VERSION
from admittance.api.workload import NO_RESULT
from admittance.client import kinds
from admittance.client.errors import BadInput, NotFound, Refused, RequestFailed
from admittance.client.kinds import ObjectKind
from admittance.client.requests.budget_states import budget_states
from admittance.client.requests.link import Link
from admittance.events.names import BadToken, plain, token
from admittance.events.reader import BROKEN
from admittance.events.requests.budgets import BudgetState
from admittance.events.subjects import BUCKET, CAPACITY
from admittance.runtime.bus.bucket import Entry, get_directly
from admittance.runtime.bus.outside_reads import KeyFollower
from admittance.runtime.errors import BusRefused, BusUnavailable
from admittance.workload.stored import ARRAY, StoredWorkload, head

T = TypeVar("T")

OF_NAMESPACES: Final = frozenset({"owner", "user"})
"""The roles that may ask services about their own namespaces only."""
READ_AGAIN_SECONDS: Final = 5.0
"""Seconds between two readings of what is followed, which are needed because the watch gets no
message when a value expires."""
LIST_AGAIN_SECONDS: Final = 30.0
"""The same for all objects of a kind."""


@dataclass(frozen=True)
class BucketObject:
    """An object as stored: its key in the bucket, its JSON, and its revision, which grows with
    every write to the bucket.
    """

    key: str
    data: bytes
    revision: int

    @property
    def name(self) -> str:
        """The object's name, from the key, so that an object is listed even if its bytes cannot be
        read.
        """
        return _plain(self.key.split(".")[-1])

    @property
    def namespace(self) -> str:
        """The object's namespace; "" if it has none."""
        parts = self.key.split(".")
        return _plain(parts[1]) if len(parts) == 3 else ""

    def plain(self) -> dict[str, Any]:
        """The object as plain dicts and lists. Raises RequestFailed if it cannot be decoded."""
        try:
            value = msgspec.json.decode(self.data)
        except BROKEN as error:
            raise RequestFailed(f"{self.key} in the bucket is not JSON: {error}") from None
        if not isinstance(value, dict):
            raise RequestFailed(f"{self.key} in the bucket is not an object")
        return value

    def decoded(self, kind: type[T]) -> T | None:
        """The object as a Struct; None if it cannot be decoded."""
        try:
            return msgspec.json.decode(self.data, type=kind)
        except BROKEN:
            return None

    @cached_property
    def _workload(self) -> StoredWorkload:
        from admittance.workload.bucket_reader import read

        return read(self.key, self.data)

    def workload(self) -> StoredWorkload:
        """The object as a workload, decoded once. Raises RequestFailed if it cannot be decoded."""
        try:
            return self._workload
        except BROKEN as error:
            raise RequestFailed(f"{self.key} in the bucket is not a workload: {error}") from None

    def is_readable(self) -> bool:
        """Whether the services can read the object."""
        kind = self.key.split(".")[0]
        try:
            if kind == "workload":
                return self.is_workload()
            if kind == CAPACITY:
                from admittance.provisioning.records import read_record

                read_record(self.key, self.data)
            else:
                from admittance.workload.bucket_reader import read_manifest

                read_manifest(self.key, self.data)
        except BROKEN:
            return False
        return True

    def is_workload(self) -> bool:
        """Whether the object can be read as a workload."""
        try:
            self.workload()
        except RequestFailed:
            return False
        return True

    def created(self) -> datetime | None:
        """When the object was created; None: not known."""
        text = field(self.plain(), "metadata", "creationTimestamp")
        try:
            return msgspec.convert(text, datetime, strict=False) if text else None
        except msgspec.ValidationError:
            return None


def object_of(entry: Entry) -> BucketObject:
    """The object of an entry; of a deleted one without its bytes."""
    return BucketObject(entry.key, entry.value or b"", entry.revision)


async def lookup(link: Link, key: str) -> BucketObject | None:
    """The object under key in the bucket; None if it does not exist."""
    entry = await link.get(key)
    return None if entry is None else object_of(entry)


async def lookup_all(link: Link, pattern: str) -> list[BucketObject]:
    """All objects in the bucket with keys that match ``pattern``, sorted by key."""
    entries = await link.read_all(pattern)
    return [object_of(entry) for entry in entries]


async def find(link: Link, kind: ObjectKind, name: str, namespace: str = "") -> BucketObject:
    """The object of that kind and name; ``sweep[3]`` is an element of an array. ``namespace``: ""
    is the namespace of the link. Raises NotFound."""
    if not name:
        raise BadInput(f"the name of the {kind.singular} is empty")
    if kind is kinds.WORKLOAD and name.endswith("]"):
        return await element_named(link, name, namespace)
    space = namespace or link.namespace
    if kind is kinds.BUDGET and link.bus.nc.role in OF_NAMESPACES:
        for budget in await _budgets_of(link, space, name):
            return budget
        raise NotFound(f"no budget {name} has an account or a waiting workload of {space}")
    for key in kind.keys(space, name):
        if (stored := await lookup(link, key)) is not None:
            return stored
    raise await not_found(link, kind, name, space)


async def find_all(
    link: Link, kind: ObjectKind, namespace: str | None, name: str | None = None
) -> tuple[list[BucketObject], list[str]]:
    """All readable objects of a kind, sorted by name, and the keys of the objects that cannot be
    read. ``namespace``: None is all namespaces; ``name``: only objects of this name."""
    if kind is kinds.BUDGET and link.bus.nc.role in OF_NAMESPACES:
        return await _budgets_of(link, namespace or link.namespace, name or ""), []
    patterns = kind.patterns(namespace)
    if name is not None and kind.namespaced:
        where = "*" if namespace is None else token(namespace)
        patterns = (f"{kind.key}.{where}.{token(name)}",)
    stored = [each for pattern in patterns for each in await lookup_all(link, pattern)]
    if name is not None:
        stored = [each for each in stored if each.name == name]
    readable = [each for each in stored if each.is_readable()]
    kept = {each.key for each in readable}
    return (
        sorted(readable, key=lambda each: (each.namespace, each.name)),
        sorted(each.key for each in stored if each.key not in kept),
    )


async def _budgets_of(link: Link, namespace: str, name: str) -> list[BucketObject]:
    """The budgets that concern the namespace, each with its own part of the status, as the
    budget-controller answers: users of single namespaces may not read Budgets, which name the
    limits of others. ``name``: only this one; "": all. Raises RequestFailed."""
    return [*map(_budget_of, await budget_states(link, name, namespace))]


def _budget_of(state: BudgetState) -> BucketObject:
    limits = {each.name: each.limit for each in state.accounts if each.limit is not None}
    status = msgspec.to_builtins(state)
    value = {
        "apiVersion": VERSION,
        "kind": "Budget",
        "metadata": {"name": status.pop("budget")},
        "spec": {
            **{name: status.pop(name, "") for name in ("per", "window", "unit")},
            "limits": limits,
        },
        "status": status,
    }
    key = kinds.BUDGET.object_key("", state.budget)
    return BucketObject(key, msgspec.json.encode(value), 0)


async def follow(link: Link, namespace: str, name: str) -> AsyncGenerator[BucketObject | None]:
    """Yields the workload now and at every change; None while the workload does not exist."""
    first = True
    async with aclosing(changes(link, kinds.WORKLOAD, name, namespace)) as batches:
        async for batch in batches:
            if first and not batch:
                yield None
            first = False
            for entry in batch:
                yield None if entry.value is None else object_of(entry)


@dataclass(frozen=True)
class Change:
    """A change of an object. ``object``: the object as written, or as last seen if it was
    ``deleted``. ``revision``: that of the change."""

    object: BucketObject
    revision: int
    deleted: bool = False


async def changes(
    link: Link, kind: ObjectKind, name: str | None, namespace: str | None
) -> AsyncGenerator[list[Entry]]:
    """Yields the entries of the present objects, then those of every change, in batches by
    revision; a deleted object has no value. ``name``: None is all objects of the kind;
    ``namespace``: None is all namespaces."""
    keys = kind.keys(namespace or link.namespace, name) if name else kind.patterns(namespace)

    async def read() -> list[Entry]:
        if name:
            each = [await link.get(key) for key in keys]
            return [entry for entry in each if entry is not None]
        return [entry for pattern in keys for entry in await link.read_all(pattern)]

    again = READ_AGAIN_SECONDS if name else LIST_AGAIN_SECONDS
    follower = KeyFollower(link.bus, keys, link.reading_again(read), again_seconds=again)
    async with aclosing(follower.batches()) as batches:
        async for batch in batches:
            yield batch


async def watch(
    link: Link, kind: ObjectKind, name: str | None, namespace: str | None
) -> AsyncGenerator[Change]:
    """Yields the present objects, then every change; the arguments are those of `changes`."""
    seen: dict[str, BucketObject] = {}
    async with aclosing(changes(link, kind, name, namespace)) as batches:
        async for batch in batches:
            for entry in batch:
                if entry.value is not None:
                    stored = object_of(entry)
                    seen[entry.key] = stored
                    yield Change(stored, entry.revision)
                elif (last := seen.pop(entry.key, None)) is not None:
                    yield Change(last, entry.revision, deleted=True)


def _plain(token: str) -> str:
    try:
        return plain(token)
    except BadToken:
        return token


def field(value: Mapping[str, Any], *path: str, default: Any = None) -> Any:
    """The value at path in nested dicts; default if a step of the path is missing or null."""
    here: Any = value
    for step in path:
        here = here.get(step) if isinstance(here, Mapping) else None
    return default if here is None else here


def conditions_of(value: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """``status.conditions`` of any object."""
    conditions: Sequence[Mapping[str, Any]] = field(value, "status", "conditions", default=[])
    return conditions


NAMESPACES_MAX: Final = 5
"""The greatest number of namespaces that the error about a missing object names."""


async def not_found(link: Link, kind: ObjectKind, name: str, space: str) -> NotFound:
    """The error that the object does not exist in the namespace. The error names the
    server, and other namespaces that have such an object, if the login may look into them."""
    where, hint = "", ""
    if kind.namespaced:
        where = f" in namespace {space}"
        spaces = await _namespaces_with(link, kind, name)
        several = len(spaces) > 1
        if spaces:
            names = f"namespace{'s' * several} {', '.join(spaces)}"
            use = link.spelled.in_namespace.format(spaces[0])
            hint = f"; {names} {'have' if several else 'has'} one: use {use}"
    return NotFound(f'{kind.qualified} "{name}" not found{where} at {link.shown_url}{hint}')


async def is_stored(link: Link, namespace: str, name: str) -> bool:
    """Whether the workload exists, as far as another reading says; False for a login that may not
    look into all namespaces."""
    return namespace in await _namespaces_with(link, kinds.WORKLOAD, name)


async def _namespaces_with(link: Link, kind: ObjectKind, name: str) -> list[str]:
    """The first namespaces that have an object of this kind and name; empty for a login that may
    not look into all namespaces."""
    prefix = f"$KV.{BUCKET}."
    request = {"subjects_filter": f"{prefix}{kind.key}.*.{token(name)}"}
    try:
        info = await link.bus.api(f"STREAM.INFO.KV_{BUCKET}", request)
        # A deleted object has a delete marker at its key.
        keys = sorted(info["state"].get("subjects") or {})[: 2 * NAMESPACES_MAX]
        read = (get_directly(link.bus, key.removeprefix(prefix)) for key in keys)
        entries = await asyncio.gather(*read)
    except (BusRefused, BusUnavailable):
        return []
    there = [entry.key for entry in entries if entry is not None and entry.value is not None]
    return [_plain(key.split(".")[1]) for key in there[:NAMESPACES_MAX]]


# Elements of arrays. ------------------------------------------------------------------

_ELEMENTS: Final = re.compile(r"([^\[\]]+)\[([^\[\]]*)\]")
AT_ONCE: Final = 64
"""The most elements that are read at the same time."""


def is_array(workload: StoredWorkload) -> bool:
    """Whether the workload is an array."""
    return head(workload).role == ARRAY


class NotCreated(NotFound):
    """The error that an element of an array does not exist yet."""


def elements_named(typed: str) -> tuple[str, tuple[int, ...]] | None:
    """The array and the indexes of a name like ``sweep[3]`` or ``sweep[10-20]``; None: of any other
    name. Raises BadInput."""
    if not typed.endswith("]"):
        return None
    parts = _ELEMENTS.fullmatch(typed)
    if parts is None:
        raise BadInput(f'"{typed}" does not name elements of an array; write sweep[3], sweep[0-9]')
    try:
        return parts[1], parse_indexes(parts[2])
    except BadIndexes as error:
        raise BadInput(f'"{typed}": {error}') from None


async def array_named(link: Link, name: str, namespace: str = "") -> BucketObject:
    """The array of that name. Raises NotFound, and Refused if the workload is no array."""
    stored = await find(link, kinds.WORKLOAD, name, namespace)
    if not is_array(stored.workload()):
        raise Refused(f'workload "{name}" is not an array, so it has no elements')
    return stored


async def element_names(link: Link, typed: str, namespace: str = "") -> list[str]:
    """The workloads that a name means: of ``sweep[10-20]`` the elements, of any other name the name
    itself. Raises BadInput, and NotFound for an element that is not stored."""
    named = elements_named(typed)
    if named is None:
        return [typed]
    array = await array_named(link, named[0], namespace)
    places = places_of(array, named[1])
    found: list[BucketObject] = []
    indexes = list(places)
    for first in range(0, len(indexes), AT_ONCE):
        part = indexes[first : first + AT_ONCE]
        found += await asyncio.gather(*(_element(link, array, i, places[i]) for i in part))
    return [each.name for each in found]


async def stored_name(link: Link, typed: str, namespace: str = "") -> str:
    """The name of the one workload that a name means, which of ``sweep[3]`` is that of an
    element."""
    if elements_named(typed) is None:
        return typed
    return (await element_named(link, typed, namespace)).name


async def element_named(link: Link, typed: str, namespace: str = "") -> BucketObject:
    """The element of a name like ``sweep[3]``. Raises what `element_names` raises, and BadInput for
    several elements."""
    names = await element_names(link, typed, namespace)
    if len(names) > 1:
        raise BadInput(f'"{typed}" names {len(names)} elements: name one of them')
    return await find(link, kinds.WORKLOAD, names[0], namespace)


def places_of(array: BucketObject, indexes: Sequence[int]) -> dict[int, int]:
    """The places of the indexes. Raises NotFound for one that the array does not have."""
    from admittance.workload.arrays.elements import indexes_of

    every = indexes_of(array.workload())
    places = {index: place for place, index in enumerate(every)}
    missing = [index for index in indexes if index not in places]
    if missing:
        shown = written_indexes(every)
        shown = shown if len(shown) <= 60 else f"{shown[:60]}…"
        raise NotFound(
            f'array "{array.name}" has no element {written_indexes(missing)[:60]}: '
            f"its indexes are {shown}"
        )
    return {index: places[index] for index in indexes}


async def _element(link: Link, array: BucketObject, index: int, place: int) -> BucketObject:
    uid = array.workload().metadata.uid
    from admittance.api.array_status import WORDS
    from admittance.workload.arrays.elements import ElementOf, element_of

    wanted = ElementOf(array.name, uid, index)
    for taken in (False, True):
        name = element_name(array.name, uid, index, taken=taken)
        stored = await lookup(link, kinds.WORKLOAD.object_key(array.namespace, name))
        if stored is not None and stored.is_workload() and element_of(stored.workload()) == wanted:
            return stored
    status = array.workload().status.array
    letter = status.results[place] if status is not None else NO_RESULT
    if letter in WORDS:
        raise NotFound(f"{array.name}[{index}] {WORDS[letter]}, and is not stored any more")
    raise NotCreated(
        f"{array.name}[{index}] does not exist yet: elements are created in the order of their "
        "indexes"
    )
