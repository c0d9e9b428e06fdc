"""Objects as stored in the bucket: read one, list, find, and follow them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Final, TypeVar

import msgspec

from admittance.client import kinds
from admittance.client.errors import BadInput, NotFound, RequestFailed
from admittance.client.kinds import ObjectKind
from admittance.client.requests.link import Link
from admittance.events.names import BadToken, plain, token
from admittance.events.reader import BROKEN
from admittance.events.subjects import BUCKET, CAPACITY
from admittance.runtime.bus.bucket import Entry, get_directly
from admittance.runtime.bus.outside_reads import KeyFollower
from admittance.runtime.errors import BusRefused, BusUnavailable
from admittance.workload.stored import StoredWorkload

T = TypeVar("T")

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
    """The object of that kind and name. ``namespace``: "" is the namespace of the link. Raises
    NotFound."""
    if not name:
        raise BadInput(f"the name of the {kind.singular} is empty")
    space = namespace or link.namespace
    for key in kind.keys(space, name):
        if (stored := await lookup(link, key)) is not None:
            return stored
    raise await not_found(link, kind, name, space)


async def find_all(
    link: Link, kind: ObjectKind, namespace: str | None
) -> tuple[list[BucketObject], list[str]]:
    """All readable objects of a kind, sorted by name, and the keys of the objects that cannot be
    read. ``namespace``: None is all namespaces."""
    stored = [
        each for pattern in kind.patterns(namespace) for each in await lookup_all(link, pattern)
    ]
    readable = [each for each in stored if each.is_readable()]
    kept = {each.key for each in readable}
    return (
        sorted(readable, key=lambda each: (each.namespace, each.name)),
        sorted(each.key for each in stored if each.key not in kept),
    )


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
