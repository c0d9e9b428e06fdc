"""The manifest of a workload as YAML, in two parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from admittance.client.wording.yaml_text import yaml_text


class ManifestView(msgspec.Struct, frozen=True, kw_only=True):
    """``manifest``: what people write; ``status``: what the services have added."""

    title: str
    namespace: str
    name: str
    manifest: str
    status: str


def manifest_of(namespace: str, name: str, stored: Mapping[str, Any]) -> ManifestView:
    """The view of a workload as it is stored."""
    manifest = {word: value for word, value in stored.items() if word != "status"}
    return ManifestView(
        title=f"Manifest of {name}",
        namespace=namespace,
        name=name,
        manifest=yaml_text(manifest),
        status=yaml_text({"status": stored.get("status", {})}),
    )
