"""Reads and validates manifests from files, folders and standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from admittance.api.checks import Foreign
from admittance.api.fields.limits import FLAVOR_VARIANTS_MAX
from admittance.api.fields.problems import NOT_SUPPORTED, Problem
from admittance.api.reading.manifest import Document, ManifestError, duplicates, read
from admittance.cli.support import output
from admittance.client.errors import BadInput
from admittance.provisioning.machine_pool import GROUP, KIND, BadPool, pool_of

SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
STANDARD_INPUT: Final = "-"


def documents(paths: Sequence[str], namespace: str, queue: str | None = None) -> list[Document]:
    """The objects of all files in order; ``namespace`` is the default namespace, ``queue`` the
    LocalQueue of all Workloads and Jobs (None: the one that each names).

    Raises BadInput with all problems of all files, one line each.
    """
    read_documents: list[Document] = []
    problems: list[str] = []
    for source, text in texts(paths):
        try:
            # The deployment's limit of variants is unknown here, so the highest possible limit is
            # used.
            read_documents += read(
                text, source, namespace=namespace, flavors_max=FLAVOR_VARIANTS_MAX, queue=queue
            )
        except ManifestError as error:
            problems += error.lines()
    # `read` finds duplicate objects within one file, `duplicates` across files.
    problems += [line for twice in duplicates(read_documents) for line in twice.lines()]
    problems += machine_pool_problems(read_documents)
    if problems:
        raise BadInput(*problems)
    if not read_documents:
        raise BadInput(f"{', '.join(paths)}: no objects found")
    return read_documents


def warn_about(documents: Iterable[Document]) -> None:
    """Prints the warnings about documents as read, each once: a file may have hundreds of jobs that
    all use the same field without effect."""
    places: dict[str, list[str]] = {}
    for document in documents:
        for warning in document.warnings:
            places.setdefault(warning, []).append(f"{document.source}, {document.place}")
    for warning, where in places.items():
        others = f" (and {len(where) - 1} more documents)" if len(where) > 1 else ""
        output.warn(f"{where[0]}{others}: {warning}")


def texts(paths: Sequence[str]) -> Iterable[tuple[str, bytes]]:
    """Name and bytes of every file; for a folder, of the manifests in it, sorted by name."""
    if paths.count(STANDARD_INPUT) > 1:
        raise BadInput("-f - may be given only once")
    for path in paths:
        if path == STANDARD_INPUT:
            yield "standard input", sys.stdin.buffer.read()
            continue
        for file in _files(Path(path)):
            try:
                yield str(file), file.read_bytes()
            except OSError as error:
                raise BadInput(f"cannot read {file}: {error.strerror or error}") from None


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    try:
        manifests = sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror or error}") from None
    if not manifests:
        raise BadInput(f"{path}: no .yaml, .yml or .json file in this folder")
    return manifests


def machine_pool_problems(documents: Iterable[Document]) -> list[str]:
    """The problems of the MachinePools among the documents, one line each."""
    return [line for document in documents for line in _machine_pool_problems(document)]


def _machine_pool_problems(document: Document) -> list[str]:
    manifest = document.manifest
    if not isinstance(manifest, Foreign) or (manifest.group, manifest.kind) != (GROUP, KIND):
        return []
    problems = []
    if manifest.metadata.namespace:
        problems.append(Problem("metadata.namespace", f"a {KIND} has no namespace", NOT_SUPPORTED))
    name = manifest.metadata.name
    try:
        pool_of(name, manifest.parameters)
    except BadPool as error:
        problems.append(Problem("", str(error).removeprefix(f"{KIND} {name}: ")))
    place = ManifestError(
        problems, source=document.source, document=document.place, about=f"{KIND} {name}"
    )
    return place.lines()
