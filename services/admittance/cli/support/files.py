"""Manifests from files, folders and standard input: all of them read and validated, or none."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from admittance.api.reading.manifest import Document, ManifestError, duplicates, read
from admittance.api.validation.concurrent_admission import FLAVORS_MAX
from admittance.cli.support import pool_manifests
from admittance.cli.support.errors import BadInput

SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
STANDARD_INPUT: Final = "-"


def documents(paths: Sequence[str], namespace: str) -> list[Document]:
    """The objects of all files, in their order; namespace for those that name none.

    Raises BadInput with everything that is wrong with any of them, a line each.
    """
    found: list[Document] = []
    problems: list[str] = []
    for source, text in texts(paths):
        try:
            # How many flavors may each be a variant is a setting, of which only the system knows.
            found += read(text, source, namespace=namespace, flavors_max=FLAVORS_MAX)
        except ManifestError as error:
            problems += error.lines()
    # Within one file the reader has seen to it; here it is about several.
    problems += [line for twice in duplicates(found) for line in twice.lines()]
    problems += pool_manifests.problems(found)
    if problems:
        raise BadInput(*problems)
    if not found:
        raise BadInput(f"{', '.join(paths)}: no objects in it")
    return found


def texts(paths: Sequence[str]) -> Iterable[tuple[str, bytes]]:
    """Name and bytes of every file that paths mean; of a folder its manifests, by name."""
    if paths.count(STANDARD_INPUT) > 1:
        raise BadInput("-f - may be given once: standard input is read to its end")
    for path in paths:
        if path == STANDARD_INPUT:
            yield "standard input", sys.stdin.buffer.read()
            continue
        for file in _files(Path(path)):
            try:
                yield str(file), file.read_bytes()
            except OSError as error:
                raise BadInput(f"{file}: {error.strerror or error}") from None


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    try:
        found = sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}") from None
    if not found:
        raise BadInput(f"{path}: no .yaml, .yml or .json file in this folder")
    return found
