"""Reads manifests: decodes them, sets defaults, validates, and reports all problems at once.

`read` takes a text, `accept` one object, and `decode_object` only decodes. All problems are raised
as one `ManifestError`.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from admittance.api.checks import Foreign
from admittance.api.limits import VARIANTS_MAX
from admittance.api.manifests import Manifest
from admittance.api.problems import (
    DUPLICATE,
    ManifestError,
    Problem,
)
from admittance.api.reading.conform import Plain, resolve
from admittance.api.reading.objects import (
    ManifestReader,
    accept,
    decode_object,
    encode,
    name_of,
)
from admittance.api.reading.yaml_text import SIZE_MAX, Parsed, parse


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
        """The object as JSON, in today's spelling."""
        return encode(self.manifest)


def read(
    text: str | bytes,
    source: str,
    *,
    namespace: str = "default",
    flavors_max: int = VARIANTS_MAX,
) -> list[Document]:
    """The valid objects of a text, YAML or JSON. Raises one ManifestError with all problems.

    Empty documents are skipped, and a ``v1`` List becomes its items. Two documents about one object
    are a problem. ``flavors_max``: as for `validate`.
    """
    errors: list[ManifestError] = []
    documents: list[Document] = []
    for place, value in _objects(parsed(text, source)):
        try:
            reading = ManifestReader(source, place)
            manifest, warnings = reading.validated(value, namespace, flavors_max=flavors_max)
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
                [Problem("", f"not UTF-8: byte {error.start} cannot be read")], source=source
            ) from error
    text = text.removeprefix("\ufeff")
    if text.lstrip()[:1] == "{" and len(text) <= SIZE_MAX:
        try:
            return [Parsed(1, 1, json.loads(text, object_pairs_hook=_unique))]
        except (ValueError, RecursionError):
            # The text may be a YAML flow mapping; if not, the YAML parser finds the error's place.
            pass
    return parse(text, source)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate key")
    return found


def _objects(documents: list[Parsed]) -> list[tuple[str, Any]]:
    """The objects in the documents, each with its place in the text."""
    found = []
    for number, _, value in documents:
        if value is None or value == {} or (type(value) is Plain and resolve(value) is None):
            continue
        place = f"document {number}"
        if isinstance(value, dict) and value.get("kind") == "List" and "items" in value:
            items = value["items"]
            if value.get("apiVersion") == "v1" and isinstance(items, list):
                found += [(f"{place}, item {i + 1}", item) for i, item in enumerate(items)]
                continue
        found.append((place, value))
    return found


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
