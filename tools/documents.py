"""Writes the documents that are generated from the Structs and checked in."""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path
from typing import Any


def text_of(document: dict[str, Any]) -> str:
    """The text of the document, equal for all Python versions: up to 3.12 a docstring keeps the
    indent of its source, and from 3.13 on it does not."""
    return json.dumps(_plain(document), indent=2, ensure_ascii=False) + "\n"


def write(text: str, file: Path) -> None:
    """Writes text to the file named by the first argument of the process, else to ``file``."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _plain(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _plain(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if name in ("description", "summary") and isinstance(value, str):
        return inspect.cleandoc(value)
    return value
