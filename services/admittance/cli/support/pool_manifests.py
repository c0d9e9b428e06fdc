"""MachinePools that make no pool are refused where they are written.

The system keeps objects of foreign groups as they are, and who books machines could only log what
is wrong with one.
"""

from __future__ import annotations

from collections.abc import Iterable

from admittance.api.checks import Foreign
from admittance.api.problems import NOT_SUPPORTED, ManifestError, Problem
from admittance.api.reading.manifest import Document
from admittance.provider_pool.manifests import GROUP, KIND, BadPool, pool_of


def problems(documents: Iterable[Document]) -> list[str]:
    """What is wrong with the MachinePools among the documents, a line for each."""
    return [line for one in documents for line in _problems(one)]


def _problems(document: Document) -> list[str]:
    manifest = document.manifest
    if not isinstance(manifest, Foreign) or (manifest.group, manifest.kind) != (GROUP, KIND):
        return []
    found = []
    if manifest.metadata.namespace:
        found.append(Problem("metadata.namespace", f"a {KIND} has none", NOT_SUPPORTED))
    name = manifest.metadata.name
    try:
        pool_of(name, manifest.parameters)
    except BadPool as error:
        found.append(Problem("", str(error).removeprefix(f"{KIND} {name}: ")))
    place = ManifestError(
        found, source=document.source, document=document.place, about=f"{KIND} {name}"
    )
    return place.lines()
