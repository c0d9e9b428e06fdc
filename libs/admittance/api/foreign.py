"""Objects of foreign API groups: kept as they are, for checks whose parameters name them."""

from __future__ import annotations

from typing import Any

import msgspec

from admittance.api.meta import ObjectMeta


class Foreign(msgspec.Struct, frozen=True, kw_only=True):
    """``object`` is the whole manifest as written; ``metadata`` its names and labels."""

    api_version: str
    kind: str
    metadata: ObjectMeta
    object: dict[str, Any]

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def token(self) -> str:
        """What stands for the kind in keys and subjects: ``<kind in lower case>.<group>``."""
        return f"{self.kind.lower()}.{self.group}"

    @property
    def parameters(self) -> Any:
        """The ``spec``, which a check gets as its parameters."""
        return self.object.get("spec")
