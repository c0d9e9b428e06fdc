"""JSON Schema (2020-12) of the manifests, made from the Structs.

``python -m admittance.api.schema [FILE]`` writes it to ``docs/schema/manifests.json``. It tells the
shapes and the words; the rules that need more than one field are in `admittance.api.validate`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from admittance.api.kinds import KINDS
from admittance.documents import text_of, write

FILE: Final = Path("docs/schema/manifests.json")
_REF: Final = "#/$defs/{name}"


def manifests_schema() -> dict[str, Any]:
    """One schema for any manifest: an alternative for each kind, told apart by ``kind``."""
    structs = [kind.struct for kind in KINDS.values()]
    _, components = msgspec.json.schema_components(structs, ref_template=_REF)
    for kind in KINDS.values():
        shape = components[kind.struct.__name__]
        shape["properties"]["apiVersion"] = {"enum": [kind.versions[0]]}
        shape["properties"]["kind"] = {"const": kind.name}
        # Decoding fills them in, a manifest has to say them.
        shape["required"] = ["apiVersion", "kind", *shape.get("required", [])]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Manifests of Admittance",
        "anyOf": [{"$ref": _REF.format(name=kind.struct.__name__)} for kind in KINDS.values()],
        "$defs": dict(sorted(components.items())),
    }


def text() -> str:
    """The schema as its file has it."""
    return text_of(manifests_schema())


if __name__ == "__main__":
    write(text(), FILE)
