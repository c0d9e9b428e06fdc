"""Workloads that were let through and may still be stopped: in memory, and in a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from admittance.checks import Reference

Key = tuple[str, str, int]


class Entry(msgspec.Struct, omit_defaults=True):
    """A line of the file: kept, or (``gone``) forgotten."""

    reference: Reference
    parameters: msgspec.Raw = msgspec.Raw(b"null")
    gone: bool = False


class Running:
    """The workloads that were kept and not forgotten since.

    The file is written line by line, so a crash loses at most the line that was being written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: dict[Key, Entry] = {}
        self._read()

    def compact(self) -> None:
        """Rewrites the file without forgotten workloads."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_suffix(".new")
        fresh.write_bytes(b"".join(map(_line, self._entries.values())))
        fresh.replace(self._path)

    def keep(self, reference: Reference, parameters: bytes) -> None:
        """It was let through, under these parameters."""
        entry = Entry(reference, msgspec.Raw(parameters))
        self._entries[_key(reference)] = entry
        self._append(entry)

    def forget(self, uid: str, check: str, cycle: int) -> None:
        """It does not run any more; harmless for one that is not known."""
        entry = self._entries.pop((uid, check, cycle), None)
        if entry is not None:
            self._append(Entry(entry.reference, gone=True))

    def all(self) -> Iterator[tuple[Reference, bytes]]:
        """Each with its parameters."""
        for entry in list(self._entries.values()):
            yield entry.reference, bytes(entry.parameters)

    def _append(self, entry: Entry) -> None:
        with self._path.open("ab") as file:
            file.write(_line(entry))

    def _read(self) -> None:
        if not self._path.exists():
            return
        for line in self._path.read_bytes().splitlines():
            try:
                entry = msgspec.json.decode(line, type=Entry)
            except msgspec.DecodeError:
                continue  # half a line
            if entry.gone:
                self._entries.pop(_key(entry.reference), None)
            else:
                self._entries[_key(entry.reference)] = entry


def _key(reference: Reference) -> Key:
    return reference.uid, reference.check, reference.cycle


def _line(entry: Entry) -> bytes:
    return msgspec.json.encode(entry) + b"\n"
