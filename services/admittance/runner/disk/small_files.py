"""Reads small files. The shim imports this module, so the module imports little.

A file of `open` with a text in it costs a shim three times as much: the layers of such a file touch
many objects, and each page that a forked process touches is copied.
"""

from __future__ import annotations

import os

BLOCK_BYTES = 65_536


def read_bytes(path: str) -> bytes:
    """The content of a file. Raises OSError."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        blocks = []
        while block := os.read(file, BLOCK_BYTES):
            blocks.append(block)
    finally:
        os.close(file)
    return b"".join(blocks)
