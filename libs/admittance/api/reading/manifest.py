"""Reads manifests: decodes them, sets defaults, validates, and reports all problems at once.

`read` takes a text, `accept` one object, and `decode_object` only decodes. All problems are raised
as one `ManifestError`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import yaml
from yaml import events

from admittance.api.checks import Foreign
from admittance.api.fields.limits import FLAVOR_VARIANTS_DEFAULT
from admittance.api.fields.problems import (
    DUPLICATE,
    ManifestError,
    Problem,
    shown,
)
from admittance.api.manifests import Manifest
from admittance.api.reading.conform import Plain, resolve
from admittance.api.reading.objects import (
    ManifestReader,
    accept,
    decode_object,
    encode,
    name_of,
)
from admittance.api.workload import QUEUE_LABEL


class Document(NamedTuple):
    """One object of a YAML or JSON text. ``place``: ``document 2``, or ``document 2, item 3`` of a
    List.
    """

    source: str
    place: str
    manifest: Manifest
    warnings: tuple[str, ...]

    @property
    def raw(self) -> bytes:
        """The object as JSON, with older spellings of fields replaced by the current ones."""
        return encode(self.manifest)


def read(
    text: str | bytes,
    source: str,
    *,
    namespace: str = "default",
    flavors_max: int = FLAVOR_VARIANTS_DEFAULT,
    queue: str | None = None,
) -> list[Document]:
    """The valid objects of a text, YAML or JSON. Raises one ManifestError with all problems.

    Empty documents are skipped, and a ``v1`` List becomes its items. Two documents about one object
    are a problem. ``flavors_max``: how many flavors a queue may have if each flavor becomes a
    variant. ``queue``: the LocalQueue of all Workloads and Jobs; None: the one that each names."""
    errors: list[ManifestError] = []
    documents: list[Document] = []
    for place, value in _objects(parsed(text, source)):
        try:
            reading = ManifestReader(source, place)
            given = value if queue is None else _in_queue(value, queue)
            manifest, warnings = reading.validated(given, namespace, flavors_max=flavors_max)
        except ManifestError as error:
            errors.append(error)
        else:
            documents.append(Document(source, place, manifest, warnings))
    errors += duplicates(documents)
    if errors:
        first = errors[0]
        raise ManifestError(
            first.problems,
            source=source,
            document=first.document,
            about=first.about,
            others=errors[1:],
        )
    return documents


def _in_queue(value: Any, queue: str) -> Any:
    """The object with another LocalQueue, if it is a Workload or Job of the right shape."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind == "Workload":
        return _with(value, ("spec", "queueName"), queue)
    if kind == "Job":
        return _with(value, ("metadata", "labels", QUEUE_LABEL), queue)
    return value


def _with(value: Any, path: Sequence[str], leaf: str) -> Any:
    if not path:
        return leaf
    if value is None:
        value = {}
    if not isinstance(value, dict):
        return value  # The mistake is reported when the object is read.
    return {**value, path[0]: _with(value.get(path[0]), path[1:], leaf)}


def duplicates(documents: list[Document]) -> list[ManifestError]:
    """An error for each document about an object that an earlier document is about."""
    seen: dict[tuple[str, str, str], Document] = {}
    errors = []
    for document in documents:
        manifest = document.manifest
        kind = manifest.token if isinstance(manifest, Foreign) else manifest.kind
        key = (kind, manifest.metadata.namespace, manifest.metadata.name)
        first = seen.setdefault(key, document)
        if first is not document and manifest.metadata.name:
            where = first.place
            if first.source != document.source:
                where = f"{first.source}, {where}"
            errors.append(
                ManifestError(
                    [Problem("metadata.name", f"the same object is in {where}", DUPLICATE)],
                    source=document.source,
                    document=document.place,
                    about=name_of(manifest),
                )
            )
    return errors


def parsed(text: str | bytes, source: str) -> list[Parsed]:
    """The documents of a text, YAML or JSON, as plain values. Raises ManifestError."""
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ManifestError(
                [Problem("", f"the text is not UTF-8: byte {error.start} cannot be read")],
                source=source,
            ) from error
    text = text.removeprefix("\ufeff")
    if text.lstrip()[:1] == "{" and len(text) <= SIZE_MAX:
        try:
            return [Parsed(1, 1, json.loads(text, object_pairs_hook=_unique))]
        except (ValueError, RecursionError):
            # A text that is not JSON may be a YAML flow mapping; if not, the YAML parser finds the
            # error's place.
            pass
    return parse_yaml(text, source)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise ValueError("duplicate key")
    return mapping


def _objects(documents: list[Parsed]) -> list[tuple[str, Any]]:
    """The objects in the documents, each with its place in the text."""
    objects = []
    for number, _, value in documents:
        if value is None or value == {} or (type(value) is Plain and resolve(value) is None):
            continue
        place = f"document {number}"
        if isinstance(value, dict) and value.get("kind") == "List" and "items" in value:
            items = value["items"]
            if value.get("apiVersion") == "v1" and isinstance(items, list):
                objects += [(f"{place}, item {i + 1}", item) for i, item in enumerate(items)]
                continue
        objects.append((place, value))
    return objects


__all__ = [
    "Document",
    "ManifestError",
    "Problem",
    "accept",
    "decode_object",
    "duplicates",
    "encode",
    "name_of",
    "parsed",
    "read",
]


SIZE_MAX: Final = 8 * 1024 * 1024
"""The most characters of one YAML text."""

NODES_MAX: Final = 1_000_000
"""The most values of one document; an alias counts as many values as its anchor, and every 64
characters of a text as one more."""

DEPTH_MAX: Final = 100

_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAGS: Final = "tag:yaml.org,2002:"


class Parsed(NamedTuple):
    """One document of a YAML text: its number and its first line, both counted from 1."""

    number: int
    line: int
    value: Any


class _Open:
    """A mapping or list that the parser has not read to its end yet."""

    __slots__ = ("anchor", "before", "key", "merges", "value")

    def __init__(self, value: dict[str, Any] | list[Any], anchor: str | None, before: int) -> None:
        self.value = value
        self.anchor = anchor
        self.before = before
        self.key: str | None = None
        self.merges: list[Any] = []


class _Bad(Exception):
    def __init__(self, message: str, event: Any) -> None:
        super().__init__(message)
        self.line = event.start_mark.line + 1
        self.column = event.start_mark.column + 1


class _Builder:
    """Builds values from parser events, without recursion, so that the depth can be limited."""

    def __init__(self) -> None:
        self.documents: list[Parsed] = []
        self._begin(None)

    def _begin(self, event: Any) -> None:
        self.line = 1 if event is None else event.start_mark.line + 1
        self.stack: list[_Open] = []
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.nodes = 0
        self.root: Any = None

    def take(self, event: Any) -> None:
        kind = type(event)
        if kind is events.ScalarEvent:
            text = _scalar_of(event)
            size = 1 + len(text) // 64
            if event.anchor:
                self.anchors[event.anchor] = (text, size)
            self._put(text, size, event)
        elif kind is events.MappingStartEvent or kind is events.SequenceStartEvent:
            self._open(event, {} if kind is events.MappingStartEvent else [])
        elif kind is events.MappingEndEvent or kind is events.SequenceEndEvent:
            self._close(event)
        elif kind is events.AliasEvent:
            if event.anchor not in self.anchors:
                raise _Bad(f"the alias *{event.anchor} has no anchor before it", event)
            value, size = self.anchors[event.anchor]
            self._put(value, size, event)
        elif kind is events.DocumentStartEvent:
            self._begin(event)
        elif kind is events.DocumentEndEvent:
            self.documents.append(Parsed(len(self.documents) + 1, self.line, self.root))

    def _open(self, event: Any, value: dict[str, Any] | list[Any]) -> None:
        wanted = "map" if isinstance(value, dict) else "seq"
        if event.tag not in (None, _TAGS + wanted):
            raise _Bad(f"the YAML tag {event.tag} is not supported", event)
        top = self.stack[-1] if self.stack else None
        if top is not None and top.key is None and isinstance(top.value, dict):
            raise _Bad("a key of a mapping must be a string", event)
        if len(self.stack) >= DEPTH_MAX:
            raise _Bad(f"the document is nested more than {DEPTH_MAX} levels deep", event)
        self.stack.append(_Open(value, event.anchor, self.nodes))

    def _close(self, event: Any) -> None:
        done = self.stack.pop()
        if isinstance(done.value, dict):
            for merged in done.merges:
                for key, item in merged.items():
                    done.value.setdefault(key, item)
        size = self.nodes - done.before + 1
        if done.anchor:
            self.anchors[done.anchor] = (done.value, size)
        self._put(done.value, 1, event)

    def _put(self, value: Any, size: int, event: events.Event) -> None:
        self.nodes += size
        if self.nodes > NODES_MAX:
            raise _Bad(f"the document has more than {NODES_MAX} values, counting aliases", event)
        if not self.stack:
            self.root = value
            return
        top = self.stack[-1]
        if isinstance(top.value, list):
            top.value.append(value)
        elif top.key is None:
            if not isinstance(value, str):
                raise _Bad("a key of a mapping must be a string", event)
            if value in top.value:
                raise _Bad(f"duplicate key {shown(str(value))}", event)
            top.key = value if value == "<<" and isinstance(value, Plain) else str(value)
        else:
            if isinstance(top.key, Plain):
                self._merge(top, value, event)
            else:
                top.value[top.key] = value
            top.key = None

    def _merge(self, top: _Open, value: Any, event: events.Event) -> None:
        for part in value if isinstance(value, list) else [value]:
            if not isinstance(part, dict):
                raise _Bad("the key '<<' can merge only mappings", event)
            top.merges.append(part)


def _scalar_of(event: events.ScalarEvent) -> str:
    tag = event.tag
    if tag is None or tag == "!":
        return Plain(event.value) if event.implicit[0] and tag is None else str(event.value)
    if tag == _TAGS + "str":
        return str(event.value)
    if tag in (_TAGS + "int", _TAGS + "float", _TAGS + "bool", _TAGS + "null"):
        return Plain(event.value)
    raise _Bad(f"the YAML tag {tag} is not supported", event)


def parse_yaml(text: str, source: str) -> list[Parsed]:
    """The documents of a YAML text, empty documents included: without duplicate keys, and with
    limits for aliases and depth. Raises ManifestError with file and place.

    A scalar without quotes stays a text, marked as `Plain`, until the type of its field is known:
    ``version: 1.10`` is the string "1.10" in a field for strings, and ``on`` is true only in a
    field for booleans. Only the value of a variable must have quotes then.
    """
    if len(text) > SIZE_MAX:
        raise ManifestError(
            [
                Problem(
                    "",
                    f"the text has {len(text):,} characters; "
                    f"a manifest may have {SIZE_MAX:,}: split it",
                )
            ],
            source=source,
        )
    builder = _Builder()
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except _Bad as error:
        place, message = f"line {error.line}, column {error.column}", str(error)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        message = f"not YAML: {error.problem or error.context}"
    except (yaml.YAMLError, ValueError) as error:
        place, message = "", f"not YAML: {' '.join(str(error).split())}"
    else:
        return builder.documents
    raise ManifestError(
        [Problem(place, message)],
        source=source,
        document=f"document {len(builder.documents) + 1}",
    )
